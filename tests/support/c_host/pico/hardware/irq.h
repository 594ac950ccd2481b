#include <stdbool.h>

#define UART1_IRQ 21

void irq_set_exclusive_handler(unsigned number, void (*handler)(void));
void irq_set_enabled(unsigned number, bool enabled);
