/* Data movement. */


/* A window of a map [height, width, inner] with steps between elements; what lies outside is filled. */
static inline void window_INTO_TYPE(
    INTO_t *restrict y, const TYPE_t *restrict x, int32_t row, int32_t column, int32_t height, int32_t width,
    int32_t inner, int32_t rows, int32_t columns, int32_t down, int32_t right, int32_t step_down, int32_t step_right,
    int32_t step, INTO_t fill)
{
    int32_t u, v, c;
    for (u = 0; u < rows; ++u) {
        const int32_t i = row + u * down;
        for (v = 0; v < columns; ++v) {
            const int32_t j = column + v * right;
            if (i >= 0 && i < height && j >= 0 && j < width) {
                const TYPE_t *const from = x + i * step_down + j * step_right;
                for (c = 0; c < inner; ++c) {
                    y[c] = from[c * step];
                }
            } else {
                for (c = 0; c < inner; ++c) {
                    y[c] = fill;
                }
            }
            y += inner;
        }
    }
}
