/* Binary32 numbers in their order: the bits of a magnitude, with its sign. */


/* The place of mantissa * 2**exponent, rounded once to a binary32 number; raised if it is beyond them. */
static inline int32_t wide_rounded(int64_t mantissa, int32_t exponent, unsigned *raised)
{
    const int32_t length = length_of(mantissa);
    int32_t up = length - 24;
    int64_t size, place;
    if (!mantissa) {
        return 0;
    }
    up = up > -149 - exponent ? up : -149 - exponent;
    size = shifted_to_even(mantissa < 0 ? -mantissa : mantissa, up) * ((int64_t)1 << (up < 0 ? -up : 0));
    place = (int64_t)(exponent + up + 149) * 8388608 + size;
    if (place > 2139095039) {
        *raised = 1;
        place = 2139095039;
    }
    return (int32_t)(mantissa < 0 ? -place : place);
}


static inline binary32 wide_number(int32_t place)
{
    binary32 y = binary32_of_bits((uint32_t)(place < 0 ? -place : place));
    y.mantissa = place < 0 ? -y.mantissa : y.mantissa;
    return y;
}


static inline int32_t wide_numbers_product(int32_t a, int32_t b, unsigned *raised)
{
    const binary32 x = wide_number(a), y = wide_number(b);
    return wide_rounded(x.mantissa * y.mantissa, x.exponent + y.exponent, raised);
}


static inline int32_t wide_numbers_sum(int32_t a, int32_t b, unsigned *raised)
{
    const binary32 y = binary32_sum(wide_number(a), wide_number(b));
    return wide_rounded(y.mantissa, y.exponent, raised);
}
