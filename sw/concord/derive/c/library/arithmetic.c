/* Arithmetic of the NPU in integers. Functions are separated by two empty lines; those that a network needs are
 * copied into its file. A half is a binary16 pattern. */


static inline int32_t top_bit(uint64_t x) /* Position of the highest bit of a number that is not zero. */
{
#if defined(__GNUC__) && !defined(CONCORD_PORTABLE)
    return 63 - (int32_t)__builtin_clzll(x);
#else
    int32_t top = 0, step;
    for (step = 32; step > 0; step >>= 1) {
        if (x >> step) {
            x >>= step;
            top += step;
        }
    }
    return top;
#endif
}


static inline int32_t half_field(uint16_t x) /* |x| is its significand times 2**(field - 25). */
{
    const int32_t field = (x >> 10) & 0x1F;
    return field ? field : 1;
}


static inline uint32_t half_significand(uint16_t x)
{
    return (x & 0x3FFu) | ((x & 0x7C00u) ? 0x400u : 0u);
}


static inline bool is_nan(uint16_t x)
{
    return (x & 0x7FFFu) > 0x7C00u;
}


static inline bool is_infinite(uint16_t x)
{
    return (x & 0x7FFFu) == 0x7C00u;
}


static inline bool is_finite(uint16_t x)
{
    return (x & 0x7C00u) != 0x7C00u;
}


static inline bool overflowed(uint16_t y, uint16_t a, uint16_t b) /* An infinity of finite operands. */
{
    return is_infinite(y) && is_finite(a) && is_finite(b);
}


static inline uint16_t finite(uint16_t x) /* What a converter or a table reads: +-65504 for infinities, 0 for NaNs. */
{
    return is_finite(x) ? x : is_nan(x) ? (uint16_t)0 : (uint16_t)(x - 1u);
}


/* magnitude * 2**unit as a half with a sign (0 or 0x8000): rounded once, to nearest even. At most 2**63. */
static inline uint16_t half_round(uint32_t sign, uint64_t magnitude, int32_t unit)
{
    int32_t least, drop;
    uint64_t rounded;
    if (!magnitude) {
        return (uint16_t)sign;
    }
    least = top_bit(magnitude) + unit;
    if (least > 15) {
        return (uint16_t)(sign | 0x7C00u);
    }
    least = (least < -14 ? -14 : least) - 10; /* The unit of the result. */
    drop = least - unit;
    if (drop <= 0) {
        rounded = magnitude << -drop;
    } else if (drop < 64) {
        rounded = (magnitude + (((uint64_t)1 << (drop - 1)) - 1u) + ((magnitude >> drop) & 1u)) >> drop;
    } else {
        rounded = 0;
    }
    return (uint16_t)(sign | (((uint32_t)(least + 24) << 10) + (uint32_t)rounded));
}


static inline uint64_t half_units(uint16_t x) /* A finite half in units of 2**-24, in two's complement. */
{
    const uint64_t sign = x >> 15, size = (uint64_t)half_significand(x) << (half_field(x) - 1);
    return (size ^ (0u - sign)) + sign;
}


static inline uint64_t size_of_sum(uint64_t sum) /* Of a number in two's complement. */
{
    const uint64_t sign = sum >> 63;
    return (sum ^ (0u - sign)) + sign;
}


static inline uint32_t sign_of_sum(uint64_t sum)
{
    return (uint32_t)(sum >> 63) << 15;
}


static inline uint16_t half_add(uint16_t a, uint16_t b)
{
    uint64_t sum;
    if (!is_finite(a) || !is_finite(b)) {
        if (is_nan(a) || is_nan(b) || (!is_finite(a) && !is_finite(b) && a != b)) {
            return 0x7E00u;
        }
        return is_finite(a) ? b : a;
    }
    sum = half_units(a) + half_units(b);
    if (!sum) {
        return (uint16_t)(a & b & 0x8000u);
    }
    return half_round(sign_of_sum(sum), size_of_sum(sum), -24);
}


static inline uint16_t half_sub(uint16_t a, uint16_t b)
{
    return half_add(a, (uint16_t)(b ^ 0x8000u));
}


