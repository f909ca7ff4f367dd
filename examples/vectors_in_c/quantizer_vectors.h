/* Reader of bundles that `quantizer vectors export` wrote, in C99 without a library: docs/vectors.md.

   quantizer_vectors bundle; quantizer_case test;
   quantizer_open(&bundle, "BUNDLE");                  0: opened
   while (quantizer_next(&bundle, &test) == 1) { ... quantizer_judge(&test, codes) ...; quantizer_free(&test); }
   quantizer_close(&bundle);

   The files are little-endian, and so must the machine be. Every function returns less than 0 for what cannot be read; `bundle.why`
   then says why, and nothing is left to be freed. A bundle is opened only if every file has its digest in SHA256SUMS. */
#ifndef QUANTIZER_VECTORS_H
#define QUANTIZER_VECTORS_H

#include <float.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for a word and its final 0; "%599s" below reads one byte fewer. */
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

/* A case as a model in one form. The feeds are the case's feeds from `first` on. Element i of the case's output is element
   quantizer_place(model, i) of the model's. */
typedef struct { char form[QUANTIZER_WORD], file[QUANTIZER_WORD]; int rank, axes[9], first, feed_count; int64_t shape[9]; } quantizer_model;

typedef struct {
    char id[QUANTIZER_WORD], op[QUANTIZER_WORD], scheme[QUANTIZER_WORD], platform[QUANTIZER_WORD], activation[QUANTIZER_WORD];
    char variant[QUANTIZER_WORD];
    quantizer_array operands[QUANTIZER_MOST], tables[QUANTIZER_MOST], output, low, high;
    quantizer_value values[4 * QUANTIZER_MOST];       /* attributes, factors and numbers by name */
    quantizer_model models[QUANTIZER_MOST];
    quantizer_array feeds[4 * QUANTIZER_MOST];        /* inputs of the models, in their own axis order */
    int operand_count, table_count, value_count, model_count, feed_count;
    int judged;                                       /* 0: nothing can be said of the case; never a pass */
    int64_t conclusive;                               /* an interval of more codes decides nothing */
    double divisor, *multiplier;
    int64_t *shift;
    size_t multipliers, shifts;
} quantizer_case;

typedef struct { FILE *index; char folder[QUANTIZER_WORD], why[2 * QUANTIZER_WORD]; long cases, seen; } quantizer_vectors;

/* SHA-256 of FIPS 180-4, section 6.2: one block of 64 bytes. */
static inline void quantizer_sha_block(uint32_t *state, const uint8_t *block) {
    static const uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
        0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
        0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
        0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
        0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
        0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t words[64], now[8];
#define QUANTIZER_TURN(x, n) ((x) >> (n) | (x) << (32 - (n)))
    for (int i = 0; i < 16; i++, block += 4)
        words[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = words[i - 15], b = words[i - 2];
        words[i] = words[i - 16] + (QUANTIZER_TURN(a, 7) ^ QUANTIZER_TURN(a, 18) ^ a >> 3) + words[i - 7]
            + (QUANTIZER_TURN(b, 17) ^ QUANTIZER_TURN(b, 19) ^ b >> 10);
    }
    memcpy(now, state, sizeof now);
    for (int i = 0; i < 64; i++) {
        uint32_t a = now[0], e = now[4];
        uint32_t first = now[7] + (QUANTIZER_TURN(e, 6) ^ QUANTIZER_TURN(e, 11) ^ QUANTIZER_TURN(e, 25)) + ((e & now[5]) ^ (~e & now[6]))
            + constants[i] + words[i];
        uint32_t second = (QUANTIZER_TURN(a, 2) ^ QUANTIZER_TURN(a, 13) ^ QUANTIZER_TURN(a, 22)) + ((a & now[1]) ^ (a & now[2]) ^ (now[1] & now[2]));
        memmove(now + 1, now, 7 * sizeof *now);
        now[0] = first + second;
        now[4] += first;
    }
#undef QUANTIZER_TURN
    for (int i = 0; i < 8; i++) state[i] += now[i];
}

