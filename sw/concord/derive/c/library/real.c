/* Real numbers as patterns of IEEE 754 binary64, for what a host does to inputs; in integers, too. */


static inline uint64_t real_of_single(uint32_t x) /* A pattern of binary32, exactly. */
{
    const uint64_t sign = (uint64_t)(x >> 31) << 63;
    const uint32_t field = (x >> 23) & 0xFFu, fraction = x & 0x7FFFFFu;
    int32_t top;
    if (field == 0xFFu) {
        return sign | ((uint64_t)0x7FF << 52) | (uint64_t)fraction << 29;
    }
    if (field) {
        return sign | (uint64_t)(field + 896u) << 52 | (uint64_t)fraction << 29;
    }
    if (!fraction) {
        return sign;
    }
    top = top_bit(fraction);
    return sign | (uint64_t)(top + 874) << 52 | (((uint64_t)fraction << (52 - top)) & 0xFFFFFFFFFFFFFu);
}


static inline uint32_t single_of_half(uint16_t x) /* A pattern of binary32, exactly; any NaN is the quiet one. */
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, size = half_significand(x);
    int32_t top;
    if (!is_finite(x)) {
        return is_nan(x) ? 0x7FC00000u : sign | 0x7F800000u;
    }
    if (!size) {
        return sign;
    }
    top = top_bit(size);
    return sign | (uint32_t)(top + half_field(x) + 102) << 23 | ((size << (23 - top)) & 0x7FFFFFu);
}


static inline bool real_fits(uint64_t x) /* Whether a device takes it: finite, and not infinite in binary16. */
{
    return (x & 0x7FFFFFFFFFFFFFFFu) < 0x40EFFE0000000000u;
}


static inline uint16_t half_of_real(uint64_t x)
{
    const uint32_t sign = x >> 63 ? 0x8000u : 0;
    const int32_t field = (int32_t)((x >> 52) & 0x7FFu);
    const uint64_t fraction = x & 0xFFFFFFFFFFFFFu;
    if (field == 0x7FF) {
        return fraction ? (uint16_t)0x7E00u : (uint16_t)(sign | 0x7C00u);
    }
    return half_round(sign, field ? fraction | (uint64_t)1 << 52 : fraction, (field ? field : 1) - 1075);
}


static inline uint64_t real_scaled(uint64_t x, int32_t power) /* x * 2**power; what is too small becomes a zero. */
{
    const int32_t field = (int32_t)((x >> 52) & 0x7FFu);
    if (field == 0x7FF) {
        return x;
    }
    if (!field || field + power < 1) {
        return x & (uint64_t)1 << 63;
    }
    if (field + power > 0x7FE) {
        return (x & (uint64_t)1 << 63) | (uint64_t)0x7FF << 52;
    }
    return x + ((uint64_t)(int64_t)power << 52);
}


/* a - b of numbers that are finite and not tiny: one rounding, to nearest even; what is tiny counts as a zero. */
static inline uint64_t real_sub(uint64_t a, uint64_t b)
{
    const uint64_t top = (uint64_t)1 << 63, unit = (uint64_t)1 << 52;
    uint64_t x = a & (top - 1u), y = b & (top - 1u), sign = a & top, size, rest;
    int32_t field, shift;
    bool less;
    b ^= top;
    if (y > x) {
        const uint64_t z = x;
        x = y;
        y = z;
        sign = b & top;
    }
    less = ((a ^ b) & top) != 0;
    field = (int32_t)(x >> 52);
    if (field == 0x7FF) {
        return sign | x;
    }
    if (y < unit) {
        return x < unit ? a & b & top : sign | x;
    }
    shift = field - (int32_t)(y >> 52);
    x = ((x & (unit - 1u)) | unit) << 10;
    y = ((y & (unit - 1u)) | unit) << 10;
    rest = shift > 62 || (y & (((uint64_t)1 << shift) - 1u)) != 0;
    y = (shift > 62 ? 0 : y >> shift) | rest;
    size = less ? x - y : x + y;
    if (!size) {
        return 0;
    }
    shift = top_bit(size) - 52;
    field += shift - 10;
    if (shift <= 0) {
        size <<= -shift;
    } else {
        rest = size & (((uint64_t)1 << shift) - 1u);
        size >>= shift;
        size += rest > (uint64_t)1 << (shift - 1) || (rest == (uint64_t)1 << (shift - 1) && (size & 1u));
        if (size >> 53) {
            size >>= 1;
            field += 1;
        }
    }
    return field < 1 ? sign : sign | ((uint64_t)field << 52) | (size & (unit - 1u));
}


/* The nearest code * 2**exponent of least .. greatest, ties to even. A zero keeps its sign. */
static inline uint64_t on_grid(uint64_t x, int32_t exponent, int32_t least, int32_t greatest)
{
    const int32_t field = (int32_t)((x >> 52) & 0x7FFu), right = 1075 + exponent - field;
    const uint64_t size = (x & 0xFFFFFFFFFFFFFu) | (uint64_t)1 << 52;
    uint64_t whole, middle, rest;
    int64_t code;
    int32_t top;
    if (field == 0 || right > 54) {
        whole = 0;
    } else if (right <= 0) {
        whole = right < -9 ? (uint64_t)1 << 62 : size << -right;
    } else {
        middle = (uint64_t)1 << (right - 1);
        rest = size & ((middle << 1) - 1u);
        whole = size >> right;
        whole += rest > middle || (rest == middle && (whole & 1u));
    }
    code = x >> 63 ? -(int64_t)whole : (int64_t)whole;
    if (!code && least <= 0 && greatest >= 0) {
        return x & (uint64_t)1 << 63;
    }
    code = code < least ? least : code > greatest ? greatest : code;
    if (!code) {
        return 0;
    }
    whole = code < 0 ? (uint64_t)-code : (uint64_t)code;
    top = top_bit(whole);
    return (code < 0 ? (uint64_t)1 << 63 : 0) | (uint64_t)(1023 + top + exponent) << 52 |
           ((whole << (52 - top)) & 0xFFFFFFFFFFFFFu);
}
