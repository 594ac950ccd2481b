/* A Raspberry Pi Pico that runs a network on a Concord NPU. README.md says how to build and connect it. */

#include <stdio.h>

#include "hardware/gpio.h"
#include "hardware/irq.h"
#include "hardware/spi.h"
#include "hardware/uart.h"
#include "net.h"
#include "pico/stdlib.h"

/* Bytes that have come; what has no room is sent again. */
#define RING 512U
static volatile uint8_t ring[RING];
static volatile uint32_t came, taken;

static void keep(uint8_t byte)
{
    if (came - taken < RING)
        ring[came++ % RING] = byte;
}

#ifdef NPU_SPI

#define NPU_HZ 20000000 /* at most 4.6 times the clock of the NPU, and what the wires carry */
enum { NPU_CIPO = 16, NPU_CSN = 17, NPU_SCK = 18, NPU_COPI = 19 };

static void line_init(void)
{
    spi_init(spi0, NPU_HZ); /* mode 0, eight bits, the most significant first */
    gpio_set_function(NPU_CIPO, GPIO_FUNC_SPI);
    gpio_set_function(NPU_SCK, GPIO_FUNC_SPI);
    gpio_set_function(NPU_COPI, GPIO_FUNC_SPI);
    gpio_init(NPU_CSN);
    gpio_set_dir(NPU_CSN, true);
    gpio_put(NPU_CSN, true);
}

/* As many bytes come as are sent; of flags that follow each other one is enough. */
static int npu_send(void *context, const uint8_t *bytes, uint32_t count)
{
    static uint8_t last = CONCORD_FLAG;
    (void)context;
    gpio_put(NPU_CSN, false);
    for (; count != 0; count--) {
        uint8_t byte;
        spi_write_read_blocking(spi0, bytes++, &byte, 1);
        if (byte != CONCORD_FLAG || last != CONCORD_FLAG)
            keep(byte);
        last = byte;
    }
    gpio_put(NPU_CSN, true);
    return 0;
}

static void look(void *context)
{
    uint8_t flags[32];
    for (uint32_t k = 0; k < sizeof flags; k++)
        flags[k] = CONCORD_FLAG;
    if (came == taken)
        npu_send(context, flags, sizeof flags);
}

#else

#define NPU_BAUD 3000000 /* of the board: 3,000,000 for ulx3s-..., 1,000,000 for icebreaker */
enum { NPU_TX = 4, NPU_RX = 5 };

/* Replies come while requests are sent, so an interrupt takes them. */
static void on_receive(void)
{
    while (uart_is_readable(uart1))
        keep((uint8_t)uart_getc(uart1));
}

static void line_init(void)
{
    uart_init(uart1, NPU_BAUD);
    gpio_set_function(NPU_TX, GPIO_FUNC_UART);
    gpio_set_function(NPU_RX, GPIO_FUNC_UART);
    irq_set_exclusive_handler(UART1_IRQ, on_receive);
    irq_set_enabled(UART1_IRQ, true);
    uart_set_irq_enables(uart1, true, false);
}

static int npu_send(void *context, const uint8_t *bytes, uint32_t count)
{
    (void)context;
    uart_write_blocking(uart1, bytes, count);
    return 0;
}

static void look(void *context)
{
    (void)context;
}

#endif

static int32_t npu_receive(void *context, uint8_t *bytes, uint32_t most)
{
    uint32_t count = 0;
    look(context);
    while (count < most && taken != came)
        bytes[count++] = ring[taken++ % RING];
    return (int32_t)count;
}

static uint32_t npu_milliseconds(void *context)
{
    (void)context;
    return to_ms_since_boot(get_absolute_time());
}

static net_npu npu;
static net_inputs inputs;
static net_outputs outputs;

/* What the application measures; here the same sample every time. */
static void measure(void)
{
    uint8_t *bytes = (uint8_t *)&inputs;
    for (uint32_t k = 0; k < sizeof inputs; k++)
        bytes[k] = 0;
}

static void show(void)
{
    const float *numbers = (const float *)&outputs;
    for (uint32_t k = 0; k < sizeof outputs / sizeof *numbers; k++)
        printf(" %g", (double)numbers[k]);
    printf("\n");
}

int main(void)
{
    concord_line line = {.send = npu_send, .receive = npu_receive, .milliseconds = npu_milliseconds};
#ifdef NPU_SPI
    line.clocked = 1;
#endif
    stdio_init_all();
    line_init();

    for (;;) {
        concord_result result = net_connect(&npu, &line);
        if (result == CONCORD_OK)
            result = net_load(&npu);
        while (result == CONCORD_OK || result == CONCORD_FLAGGED || result == CONCORD_INFINITE) {
            measure();
            result = net_run(&npu, &inputs, &outputs);
            printf("%s:", concord_text(result));
            show();
            sleep_ms(100);
        }
        printf("%s; again in a second\n", concord_text(result));
        sleep_ms(1000);
    }
}