static inline uint16_t half_mul(uint16_t a, uint16_t b)
{
    const uint32_t sign = (uint32_t)(a ^ b) & 0x8000u;
    if (!is_finite(a) || !is_finite(b)) {
        const bool zero = !(a & 0x7FFFu) || !(b & 0x7FFFu);
        return is_nan(a) || is_nan(b) || zero ? (uint16_t)0x7E00u : (uint16_t)(sign | 0x7C00u);
    }
    return half_round(sign, (uint64_t)half_significand(a) * half_significand(b), half_field(a) + half_field(b) - 50);
}


static inline int32_t half_order(uint16_t x) /* Numbers that compare like halves; -0 is below +0. */
{
    const int32_t size = (int32_t)(x & 0x7FFFu);
    return x & 0x8000u ? -1 - size : size;
}


static inline uint16_t half_max(uint16_t a, uint16_t b)
{
    if (is_nan(a) || is_nan(b)) {
        return 0x7E00u;
    }
    return half_order(a) >= half_order(b) ? a : b;
}


static inline uint16_t half_min(uint16_t a, uint16_t b)
{
    if (is_nan(a) || is_nan(b)) {
        return 0x7E00u;
    }
    return half_order(a) <= half_order(b) ? a : b;
}


static inline uint16_t half_relu(uint16_t x)
{
    return is_nan(x) ? (uint16_t)0x7E00u : x & 0x8000u ? (uint16_t)0 : x;
}


static inline uint16_t half_reduce_max(const uint16_t *x, int32_t count, int32_t step)
{
    uint16_t top = 0xFC00u;
    int32_t k;
    for (k = 0; k < count; ++k) {
        top = half_max(top, x[k * step]);
    }
    return top;
}


/* size * 2**-right, rounded: to nearest even, away from zero, or with 16 bits of noise. Sizes are below 2**11. */
static inline uint32_t round_even(uint32_t size, int32_t right)
{
    if (right <= 0) {
        return size << (right < -20 ? 20 : -right);
    }
    right = right > 12 ? 12 : right;
    return (size + ((1u << (right - 1)) - 1u) + ((size >> right) & 1u)) >> right;
}


static inline uint32_t round_away(uint32_t size, int32_t right)
{
    if (right <= 0) {
        return size << (right < -20 ? 20 : -right);
    }
    return right > 12 ? 0 : (size + (1u << (right - 1))) >> right;
}


static inline uint32_t round_noise(uint32_t size, int32_t right, uint16_t noise)
{
    if (right <= 0) {
        return size << (right < -20 ? 20 : -right);
    }
    return right > 27 ? 0 : (((size << 16) >> right) + noise) >> 16;
}


/* The entry for x * 2**scale, rounded to nearest even and limited to low .. high. */
static inline int32_t table_code(uint16_t x, int32_t scale)
{
    const uint16_t y = finite(x);
    const int32_t code = (int32_t)round_even(half_significand(y), 25 - half_field(y) - scale);
    return y & 0x8000u ? -code : code;
}


static inline uint16_t half_table(uint16_t x, const uint16_t *entries, int32_t scale, int32_t low, int32_t high)
{
    const int32_t code = table_code(x, scale);
    return entries[(code < low ? low : code > high ? high : code) - low];
}


static inline bool table_under(uint16_t x, int32_t scale, int32_t low)
{
    return table_code(x, scale) < low;
}


static inline bool table_over(uint16_t x, int32_t scale, int32_t high)
{
    return table_code(x, scale) > high;
}


/* The exponent of a block whose greatest magnitude is that of a finite half: floor(log2) - headroom, at least least. */
static inline int32_t block_exponent(uint16_t peak, int32_t headroom, int32_t least, int32_t greatest)
{
    const uint32_t size = half_significand(peak);
    int32_t exponent = least;
    if (size) {
        exponent = top_bit(size) + half_field(peak) - 25 - headroom;
        exponent = exponent < least ? least : exponent > greatest ? greatest : exponent;
    }
    return exponent;
}


static inline uint16_t block_peak(const uint16_t *x, int32_t count, uint16_t peak)
{
    int32_t k;
    for (k = 0; k < count; ++k) {
        const uint16_t size = (uint16_t)(finite(x[k]) & 0x7FFFu);
        peak = size > peak ? size : peak;
    }
    return peak;
}


static inline bool any_not_finite(const uint16_t *x, int32_t count)
{
    bool any = false;
    int32_t k;
    for (k = 0; k < count; ++k) {
        any |= !is_finite(x[k]);
    }
    return any;
}


