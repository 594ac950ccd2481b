/* See concord_host.h. Reasons for what the link does are in docs/link.md. */

#include "concord_host.h"

#include <string.h>

#define QUIET_MS 50U /* without a byte, before a connection begins */
#define LATE 64U     /* numbers that are that far back are old ones */
#define OVERHEAD (CONCORD_HEADER_BYTES + CONCORD_CRC_BYTES)

/* A field of a word of at most 32 bits: its value, and the word that has it and nothing else. */
#define GET(word, field) ((word) >> CONCORD_##field##_SHIFT & 0xFFFFFFFFU >> (32U - CONCORD_##field##_BITS))
#define PUT(field, value) ((uint32_t)(value) << CONCORD_##field##_SHIFT)

/* The arithmetic is that of IEEE 754 in 64 bits, and what is shifted has 32 bits. */
#ifdef __FAST_MATH__
#error "-ffast-math changes results"
#endif
typedef char double_has_64_bits[sizeof(double) == 8 ? 1 : -1];
typedef char int_has_32_bits[sizeof(int) >= 4 ? 1 : -1];

/* Bits and numbers ---------------------------------------------------------------------------- */

/* Words as they are on the line, up to four bytes. */
static uint32_t load(const uint8_t *bytes, uint32_t count)
{
    uint32_t word = 0;
    while (count-- != 0)
        word = word << 8 | bytes[count];
    return word;
}

static void store(uint8_t *bytes, uint32_t count, uint32_t word)
{
    for (uint32_t k = 0; k < count; k++, word >>= 8)
        bytes[k] = (uint8_t)word;
}

/* Numbers of up to 16 bits that begin anywhere, in two's complement. */
static int32_t signed_bits(const uint8_t *bytes, uint32_t at, uint32_t width)
{
    uint32_t word = load(bytes + (at >> 3), ((at & 7U) + width + 7U) >> 3) >> (at & 7U), sign = 1U << (width - 1U);
    return (int32_t)(word & (sign - 1U)) - (int32_t)(word & sign);
}

/* What is behind them in the last byte becomes zero. */
static void put_bits(uint8_t *bytes, uint32_t at, uint32_t width, uint32_t value)
{
    uint32_t low = at & 7U, kept = bytes[at >> 3] & ((1U << low) - 1U);
    store(bytes + (at >> 3), (low + width + 7U) >> 3, (value & ((1U << width) - 1U)) << low | kept);
}

/* digits / 2**right, rounded to the nearest, of two the even one. */
static uint32_t nearest(uint32_t digits, uint32_t right)
{
    uint32_t whole = digits >> right, rest = digits - (whole << right), tie = 1U << right >> 1;
    return whole + (right != 0 && (rest > tie || (rest == tie && (whole & 1U) != 0)));
}

static double power_of_two(int32_t exponent)
{
    uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The nearest binary16 number, of two the even one, of a value below the limit. */
static uint32_t half_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t high = (uint32_t)(bits >> 32), sign = high >> 16 & 0x8000U;
    int32_t exponent = (int32_t)(high >> 20 & 0x7FFU) - 1023;
    uint32_t digits = (high & 0xFFFFFU) << 1 | ((uint32_t)bits != 0), right = 22U - CONCORD_BINARY16_PRECISION;
    if (exponent < CONCORD_BINARY16_EXP_MIN - CONCORD_BINARY16_PRECISION)
        return sign;
    if (exponent < CONCORD_BINARY16_EXP_MIN) {
        right += (uint32_t)(CONCORD_BINARY16_EXP_MIN - exponent);
        digits |= 1U << 21;
    } else {
        digits |= (uint32_t)(exponent - CONCORD_BINARY16_EXP_MIN + 1) << 21; /* both fields are rounded as one */
    }
    return sign | nearest(digits, right);
}

/* Digits of a binary16 number, whose least one weighs 2**unit. */
static uint32_t digits_of(uint32_t half, int32_t *unit)
{
    uint32_t field = half >> 10 & 31U;
    *unit = (int32_t)(field != 0 ? field : 1U) + CONCORD_BINARY16_EXP_MIN - CONCORD_BINARY16_PRECISION;
    return (half & 0x3FFU) | (field != 0 ? 0x400U : 0U);
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* whole * 2**exponent */
static float scaled(int32_t whole, int32_t exponent)
{
    return (float)whole * float_of_bits((uint32_t)(127 + exponent) << 23);
}

static float float_of_half(uint32_t half)
{
    int32_t unit;
    uint32_t digits = digits_of(half, &unit), sign = (half & 0x8000U) << 16;
    if ((half & CONCORD_BINARY16_INF) == CONCORD_BINARY16_INF)
        return float_of_bits(sign | 0x7F800000U | (half & 0x3FFU) << 13);
    return sign != 0 ? -scaled((int32_t)digits, unit) : scaled((int32_t)digits, unit);
}

static uint32_t crc_of(uint32_t crc, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        crc ^= bytes[k];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1U) != 0 ? crc >> 1 ^ CONCORD_CRC_POLYNOMIAL : crc >> 1;
    }
    return crc;
}

/* The line --------------------------------------------------------------------------------------- */

static uint32_t now(const concord_device *d)
{
    return d->line.milliseconds(d->line.context);
}

/* Take what has come into the ring. */
static void poll(concord_device *d)
{
    uint32_t at = (d->read_at + d->waiting) % CONCORD_RING;
    uint32_t most = at < d->read_at || d->waiting == CONCORD_RING ? d->read_at - at : CONCORD_RING - at;
    if (most == 0)
        return;
    int32_t count = d->line.receive(d->line.context, d->ring + at, most);
    if (count < 0 || (uint32_t)count > most)
        d->failed = 1;
    else
        d->waiting += (uint32_t)count;
}

typedef struct {
    concord_device *device;
    uint32_t count;
    uint8_t bytes[CONCORD_PIECE];
} piece;

static void send_piece(piece *p)
{
    concord_device *d = p->device;
    if (p->count != 0 && d->line.send(d->line.context, p->bytes, p->count) != 0)
        d->failed = 1;
    p->count = 0;
    if (!d->line.clocked)
        poll(d);
}

