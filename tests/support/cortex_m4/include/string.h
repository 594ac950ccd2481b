#pragma once

#include <stddef.h>

void *memset(void *to, int byte, size_t count);
