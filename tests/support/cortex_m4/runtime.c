/* What a program needs on a processor without an operating system. Files are those of Arm's semihosting: a breakpoint
   with a number in r0 and the address of its arguments in r1. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN = 0x01, CLOSE = 0x02, WRITE0 = 0x04, WRITE = 0x05, READ = 0x06, GET_CMDLINE = 0x15, EXIT_EXTENDED = 0x20 };
enum { APPLICATION_EXIT = 0x20026 };

int main(int count, char **words);
void start(void);
void __aeabi_uldivmod(void);
void *memmove(void *to, const void *from, size_t count);
void *memcpy(void *to, const void *from, size_t count);

static intptr_t ask(int number, const void *arguments)
{
    register intptr_t r0 __asm__("r0") = number;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static size_t length(const char *text)
{
    size_t count = 0;
    while (text[count]) {
        ++count;
    }
    return count;
}

FILE *fopen(const char *name, const char *mode)
{
    const intptr_t arguments[] = {(intptr_t)name, mode[0] == 'w' ? 5 : 1, (intptr_t)length(name)};
    const intptr_t handle = ask(OPEN, arguments);
    return handle < 0 ? NULL : (FILE *)handle;
}

size_t fread(void *to, size_t size, size_t count, FILE *file)
{
    const intptr_t arguments[] = {(intptr_t)file, (intptr_t)to, (intptr_t)(size * count)};
    return (size * count - (size_t)ask(READ, arguments)) / size;
}

size_t fwrite(const void *from, size_t size, size_t count, FILE *file)
{
    const intptr_t arguments[] = {(intptr_t)file, (intptr_t)from, (intptr_t)(size * count)};
    return (size * count - (size_t)ask(WRITE, arguments)) / size;
}

int fclose(FILE *file)
{
    const intptr_t arguments[] = {(intptr_t)file};
    return (int)ask(CLOSE, arguments);
}

/* The text as it is, without what it has places for. */
int fprintf(FILE *file, const char *text, ...)
{
    (void)file;
    ask(WRITE0, text);
    return 0;
}

long atol(const char *digits)
{
    long number = 0;
    for (; *digits; ++digits) {
        number = 10 * number + (*digits - '0');
    }
    return number;
}

/* Functions that the compiler calls by itself. Of those of Arm's run-time ABI there is the division of 64 bits, for
   which the processor has no instruction, and none of floating point. */
void *memset(void *to, int byte, size_t count)
{
    volatile uint8_t *at = to;
    while (count--) {
        *at++ = (uint8_t)byte;
    }
    return to;
}

void *memmove(void *to, const void *from, size_t count)
{
    volatile uint8_t *const target = to;
    const volatile uint8_t *const source = from;
    for (size_t k = 0; k < count; ++k) {
        const size_t at = (uintptr_t)to < (uintptr_t)from ? k : count - 1 - k;
        target[at] = source[at];
    }
    return to;
}

void *memcpy(void *to, const void *from, size_t count)
{
    return memmove(to, from, count);
}

static void *set(void *to, size_t count, int byte)
{
    return memset(to, byte, count);
}

static void *clear(void *to, size_t count)
{
    return memset(to, 0, count);
}

/* Digits are alignments that the compiler knows of. */
#define ARM_NAMES(name, function, ...)                                       \
    void *name(__VA_ARGS__) __attribute__((alias(#function)));               \
    void *name##4(__VA_ARGS__) __attribute__((alias(#function)));            \
    void *name##8(__VA_ARGS__) __attribute__((alias(#function)))

ARM_NAMES(__aeabi_memcpy, memcpy, void *to, const void *from, size_t count);
ARM_NAMES(__aeabi_memmove, memmove, void *to, const void *from, size_t count);
ARM_NAMES(__aeabi_memset, set, void *to, size_t count, int byte);
ARM_NAMES(__aeabi_memclr, clear, void *to, size_t count);

__attribute__((used)) static uint64_t divided(uint64_t dividend, uint64_t divisor, uint64_t *rest)
{
    uint64_t quotient = 0;
    *rest = 0;
    for (int k = 63; k >= 0; --k) {
        const uint64_t carry = *rest >> 63;
        *rest = *rest << 1 | (dividend >> k & 1u);
        if (carry || *rest >= divisor) {
            *rest -= divisor;
            quotient |= (uint64_t)1 << k;
        }
    }
    return quotient;
}

/* The quotient goes back in r0 and r1, the rest in r2 and r3, which no type of C does. */
__attribute__((naked)) void __aeabi_uldivmod(void)
{
    __asm__("push {r4, lr}\n"
            "sub sp, #16\n"
            "add r4, sp, #8\n"
            "str r4, [sp]\n"
            "bl divided\n"
            "ldrd r2, r3, [sp, #8]\n"
            "add sp, #16\n"
            "pop {r4, pc}");
}

/* Words of the command line, apart by a space, go to main. */
void start(void)
{
    static char line[256];
    static char *words[8];
    const intptr_t arguments[] = {(intptr_t)line, sizeof line};
    int count = 0;
    ask(GET_CMDLINE, arguments);
    for (char *at = line; *at; ++at) {
        if (at == line || !at[-1]) {
            words[count++] = at;
        }
        if (*at == ' ') {
            *at = 0;
        }
    }
    const intptr_t end[] = {APPLICATION_EXIT, main(count, words)};
    ask(EXIT_EXTENDED, end);
}
