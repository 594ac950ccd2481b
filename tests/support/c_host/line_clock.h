/* The clock of a line, in a file that host and device map: a millisecond passes when the host looks for bytes and the
 * device, which has seen everything that was sent, has none. How fast either of them runs decides nothing. */

#ifndef LINE_CLOCK_H
#define LINE_CLOCK_H

#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>

enum { MILLISECONDS, ASKED, ANSWERED, LINE_WORDS };

static volatile uint32_t *line_clock;

static int open_line_clock(const char *path)
{
    int file = open(path, O_RDWR);
    void *words = mmap(0, LINE_WORDS * sizeof *line_clock, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    line_clock = words;
    return file < 0 || words == MAP_FAILED ? -1 : 0;
}

/* Whether a line has bytes, or ends; if not, time has passed. */
static int line_has_bytes(int line)
{
    struct pollfd now = {line, POLLIN, 0};
    if (poll(&now, 1, 0) > 0)
        return 1;
    line_clock[ASKED]++;
    while (line_clock[ANSWERED] != line_clock[ASKED])
        if (poll(&now, 1, 1) > 0)
            return 1;
    return poll(&now, 1, 0) > 0;
}

#endif