static void send_byte(piece *p, uint8_t byte)
{
    if (p->count == CONCORD_PIECE)
        send_piece(p);
    p->bytes[p->count++] = byte;
}

static void send_escaped(piece *p, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        uint8_t byte = bytes[k];
        if (byte == CONCORD_FLAG || byte == CONCORD_ESCAPE) {
            send_byte(p, CONCORD_ESCAPE);
            byte ^= CONCORD_ESCAPE_XOR;
        }
        send_byte(p, byte);
    }
}

static uint32_t escapes(const uint8_t *bytes, uint32_t count)
{
    uint32_t sum = 0;
    for (uint32_t k = 0; k < count; k++)
        sum += bytes[k] == CONCORD_FLAG || bytes[k] == CONCORD_ESCAPE;
    return sum;
}

/* Give a request its number: header, checksum, and its bytes on the line. */
static void number_request(concord_request *r, uint8_t number)
{
    uint32_t length = r->head_bytes + r->bytes - CONCORD_HEADER_BYTES;
    store(r->head, CONCORD_HEADER_BYTES, PUT(HEADER_SEQ, number) | PUT(HEADER_KIND, r->kind) | PUT(HEADER_LENGTH, length));
    store(r->crc, CONCORD_CRC_BYTES, ~crc_of(crc_of(CONCORD_CRC_ONES, r->head, r->head_bytes), r->data, r->bytes));
    r->sent = 0;
    r->line = 2U + OVERHEAD + length;
    r->line += escapes(r->head, r->head_bytes) + escapes(r->data, r->bytes) + escapes(r->crc, CONCORD_CRC_BYTES);
}

/* Requests on the way ------------------------------------------------------------------------------- */

static concord_request *request_at(concord_device *d, uint32_t place)
{
    return d->aside != NULL ? d->aside : &d->requests[(d->first + place) % d->network->slots];
}

static void transmit(concord_device *d, uint32_t place)
{
    concord_request *r = request_at(d, place);
    piece p;
    p.device = d;
    p.count = 0;
    send_byte(&p, CONCORD_FLAG);
    send_escaped(&p, r->head, r->head_bytes);
    send_escaped(&p, r->data, r->bytes);
    send_escaped(&p, r->crc, CONCORD_CRC_BYTES);
    send_byte(&p, CONCORD_FLAG);
    send_piece(&p);
    r->sent = (uint8_t)(r->sent + (r->sent < 255U));
    d->coming++;
    d->since = now(d);
}

/* Take a byte that has come; whether a frame ends with it, of which a damaged one has no bytes. */
static uint8_t take_byte(concord_device *d, uint8_t byte)
{
    uint8_t ends = byte == CONCORD_FLAG && (d->frame != 0 || d->escaped);
    if (byte == CONCORD_FLAG) {
        d->received = d->escaped || d->too_long ? 0 : d->frame;
        d->frame = d->escaped = d->too_long = 0;
    } else if (byte == CONCORD_ESCAPE) {
        d->escaped = 1; /* several are one, with a pause behind them none: see SPI in docs/link.md */
    } else if (d->escaped && byte == CONCORD_RESUME) {
        d->escaped = 0;
    } else {
        if (d->frame == d->network->reply_bytes)
            d->too_long = 1;
        else
            d->reply[d->frame++] = d->escaped ? byte ^ CONCORD_ESCAPE_XOR : byte;
        d->escaped = 0;
    }
    return ends;
}

/* Wait for the next frame. */
static concord_result next_frame(concord_device *d, uint32_t patience)
{
    uint32_t start = now(d);
    for (uint8_t late = 0;; late = now(d) - start >= patience) {
        poll(d);
        while (d->waiting != 0) {
            uint8_t byte = d->ring[d->read_at];
            d->read_at = (d->read_at + 1U) % CONCORD_RING;
            d->waiting--;
            if (take_byte(d, byte)) {
                d->coming -= d->coming != 0;
                return CONCORD_OK;
            }
        }
        if (d->failed)
            return CONCORD_LINE_FAILED;
        if (late)
            return CONCORD_NO_REPLY;
    }
}

/* The first requests on the way were carried out, and have no reply. Only the last one can have one that counts. */
static concord_result pass(concord_device *d, uint32_t count)
{
    concord_request request = *request_at(d, d->count - 1U);
    uint8_t again = count == d->count && request.reply;
    d->first = (d->first + count) % d->network->slots;
    d->first_number = (uint8_t)(d->first_number + count);
    d->count -= count;
    if (count > again)
        d->failures = 0;
    if (!again)
        return CONCORD_OK;
    if (++d->lost > d->line.retries)
        return CONCORD_NO_REPLY;
    number_request(&request, d->first_number);
    *request_at(d, 0) = request;
    d->count = 1;
    d->repeated++;
    return CONCORD_OK;
}

/* Payload of the last reply. */
static const uint8_t *answer(const concord_device *d)
{
    return d->reply + CONCORD_HEADER_BYTES;
}

static concord_result drain(concord_device *d);

/* Take the frame that has come. CONCORD_DAMAGED and CONCORD_BUSY: requests have to be sent again. */
static concord_result take(concord_device *d)
{
    uint32_t bytes = d->received - OVERHEAD, header = load(d->reply, CONCORD_HEADER_BYTES);
    if (d->received < OVERHEAD || GET(header, HEADER_LENGTH) != bytes ||
        load(answer(d) + bytes, CONCORD_CRC_BYTES) != ~crc_of(CONCORD_CRC_ONES, d->reply, CONCORD_HEADER_BYTES + bytes))
        return CONCORD_DAMAGED;
    uint8_t status = (uint8_t)GET(header, HEADER_KIND);
    uint32_t place = (uint8_t)(GET(header, HEADER_SEQ) - d->first_number);
    if ((status & CONCORD_UNSOLICITED) != 0)
        return CONCORD_DAMAGED;
    if (place >= d->count)
        return CONCORD_OK; /* to an earlier request */
    concord_request *r = request_at(d, place);
    concord_result result;
    if (status == CONCORD_REPLY_BAD_SEQ) {
        uint32_t passed = (uint8_t)(*answer(d) - d->first_number);
        if (passed >= CONCORD_NUMBERS - LATE && r->sent > 1)
            return CONCORD_OK; /* it was late: what the device expected then has come since */
        if (bytes == 0 || passed > d->count || (passed >= place && r->sent == 1))
            return CONCORD_OUT_OF_ORDER;
        result = pass(d, passed);
        return result != CONCORD_OK || passed > place ? result : CONCORD_DAMAGED;
    }
    result = pass(d, place); /* the last one is not among them */
    if (status == CONCORD_REPLY_BUSY && r->kind == CONCORD_KIND_WRITE && r->inbox)
        return CONCORD_BUSY;
    if (status != CONCORD_REPLY_OK) {
        d->refusal = status;
        d->count = 0; /* nothing behind it was carried out */
        result = drain(d);
        return result == CONCORD_LINE_FAILED ? result : CONCORD_REFUSED;
    }
    d->first = (d->first + 1U) % d->network->slots;
    d->first_number++;
    d->count--;
    d->failures = 0;
    d->since = now(d);
    if (d->aside == NULL)
        d->progress = d->since;
    d->answered = bytes;
    return CONCORD_OK;
}

