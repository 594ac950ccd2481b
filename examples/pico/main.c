/* A Raspberry Pi Pico that runs a network on a Concord NPU behind its second UART. README.md says how to build it. */

#include <stdio.h>

#include "hardware/gpio.h"
#include "hardware/irq.h"
#include "hardware/uart.h"
#include "net.h"
#include "pico/stdlib.h"

#define NPU_UART uart1
#define NPU_IRQ UART1_IRQ
#define NPU_BAUD 3000000 /* of the board: 3,000,000 for ulx3s-..., 1,000,000 for icebreaker */
#define NPU_TX 4
#define NPU_RX 5

/* Replies come while requests are sent, so an interrupt takes them. */
#define RING 512U
static volatile uint8_t ring[RING];
static volatile uint32_t came, taken;

static void on_receive(void)
{
    while (uart_is_readable(NPU_UART)) {
        uint8_t byte = (uint8_t)uart_getc(NPU_UART);
        if (came - taken < RING)
            ring[came++ % RING] = byte; /* what has no room is sent again */
    }
}

static int npu_send(void *context, const uint8_t *bytes, uint32_t count)
{
    (void)context;
    uart_write_blocking(NPU_UART, bytes, count);
    return 0;
}

static int32_t npu_receive(void *context, uint8_t *bytes, uint32_t most)
{
    uint32_t count = 0;
    (void)context;
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
    const concord_line line = {.send = npu_send, .receive = npu_receive, .milliseconds = npu_milliseconds};
    stdio_init_all();
    uart_init(NPU_UART, NPU_BAUD);
    gpio_set_function(NPU_TX, GPIO_FUNC_UART);
    gpio_set_function(NPU_RX, GPIO_FUNC_UART);
    irq_set_exclusive_handler(NPU_IRQ, on_receive);
    irq_set_enabled(NPU_IRQ, true);
    uart_set_irq_enables(NPU_UART, true, false);

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
