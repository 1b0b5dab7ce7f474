/* What a step is given; program.py has the same structures. */

#pragma once

#include <stdint.h>

#include "vectors.h"

typedef struct {
    int32_t type, out, in;
    const void *weights; /* row-major (out, in), or blocks */
    const float *bias;   /* or none */
} Matrix;

/* dst, src: where in a row of the arena. What the other fields mean is said at each operation. */
typedef struct {
    int32_t kind, dst, src, width, heads, index, flag;
    float a, b;
    const void *data, *more;
} Op;

typedef struct {
    char *k, *v;
    int64_t layer, row, position, head; /* strides in elements */
    int64_t length;
} Span;

typedef struct {
    int32_t rows, threads, n_head, n_kv_head, head_dim, kv_type;
    int32_t stride; /* floats of a row of the arena */
    int32_t sums;   /* where in it the sums of 32 activations each are */
    float scale;
    const int64_t *ids;
    float *arena, *logits;
    int64_t vocab;
    const float *turns[4];
    float *partials;
    Span shared, own;
} Step;

INLINE float *row(const Step *s, int r, int offset) {
    return s->arena + (int64_t)r * s->stride + offset;
}

void product(const Step *s, const Op *op);
void attend(const Step *s, const Op *op);
