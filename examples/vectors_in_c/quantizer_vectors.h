/* Reader of bundles that `quantizer vectors export` wrote, in C99 without a library: docs/vectors.md.

   quantizer_vectors bundle; quantizer_case test;
   quantizer_open(&bundle, "BUNDLE");                  0: opened
   while (quantizer_next(&bundle, &test) == 1) { ... quantizer_judge(&test, codes) ...; quantizer_free(&test); }
   quantizer_close(&bundle);

   The files are little-endian; so must the machine be. Every function returns less than 0 for what cannot be read. */
#ifndef QUANTIZER_VECTORS_H
#define QUANTIZER_VECTORS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUANTIZER_WORD 600
#define QUANTIZER_MOST 16

typedef struct {
    char name[QUANTIZER_WORD], dtype[16], file[QUANTIZER_WORD];
    int rank, axis;          /* axis of the slices, -1: one scale for all */
    size_t count, slices;    /* elements; scales and zero points, 0 where the elements are no codes */
    int64_t shape[8], lowest, highest, first, step;
    double unit;             /* of a table: entry i belongs to first + i * step, and is i * unit in reals */
    double *scale;
    int64_t *zero_point, *codes; /* codes: every type of whole numbers */
    double *reals;               /* float32 and float64 */
} quantizer_array;

typedef struct { char name[QUANTIZER_WORD], text[QUANTIZER_WORD]; int count; double values[8]; } quantizer_value;

typedef struct {
    char id[QUANTIZER_WORD], op[QUANTIZER_WORD], scheme[QUANTIZER_WORD], platform[QUANTIZER_WORD], activation[QUANTIZER_WORD];
    char variant[QUANTIZER_WORD];
    quantizer_array operands[QUANTIZER_MOST], tables[QUANTIZER_MOST], output, low, high;
    quantizer_value values[4 * QUANTIZER_MOST];       /* attributes, factors and numbers by name */
    int operand_count, table_count, value_count;
    int judged;                                       /* 0: nothing can be said of the case; never a pass */
    int64_t conclusive;                               /* an interval of more codes decides nothing */
    double divisor, *multiplier;
    int64_t *shift;
    size_t multipliers, shifts;
} quantizer_case;

typedef struct { FILE *index; char folder[QUANTIZER_WORD]; long cases; } quantizer_vectors;

static int quantizer_word(FILE *file, char *word) { return fscanf(file, "%599s", word) == 1 ? 0 : -1; }

static int quantizer_whole(FILE *file, int64_t *number) {
    long long found;
    if (fscanf(file, "%lld", &found) != 1) return -1;
    *number = found;
    return 0;
}

static int quantizer_count(FILE *file, size_t most, size_t *number) {
    int64_t found;
    if (quantizer_whole(file, &found) || found < 0 || (uint64_t)found > most) return -1;
    *number = (size_t)found;
    return 0;
}

static int quantizer_reals(FILE *file, size_t count, double **values) {
    *values = (double *)calloc(count + 1, sizeof(double));
    for (size_t i = 0; *values && i < count; i++)
        if (fscanf(file, "%lf", *values + i) != 1) return -1;
    return *values ? 0 : -1;
}

static int quantizer_wholes(FILE *file, size_t count, int64_t **values) {
    *values = (int64_t *)calloc(count + 1, sizeof(int64_t));
    for (size_t i = 0; *values && i < count; i++)
        if (quantizer_whole(file, *values + i)) return -1;
    return *values ? 0 : -1;
}

