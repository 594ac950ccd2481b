#include <stdbool.h>

enum { GPIO_FUNC_SPI = 1, GPIO_FUNC_UART = 2 };

void gpio_init(unsigned pin);
void gpio_set_dir(unsigned pin, bool out);
void gpio_put(unsigned pin, bool level);
void gpio_set_function(unsigned pin, int function);
