/* A toy simulator: fully_connected and relu of a chip with int8 codes, 64-bit sums and a float32 rescale.
 *
 * cc -O2 -shared -fPIC -o libsimulator.so simulator.c -lm
 * With -DFAULTY it rounds toward zero, a fault that the gate shows.
 */
#include <math.h>
#include <stdint.h>

static int8_t saturated(double value, int32_t zero, int32_t lowest, int32_t highest)
{
#ifdef FAULTY
    double code = trunc(value) + zero;
#else
    double code = nearbyint(value) + zero; /* the default mode: ties to even */
#endif
    if (code < lowest) code = lowest; /* as doubles: a cast of a number outside int8 is undefined */
    if (code > highest) code = highest;
    return (int8_t)code;
}

/* x[rows][in], weight[out][in], bias[out] (or NULL), y[rows][out]; ratio[out] = s_x * s_w / s_y as float32; real: bit 0 relu. */
void fully_connected(const int8_t *x, const int8_t *weight, const int32_t *bias, int8_t *y, int32_t rows, int32_t in,
                     int32_t out, int32_t zero_x, const float *ratio, int32_t zero_y, int32_t lowest, int32_t highest,
                     int32_t relu)
{
    for (int32_t row = 0; row < rows; ++row)
        for (int32_t o = 0; o < out; ++o) {
            int64_t sum = bias ? bias[o] : 0; /* in 32 bits a large bias plus a product overflows: try it */
            for (int32_t i = 0; i < in; ++i)
                sum += (int64_t)((int32_t)x[row * in + i] - zero_x) * weight[o * in + i];
            if (relu && sum < 0) sum = 0; /* sums are centred: 0 is the real number 0 */
            /* the product is rounded to float32 before it is rounded to a code, as the chip does it */
            y[row * out + o] = saturated((float)sum * ratio[o], zero_y, lowest, highest);
        }
}

void relu(const int8_t *x, int8_t *y, int64_t count, int32_t zero_x, float ratio, int32_t zero_y, int32_t lowest,
          int32_t highest)
{
    for (int64_t i = 0; i < count; ++i) {
        int32_t centred = (int32_t)x[i] - zero_x; /* up to 255, which int8 does not hold */
        y[i] = saturated((float)(centred > 0 ? centred : 0) * ratio, zero_y, lowest, highest);
    }
}
