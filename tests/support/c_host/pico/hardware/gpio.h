enum { GPIO_FUNC_UART = 2 };

void gpio_set_function(unsigned pin, int function);