/* Read the elements of an array from its file: whole numbers into codes, others into reals. */
static int quantizer_elements(const quantizer_vectors *bundle, quantizer_array *array) {
    char path[2 * QUANTIZER_WORD + 2], type[16];
    snprintf(path, sizeof path, "%s/%s", bundle->folder, array->file);
    snprintf(type, sizeof type, "%s", array->dtype);
    int is_real = !strncmp(type, "float", 5), is_unsigned = type[0] == 'u' || type[0] == 'b';
    size_t size = strstr(type, "64") ? 8 : strstr(type, "32") ? 4 : strstr(type, "16") ? 2 : 1;
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    array->codes = (int64_t *)calloc(array->count + 1, sizeof(int64_t));
    array->reals = (double *)calloc(array->count + 1, sizeof(double));
    int wrong = !array->codes || !array->reals;
    for (size_t i = 0; !wrong && i < array->count; i++) {
        union { uint8_t bytes[8]; int8_t i8; uint8_t u8; int16_t i16; uint16_t u16; int32_t i32; int64_t i64; float f32; double f64; } raw;
        wrong = fread(raw.bytes, size, 1, file) != 1;
        if (wrong) break;
        if (is_real) array->reals[i] = size == 4 ? raw.f32 : raw.f64;
        else if (size == 1) array->codes[i] = is_unsigned ? raw.u8 : raw.i8;
        else if (size == 2) array->codes[i] = is_unsigned ? raw.u16 : raw.i16;
        else array->codes[i] = size == 4 ? raw.i32 : raw.i64;
    }
    wrong = wrong || fgetc(file) != EOF;
    fclose(file);
    return wrong ? -1 : 0;
}

/* Read name, type, file and shape. */
static int quantizer_head(FILE *file, quantizer_array *array) {
    size_t rank;
    char type[QUANTIZER_WORD];
    if (quantizer_word(file, array->name) || quantizer_word(file, type) || quantizer_word(file, array->file)) return -1;
    snprintf(array->dtype, sizeof array->dtype, "%.15s", type);
    if (quantizer_count(file, 8, &rank)) return -1;
    array->rank = (int)rank;
    array->count = 1;
    for (size_t i = 0; i < rank; i++) {
        size_t length;
        if (quantizer_count(file, (size_t)1 << 24, &length)) return -1;
        array->shape[i] = (int64_t)length;
        array->count *= length;
        if (array->count > (size_t)1 << 24) return -1;
    }
    return 0;
}

static int quantizer_grid(FILE *file, quantizer_array *array) {
    int64_t axis;
    if (quantizer_whole(file, &array->lowest) || quantizer_whole(file, &array->highest) || quantizer_whole(file, &axis)) return -1;
    array->axis = (int)axis;
    return quantizer_count(file, (size_t)1 << 24, &array->slices) || quantizer_reals(file, array->slices, &array->scale)
        || quantizer_wholes(file, array->slices, &array->zero_point) ? -1 : 0;
}

static int quantizer_value_of(FILE *file, quantizer_value *value, int has_count) {
    size_t count = 1;
    if (quantizer_word(file, value->name) || (has_count && quantizer_count(file, 8, &count))) return -1;
    value->count = (int)count;
    for (size_t i = 0; i < count; i++) {
        if (quantizer_word(file, value->text)) return -1;
        value->values[i] = strtod(value->text, NULL); /* an attribute that is a word stays in text */
    }
    return 0;
}

static int quantizer_open(quantizer_vectors *bundle, const char *folder) {
    char path[QUANTIZER_WORD + 16], word[QUANTIZER_WORD];
    int version;
    snprintf(bundle->folder, sizeof bundle->folder, "%s", folder);
    snprintf(path, sizeof path, "%s/index.txt", bundle->folder);
    bundle->index = fopen(path, "r");
    if (!bundle->index) return -1;
    if (quantizer_word(bundle->index, word) || strcmp(word, "quantizer-vectors")) return -1;
    return fscanf(bundle->index, "%d %ld", &version, &bundle->cases) == 2 && version == 1 ? 0 : -1;
}

static void quantizer_close(quantizer_vectors *bundle) { if (bundle->index) fclose(bundle->index); bundle->index = NULL; }

