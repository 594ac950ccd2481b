/* Files of the machine that runs the emulator, as far as programs of the tests use them. */

#pragma once

#include <stddef.h>

typedef struct file FILE;

#define stderr ((FILE *)0)

FILE *fopen(const char *name, const char *mode);
size_t fread(void *to, size_t size, size_t count, FILE *file);
size_t fwrite(const void *from, size_t size, size_t count, FILE *file);
int fclose(FILE *file);
int fprintf(FILE *file, const char *text, ...);