static inline int32_t limited_code(uint16_t x, uint32_t size, int32_t greatest)
{
    const int32_t code = size > (uint32_t)greatest ? greatest : (int32_t)size, sign = -(int32_t)(x >> 15);
    return (code ^ sign) - sign;
}


static inline int32_t code_even(uint16_t x, int32_t exponent, int32_t greatest)
{
    const uint16_t y = finite(x);
    return limited_code(y, round_even(half_significand(y), exponent + 25 - half_field(y)), greatest);
}


static inline int32_t code_away(uint16_t x, int32_t exponent, int32_t greatest)
{
    const uint16_t y = finite(x);
    return limited_code(y, round_away(half_significand(y), exponent + 25 - half_field(y)), greatest);
}


static inline int32_t code_noise(uint16_t x, int32_t exponent, int32_t greatest, uint16_t noise)
{
    const uint16_t y = finite(x);
    return limited_code(y, round_noise(half_significand(y), exponent + 25 - half_field(y), noise), greatest);
}


static inline bool saturated_even(uint16_t x, int32_t exponent, uint32_t greatest)
{
    const uint16_t y = finite(x);
    return round_even(half_significand(y), exponent + 25 - half_field(y)) > greatest;
}


static inline bool saturated_away(uint16_t x, int32_t exponent, uint32_t greatest)
{
    const uint16_t y = finite(x);
    return round_away(half_significand(y), exponent + 25 - half_field(y)) > greatest;
}


static inline bool saturated_noise(uint16_t x, int32_t exponent, uint32_t greatest, uint16_t noise)
{
    const uint16_t y = finite(x);
    return round_noise(half_significand(y), exponent + 25 - half_field(y), noise) > greatest;
}


static inline uint16_t half_of_code(int32_t code, int32_t exponent) /* A number of a block; a zero is +0. */
{
    return code < 0 ? half_round(0x8000u, (uint64_t)-code, exponent) : half_round(0, (uint64_t)code, exponent);
}


static inline int16_t half_code(uint16_t x) /* The significand of a half with its sign; its field - 25 is the exponent. */
{
    const int32_t size = (int32_t)half_significand(x);
    return (int16_t)(x & 0x8000u ? -size : size);
}


static inline int8_t half_exponent(uint16_t x)
{
    return (int8_t)(half_field(x) - 25);
}


static inline int32_t dot_8_8(const int8_t *restrict a, const int8_t *restrict b, int32_t count)
{
    int32_t sum = 0, k;
    CONCORD_ROLLED
    for (k = 0; k < count; ++k) {
        sum += (int32_t)a[k] * b[k];
    }
    return sum;
}


/* The same of mantissas of 8 bits that are widened already, which processors with products of 16 bits do fastest. */
static inline int32_t dot_narrow(const int16_t *restrict a, const int8_t *restrict b, int32_t count)
{
    int32_t sum = 0, k;
    CONCORD_ROLLED
    for (k = 0; k < count; ++k) {
        sum += (int32_t)a[k] * (int16_t)b[k];
    }
    return sum;
}


static inline int64_t dot_16_8(const int16_t *restrict a, const int8_t *restrict b, int32_t count)
{
    int64_t sum = 0;
    int32_t k;
    for (k = 0; k < count; ++k) {
        sum += (int32_t)a[k] * b[k];
    }
    return sum;
}


static inline int64_t dot_8_16(const int8_t *restrict a, const int16_t *restrict b, int32_t count)
{
    int64_t sum = 0;
    int32_t k;
    for (k = 0; k < count; ++k) {
        sum += (int32_t)a[k] * b[k];
    }
    return sum;
}


static inline int64_t dot_16_16(const int16_t *restrict a, const int16_t *restrict b, int32_t count)
{
    int64_t sum = 0;
    int32_t k;
    for (k = 0; k < count; ++k) {
        sum += (int32_t)a[k] * b[k];
    }
    return sum;
}


/* Sums are numbers in two's complement, of 64 bits or of 128: then a term is shifted by less than 128. */
static inline uint64_t scaled(int64_t term, int32_t shift)
{
    return (uint64_t)term << shift;
}


static inline bool beyond(uint64_t sum, int32_t bits) /* Whether it is not in -2**bits .. 2**bits - 1. */
{
    return sum >> 63 ? size_of_sum(sum) > (uint64_t)1 << bits : sum >= (uint64_t)1 << bits;
}


