/* A host of the Concord NPU for microcontrollers: the link, loading and running of a derived network.
 *
 * C99 without a heap; of a C library it needs memcpy alone. `double` must have 64 bits, and `int` 32. Frames, registers and numbers
 * are those of concord_spec.h, which is written together with a network; docs/c-host.md is the manual. */

#ifndef CONCORD_HOST_H
#define CONCORD_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "concord_spec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return; concord_text() has the texts. */
typedef enum {
    CONCORD_OK,
    CONCORD_FLAGGED,       /* results are there, but a flag was raised: device.flags */
    CONCORD_INFINITE,      /* results are there, but a number of them is an infinity or a NaN */
    CONCORD_TRAPPED,       /* the program stopped: device.trap, device.trap_pc */
    CONCORD_BAD_INPUT,     /* an input is no finite number of binary16 */
    CONCORD_LINE_FAILED,   /* send or receive has reported an error */
    CONCORD_NO_REPLY,      /* nothing came in time, again and again */
    CONCORD_DAMAGED,       /* requests or replies arrive damaged, again and again */
    CONCORD_OUT_OF_ORDER,  /* another number is expected: the device was reset, or has another host */
    CONCORD_REFUSED,       /* the device refuses a request: device.refusal */
    CONCORD_BAD_REPLY,     /* a reply is not as long as it must be */
    CONCORD_NO_NPU,        /* somebody answers who is no NPU */
    CONCORD_VERSION,       /* the device has another version of the specification */
    CONCORD_FINGERPRINT,   /* the device has another configuration */
    CONCORD_NOT_CONNECTED, /* connect first; after an error of the line, too */
    CONCORD_NOT_LOADED,    /* load first */
    CONCORD_BUSY,          /* a run has not ended in time */
    CONCORD_NOT_RUN,       /* the device says that no run has ended */
    CONCORD_NO_RESULT,     /* the device is idle, and has fewer results than it must have */
    CONCORD_TOO_MANY,      /* get a result before more samples are put */
    CONCORD_NOTHING_PUT,   /* put a sample before its result is asked for */
    CONCORD_NOT_STREAMED,  /* samples of this network cannot be put ahead of results */
    CONCORD_NO_MEMORY,     /* the external memory of the device does not work */
    CONCORD_NO_COLUMNS,    /* there is no source of the columns, or it has failed */
    CONCORD_RESULTS        /* how many there are */
} concord_result;

/* The line to the device, which the user gives. */
typedef struct {
    /* Send all bytes, and return 0; anything else if that failed. */
    int (*send)(void *context, const uint8_t *bytes, uint32_t count);
    /* Take up to so many bytes that have come, and return how many; 0 if there are none, less than 0 if it failed. */
    int32_t (*receive)(void *context, uint8_t *bytes, uint32_t most);
    /* A clock that counts up, modulo 2**32. */
    uint32_t (*milliseconds)(void *context);
    void *context;
    /* Settings; 0 stands for the number behind them. */
    uint32_t timeout_ms;     /* for a reply, from the end of its request on: 1000 */
    uint32_t run_timeout_ms; /* for a run: 10000 */
    uint8_t retries;         /* how often what is unanswered is sent again: 4 */
    /* Whether bytes come only while others are sent, as over SPI: receive is not called within a frame then. */
    uint8_t clocked;
} concord_line;

/* The source of the columns of a network: what is for the external memory is in a file of its own, and too much for
 * constants. */
typedef struct {
    /* Put `count` bytes of the file from byte `at` on, and return 0; anything else if that failed. */
    int (*read)(void *context, uint32_t at, uint8_t *bytes, uint32_t count);
    void *context;
} concord_source;

/* Numbers of elements: `repeats` rows of `count` elements each. Element k of row r is first + k * step + r * stride.
 * Below zero it is one of these. */
enum { CONCORD_ZERO = -1, CONCORD_BORDER = -2 };
typedef struct {
    int32_t first, step, stride;
    uint32_t count, repeats;
} concord_span;

/* How a group of elements travels. */
enum {
    CONCORD_WIDE,   /* binary16 numbers */
    CONCORD_NARROW, /* a word: mantissas, then their exponent */
    CONCORD_BLOCKS, /* a byte with an exponent, then mantissas of whole bytes */
    CONCORD_CODES   /* bytes as they are */
};

/* Groups that follow each other: of an input to the device, or of an output from it. */
typedef struct {
    uint8_t port, format;
    uint8_t lanes, last; /* elements of a group, and of the last group of `tiles` */
    uint32_t tiles, groups;
    uint32_t address; /* of the first word, where groups are words of a memory */
    const concord_span *spans;
} concord_part;

/* Codes of an input: multiples of 2**exponent. */
typedef struct {
    int8_t exponent;
    int32_t least, greatest;
} concord_grid;

enum { CONCORD_FLOATS, CONCORD_BYTES };

/* An input: where it is in the structure of inputs, and what becomes of its numbers before they are rounded to
 * binary16. Factors and middles have `scales` entries; element k has entry k / inner % scales. */
typedef struct {
    uint32_t place;
    uint8_t type;
    uint16_t border;
    const concord_grid *grid;
    const int8_t *powers;
    const double *middles;
    double offset;
    uint32_t scales, inner;
    const uint16_t *book; /* of bytes: binary16 numbers, 256 for each entry */
} concord_input;