static int quantizer_line(quantizer_vectors *bundle, quantizer_case *test, const char *word) {
    FILE *file = bundle->index;
    if (!strcmp(word, "operand") && test->operand_count < QUANTIZER_MOST) {
        quantizer_array *array = &test->operands[test->operand_count++];
        return quantizer_head(file, array) || quantizer_grid(file, array) || quantizer_elements(bundle, array) ? -1 : 0;
    }
    if (!strcmp(word, "table") && test->table_count < QUANTIZER_MOST) {
        quantizer_array *array = &test->tables[test->table_count++];
        if (quantizer_head(file, array) || quantizer_whole(file, &array->first) || quantizer_whole(file, &array->step)) return -1;
        return fscanf(file, "%lf", &array->unit) != 1 || quantizer_elements(bundle, array) ? -1 : 0;
    }
    if (!strcmp(word, "output")) return quantizer_head(file, &test->output) || quantizer_grid(file, &test->output) ? -1 : 0;
    if (!strcmp(word, "allowed")) {
        test->low = test->high = test->output;
        test->low.scale = test->high.scale = NULL;
        test->low.zero_point = test->high.zero_point = NULL;
        if (quantizer_word(file, test->low.file) || quantizer_word(file, test->high.file) || quantizer_whole(file, &test->conclusive))
            return -1;
        test->judged = 1;
        return quantizer_elements(bundle, &test->low) || quantizer_elements(bundle, &test->high) ? -1 : 0;
    }
    if (!strcmp(word, "multiplier")) {
        if (quantizer_word(file, test->variant) || fscanf(file, "%lf", &test->divisor) != 1) return -1;
        if (quantizer_count(file, (size_t)1 << 24, &test->multipliers) || quantizer_reals(file, test->multipliers, &test->multiplier))
            return -1;
        return quantizer_count(file, (size_t)1 << 24, &test->shifts) || quantizer_wholes(file, test->shifts, &test->shift) ? -1 : 0;
    }
    int has_count = !strcmp(word, "attribute");
    if (test->value_count == 4 * QUANTIZER_MOST || !(has_count || !strcmp(word, "factor") || !strcmp(word, "number"))) return -1;
    return quantizer_value_of(file, &test->values[test->value_count++], has_count);
}

/* Read the next case: 1 where there is one, 0 behind the last, less than 0 where the bundle is wrong. */
static int quantizer_next(quantizer_vectors *bundle, quantizer_case *test) {
    char word[QUANTIZER_WORD];
    memset(test, 0, sizeof *test);
    if (quantizer_word(bundle->index, word)) return 0;
    if (strcmp(word, "case") || quantizer_word(bundle->index, test->id) || quantizer_word(bundle->index, test->op)) return -1;
    if (quantizer_word(bundle->index, test->scheme) || quantizer_word(bundle->index, test->platform)) return -1;
    if (quantizer_word(bundle->index, test->activation)) return -1;
    while (!quantizer_word(bundle->index, word)) {
        if (!strcmp(word, "end")) return 1;
        if (quantizer_line(bundle, test, word)) return -1;
    }
    return -1;
}

/* Return how many codes are outside their intervals and print the first; -1 where nothing can be said of the case. */
static long quantizer_judge(const quantizer_case *test, const int64_t *codes) {
    long outside = 0;
    for (size_t i = 0; test->judged && i < test->output.count; i++) {
        if (codes[i] >= test->low.codes[i] && codes[i] <= test->high.codes[i]) continue;
        if (!outside++)
            printf("fail: %s: element %zu: got %lld, allowed [%lld, %lld]\n", test->id, i, (long long)codes[i],
                   (long long)test->low.codes[i], (long long)test->high.codes[i]);
    }
    return test->judged ? outside : -1;
}

static void quantizer_free_array(quantizer_array *array) {
    free(array->scale);
    free(array->zero_point);
    free(array->codes);
    free(array->reals);
}

static void quantizer_free(quantizer_case *test) {
    for (int i = 0; i < test->operand_count; i++) quantizer_free_array(&test->operands[i]);
    for (int i = 0; i < test->table_count; i++) quantizer_free_array(&test->tables[i]);
    quantizer_free_array(&test->output);
    quantizer_free_array(&test->low);
    quantizer_free_array(&test->high);
    free(test->multiplier);
    free(test->shift);
}

#endif
