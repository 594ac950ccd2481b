/* Products with multipliers in fixed point, and what else the kernels of TensorFlow Lite compute in integers. */


static inline int64_t shifted_down(int64_t x, int32_t by) /* x / 2**by, rounded down; x is at least -2**62. */
{
    const uint64_t base = (uint64_t)1 << 62;
    return (int64_t)(((uint64_t)x + base) >> by) - (int64_t)(base >> by);
}


static inline int32_t high_product(int32_t a, int32_t b) /* a * b / 2**31, halves up. */
{
    return (int32_t)shifted_down((int64_t)a * b + ((int64_t)1 << 30), 31);
}


static inline int32_t divided(int32_t x, int32_t bits) /* x / 2**bits, halves away from zero. */
{
    const int64_t half = ((int64_t)1 << bits) >> 1;
    return (int32_t)shifted_down(x + half - (x < 0 && bits > 0), bits);
}


/* x * multiplier / 2**(31 + down), rounded twice: to an integer in front of the shift, and behind it. */
static inline int32_t fixed_point_product(int32_t x, int32_t multiplier, int32_t down)
{
    return divided(high_product(x, multiplier), down);
}


static inline int32_t nearest_quotient(int32_t x, int32_t count) /* x / count, halves away from zero. */
{
    return (x < 0 ? x - count / 2 : x + count / 2) / count;
}


/* sum * factor / 2**down, halves up; sum has 48 bits, factor has 16. */
static inline int64_t rounded_product(int64_t sum, int32_t factor, int32_t down)
{
    return shifted_down(sum * factor + ((int64_t)1 << (down - 1)), down);
}


/* sum * significand * 2**exponent as a product of binary64, and then the nearest integer, halves away from zero. The sum
 * has 36 bits, the significand 53, and the exponent is negative unless the result is far beyond all codes. */
static inline int64_t binary64_product(int64_t sum, int64_t significand, int32_t exponent)
{
    const uint64_t lower_bits = ((uint64_t)1 << 27) - 1;
    const uint64_t size = sum < 0 ? -(uint64_t)sum : (uint64_t)sum;
    const int32_t up = 35 - length_of(sum);
    const uint64_t lower = (size << up) * ((uint64_t)significand & lower_bits);
    uint64_t product = (size << up) * ((uint64_t)significand >> 27) + (lower >> 27);
    int32_t excess, down;
    product |= (lower & lower_bits) != 0;
    excess = length_of((int64_t)product) - 53;
    excess = excess > 0 ? excess : 0;
    down = up - exponent - 27 - excess;
    down = down < 0 ? 0 : down > 62 ? 62 : down;
    product = ((uint64_t)shifted_to_even((int64_t)product, excess) + (((uint64_t)1 << down) >> 1)) >> down;
    return sum < 0 ? -(int64_t)product : (int64_t)product;
}


static inline int32_t saturated(int64_t x)
{
    return limited(x, -2147483647 - 1, 2147483647);
}


/* 2**(30 + bits) / value nearly, of a positive value of so many bits: three steps of Newton's iteration. */
static inline int32_t reciprocal(int32_t value, int32_t bits)
{
    const int32_t half = (int32_t)((int64_t)value << (31 - bits));
    int32_t x = 1515870810 + high_product(half, -1010580540), step;
    for (step = 0; step < 3; ++step) {
        const int32_t missing = (1 << 29) - high_product(half, x);
        x += saturated((int64_t)high_product(x, missing) * 4);
    }
    return saturated((int64_t)x * 2);
}


/* A function of codes of 16 bits from 513 values: on lines between neighbours, halves up. */
static inline int32_t interpolated(int32_t x, const int16_t *table)
{
    const int32_t place = x + 32768, slope = table[(place >> 7) + 1] - table[place >> 7];
    return table[place >> 7] + (int32_t)shifted_down((int64_t)slope * (place & 127) + 64, 7);
}


/* 2**(bits + 14) / value nearly, of a positive value of so many bits. */
static inline int32_t interpolated_reciprocal(int32_t value, int32_t bits, const int16_t *table)
{
    const int64_t mantissa = shifted_down(((int64_t)value << (31 - bits)) + (1 << 13), 14) - (3 << 15);
    return interpolated(limited(mantissa, -32768, 32767), table);
}
