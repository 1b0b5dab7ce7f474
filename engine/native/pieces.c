/* What stands between the products of a prompt, in bfloat16, one pass over memory each; pieces.py
   has the same structure. */

#include <math.h>

#include "pool.h"
#include "vectors.h"

typedef struct {
    const uint16_t *x, *y, *weight; /* (rows, width) and (width,) */
    uint16_t *out, *more;
    int64_t x_row, y_row; /* strides in elements */
    int32_t rows, width, flag, threads;
    float eps;
} Piece;

#define ROWS 8 /* at a time */

INLINE void to_bf16(uint16_t *p, V v) {
    U bits = (U)v;
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
#if LANES == 16
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16((__m512i)bits));
#else
    H h = __builtin_convertvector(bits, H);
    memcpy(p, &h, sizeof h);
#endif
}

/* out = act(x) * y; flag: GELU by tanh, else SiLU. */
static void gated_piece(const void *job, int piece) {
    const Piece *p = job;
    for (int r = piece * ROWS; r < (piece + 1) * ROWS && r < p->rows; r++)
        for (int i = 0; i < p->width; i += LANES) {
            V gate = from_bf16(p->x + r * p->x_row + i), up = from_bf16(p->y + r * p->y_row + i);
            V slope = p->flag ? 1.5957691216f * (gate + 0.044715f * gate * gate * gate) : gate;
            to_bf16(p->out + (int64_t)r * p->width + i, gate / (1 + exponential(-slope)) * up);
        }
}

/* out = x + y; more = its RMS norm. */
static void add_norm_piece(const void *job, int piece) {
    const Piece *p = job;
    for (int r = piece * ROWS; r < (piece + 1) * ROWS && r < p->rows; r++) {
        uint16_t *out = p->out + (int64_t)r * p->width, *more = p->more + (int64_t)r * p->width;
        V squares = splat(0);
        for (int i = 0; i < p->width; i += LANES) {
            to_bf16(out + i,
                    from_bf16(p->x + r * p->x_row + i) + from_bf16(p->y + r * p->y_row + i));
            V sum = from_bf16(out + i);
            squares += sum * sum;
        }
        const float scale = 1 / sqrtf(total_of(squares) / p->width + p->eps);
        for (int i = 0; i < p->width; i += LANES) {
            V v = from_bf16(out + i) * scale;
            to_bf16(more + i, p->weight ? v * from_bf16(p->weight + i) : v);
        }
    }
}

static void each(Work work, const Piece *p) {
    enter(p->threads);
    parallel(work, p, (p->rows + ROWS - 1) / ROWS);
    leave();
}

void gated(const Piece *p) { each(gated_piece, p); }
void add_norm(const Piece *p) { each(add_norm_piece, p); }