/* Write the digest of the rest of a file as 64 hexadecimal digits; return less than 0 if it cannot be read. */
static inline int quantizer_sha_file(FILE *file, char *text) {
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t block[128]; /* two blocks: the end mark and the length may not fit behind the last bytes of the file */
    uint64_t bits = 0;
    size_t count, end;
    while ((count = fread(block, 1, 64, file)) == 64) {
        quantizer_sha_block(state, block);
        bits += 512;
    }
    if (ferror(file)) return -1;
    bits += 8 * (uint64_t)count;
    memset(block + count, 0, sizeof block - count);
    block[count] = 0x80;
    end = count < 56 ? 64 : 128; /* 1 byte for the mark and 8 for the length leave 55 of 64 */
    /* the length in bits, its highest byte first */
    for (size_t i = 1; i <= 8; i++, bits >>= 8) block[end - i] = (uint8_t)(bits & 255);
    quantizer_sha_block(state, block);
    if (end == 128) quantizer_sha_block(state, block + 64);
    for (int i = 0; i < 8; i++) snprintf(text + 8 * i, 9, "%08lx", (unsigned long)state[i]);
    return 0;
}

/* Return whether a path stays inside the bundle: letters, digits and _ . - in parts that do not begin with a point. */
static inline int quantizer_is_inside(const char *path) {
    int start = 1;
    for (; *path; path++) {
        if (start && (*path == '.' || *path == '/' || *path == '-')) return 0;
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-/", *path)) return 0;
        start = *path == '/';
    }
    return !start;
}

/* Open a file of the bundle. */
static inline FILE *quantizer_file(const quantizer_vectors *bundle, const char *name, const char *mode) {
    char path[2 * QUANTIZER_WORD + 2];
    snprintf(path, sizeof path, "%s/%s", bundle->folder, name);
    return quantizer_is_inside(name) ? fopen(path, mode) : NULL;
}

static inline int quantizer_refused(quantizer_vectors *bundle, const char *where, const char *rule) {
    snprintf(bundle->why, sizeof bundle->why, "%.*s: %s", QUANTIZER_WORD, where, rule);
    return -1;
}

/* Compare each file with its digest. The line of index.txt is the last, so that a list that is cut short is not taken for a whole one. */
static inline int quantizer_verify(quantizer_vectors *bundle) {
    char wanted[QUANTIZER_WORD], name[QUANTIZER_WORD] = "", got[65];
    FILE *sums = quantizer_file(bundle, "SHA256SUMS", "r"), *file;
    int wrong = 0;
    if (!sums) return quantizer_refused(bundle, "SHA256SUMS", "cannot be read. Name a folder that `quantizer vectors export` wrote");
    while (!wrong && fscanf(sums, "%599s", wanted) == 1) {
        if (fscanf(sums, "%599s", name) != 1) wrong = quantizer_refused(bundle, "SHA256SUMS", "a line has no name. Export the bundle anew");
        else if (!(file = quantizer_file(bundle, name, "rb"))) wrong = quantizer_refused(bundle, name, "cannot be opened. Export the bundle anew");
        else {
            if (quantizer_sha_file(file, got)) wrong = quantizer_refused(bundle, name, "cannot be read");
            else if (strcmp(got, wanted)) wrong = quantizer_refused(bundle, name, "is not the file that SHA256SUMS names. Export the bundle anew");
            fclose(file);
        }
    }
    fclose(sums);
    if (!wrong && strcmp(name, "index.txt")) wrong = quantizer_refused(bundle, "SHA256SUMS", "is cut short. Export the bundle anew");
    return wrong;
}

static inline int quantizer_word(FILE *file, char *word) { return fscanf(file, "%599s", word) == 1 ? 0 : -1; }

static inline int quantizer_whole(FILE *file, int64_t *number) {
    long long found;
    if (fscanf(file, "%lld", &found) != 1) return -1;
    *number = found;
    return 0;
}

static inline int quantizer_count(FILE *file, size_t most, size_t *number) {
    int64_t found;
    if (quantizer_whole(file, &found) || found < 0 || (uint64_t)found > most) return -1;
    *number = (size_t)found;
    return 0;
}

static inline int quantizer_reals(FILE *file, size_t count, double **values) {
    /* one more, because calloc of nothing may return NULL, which is an error here */
    *values = (double *)calloc(count + 1, sizeof(double));
    for (size_t i = 0; *values && i < count; i++)
        if (fscanf(file, "%lf", *values + i) != 1) return -1;
    return *values ? 0 : -1;
}