/* Take replies that are on their way, before their numbers are used again. */
static concord_result drain(concord_device *d)
{
    while (d->coming != 0) {
        concord_result result = next_frame(d, d->line.timeout_ms);
        if (result == CONCORD_LINE_FAILED)
            return result;
        if (result == CONCORD_NO_REPLY)
            d->coming = 0;
        else if (d->count != 0 && (result = take(d)) != CONCORD_OK && result != CONCORD_DAMAGED && result != CONCORD_BUSY)
            return result;
    }
    return CONCORD_OK;
}

static void transmit_all(concord_device *d)
{
    for (uint32_t place = 0; place < d->count; place++)
        transmit(d, place);
}

static concord_result wait(concord_device *d, uint32_t *status);

/* The inbox has no room: see that the program has not trapped, and send what it has refused once more. */
static concord_result wait_for_room(concord_device *d)
{
    concord_request aside;
    uint32_t status;
    if (now(d) - d->progress > d->line.run_timeout_ms)
        return CONCORD_BUSY;
    concord_result result = drain(d);
    if (result != CONCORD_OK)
        return result;
    uint32_t first = d->first, count = d->count;
    d->aside = &aside;
    d->count = 0;
    result = wait(d, &status);
    d->aside = NULL;
    d->first = first;
    d->count = count;
    if (result != CONCORD_OK)
        return result;
    for (uint32_t place = 0; place < count; place++)
        number_request(request_at(d, place), (uint8_t)(d->first_number + place));
    transmit_all(d);
    return CONCORD_OK;
}

/* Take what comes next; after a failure nothing is on the way. */
static concord_result collect(concord_device *d)
{
    concord_result result = next_frame(d, d->line.timeout_ms);
    if (result == CONCORD_OK)
        result = take(d);
    else
        d->coming = 0;
    if (result == CONCORD_OK && d->count != 0 && now(d) - d->since > d->line.timeout_ms)
        result = CONCORD_NO_REPLY;
    if (result == CONCORD_BUSY) {
        result = wait_for_room(d);
    } else if ((result == CONCORD_DAMAGED || result == CONCORD_NO_REPLY) && d->lost <= d->line.retries &&
               d->failures < d->line.retries) {
        d->failures++;
        result = drain(d);
        if (result == CONCORD_OK) {
            d->repeated += d->count;
            transmit_all(d);
        }
    } else if (result == CONCORD_OK && d->count != 0 && request_at(d, d->count - 1U)->sent == 0) {
        transmit(d, d->count - 1U); /* a read whose reply was lost */
    }
    if (result != CONCORD_OK) {
        d->count = 0;
        if (result != CONCORD_REFUSED && result != CONCORD_TRAPPED)
            d->connected = d->loaded = 0;
    }
    return result;
}

/* Send a request as soon as there is room for it. */
static concord_result post(concord_device *d, const concord_request *request)
{
    concord_request r = *request;
    concord_result result = CONCORD_OK;
    if (!d->connected)
        return CONCORD_NOT_CONNECTED;
    number_request(&r, (uint8_t)(d->first_number + d->count));
    while (result == CONCORD_OK && d->count != 0) {
        uint32_t line = r.line;
        for (uint32_t place = 0; place < d->count; place++)
            line += request_at(d, place)->line;
        if (d->count < d->network->slots && line <= d->network->window)
            break;
        result = collect(d);
    }
    if (result != CONCORD_OK)
        return result;
    *request_at(d, d->count) = r;
    d->count++;
    d->lost = 0;
    transmit(d, d->count - 1U);
    return d->failed ? collect(d) : CONCORD_OK;
}

/* Wait for everything that is on the way. */
static concord_result finish(concord_device *d)
{
    concord_result result = CONCORD_OK;
    while (result == CONCORD_OK && d->count != 0)
        result = collect(d);
    return result;
}

/* Send a request and wait for its reply of so many bytes at least and at the most. */
static concord_result ask(concord_device *d, concord_request *r, uint32_t least, uint32_t most)
{
    r->reply = 1;
    concord_result result = post(d, r);
    if (result == CONCORD_OK)
        result = finish(d);
    return result == CONCORD_OK && (d->answered < least || d->answered > most) ? CONCORD_BAD_REPLY : result;
}

/* A request with the words behind its header. */
static concord_request request_of(uint8_t kind, uint8_t head_bytes, uint32_t word, uint32_t following)
{
    concord_request r;
    r.kind = kind;
    r.head_bytes = (uint8_t)(CONCORD_HEADER_BYTES + head_bytes);
    r.reply = r.inbox = 0;
    r.bytes = 0;
    r.data = NULL;
    store(r.head + CONCORD_HEADER_BYTES, 4, word);
    store(r.head + CONCORD_HEADER_BYTES + 4, 4, following);
    return r;
}

static concord_result write(concord_device *d, uint8_t region, uint32_t address, const uint8_t *data, uint32_t bytes)
{
    uint32_t target = PUT(TARGET_REGION, region) | PUT(TARGET_ADDR, address);
    concord_request r = request_of(CONCORD_KIND_WRITE, CONCORD_TARGET_BYTES, target, 0);
    r.inbox = region == CONCORD_REGION_INBOX;
    r.data = data;
    r.bytes = bytes;
    return post(d, &r);
}

