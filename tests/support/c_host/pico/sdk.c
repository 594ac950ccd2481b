/* What the headers declare. The interrupt of the UART comes when the program sends or looks at the clock. */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hardware/gpio.h"
#include "hardware/irq.h"
#include "hardware/spi.h"
#include "hardware/uart.h"
#include "line_clock.h"
#include "pico/stdlib.h"

static int line, pins, buses, slept;
static bool enabled, receives, output, selected;
static void (*handler)(void);

static void interrupt(void)
{
    if (enabled && receives && uart_is_readable(uart1))
        handler();
}

void stdio_init_all(void)
{
    line = atoi(getenv("LINE"));
    if (open_line_clock(getenv("CLOCK")) != 0)
        exit(1);
}

absolute_time_t get_absolute_time(void)
{
    if (line_has_bytes(line))
        interrupt();
    return (absolute_time_t)line_clock[MILLISECONDS];
}

uint32_t to_ms_since_boot(absolute_time_t time)
{
    return (uint32_t)time;
}

void sleep_ms(uint32_t milliseconds)
{
    if (milliseconds >= 1000 || ++slept == 3)
        exit(0);
}

unsigned uart_init(uart_inst_t *uart, unsigned baud)
{
    return uart == uart1 ? baud : 0;
}

bool uart_is_readable(uart_inst_t *uart)
{
    struct pollfd now = {line, POLLIN, 0};
    return uart == uart1 && poll(&now, 1, 0) > 0 && (now.revents & POLLIN) != 0;
}

char uart_getc(uart_inst_t *uart)
{
    char byte = 0;
    if (uart != uart1 || read(line, &byte, 1) != 1)
        exit(0);
    return byte;
}

void uart_write_blocking(uart_inst_t *uart, const uint8_t *bytes, size_t count)
{
    if (uart != uart1 || pins != 2 || write(line, bytes, count) != (ssize_t)count)
        exit(1);
    interrupt();
}

void uart_set_irq_enables(uart_inst_t *uart, bool on_receive, bool on_send)
{
    receives = uart == uart1 && on_receive && !on_send;
}

void gpio_set_function(unsigned pin, int function)
{
    pins += (pin == 4 || pin == 5) && function == GPIO_FUNC_UART;
    buses += (pin == 16 || pin == 18 || pin == 19) && function == GPIO_FUNC_SPI;
}

void gpio_init(unsigned pin)
{
    buses += pin == 17;
}

void gpio_set_dir(unsigned pin, bool out)
{
    output = pin == 17 && out;
}

void gpio_put(unsigned pin, bool level)
{
    selected = pin == 17 && output && !level;
}

unsigned spi_init(spi_inst_t *spi, unsigned clock)
{
    return spi == spi0 ? clock : 0;
}

int spi_write_read_blocking(spi_inst_t *spi, const uint8_t *bytes, uint8_t *came, size_t count)
{
    if (spi != spi0 || buses != 4 || !selected || write(line, bytes, count) != (ssize_t)count)
        exit(1);
    if (read(line, came, count) != (ssize_t)count)
        exit(0);
    return (int)count;
}

void irq_set_exclusive_handler(unsigned number, void (*receive)(void))
{
    handler = number == UART1_IRQ ? receive : NULL;
}

void irq_set_enabled(unsigned number, bool on)
{
    enabled = number == UART1_IRQ && on;
}