static inline int quantizer_wholes(FILE *file, size_t count, int64_t **values) {
    *values = (int64_t *)calloc(count + 1, sizeof(int64_t));
    for (size_t i = 0; *values && i < count; i++)
        if (quantizer_whole(file, *values + i)) return -1;
    return *values ? 0 : -1;
}

/* Read the elements of an array from its file: whole numbers into codes, others into reals. */
static inline int quantizer_elements(const quantizer_vectors *bundle, quantizer_array *array) {
    const char *type = array->dtype;
    int is_real = !strncmp(type, "float", 5), is_unsigned = type[0] == 'u' || type[0] == 'b';
    size_t size = strstr(type, "64") ? 8 : strstr(type, "32") ? 4 : strstr(type, "16") ? 2 : 1;
    FILE *file = quantizer_file(bundle, array->file, "rb");
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
        if (array->slices) wrong = array->codes[i] < array->lowest || array->codes[i] > array->highest;
    }
    wrong = wrong || fgetc(file) != EOF; /* a file that is too long is as wrong as one that is too short */
    fclose(file);
    return wrong ? -1 : 0;
}

static inline int quantizer_is_type(const char *type) {
    static const char *const known[] = {"int8", "uint8", "int16", "uint16", "int32", "int64", "float32", "float64", "bool"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(type, known[i])) return 1;
    return 0;
}

/* Read name, type, file and shape. */
static inline int quantizer_head(FILE *file, quantizer_array *array) {
    size_t rank;
    char type[QUANTIZER_WORD];
    if (quantizer_word(file, array->name) || quantizer_word(file, type) || quantizer_word(file, array->file)) return -1;
    snprintf(array->dtype, sizeof array->dtype, "%.15s", type);
    if (!quantizer_is_type(type)) return -1;
    if (quantizer_count(file, 8, &rank)) return -1;
    array->rank = (int)rank;
    array->count = 1;
    for (size_t i = 0; i < rank; i++) {
        size_t length;
        if (quantizer_count(file, (size_t)1 << 24, &length)) return -1;
        array->shape[i] = (int64_t)length;
        array->count *= length; /* two factors of at most 2^24: the product fits before it is compared */
        if (array->count > (size_t)1 << 24) return -1;
    }
    return 0;
}

static inline int quantizer_grid(FILE *file, quantizer_array *array) {
    int64_t axis;
    if (quantizer_whole(file, &array->lowest) || quantizer_whole(file, &array->highest) || quantizer_whole(file, &axis)) return -1;
    if (axis < -1 || axis >= array->rank) return -1;
    array->axis = (int)axis;
    if (quantizer_count(file, (size_t)1 << 24, &array->slices) || quantizer_reals(file, array->slices, &array->scale)
        || quantizer_wholes(file, array->slices, &array->zero_point)) return -1;
    for (size_t i = 0; i < array->slices; i++) { /* so that a kernel may divide by a scale, and subtract a zero point in its own type */
        if (!(array->scale[i] > 0 && array->scale[i] <= DBL_MAX)) return -1;
        if (array->zero_point[i] < array->lowest || array->zero_point[i] > array->highest) return -1;
    }
    return 0;
}

static inline int quantizer_value_of(FILE *file, quantizer_value *value, int has_count) {
    size_t count = 1;
    if (quantizer_word(file, value->name) || (has_count && quantizer_count(file, 8, &count))) return -1;
    value->count = (int)count;
    for (size_t i = 0; i < count; i++) {
        if (quantizer_word(file, value->text)) return -1;
        value->values[i] = strtod(value->text, NULL); /* an attribute that is a word stays in text */
    }
    return 0;
}

static inline void quantizer_close(quantizer_vectors *bundle) { if (bundle->index) fclose(bundle->index); bundle->index = NULL; }

static inline int quantizer_open(quantizer_vectors *bundle, const char *folder) {
    char word[QUANTIZER_WORD];
    int version, length;
    memset(bundle, 0, sizeof *bundle);
    length = snprintf(bundle->folder, sizeof bundle->folder, "%s", folder);
    if (length < 0 || length >= QUANTIZER_WORD) return quantizer_refused(bundle, bundle->folder, "the path is too long");
    if (quantizer_verify(bundle)) return -1;
    bundle->index = quantizer_file(bundle, "index.txt", "r");
    if (!bundle->index) return quantizer_refused(bundle, "index.txt", "cannot be opened");
    if (!quantizer_word(bundle->index, word) && !strcmp(word, "quantizer-vectors")
        && fscanf(bundle->index, "%d %ld", &version, &bundle->cases) == 2 && version == 1) return 0;
    quantizer_close(bundle);
    return quantizer_refused(bundle, "index.txt", "is no index of version 1. Take the reader of the quantizer that wrote it");
}