static concord_result read(concord_device *d, uint8_t region, uint32_t address, uint32_t count, uint32_t least, uint32_t most)
{
    uint32_t target = PUT(TARGET_REGION, region) | PUT(TARGET_ADDR, address);
    concord_request r = request_of(CONCORD_KIND_READ, CONCORD_TARGET_BYTES + CONCORD_COUNT_BYTES, target, PUT(COUNT_COUNT, count));
    return ask(d, &r, least, most);
}

static concord_result read_register(concord_device *d, uint32_t address, uint32_t *word)
{
    concord_result result = read(d, CONCORD_REGION_REGS, address, 1, CONCORD_REGISTER_BYTES, CONCORD_REGISTER_BYTES);
    *word = load(answer(d), CONCORD_REGISTER_BYTES);
    return result;
}

/* One WAIT, which gives the word of STATUS; a trap is looked at when nothing goes on any more. */
static concord_result wait(concord_device *d, uint32_t *status)
{
    concord_request r = request_of(CONCORD_KIND_WAIT, CONCORD_WAIT_BYTES, PUT(WAIT_CYCLES, d->network->wait_cycles), 0);
    concord_result result = ask(d, &r, CONCORD_REGISTER_BYTES, CONCORD_REGISTER_BYTES);
    uint32_t trap;
    *status = load(answer(d), CONCORD_REGISTER_BYTES);
    if (result != CONCORD_OK || GET(*status, STATUS_BUSY) != 0 || GET(*status, STATUS_TRAPPED) == 0)
        return result;
    result = read_register(d, CONCORD_REGISTER_TRAP, &trap);
    d->trap = (uint8_t)GET(trap, TRAP_CODE);
    d->trap_pc = (uint16_t)GET(trap, TRAP_PC);
    return result == CONCORD_OK ? CONCORD_TRAPPED : result;
}

static concord_result wait_idle(concord_device *d, uint32_t *status)
{
    uint32_t start = now(d);
    for (;;) {
        concord_result result = wait(d, status);
        if (result != CONCORD_OK || GET(*status, STATUS_BUSY) == 0)
            return result;
        if (now(d) - start > d->line.run_timeout_ms)
            return CONCORD_BUSY;
    }
}

/* Wait until nothing goes on, however the last run has ended. */
static concord_result settle(concord_device *d)
{
    uint32_t status;
    concord_result result = wait_idle(d, &status);
    return result == CONCORD_TRAPPED ? CONCORD_OK : result;
}

/* Wait for the end of a run. */
static concord_result wait_done(concord_device *d)
{
    uint32_t status;
    concord_result result = wait_idle(d, &status);
    return result == CONCORD_OK && GET(status, STATUS_DONE) == 0 ? CONCORD_NOT_RUN : result;
}

/* Write CONTROL. */
static concord_result control(concord_device *d, uint32_t word)
{
    const uint32_t target = PUT(TARGET_REGION, CONCORD_REGION_REGS) | PUT(TARGET_ADDR, CONCORD_REGISTER_CONTROL);
    concord_request r = request_of(CONCORD_KIND_WRITE, CONCORD_TARGET_BYTES + CONCORD_REGISTER_BYTES, target, word);
    return post(d, &r);
}

/* Numbers to groups of bytes -------------------------------------------------------------------- */

typedef struct {
    const concord_span *span;
    int32_t row;
    uint32_t column, rows;
} cursor;

static cursor cursor_of(const concord_span *span)
{
    cursor c;
    c.span = span;
    c.row = span->first;
    c.column = c.rows = 0;
    return c;
}

static int32_t next_element(cursor *c)
{
    if (c->rows == c->span->repeats)
        *c = cursor_of(c->span + 1);
    int32_t element = c->row + (int32_t)c->column * c->span->step;
    if (++c->column == c->span->count) {
        c->column = 0;
        c->row += c->span->stride;
        c->rows++;
    }
    return element;
}

static uint8_t too_large(double value)
{
    const double limit = CONCORD_BINARY16_MAX + 16.0; /* half an ulp beyond the greatest number */
    return !(value < limit && value > -limit);
}

static double limited(double value, const concord_grid *grid)
{
    const double whole = 6755399441055744.0; /* 1.5 * 2**52: a sum has no room for a fraction */
    double least = grid->least, greatest = grid->greatest, code = value * power_of_two(-grid->exponent);
    double rounded = code > -whole / 4.0 && code < whole / 4.0 ? code + whole - whole : code;
    code = rounded < 0.0 || rounded > 0.0 ? rounded : code * 0.0; /* a zero keeps its sign */
    code = code < least ? least : code;
    return (code > greatest ? greatest : code) * power_of_two(grid->exponent);
}

/* The binary16 number of an element of an input. */
static concord_result element_of(const concord_input *input, const void *inputs, int32_t element, uint16_t *half)
{
    const uint8_t *place = (const uint8_t *)inputs + input->place;
    *half = element == CONCORD_BORDER ? input->border : 0;
    if (element < 0)
        return CONCORD_OK;
    uint32_t scale = (uint32_t)element / input->inner % input->scales;
    if (input->type == CONCORD_BYTES) {
        *half = input->book[256U * scale + place[element]];
        return CONCORD_OK;
    }
    float single;
    memcpy(&single, place + (uint32_t)element * sizeof single, sizeof single);
    double value = (double)single;
    if (too_large(value))
        return CONCORD_BAD_INPUT;
    if (input->grid != NULL)
        value = limited(value, input->grid);
    if (input->middles != NULL)
        value -= input->middles[scale];
    if (input->powers != NULL)
        value *= power_of_two(-input->powers[scale]);
    value -= input->offset;
    if (too_large(value))
        return CONCORD_BAD_INPUT;
    *half = (uint16_t)half_of(value);
    return CONCORD_OK;
}

