#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct uart uart_inst_t;
#define uart1 ((uart_inst_t *)1)

unsigned uart_init(uart_inst_t *uart, unsigned baud);
bool uart_is_readable(uart_inst_t *uart);
char uart_getc(uart_inst_t *uart);
void uart_write_blocking(uart_inst_t *uart, const uint8_t *bytes, size_t count);
void uart_set_irq_enables(uart_inst_t *uart, bool receives, bool sends);