/* Read form, file, rank, sizes and the order of axes. */
static inline int quantizer_model_of(FILE *file, quantizer_case *test, quantizer_model *model) {
    size_t rank, number;
    unsigned seen = 0;
    model->first = test->feed_count;
    if (quantizer_word(file, model->form) || quantizer_word(file, model->file) || !quantizer_is_inside(model->file)) return -1;
    if (quantizer_count(file, 9, &rank)) return -1;
    model->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        if (quantizer_count(file, (size_t)1 << 24, &number)) return -1;
        model->shape[i] = (int64_t)number;
    }
    for (size_t i = 0; i < rank; i++) {
        if (quantizer_count(file, rank - 1, &number)) return -1;
        model->axes[i] = (int)number;
        seen |= 1u << number; /* every axis once: otherwise quantizer_place would read beyond the output */
    }
    return seen == (1u << rank) - 1 ? 0 : -1;
}

static inline int quantizer_line(quantizer_vectors *bundle, quantizer_case *test, const char *word) {
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
    if (!strcmp(word, "model") && test->model_count < QUANTIZER_MOST) return quantizer_model_of(file, test, &test->models[test->model_count++]);
    if (!strcmp(word, "feed") && test->model_count && test->feed_count < 4 * QUANTIZER_MOST) {
        quantizer_array *array = &test->feeds[test->feed_count++];
        char operand[QUANTIZER_WORD];
        test->models[test->model_count - 1].feed_count++;
        return quantizer_head(file, array) || quantizer_word(file, operand) || quantizer_elements(bundle, array) ? -1 : 0;
    }
    if (!strcmp(word, "output") && !test->output.name[0]) return quantizer_head(file, &test->output) || quantizer_grid(file, &test->output) ? -1 : 0;
    if (!strcmp(word, "allowed") && test->output.name[0] && !test->judged) {
        test->low = test->high = test->output;
        test->low.scale = test->high.scale = NULL; /* the output owns them: they must be freed once */
        test->low.zero_point = test->high.zero_point = NULL;
        if (quantizer_word(file, test->low.file) || quantizer_word(file, test->high.file) || quantizer_whole(file, &test->conclusive))
            return -1;
        test->judged = 1;
        if (quantizer_elements(bundle, &test->low) || quantizer_elements(bundle, &test->high)) return -1;
        for (size_t i = 0; i < test->output.count; i++)
            if (test->low.codes[i] > test->high.codes[i]) return -1;
        return 0;
    }
    if (!strcmp(word, "multiplier") && !test->variant[0]) {
        if (quantizer_word(file, test->variant) || fscanf(file, "%lf", &test->divisor) != 1) return -1;
        if (quantizer_count(file, (size_t)1 << 24, &test->multipliers) || quantizer_reals(file, test->multipliers, &test->multiplier))
            return -1;
        return quantizer_count(file, (size_t)1 << 24, &test->shifts) || quantizer_wholes(file, test->shifts, &test->shift) ? -1 : 0;
    }
    int has_count = !strcmp(word, "attribute");
    if (test->value_count == 4 * QUANTIZER_MOST || !(has_count || !strcmp(word, "factor") || !strcmp(word, "number"))) return -1;
    return quantizer_value_of(file, &test->values[test->value_count++], has_count);
}

static inline void quantizer_free_array(quantizer_array *array) {
    free(array->scale);
    free(array->zero_point);
    free(array->codes);
    free(array->reals);
}

static inline void quantizer_free(quantizer_case *test) {
    for (int i = 0; i < test->operand_count; i++) quantizer_free_array(&test->operands[i]);
    for (int i = 0; i < test->table_count; i++) quantizer_free_array(&test->tables[i]);
    for (int i = 0; i < test->feed_count; i++) quantizer_free_array(&test->feeds[i]);
    quantizer_free_array(&test->output);
    quantizer_free_array(&test->low);
    quantizer_free_array(&test->high);
    free(test->multiplier);
    free(test->shift);
}

