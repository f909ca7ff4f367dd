/* Judge a kernel of relu by a bundle, without Python:
   quantizer vectors export --op relu --cases 64 -o bundle
   cc -O2 -o judge_relu judge_relu.c -lm && ./judge_relu bundle [RESULTS]
   With RESULTS, a folder, each case's codes are written to RESULTS/CASE.bin, for `quantizer vectors judge`. */
#include <math.h>
#include "quantizer_vectors.h"

/* The kernel under test: max(x, 0) of int8 codes, rescaled, rounded half to even, saturated. */
static void relu(const int8_t *x, int8_t *y, size_t count, double scale_x, int zero_x, double scale_y, int zero_y, int low, int high) {
    for (size_t i = 0; i < count; i++) {
        /* centred, so that 0 is the real number 0; in int, because the difference leaves int8 */
        int above = x[i] > zero_x ? x[i] - zero_x : 0;
        double rounded = nearbyint(above * scale_x / scale_y) + zero_y;
#ifdef FAULTY
        rounded += 1; /* off by one code */
#endif
        y[i] = (int8_t)(rounded < low ? low : rounded > high ? high : rounded);
    }
}

static int write_result(const char *folder, const char *id, const int8_t *codes, size_t count) {
    char path[2 * QUANTIZER_WORD];
    snprintf(path, sizeof path, "%s/%s.bin", folder, id);
    FILE *file = fopen(path, "wb");
    int written = file && fwrite(codes, 1, count, file) == count;
    return file && !fclose(file) && written ? 0 : -1;
}

int main(int count, char **words) {
    static quantizer_case test; /* some 200 kilobytes, which may be more than the stack has */
    quantizer_vectors bundle;
    long passed = 0, failed = 0, open = 0, found;
    int state;
    if (count < 2) return fprintf(stderr, "usage: judge_relu BUNDLE [RESULTS]\n"), 2;
    if (quantizer_open(&bundle, words[1])) return fprintf(stderr, "%s: %s\n", words[1], bundle.why), 2;
    while ((state = quantizer_next(&bundle, &test)) == 1) {
        const quantizer_array *x = quantizer_operand(&test, "x"), *y = &test.output;
        if (strcmp(test.op, "relu") || !x || strcmp(x->dtype, "int8") || x->count != y->count || x->slices != 1 || y->slices != 1)
            return fprintf(stderr, "%s: no relu of int8\n", test.id), 2;
        /* one more, because malloc of nothing may return NULL */
        int8_t *codes = malloc(x->count + 1), *results = malloc(y->count + 1);
        int64_t *wide = malloc((y->count + 1) * sizeof *wide);
        for (size_t i = 0; i < x->count; i++) codes[i] = (int8_t)x->codes[i];
        relu(codes, results, x->count, x->scale[0], (int)x->zero_point[0], y->scale[0], (int)y->zero_point[0], (int)y->lowest, (int)y->highest);
        for (size_t i = 0; i < y->count; i++) wide[i] = results[i];
        found = quantizer_judge(&test, wide);
        *(found > 0 ? &failed : found ? &open : &passed) += 1;
        if (count > 2 && write_result(words[2], test.id, results, y->count)) return fprintf(stderr, "cannot write\n"), 2;
        free(codes);
        free(results);
        free(wide);
        quantizer_free(&test);
    }
    quantizer_close(&bundle);
    if (state < 0) return fprintf(stderr, "%s: %s\n", words[1], bundle.why), 2;
    printf("%ld passed, %ld failed, %ld open\n", passed, failed, open);
    return failed || !passed ? 1 : 0;
}
