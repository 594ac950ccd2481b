/* From exact numbers to codes, by way of binary32. */


static inline int32_t limited(int64_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : (int32_t)x;
}


static inline int64_t rounded_twice(int64_t x, int32_t shift) /* x / 2**shift to binary32, and then to an integer. */
{
    return shifted_to_even(with_24_bits(x), shift);
}


/* The same within limits: x is below 2**62 in magnitude, and shift is 1 to 62. One rounding gives the same integer but
 * beside the middle between two of them: there are all numbers whose fraction, counted in 2**-64 from the middle on, is
 * at most near in magnitude. */
static inline int32_t requantised(int64_t x, int32_t shift, uint64_t near, int32_t low, int32_t high)
{
    const uint64_t up = (uint64_t)x + ((uint64_t)1 << 62) + ((uint64_t)1 << (shift - 1));
    int64_t whole = (int64_t)(up >> shift) - (int64_t)((uint64_t)1 << (62 - shift));
    if ((up << (64 - shift)) + near <= 2 * near) {
        whole = rounded_twice(x, shift);
    }
    return limited(whole, low, high);
}


static inline int32_t fitted(int64_t sum, unsigned *raised) /* A sum in 32 bits; raised if it does not fit. */
{
    const int32_t fits = limited(sum, -2147483647 - 1, 2147483647);
    *raised |= fits != sum;
    return fits;
}


/* A sum between two numbers; raised if it is not. */
static inline int64_t fitted_between(int64_t sum, int64_t least, int64_t most, unsigned *raised)
{
    *raised |= sum < least || sum > most;
    return sum < least ? least : sum > most ? most : sum;
}
