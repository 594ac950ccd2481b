/* A stand-in for the SDK of the Pico: a UART is the socket whose number is in LINE, and sleeping ends the program. */

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t absolute_time_t;

void stdio_init_all(void);
absolute_time_t get_absolute_time(void);
uint32_t to_ms_since_boot(absolute_time_t time);
void sleep_ms(uint32_t milliseconds);
