/* Runs a derived host on samples: harness LINE SAMPLES RESULTS MODE TIMEOUT CLOCK, with LINE the number of a socket,
 * and CLOCK a file with the milliseconds of the line.
 *
 * Prints a line for every call: the result, its text, the flags, and what was refused or trapped. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "line_clock.h"
#include "net.h"

static int send_bytes(void *context, const uint8_t *bytes, uint32_t count)
{
    int line = *(int *)context;
    while (count != 0) {
        ssize_t sent = write(line, bytes, count);
        if (sent < 0)
            return -1;
        bytes += sent;
        count -= (uint32_t)sent;
    }
    return 0;
}

#ifdef CLOCKED
/* A bus: as many bytes come as are sent; flags behind others say nothing. */
static uint8_t came[1 << 16], last = CONCORD_FLAG;
static uint32_t count_came, count_taken;

static int exchange(void *context, const uint8_t *bytes, uint32_t count)
{
    int line = *(int *)context;
    if (send_bytes(context, bytes, count) != 0)
        return -1;
    while (count-- != 0) {
        uint8_t byte;
        if (read(line, &byte, 1) != 1)
            return -1;
        if (byte != CONCORD_FLAG || last != CONCORD_FLAG)
            came[count_came++ % sizeof came] = byte;
        last = byte;
    }
    return 0;
}

static int32_t receive_bytes(void *context, uint8_t *bytes, uint32_t most)
{
    uint8_t flags[64];
    uint32_t count = 0;
    memset(flags, CONCORD_FLAG, sizeof flags);
    if (count_came == count_taken && exchange(context, flags, sizeof flags) != 0)
        return -1;
    while (count < most && count_taken != count_came)
        bytes[count++] = came[count_taken++ % sizeof came];
    return (int32_t)count;
}
#else
static int32_t receive_bytes(void *context, uint8_t *bytes, uint32_t most)
{
    int line = *(int *)context;
    if (!line_has_bytes(line))
        return 0;
    ssize_t count = read(line, bytes, most);
    return count <= 0 ? -1 : (int32_t)count;
}
#endif

static uint32_t milliseconds(void *context)
{
    (void)context;
    return line_clock[MILLISECONDS];
}

#ifdef NET_COLUMNS
/* Columns are read from net.columns, in the folder of the samples. */
static int read_columns(void *context, uint32_t at, uint8_t *bytes, uint32_t count)
{
    FILE *file = context;
    return fseek(file, (long)at, SEEK_SET) == 0 && fread(bytes, 1, count, file) == count ? 0 : -1;
}
#endif

static net_npu npu;
static net_inputs inputs;
static net_outputs outputs;

static concord_result say(const char *call, concord_result result)
{
    const concord_device *d = &npu.device;
    printf("%s: %d %s; flags %u, refusal %s, trap %s at %u, repeated %u\n", call, (int)result, concord_text(result), d->flags,
           concord_refusal_text(d->refusal), concord_trap_text(d->trap), d->trap_pc, d->repeated);
    return result;
}

/* What raised flags, by layer. */
static void find_flags(void)
{
    uint32_t pc = 0;
    uint8_t flags = 0;
    while (concord_find_flags(&npu.device, &pc, &flags) == CONCORD_OK && flags != 0) {
        const char *layer = concord_layer_of(&net_network, pc);
        for (uint8_t bit = 0; bit < 8; bit++)
            if ((flags >> bit & 1) != 0)
                printf("flag: %s %s\n", layer == NULL ? "?" : layer, concord_flag_text(bit));
        pc++;
    }
}

int main(int count, char **words)
{
    if (count != 7)
        return 2;
    if (open_line_clock(words[6]) != 0)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    int line_number = atoi(words[1]);
    uint32_t timeout = (uint32_t)atoi(words[5]);
#ifdef CLOCKED
    concord_line line = {exchange, receive_bytes, milliseconds, &line_number, timeout, 20 * timeout, 60, 1};
#else
    concord_line line = {send_bytes, receive_bytes, milliseconds, &line_number, timeout, 20 * timeout, 60, 0};
#endif
    FILE *samples = fopen(words[2], "rb"), *results = fopen(words[3], "wb");
    if (samples == NULL || results == NULL)
        return 2;
    if (say("connect", net_connect(&npu, &line)) != CONCORD_OK)
        return 1;
#ifdef NET_COLUMNS
    concord_source columns = {read_columns, samples};
    char path[4096];
    snprintf(path, sizeof path, "%.4080s.columns", words[2]);
    columns.context = fopen(path, "rb");
    if (columns.context == NULL)
        columns.read = NULL;
    if (say("load", net_load(&npu, &columns)) != CONCORD_OK)
        return 1;
#else
    if (say("load", net_load(&npu)) != CONCORD_OK)
        return 1;
#endif
#ifdef NET_DEPTH
    if (strcmp(words[4], "stream") == 0) {
        uint32_t under_way = 0;
        for (;;) {
            concord_result result;
            uint8_t there = fread(&inputs, sizeof inputs, 1, samples) == 1;
            if (!there && under_way == 0)
                break;
            if (there && say("put", net_put(&npu, &inputs)) != CONCORD_OK)
                return 1;
            under_way += there;
            if (there && under_way < NET_DEPTH)
                continue;
            result = say("get", net_get(&npu, &outputs));
            if (result != CONCORD_OK && result != CONCORD_FLAGGED && result != CONCORD_INFINITE)
                return 1;
            under_way--;
            fwrite(&outputs, sizeof outputs, 1, results);
        }
    }
#endif
    while (fread(&inputs, sizeof inputs, 1, samples) == 1) {
        concord_result result = say("run", net_run(&npu, &inputs, &outputs));
        if (result != CONCORD_OK && result != CONCORD_FLAGGED && result != CONCORD_INFINITE)
            return 1;
        fwrite(&outputs, sizeof outputs, 1, results);
        if (result == CONCORD_FLAGGED)
            find_flags();
    }
    fclose(samples);
    fclose(results);
    return 0;
}