/* Mantissas with the exponent that suits the greatest. */
static int32_t quantise(const concord_network *n, const uint16_t *halves, int32_t *mantissas, uint32_t count)
{
    int32_t exponent = n->exponent_least, unit;
    uint32_t most = (1U << (n->mantissa - 1U)) - 1U;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t digits = digits_of(halves[k], &unit);
        for (int32_t top = unit - n->mantissa + 2; digits != 0; digits >>= 1, top++)
            if (top > exponent)
                exponent = top;
    }
    if (exponent > n->exponent_greatest)
        exponent = n->exponent_greatest;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t digits = digits_of(halves[k], &unit), whole;
        if (exponent <= unit)
            whole = digits << (unit - exponent);
        else
            whole = exponent - unit > CONCORD_BINARY16_PRECISION ? 0 : nearest(digits, (uint32_t)(exponent - unit));
        whole = whole > most ? most : whole;
        mantissas[k] = (halves[k] & 0x8000U) != 0 ? -(int32_t)whole : (int32_t)whole;
    }
    return exponent;
}

static uint32_t lanes_of(const concord_part *part, uint32_t group)
{
    return (group + 1U) % part->tiles == 0 ? part->last : part->lanes;
}

static uint32_t group_bytes(const concord_network *n, const concord_part *part, uint32_t lanes)
{
    switch (part->format) {
    case CONCORD_WIDE:
        return 2U * lanes;
    case CONCORD_NARROW:
        return n->narrow_bytes;
    case CONCORD_BLOCKS:
        return 1U + n->mantissa_bytes * lanes;
    default:
        return lanes;
    }
}

static concord_result encode_group(const concord_device *d, const concord_part *part, const void *inputs, cursor *c,
                                   uint32_t lanes, uint8_t *bytes)
{
    const concord_network *n = d->network;
    const concord_input *input = &n->inputs[part->port];
    uint16_t halves[CONCORD_LANES_MOST];
    int32_t mantissas[CONCORD_LANES_MOST];
    for (uint32_t k = 0; k < lanes; k++) {
        int32_t element = next_element(c);
        if (part->format == CONCORD_CODES) {
            bytes[k] = ((const uint8_t *)inputs)[input->place + (uint32_t)element];
            continue;
        }
        concord_result result = element_of(input, inputs, element, &halves[k]);
        if (result != CONCORD_OK)
            return result;
        if (part->format == CONCORD_WIDE)
            store(bytes + 2U * k, 2, halves[k]);
    }
    if (part->format == CONCORD_WIDE || part->format == CONCORD_CODES)
        return CONCORD_OK;
    uint32_t exponent = (uint32_t)quantise(n, halves, mantissas, lanes);
    uint32_t packed = part->format == CONCORD_NARROW;
    uint32_t width = packed ? n->mantissa : 8U * n->mantissa_bytes, at = packed ? 0 : 8;
    for (uint32_t k = 0; k < lanes; k++, at += width)
        put_bits(bytes, at, width, (uint32_t)mantissas[k]);
    put_bits(bytes, packed ? at : 0, n->exponent_bits, exponent);
    return CONCORD_OK;
}

/* Whether all elements of a group are finite. */
static uint8_t decode_group(const concord_device *d, const concord_part *part, void *outputs, cursor *c, uint32_t lanes,
                            const uint8_t *bytes)
{
    const concord_network *n = d->network;
    uint8_t *place = (uint8_t *)outputs + n->outputs[part->port], finite = 1;
    uint32_t packed = part->format == CONCORD_NARROW, width = packed ? n->mantissa : 8U * n->mantissa_bytes;
    uint32_t first = packed ? 0 : 8, exponent = packed ? n->native * width : 0; /* of wide vectors without a meaning */
    int32_t unit = signed_bits(bytes, exponent, n->exponent_bits);
    for (uint32_t k = 0; k < lanes; k++) {
        int32_t element = next_element(c);
        float value;
        if (element < 0)
            continue;
        if (part->format == CONCORD_WIDE) {
            uint32_t half = load(bytes + 2U * k, 2);
            value = float_of_half(half);
            if ((half & 0x7FFFU) >= CONCORD_BINARY16_INF)
                finite = 0;
        } else {
            value = scaled(signed_bits(bytes, first + k * width, width), unit);
        }
        memcpy(place + (uint32_t)element * sizeof value, &value, sizeof value);
    }
    return finite;
}

/* Groups to requests, and replies to groups ------------------------------------------------------------ */

/* The buffer for the data of the next request, once it is free. */
static concord_result next_slot(concord_device *d, uint8_t **slot)
{
    concord_result result = CONCORD_OK;
    while (result == CONCORD_OK && d->count == d->network->slots)
        result = collect(d);
    *slot = result == CONCORD_OK ? d->slots + (d->first + d->count) % d->network->slots * d->network->slot_bytes : NULL;
    return result;
}

typedef struct {
    concord_device *device;
    uint8_t *slot; /* NULL if nothing is in it */
    uint32_t used, limit, address;
    uint8_t region, word; /* bytes of a word; 0: the address stays */
} writer;

static concord_result flush(writer *w)
{
    if (w->slot == NULL)
        return CONCORD_OK;
    concord_result result = write(w->device, w->region, w->address, w->slot, w->used);
    w->address += w->word != 0 ? w->used / w->word : 0;
    w->slot = NULL;
    return result;
}

static concord_result write_part(writer *w, const concord_part *part, const void *inputs)
{
    concord_device *d = w->device;
    cursor c = cursor_of(part->spans);
    for (uint32_t group = 0; group < part->groups; group++) {
        uint32_t lanes = lanes_of(part, group), bytes = group_bytes(d->network, part, lanes);
        concord_result result = CONCORD_OK;
        if (w->slot != NULL && w->used + bytes > w->limit)
            result = flush(w);
        if (result == CONCORD_OK && w->slot == NULL) {
            result = next_slot(d, &w->slot);
            w->used = 0;
        }
        if (result == CONCORD_OK)
            result = encode_group(d, part, inputs, &c, lanes, w->slot + w->used);
        if (result != CONCORD_OK)
            return result;
        w->used += bytes;
    }
    return CONCORD_OK;
}

static uint8_t region_of(const concord_part *part)
{
    return part->format == CONCORD_WIDE ? CONCORD_REGION_WIDE : CONCORD_REGION_NARROW;
}

