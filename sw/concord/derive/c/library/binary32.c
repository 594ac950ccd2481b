/* Arithmetic of binary32 in integers, rounded to the nearest even number. A number is mantissa * 2**exponent; exponents
 * have no limits here, for what is too large or too small becomes the same code. */


typedef struct {
    int64_t mantissa;
    int32_t exponent;
} binary32;


static inline int64_t shifted_to_even(int64_t x, int32_t by) /* x / 2**by, of two integers as near the even one. */
{
    const uint64_t size = x < 0 ? -(uint64_t)x : (uint64_t)x;
    uint64_t whole, rest, middle;
    if (by <= 0) {
        return x;
    }
    if (by > 63) {
        return 0;
    }
    whole = size >> by;
    rest = size - (whole << by);
    middle = (uint64_t)1 << (by - 1);
    whole += rest > middle || (rest == middle && (whole & 1u));
    return x < 0 ? -(int64_t)whole : (int64_t)whole;
}


static inline int32_t length_of(int64_t x) /* Bits of the magnitude. */
{
    return x ? top_bit(x < 0 ? -(uint64_t)x : (uint64_t)x) + 1 : 0;
}


static inline int64_t with_24_bits(int64_t x) /* The nearest integer whose magnitude has 24 bits in front of zeros. */
{
    const int32_t excess = length_of(x) - 24;
    return excess > 0 ? shifted_to_even(x, excess) * ((int64_t)1 << excess) : x;
}


static inline binary32 binary32_rounded(int64_t mantissa, int32_t exponent)
{
    const int32_t excess = length_of(mantissa) - 24;
    binary32 y;
    y.mantissa = shifted_to_even(mantissa, excess);
    y.exponent = exponent + (excess > 0 ? excess : 0);
    return y;
}


static inline binary32 binary32_of_bits(uint32_t bits) /* Of a finite number that is not negative. */
{
    const int32_t field = (int32_t)(bits >> 23);
    binary32 y;
    y.mantissa = (int64_t)(bits & 0x7FFFFFu) + (field ? 0x800000 : 0);
    y.exponent = (field ? field : 1) - 150;
    return y;
}


static inline binary32 binary32_product(binary32 a, binary32 b)
{
    return binary32_rounded(a.mantissa * b.mantissa, a.exponent + b.exponent);
}


static inline binary32 binary32_times(binary32 a, int32_t factor) /* Exact: for one rounding behind a sum. */
{
    a.mantissa *= factor;
    return a;
}


static inline int64_t binary32_aligned(int64_t x, int32_t up) /* A bit that is lost leaves the last one set. */
{
    const uint64_t size = x < 0 ? -(uint64_t)x : (uint64_t)x;
    uint64_t down;
    if (up >= 0) {
        return x * ((int64_t)1 << up);
    }
    up = up < -62 ? 62 : -up;
    down = size >> up;
    down |= (down << up) != size;
    return x < 0 ? -(int64_t)down : (int64_t)down;
}


/* The sum of two numbers whose mantissas have at most 41 bits, rounded once. */
static inline binary32 binary32_sum(binary32 a, binary32 b)
{
    int32_t up, exponent;
    if (!a.mantissa || !b.mantissa) {
        return a.mantissa ? binary32_rounded(a.mantissa, a.exponent) : binary32_rounded(b.mantissa, b.exponent);
    }
    up = 24 - length_of(a.mantissa);
    if (up > 0) {
        a.mantissa *= (int64_t)1 << up;
        a.exponent -= up;
    }
    up = 24 - length_of(b.mantissa);
    if (up > 0) {
        b.mantissa *= (int64_t)1 << up;
        b.exponent -= up;
    }
    exponent = (a.exponent > b.exponent ? a.exponent : b.exponent) - 20;
    if (a.exponent > exponent && b.exponent > exponent) {
        exponent = a.exponent < b.exponent ? a.exponent : b.exponent;
    }
    return binary32_rounded(
        binary32_aligned(a.mantissa, a.exponent - exponent) + binary32_aligned(b.mantissa, b.exponent - exponent),
        exponent);
}


static inline binary32 binary32_quotient(binary32 a, binary32 b) /* The divisor is positive. */
{
    const uint64_t size = (a.mantissa < 0 ? -(uint64_t)a.mantissa : (uint64_t)a.mantissa) << 38;
    const uint64_t divisor = (uint64_t)b.mantissa;
    const uint64_t quotient = size / divisor | (size % divisor != 0);
    return binary32_rounded(
        a.mantissa < 0 ? -(int64_t)quotient : (int64_t)quotient, a.exponent - b.exponent - 38);
}


static inline int64_t binary32_integer(binary32 x) /* The nearest one; beyond 2**40 what is no code either. */
{
    int32_t up = x.exponent > 0 ? x.exponent : 0;
    up = up > 16 ? 16 : up;
    return shifted_to_even(x.mantissa * ((int64_t)1 << up), -x.exponent);
}