typedef struct {
    uint16_t pc;
    uint8_t inputs, outputs; /* parts, those of inputs first */
    const concord_part *parts;
} concord_phase;

/* How samples go through the feeder. */
typedef struct {
    const uint8_t *script, *codes;
    uint32_t script_bytes, codes_bytes;
    uint8_t inputs, outputs;
    const concord_part *parts;
    uint32_t chunk;  /* most bytes of a request */
    uint32_t result; /* bytes that a sample gives back */
    uint32_t depth;  /* samples that may be put before results are taken */
} concord_route;

typedef struct {
    uint8_t region, word; /* bytes of a word */
    uint32_t start, bytes;
    const uint8_t *data; /* NULL: columns, those of a source after those of the segments in front */
} concord_segment;

typedef struct {
    uint32_t pc;
    const char *name;
} concord_layer;

typedef struct {
    uint32_t fingerprint, fingerprint_high;
    uint8_t native, mantissa, mantissa_bytes, exponent_bits, narrow_bytes, script_word;
    int8_t exponent_least, exponent_greatest;
    uint32_t program_depth, payload, window, outbox, wait_cycles;
    uint32_t slots, slot_bytes, reply_bytes; /* of the buffers */
    const concord_segment *segments;
    const concord_input *inputs;
    const uint32_t *outputs; /* places in the structure of outputs */
    const concord_phase *phases;
    const concord_route *route; /* NULL if the host lays inputs out */
    const concord_layer *layers;
    const uint8_t *digest; /* of the columns; NULL if there are none, or no room for it */
    uint32_t digest_start; /* where it is in the external memory */
    uint32_t segment_count, phase_count, layer_count;
} concord_network;

/* A request on the way. */
typedef struct {
    uint8_t kind, head_bytes, reply, inbox, sent;
    uint8_t head[CONCORD_HEADER_BYTES + CONCORD_TARGET_BYTES + CONCORD_REGISTER_BYTES], crc[CONCORD_CRC_BYTES];
    uint32_t bytes, line; /* of the data behind the head, and of all on the line */
    const uint8_t *data;
} concord_request;

#ifndef CONCORD_REQUESTS
#define CONCORD_REQUESTS 8 /* on the way at the most */
#endif
#define CONCORD_RING 256 /* bytes that have come while others are sent */
#define CONCORD_PIECE 16 /* bytes that are sent between looks at what has come */

/* The state of a connection, to be read only. */
typedef struct {
    /* What happened. */
    uint8_t refusal; /* CONCORD_REPLY_... of a request that was refused */
    uint8_t flags;   /* CONCORD_FLAG_... since they were cleared, a bit each */
    uint8_t trap;    /* CONCORD_TRAP_... */
    uint16_t trap_pc;
    uint32_t repeated; /* requests that were sent again */
    /* Private. */
    concord_line line;
    const concord_network *network;
    uint8_t *slots, *reply;
    uint8_t connected, loaded, script;  /* script: it is in the device */
    uint8_t failed, escaped, too_long;  /* the line; the frame that is coming */
    uint8_t first_number;               /* of the first request on the way */
    uint32_t first, count, coming;      /* its place, requests on the way, replies that may come */
    uint32_t failures, lost;            /* in a row; replies to the last request */
    uint32_t since, progress;           /* when something was sent or came, and when a request was answered */
    concord_request *aside;             /* the only request on the way, while the others wait */
    uint32_t frame, received, answered; /* bytes of the frame that is coming, of the last, of its payload */
    uint32_t waiting, read_at;          /* bytes in the ring, from where on */
    uint32_t under_way, held, address;  /* samples; results that were not let go; place of the next result */
    concord_request requests[CONCORD_REQUESTS];
    uint8_t ring[CONCORD_RING];
} concord_device;

/* Agree with the device on numbers, and ask who is there. Buffers have slots * slot_bytes and reply_bytes. */
concord_result concord_connect(concord_device *device, const concord_network *network, const concord_line *line,
                               uint8_t *slots, uint8_t *reply);
/* Fill the memories and clear the flags. Columns that the device holds already are not asked for; networks without
 * columns have no source. */
concord_result concord_load(concord_device *device, const concord_source *columns);
/* Compute one sample. */
concord_result concord_run(concord_device *device, const void *inputs, void *outputs);
/* Send a sample, and take the result of the oldest that has none yet. */
concord_result concord_put(concord_device *device, const void *inputs);
concord_result concord_get(concord_device *device, void *outputs);
/* Clear the flags. */
concord_result concord_clear_flags(concord_device *device);
/* The first instruction from *pc on that has raised a flag, and its flags; *flags is 0 if there is none. */
concord_result concord_find_flags(concord_device *device, uint32_t *pc, uint8_t *flags);
/* Words of a memory or register, as they are on the line; count * bytes of a word must fit into reply_bytes. */
concord_result concord_read(concord_device *device, uint8_t region, uint32_t address, uint32_t count,
                            const uint8_t **words, uint32_t *bytes);
/* Name of the layer that an instruction belongs to; NULL if there is none. */
const char *concord_layer_of(const concord_network *network, uint32_t pc);
/* Texts for people. */
const char *concord_text(concord_result result);
const char *concord_refusal_text(uint8_t refusal);
const char *concord_flag_text(uint8_t number);
const char *concord_trap_text(uint8_t trap);

#ifdef __cplusplus
}
#endif

#endif