static concord_result write_vectors(concord_device *d, const concord_part *part, const void *inputs)
{
    writer w;
    w.device = d;
    w.slot = NULL;
    w.used = 0;
    w.limit = d->network->slot_bytes;
    w.address = part->address;
    w.region = region_of(part);
    w.word = (uint8_t)group_bytes(d->network, part, part->lanes);
    concord_result result = write_part(&w, part, inputs);
    return result == CONCORD_OK ? flush(&w) : result;
}

static concord_result read_vectors(concord_device *d, const concord_part *part, void *outputs, uint8_t *finite)
{
    uint32_t word = group_bytes(d->network, part, part->lanes), most = (d->network->reply_bytes - OVERHEAD) / word;
    cursor c = cursor_of(part->spans);
    for (uint32_t at = 0; at < part->groups;) {
        uint32_t count = part->groups - at < most ? part->groups - at : most;
        concord_result result = read(d, region_of(part), part->address + at, count, count * word, count * word);
        if (result != CONCORD_OK)
            return result;
        for (uint32_t k = 0; k < count; k++)
            *finite &= decode_group(d, part, outputs, &c, part->lanes, answer(d) + k * word);
        at += count;
    }
    return CONCORD_OK;
}

/* What users call --------------------------------------------------------------------------------- */

/* A register in the reply to PING. */
static uint32_t identity(const concord_device *d, uint32_t reg)
{
    return load(answer(d) + reg * CONCORD_REGISTER_BYTES, CONCORD_REGISTER_BYTES);
}

concord_result concord_connect(concord_device *d, const concord_network *network, const concord_line *line,
                               uint8_t *slots, uint8_t *reply)
{
    const uint8_t flags[2] = {CONCORD_FLAG, CONCORD_FLAG}; /* they end what another host may have begun */
    for (uint32_t k = 0; k < sizeof *d; k++)
        ((uint8_t *)d)[k] = 0;
    d->aside = NULL;
    d->line = *line;
    d->line.timeout_ms = line->timeout_ms != 0 ? line->timeout_ms : 1000;
    d->line.run_timeout_ms = line->run_timeout_ms != 0 ? line->run_timeout_ms : 10000;
    d->line.retries = line->retries != 0 ? line->retries : 4;
    d->network = network;
    d->slots = slots;
    d->reply = reply;
    if (line->send(line->context, flags, sizeof flags) != 0)
        return CONCORD_LINE_FAILED;
    uint32_t start = now(d), last = start;
    while (now(d) - last < QUIET_MS && now(d) - start < d->line.timeout_ms) {
        poll(d);
        if (d->failed)
            return CONCORD_LINE_FAILED;
        for (; d->waiting != 0; d->waiting--, d->read_at = (d->read_at + 1U) % CONCORD_RING)
            if (d->ring[d->read_at] != CONCORD_FLAG)
                last = now(d);
    }
    d->first_number = (uint8_t)now(d); /* old replies to an old number are ignored */
    d->connected = 1;
    concord_request r = request_of(CONCORD_KIND_PING, 0, 0, 0);
    const uint32_t bytes = (CONCORD_REGISTER_FINGERPRINT_HIGH + 1U) * CONCORD_REGISTER_BYTES;
    concord_result result = ask(d, &r, bytes, bytes);
    if (result == CONCORD_BAD_REPLY || (result == CONCORD_OK && identity(d, CONCORD_REGISTER_MAGIC) != CONCORD_MAGIC))
        result = CONCORD_NO_NPU;
    if (result == CONCORD_OK && identity(d, CONCORD_REGISTER_VERSION) != CONCORD_SPEC_VERSION)
        result = CONCORD_VERSION;
    if (result == CONCORD_OK && (identity(d, CONCORD_REGISTER_FINGERPRINT) != network->fingerprint ||
                                 identity(d, CONCORD_REGISTER_FINGERPRINT_HIGH) != network->fingerprint_high))
        result = CONCORD_FINGERPRINT;
    d->connected = result == CONCORD_OK;
    return result;
}

concord_result concord_clear_flags(concord_device *d)
{
    concord_result result = control(d, PUT(CONTROL_CLEAR_FLAGS, 1));
    if (result == CONCORD_OK)
        result = settle(d);
    if (result == CONCORD_OK)
        d->flags = 0;
    return result;
}

/* Words that stay where they are until all requests are answered. */
static concord_result write_words(concord_device *d, uint8_t region, uint8_t word, uint32_t start, const uint8_t *data,
                                  uint32_t bytes)
{
    uint32_t most = (d->network->payload - CONCORD_TARGET_BYTES) / word * word;
    concord_result result = CONCORD_OK;
    for (uint32_t at = 0; result == CONCORD_OK && at < bytes; at += most)
        result = write(d, region, start + at / word, data + at, bytes - at < most ? bytes - at : most);
    return result;
}

/* Columns of a segment, which begin at byte `first` of the source. */
static concord_result write_columns(concord_device *d, const concord_segment *segment, const concord_source *source, uint32_t first)
{
    uint32_t most = d->network->slot_bytes / segment->word * segment->word;
    for (uint32_t at = 0; at < segment->bytes; at += most) {
        uint32_t bytes = segment->bytes - at < most ? segment->bytes - at : most;
        uint8_t *slot;
        concord_result result = next_slot(d, &slot);
        if (result == CONCORD_OK && source->read(source->context, first + at, slot, bytes) != 0)
            result = CONCORD_NO_COLUMNS;
        if (result == CONCORD_OK)
            result = write(d, segment->region, segment->start + at / segment->word, slot, bytes);
        if (result != CONCORD_OK)
            return result;
    }
    return CONCORD_OK;
}

