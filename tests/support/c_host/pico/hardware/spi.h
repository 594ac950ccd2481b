#include <stddef.h>
#include <stdint.h>

typedef struct spi spi_inst_t;
#define spi0 ((spi_inst_t *)1)

unsigned spi_init(spi_inst_t *spi, unsigned clock);
int spi_write_read_blocking(spi_inst_t *spi, const uint8_t *bytes, uint8_t *came, size_t count);