static inline int quantizer_read(quantizer_vectors *bundle, quantizer_case *test) {
    char word[QUANTIZER_WORD];
    if (quantizer_word(bundle->index, test->id) || quantizer_word(bundle->index, test->op)) return -1;
    if (quantizer_word(bundle->index, test->scheme) || quantizer_word(bundle->index, test->platform)) return -1;
    if (quantizer_word(bundle->index, test->activation)) return -1;
    while (!quantizer_word(bundle->index, word)) {
        if (!strcmp(word, "end")) return test->output.name[0] ? 1 : -1;
        if (quantizer_line(bundle, test, word)) return -1;
    }
    return -1;
}

/* Read the next case. Return 1 if there is one, 0 behind the last, less than 0 if the bundle is wrong. */
static inline int quantizer_next(quantizer_vectors *bundle, quantizer_case *test) {
    char word[QUANTIZER_WORD];
    int is_end = quantizer_word(bundle->index, word);
    memset(test, 0, sizeof *test);
    if (is_end && bundle->seen == bundle->cases) return 0;
    if (is_end) return quantizer_refused(bundle, "index.txt", "has fewer cases than its first line says. Export the bundle anew");
    if (bundle->seen++ == bundle->cases) return quantizer_refused(bundle, "index.txt", "has more cases than its first line says. Export the bundle anew");
    if (strcmp(word, "case")) return quantizer_refused(bundle, word, "is no line of index.txt here: `case` must follow `end`. Export the bundle anew");
    if (quantizer_read(bundle, test) == 1) return 1;
    quantizer_refused(bundle, test->id, "has a line or a file that is wrong. Export the bundle anew");
    quantizer_free(test);
    memset(test, 0, sizeof *test);
    return -1;
}

/* Return the operand of this name, or NULL if the case has none, such as an absent bias. */
static inline const quantizer_array *quantizer_operand(const quantizer_case *test, const char *name) {
    for (int i = 0; i < test->operand_count; i++)
        if (!strcmp(test->operands[i].name, name)) return &test->operands[i];
    return NULL;
}

/* Return the attribute, factor or number of this name, or NULL if the case has none. */
static inline const quantizer_value *quantizer_named(const quantizer_case *test, const char *name) {
    for (int i = 0; i < test->value_count; i++)
        if (!strcmp(test->values[i].name, name)) return &test->values[i];
    return NULL;
}

/* Return the model in this form, or NULL if the form does not hold the case. */
static inline const quantizer_model *quantizer_form(const quantizer_case *test, const char *form) {
    for (int i = 0; i < test->model_count; i++)
        if (!strcmp(test->models[i].form, form)) return &test->models[i];
    return NULL;
}

/* Return the place, in a model's output, of element `place` of the case's output. */
static inline size_t quantizer_place(const quantizer_model *model, size_t place) {
    size_t found = 0;
    /* The case's output has the axes model->axes[0], [1], ... of the model's: take `place` apart from the last one on. */
    for (int i = model->rank - 1; i >= 0; i--) {
        size_t size = (size_t)model->shape[model->axes[i]], step = 1, index = place % (size ? size : 1);
        for (int k = model->axes[i] + 1; k < model->rank; k++) step *= (size_t)model->shape[k];
        found += index * step;
        place /= size ? size : 1;
    }
    return found;
}

/* Return how many codes are outside their intervals, and print the first. Return -1 if nothing can be said of the case: it is open, or
   every interval is too wide to decide anything. */
static inline long quantizer_judge(const quantizer_case *test, const int64_t *codes) {
    long outside = 0;
    size_t deciding = 0;
    for (size_t i = 0; test->judged && i < test->output.count; i++) {
        int64_t low = test->low.codes[i], high = test->high.codes[i];
        /* without a sign, because high - low may leave int64 */
        deciding += (uint64_t)high - (uint64_t)low < (uint64_t)test->conclusive;
        if (codes[i] >= low && codes[i] <= high) continue;
        if (!outside++)
            printf("fail: %s: element %lu: got %lld, allowed [%lld, %lld]\n", test->id, (unsigned long)i, (long long)codes[i],
                   (long long)low, (long long)high);
    }
    return test->judged && (outside || deciding || !test->output.count) ? outside : -1;
}

#endif