/* Whether the external memory holds the columns; CONCORD_NO_MEMORY if it does not work. */
static concord_result holds_columns(concord_device *d, uint8_t *holds)
{
    uint32_t status, start = now(d);
    concord_result result;
    do {
        result = read_register(d, CONCORD_REGISTER_STATUS, &status);
        if (result == CONCORD_OK && now(d) - start > d->line.run_timeout_ms)
            result = CONCORD_NO_MEMORY;
    } while (result == CONCORD_OK && GET(status, STATUS_DRAM_SEARCHING) != 0);
    if (result == CONCORD_OK && GET(status, STATUS_DRAM_WORKS) == 0)
        result = CONCORD_NO_MEMORY;
    *holds = 0;
    if (result != CONCORD_OK || GET(status, STATUS_DRAM_KEPT) == 0 || d->network->digest == NULL)
        return result;
    result = read(d, CONCORD_REGION_DRAM, d->network->digest_start, CONCORD_DIGEST_BYTES / 2U,
                  CONCORD_DIGEST_BYTES, CONCORD_DIGEST_BYTES);
    *holds = result == CONCORD_OK;
    for (uint32_t k = 0; *holds && k < CONCORD_DIGEST_BYTES; k++)
        *holds = answer(d)[k] == d->network->digest[k];
    return result;
}

/* All columns, unless the external memory holds them. */
static concord_result load_columns(concord_device *d, const concord_source *source)
{
    const concord_network *n = d->network;
    uint8_t holds = 0;
    uint32_t first = 0;
    concord_result result = holds_columns(d, &holds);
    if (result != CONCORD_OK || holds)
        return result;
    if (source == NULL || source->read == NULL)
        return CONCORD_NO_COLUMNS;
    for (uint32_t k = 0; result == CONCORD_OK && k < n->segment_count; k++) {
        if (n->segments[k].data != NULL)
            continue;
        result = write_columns(d, &n->segments[k], source, first);
        first += n->segments[k].bytes;
    }
    if (result == CONCORD_OK && n->digest != NULL) {
        result = write(d, CONCORD_REGION_DRAM, n->digest_start, n->digest, CONCORD_DIGEST_BYTES);
        if (result == CONCORD_OK)
            result = control(d, PUT(CONTROL_KEEP_DRAM, 1));
    }
    return result;
}

concord_result concord_load(concord_device *d, const concord_source *columns)
{
    uint8_t copies = 0;
    d->loaded = d->script = 0;
    d->under_way = 0;
    concord_result result = settle(d);
    for (uint32_t k = 0; result == CONCORD_OK && k < d->network->segment_count; k++) {
        const concord_segment *segment = &d->network->segments[k];
        if (segment->data == NULL)
            copies = 1;
        else
            result = write_words(d, segment->region, segment->word, segment->start, segment->data, segment->bytes);
    }
    if (result == CONCORD_OK && copies)
        result = load_columns(d, columns);
    if (result == CONCORD_OK)
        result = concord_clear_flags(d);
    d->loaded = result == CONCORD_OK;
    return result;
}

/* Flags since they were cleared, and how a sample has ended that has all of its results. */
static concord_result ended(concord_device *d, uint8_t finite)
{
    uint32_t word;
    concord_result result = read_register(d, CONCORD_REGISTER_FLAGS_ANY, &word);
    if (result != CONCORD_OK)
        return result;
    d->flags = (uint8_t)word;
    return d->flags != 0 ? CONCORD_FLAGGED : finite ? CONCORD_OK : CONCORD_INFINITE;
}

/* After an error the next sample begins anew. */
static concord_result after(concord_device *d, concord_result result)
{
    if (result == CONCORD_OK || result == CONCORD_FLAGGED || result == CONCORD_INFINITE)
        return result;
    d->script = 0;
    d->under_way = 0;
    while (d->count != 0)
        (void)collect(d);
    return result;
}

static concord_result run_phases(concord_device *d, const void *inputs, void *outputs)
{
    uint8_t finite = 1;
    for (uint32_t k = 0; k < d->network->phase_count; k++) {
        const concord_phase *phase = &d->network->phases[k];
        concord_result result = CONCORD_OK;
        for (uint32_t part = 0; result == CONCORD_OK && part < phase->inputs; part++)
            result = write_vectors(d, &phase->parts[part], inputs);
        if (result == CONCORD_OK)
            result = control(d, PUT(CONTROL_START, 1) | PUT(CONTROL_PC, phase->pc));
        if (result == CONCORD_OK)
            result = wait_done(d);
        for (uint32_t part = 0; result == CONCORD_OK && part < phase->outputs; part++)
            result = read_vectors(d, &phase->parts[phase->inputs + part], outputs, &finite);
        if (result != CONCORD_OK)
            return result;
    }
    return ended(d, finite);
}

/* Script and numbers of codes to the device, whose rings are empty then. */
static concord_result install(concord_device *d)
{
    const concord_route *route = d->network->route;
    concord_result result = settle(d);
    if (result == CONCORD_OK)
        result = write_words(d, CONCORD_REGION_CODES, 2, 0, route->codes, route->codes_bytes);
    if (result == CONCORD_OK)
        result = write_words(d, CONCORD_REGION_SCRIPT, d->network->script_word, 0, route->script, route->script_bytes);
    d->address = d->held = 0;
    d->script = result == CONCORD_OK;
    return result;
}

/* Read results from the next one on; what is in front of them may go. */
static concord_result read_results(concord_device *d, uint32_t count)
{
    uint32_t place = PUT(OUTBOX_FIRST, d->address) | PUT(OUTBOX_KEPT, d->address);
    concord_result result = read(d, CONCORD_REGION_OUTBOX, place, count, 0, count);
    if (result == CONCORD_OK)
        d->held = 0;
    return result;
}

static concord_result put_sample(concord_device *d, const void *inputs)
{
    const concord_route *route = d->network->route;
    concord_result result = d->script ? CONCORD_OK : install(d);
    if (result == CONCORD_OK && d->held != 0 && d->held + (d->under_way + 1U) * route->result > d->network->outbox)
        result = read_results(d, 0);
    writer w;
    w.device = d;
    w.slot = NULL;
    w.used = w.address = 0;
    w.limit = route->chunk;
    w.region = CONCORD_REGION_INBOX;
    w.word = 0;
    for (uint32_t part = 0; result == CONCORD_OK && part < route->inputs; part++)
        result = write_part(&w, &route->parts[part], inputs);
    if (result == CONCORD_OK)
        result = flush(&w);
    d->under_way += result == CONCORD_OK;
    return result;
}