static inline uint16_t half_of_sum(uint64_t sum, int32_t unit) /* Rounded once; a sum of zero is +0. */
{
    return half_round(sign_of_sum(sum), size_of_sum(sum), unit);
}


/* Add to the sums of the channels of a block the products of all taps, which are channels, blocks and runs apart. Where
 * shifts differ by few bits, 32 bits hold the sums of products that are shifted by their differences. */
static inline void add_channels(
    uint64_t *restrict total, uint32_t *restrict narrow, const int8_t *restrict x, const int8_t *restrict e,
    const int8_t *restrict w, const int8_t *restrict f, int32_t size, int32_t taps, int32_t channels, int32_t blocks,
    int32_t runs, int32_t spread, int32_t base)
{
    int32_t least = e[0] + f[0], most = least, tap, c;
    for (tap = 1; tap < taps; ++tap) {
        const int32_t shift = e[tap * blocks] + f[tap * runs];
        least = shift < least ? shift : least;
        most = shift > most ? shift : most;
    }
    if (most - least > spread) {
        for (tap = 0; tap < taps; ++tap) {
            const int32_t shift = e[tap * blocks] + f[tap * runs] + base;
            for (c = 0; c < size; ++c) {
                total[c] += scaled((int32_t)x[tap * channels + c] * w[tap * channels + c], shift);
            }
        }
        return;
    }
    for (c = 0; c < size; ++c) {
        narrow[c] = 0;
    }
    for (tap = 0; tap < taps; ++tap) {
        const int32_t shift = e[tap * blocks] + f[tap * runs] - least;
        CONCORD_ROLLED
        for (c = 0; c < size; ++c) {
            narrow[c] += (uint32_t)((int32_t)x[tap * channels + c] * w[tap * channels + c]) << shift;
        }
    }
    for (c = 0; c < size; ++c) { /* the sign of 32 bits in all 64 */
        total[c] += (((uint64_t)narrow[c] ^ 0x80000000u) - 0x80000000u) << (least + base);
    }
}


typedef struct {
    uint64_t high, low;
} wide_sum;


static inline wide_sum wide_add(wide_sum a, wide_sum b)
{
    wide_sum sum;
    sum.low = a.low + b.low;
    sum.high = a.high + b.high + (sum.low < a.low);
    return sum;
}


static inline wide_sum wide_scaled(int64_t term, int32_t shift)
{
    const uint64_t bits = (uint64_t)term, sign = term < 0 ? ~(uint64_t)0 : 0;
    wide_sum sum;
    if (shift >= 64) {
        sum.low = 0;
        sum.high = bits << (shift - 64);
    } else {
        sum.low = bits << shift;
        sum.high = shift ? (sign << shift) | (bits >> (64 - shift)) : sign;
    }
    return sum;
}


static inline wide_sum wide_size(wide_sum sum)
{
    if (sum.high >> 63) {
        sum.low = 0u - sum.low;
        sum.high = ~sum.high + !sum.low;
    }
    return sum;
}


static inline bool wide_beyond(wide_sum sum, int32_t bits) /* As beyond; bits are at most 126. */
{
    const bool negative = sum.high >> 63;
    const wide_sum size = wide_size(sum), end = wide_scaled(1, bits);
    if (size.high != end.high) {
        return size.high > end.high;
    }
    return negative ? size.low > end.low : size.low >= end.low;
}


/* Of a size of more than 64 bits the first 63 are kept, and whether there is anything behind them. */
static inline uint16_t half_of_wide_sum(wide_sum sum, int32_t unit)
{
    const uint32_t sign = sum.high >> 63 ? 0x8000u : 0;
    const wide_sum size = wide_size(sum);
    int32_t drop;
    uint64_t kept, rest;
    if (!size.high) {
        return half_round(sign, size.low, unit);
    }
    drop = top_bit(size.high) + 2;
    if (drop < 64) {
        kept = (size.high << (64 - drop)) | (size.low >> drop);
        rest = size.low & (((uint64_t)1 << drop) - 1u);
    } else {
        kept = size.high >> (drop - 64);
        rest = size.low | (drop > 64 ? size.high & 1u : 0u);
    }
    return half_round(sign, kept | (rest != 0), unit + drop);
}
