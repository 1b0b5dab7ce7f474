/* Products of a few rows with weights in 4 or 8 bits, bfloat16 or float32: all of the time of one
   row goes into reading them. */

#include "pool.h"
#include "step.h"

#define GROUP 32 /* weights with a scale of their own */
#define TILE 8   /* rows at once */
#define NEAR 16  /* blocks that the second cache holds: rows beyond a tile read them from there */
#define AHEAD 4096

typedef struct {
    const Step *step;
    const Op *op;
    const Matrix *matrix;
    int blocks, per_piece;
} Product;

INLINE void finish(const Product *p, int r, int block, V y) {
    const Matrix *m = p->matrix;
    const Step *s = p->step;
    const int first = block * LANES, count = m->out - first < LANES ? m->out - first : LANES;
    float *dst = p->op->dst < 0 ? s->logits + r * s->vocab : row(s, r, p->op->dst);
    dst += first;
    if (count == LANES) {
        if (m->bias) y += load(m->bias + first);
        store(dst, p->op->flag ? load(dst) + y : y);
        return;
    }
    for (int i = 0; i < count; i++) {
        float value = y[i] + (m->bias ? m->bias[first + i] : 0);
        dst[i] = p->op->flag ? dst[i] + value : value;
    }
}

/* Code i of each word: 0 to 15 less 8, or a signed byte. */
INLINE V code(U words, const int bits, const int i) {
    if (bits == 8) return __builtin_convertvector((I)(words << (24 - 8 * i)) >> 24, V);
#if LANES == 16
    const __m512 table = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    return (V)_mm512_permutexvar_ps((__m512i)(words >> (4 * i)), table);
#else
    return __builtin_convertvector((I)(words >> (4 * i) & 15) - 8, V);
#endif
}

/* A block is LANES outputs by GROUP inputs: words of consecutive codes, one per output; then their
   scales in bfloat16; then, in 4 bits, their zeros. w = scale * code + zero. */
INLINE void packed_tile(const Product *p, int block, int r0, const int bits, const int R) {
    const Matrix *m = p->matrix;
    const int groups = m->in / GROUP, per_word = 32 / bits, code_bytes = LANES * GROUP * bits / 8;
    const int64_t bytes = code_bytes + LANES * (bits == 4 ? 4 : 2), stride = p->step->stride;
    const char *at = (const char *)m->weights + block * groups * bytes;
    const float *x = row(p->step, r0, p->op->src), *x_sums = row(p->step, r0, p->step->sums);
    V total[TILE];
    EACH(r, R) total[r] = splat(0);
    for (int g = 0; g < groups; g++, at += bytes) {
        V s[TILE];
        EACH(r, R) s[r] = splat(0);
        for (int j = 0; j < bits; j++) {
            U words;
            memcpy(&words, at + j * sizeof words, sizeof words);
            V a[TILE];
            EACH(i, per_word) {
                V w = code(words, bits, i);
                EACH(r, R) {
                    float xi = x[r * stride + g * GROUP + j * per_word + i];
                    a[r] = i ? a[r] + w * xi : w * xi;
                }
            }
            EACH(r, R) s[r] += a[r];
        }
        V scale = from_bf16((const uint16_t *)(at + code_bytes));
        EACH(r, R) total[r] += scale * s[r];
        if (bits == 4) {
            V zero = from_bf16((const uint16_t *)(at + code_bytes) + LANES);
            EACH(r, R) total[r] += zero * x_sums[r * stride + g];
        }
    }
    EACH(r, R) finish(p, r0 + r, block, total[r]);
}

/* Outputs one by one: several at once are several streams, at half the speed of one. What is read
   is asked for AHEAD of time, in bytes: with 8 rows that is 1.7 times as fast. */
INLINE void dense_tile(const Product *p, int block, int r0, const int type, const int R) {
    const Matrix *m = p->matrix;
    const float *x = row(p->step, r0, p->op->src);
    const int64_t stride = p->step->stride;
    const int64_t size = type == FLOAT32 ? 4 : 2;
    V y[TILE][LANES];
    for (int n = 0; n < LANES; n++) {
        const int out = block * LANES + n < m->out ? block * LANES + n : m->out - 1;
        const char *w = (const char *)m->weights + (int64_t)out * m->in * size;
        V a[TILE];
        EACH(r, R) a[r] = splat(0);
        for (int k = 0; k < m->in; k += LANES) {
            __builtin_prefetch(w + k * size + AHEAD, 0, 2);
            V wk = read(type, w, k);
            EACH(r, R) a[r] += wk * load(x + r * stride + k);
        }
        EACH(r, R) y[r][n] = a[r];
    }
    EACH(r, R) finish(p, r0 + r, block, sums(y[r]));
}

INLINE void product_tile(const Product *p, int block, int end, int r0, const int R) {
    for (; block < end; block++) switch (p->matrix->type) {
        case INT4: packed_tile(p, block, r0, 4, R <= 4 ? R : 4); break;
        case INT8: packed_tile(p, block, r0, 8, R <= 4 ? R : 4); break;
        case BFLOAT16: dense_tile(p, block, r0, BFLOAT16, R); break;
        default: dense_tile(p, block, r0, FLOAT32, R);
        }
}

static void product_piece(const void *job, int piece) {
    const Product *p = job;
    /* With eight rows the sums of packed weights would not stay in registers. */
    const int most = p->matrix->type == INT4 || p->matrix->type == INT8 ? 4 : 8;
    const int first = piece * p->per_piece, rows = p->step->rows;
    const int last = first + p->per_piece < p->blocks ? first + p->per_piece : p->blocks;
    for (int block = first; block < last; block += NEAR) {
        const int end = block + NEAR < last ? block + NEAR : last;
        for (int r = 0, R; r < rows; r += R) {
            R = rows - r < most ? rows - r : most;
            switch (R) {
            case 1: product_tile(p, block, end, r, 1); break;
            case 2: product_tile(p, block, end, r, 2); break;
            case 3: product_tile(p, block, end, r, 3); break;
            case 8: product_tile(p, block, end, r, 8); break;
            default: product_tile(p, block, end, r, R = 4);
            }
        }
    }
}

/* dst = matrix (data) * src; with a flag added to dst; dst below 0 is the logits. */
void product(const Step *s, const Op *op) {
    const Matrix *m = op->data;
    if (m->type == INT4)
        for (int r = 0; r < s->rows; r++)
            for (int g = 0; g < m->in / GROUP; g++) {
                const float *x = row(s, r, op->src) + g * GROUP;
                V a = splat(0);
                EACH(k, GROUP / LANES) a += load(x + k * LANES);
                row(s, r, s->sums)[g] = total_of(a);
            }
    int blocks = ceil_div(m->out, LANES), per_piece = ceil_div(blocks, 8 * workers());
    Product p = {s, op, m, blocks, per_piece};
    parallel(product_piece, &p, ceil_div(blocks, per_piece));
}