/* Wait for results, as long as the device can make some. */
static concord_result wait_results(concord_device *d, uint32_t start, uint8_t *idle)
{
    uint32_t status;
    concord_result result = wait(d, &status);
    if (result != CONCORD_OK)
        return result;
    if (GET(status, STATUS_BUSY) != 0)
        return now(d) - start > d->line.run_timeout_ms ? CONCORD_BUSY : CONCORD_OK;
    return ++*idle > 1 ? CONCORD_NO_RESULT : CONCORD_OK;
}

static concord_result get_sample(concord_device *d, void *outputs)
{
    const concord_network *n = d->network;
    const concord_route *route = n->route;
    uint32_t left = route->result, start = now(d), part = 0, group = 0;
    uint8_t finite = 1, idle = 0;
    cursor c = cursor_of(route->parts[route->inputs].spans);
    while (left != 0) {
        uint32_t most = n->reply_bytes - OVERHEAD, used = 0;
        concord_result result = read_results(d, left < most ? left : most);
        if (result != CONCORD_OK)
            return result;
        while (left != 0) { /* whole groups */
            const concord_part *groups = &route->parts[route->inputs + part];
            uint32_t lanes = lanes_of(groups, group), bytes = group_bytes(n, groups, lanes);
            if (used + bytes > d->answered)
                break;
            finite &= decode_group(d, groups, outputs, &c, lanes, answer(d) + used);
            used += bytes;
            left -= bytes;
            if (++group == groups->groups && left != 0) {
                group = 0;
                c = cursor_of(route->parts[route->inputs + ++part].spans);
            }
        }
        d->address = (d->address + used) % (2U * n->outbox);
        d->held = used;
        if (used != 0)
            idle = 0;
        else if ((result = wait_results(d, start, &idle)) != CONCORD_OK)
            return result;
    }
    d->under_way--;
    return ended(d, finite);
}

concord_result concord_put(concord_device *d, const void *inputs)
{
    if (!d->loaded)
        return CONCORD_NOT_LOADED;
    if (d->network->route == NULL)
        return CONCORD_NOT_STREAMED;
    return d->under_way == d->network->route->depth ? CONCORD_TOO_MANY : after(d, put_sample(d, inputs));
}

concord_result concord_get(concord_device *d, void *outputs)
{
    return d->under_way == 0 ? CONCORD_NOTHING_PUT : after(d, get_sample(d, outputs));
}

concord_result concord_run(concord_device *d, const void *inputs, void *outputs)
{
    concord_result result = d->loaded ? CONCORD_OK : CONCORD_NOT_LOADED;
    if (result == CONCORD_OK && d->under_way != 0)
        result = CONCORD_TOO_MANY;
    if (result != CONCORD_OK)
        return result;
    if (d->flags != 0)
        result = concord_clear_flags(d);
    if (result == CONCORD_OK && d->network->route == NULL) {
        result = run_phases(d, inputs, outputs);
    } else if (result == CONCORD_OK) {
        result = put_sample(d, inputs);
        if (result == CONCORD_OK)
            result = get_sample(d, outputs);
    }
    return after(d, result);
}

concord_result concord_find_flags(concord_device *d, uint32_t *pc, uint8_t *flags)
{
    uint32_t most = d->network->reply_bytes - OVERHEAD, depth = d->network->program_depth;
    *flags = 0;
    while (*pc < depth) {
        uint32_t count = depth - *pc < most ? depth - *pc : most;
        concord_result result = read(d, CONCORD_REGION_FLAGS, *pc, count, count, count);
        if (result != CONCORD_OK)
            return result;
        for (uint32_t k = 0; k < count; k++, (*pc)++) {
            *flags = answer(d)[k];
            if (*flags != 0)
                return CONCORD_OK;
        }
    }
    return CONCORD_OK;
}

concord_result concord_read(concord_device *d, uint8_t region, uint32_t address, uint32_t count, const uint8_t **words,
                            uint32_t *bytes)
{
    concord_result result = read(d, region, address, count, 0, d->network->reply_bytes);
    *words = answer(d);
    *bytes = d->answered;
    return result;
}

const char *concord_layer_of(const concord_network *network, uint32_t pc)
{
    const char *name = NULL;
    for (uint32_t k = 0; k < network->layer_count && network->layers[k].pc <= pc; k++)
        name = network->layers[k].name;
    return name;
}

static const char *text_of(const char *const *texts, uint32_t count, uint32_t number)
{
    return number < count ? texts[number] : "?";
}

#define TEXT_OF(texts, number) text_of(texts, sizeof texts / sizeof *texts, number)

const char *concord_text(concord_result result)
{
    static const char *const texts[] = {
        "done",
        "done, but a flag was raised: numbers were cut off",
        "done, but a result is an infinity or a NaN",
        "the program has trapped",
        "an input is no finite number of binary16",
        "the line has failed",
        "no reply",
        "requests or replies arrive damaged",
        "the device expects another number: it was reset, or has another host",
        "the device has refused a request",
        "a reply has a wrong length",
        "no NPU answers",
        "the device has another version of the specification",
        "the device has another configuration",
        "not connected",
        "no network is loaded",
        "a run has not ended in time",
        "no run has ended",
        "the device is idle, but has fewer results than it must have",
        "a result must be taken before",
        "no sample is under way",
        "this network cannot be streamed",
        "the external memory of the device does not work",
        "the columns of the network cannot be read",
    };
    typedef char a_text_for_every_result[sizeof texts / sizeof *texts == CONCORD_RESULTS ? 1 : -1];
    return TEXT_OF(texts, (uint32_t)result + 0U * sizeof(a_text_for_every_result));
}

const char *concord_refusal_text(uint8_t refusal)
{
    static const char *const texts[] = CONCORD_REPLY_TEXTS;
    return TEXT_OF(texts, refusal);
}

const char *concord_flag_text(uint8_t number)
{
    static const char *const texts[] = CONCORD_FLAG_TEXTS;
    return TEXT_OF(texts, number);
}

const char *concord_trap_text(uint8_t trap)
{
    static const char *const texts[] = CONCORD_TRAP_TEXTS;
    return TEXT_OF(texts, trap);
}
