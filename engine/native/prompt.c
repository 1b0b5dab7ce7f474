/* Causal attention of a prompt, or of a part of one, in bfloat16, on processors that multiply its
   pairs (AVX512_BF16): keys and values are laid out once, then blocks of queries, all heads of a
   group in one, go over the keys that they see with a running softmax (Dao 2022). Scores, weights'
   sums and results are float32. prompt.py has the same structure. */

#include <math.h>

#include "pool.h"
#include "vectors.h"

typedef struct {
    const uint16_t *q, *k, *v; /* bfloat16 */
    uint16_t *out;             /* (batch, time, n_head, head_dim), bfloat16 */
    uint32_t *keys,
        *values; /* room for the laid out: (batch, n_kv_head, blocks, KEYS * head_dim / 2) */
    int64_t q_row, q_time, q_head, kv_row, kv_position, kv_head; /* strides in elements */
    int32_t batch, time, length, n_head, n_kv_head, head_dim, left, threads;
    float scale;
} Prompt;

#define KEYS 64 /* of a block */

int block_keys(void) { return KEYS; }

#ifdef __AVX512BF16__

#define ROWS 48 /* queries, over the heads of a group, of a block */
#define TILE 6  /* of them at once */
#define MOST_DIM 256

INLINE int smaller(int a, int b) { return a < b ? a : b; }
INLINE V multiply_pairs(V sum, U a, U b) {
    return (V)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
INLINE U words(const uint32_t *p) {
    U u;
    memcpy(&u, p, sizeof u);
    return u;
}
INLINE U every(uint32_t word) { return (U)_mm512_set1_epi32((int)word); }

/* Keys: [pair of dimensions][key]. Values: [pair of keys][dimension]. */
static void lay_out(const void *job, int piece) {
    const Prompt *p = job;
    const int blocks = (p->length + KEYS - 1) / KEYS, dim = p->head_dim;
    const int block = piece % blocks, head = piece / blocks % p->n_kv_head,
              r = piece / blocks / p->n_kv_head;
    const int64_t offset =
        r * p->kv_row + head * p->kv_head + (int64_t)block * KEYS * p->kv_position;
    const int64_t place = (int64_t)piece * KEYS * dim / 2;
    const int count = smaller(KEYS, p->length - block * KEYS);
    uint32_t *keys = p->keys + place, *values = p->values + place;
    for (int key = 0; key < KEYS; key += LANES)
        for (int d = 0; d < dim / 2; d += LANES) {
            V rows[LANES];
            for (int i = 0; i < LANES; i++)
                if (key + i < count)
                    memcpy(rows + i, p->k + offset + (key + i) * p->kv_position + 2 * d, sizeof(V));
                else
                    rows[i] = splat(0);
            transpose(rows);
            for (int i = 0; i < LANES; i++)
                memcpy(keys + (d + i) * KEYS + key, rows + i, sizeof(V));
        }
    for (int key = 0; key < KEYS; key += 2)
        for (int d = 0; d < dim; d += LANES) {
            U low = {0}, high = {0};
            const uint16_t *v = p->v + offset + key * p->kv_position + d;
            if (key < count) low = (U)from_bf16(v) >> 16;
            if (key + 1 < count) high = (U)from_bf16(v + p->kv_position);
            low |= high;
            memcpy(values + key / 2 * dim + d, &low, sizeof low);
        }
}

/* out (TILE, 16 * S) += or = the pairs of each row by those of `columns`, whose rows are `width`
 * apart. */
INLINE void multiply(const uint32_t *const *rows, int pairs, const uint32_t *columns, int width,
                     const int S, float *out, int stride, int add) {
    V sum[TILE][4];
    EACH(r, TILE)
        EACH(j, S) sum[r][j] = add ? load(out + r * stride + j * LANES) : splat(0);
    for (int i = 0; i < pairs; i++, columns += width) {
        U column[4];
        EACH(j, S) column[j] = words(columns + j * LANES);
        EACH(r, TILE) {
            U pair = every(rows[r][i]);
            EACH(j, S) sum[r][j] = multiply_pairs(sum[r][j], pair, column[j]);
        }
    }
    EACH(r, TILE)
        EACH(j, S) store(out + r * stride + j * LANES, sum[r][j]);
}

typedef struct {
    float top, sum;
} Softmax;

/* 2^y for y up to 0, by its series around the nearest whole number. */
INLINE V power_of_2(V y) {
    y = pick(y < -126.0f, splat(-126.0f), y);
    V n = y + 12582912.0f;
    I exponent = (I)n << 23;
    V x = y - (n - 12582912.0f), p = splat(1.5403530e-4f);
    p = p * x + 1.3333558e-3f;
    p = p * x + 9.6181291e-3f;
    p = p * x + 5.5504109e-2f;
    p = p * x + 2.4022651e-1f;
    p = p * x + 6.9314718e-1f;
    p = p * x + 1.0f;
    return (V)((I)p + exponent);
}

/* Scores of one row, times `scale` the logarithms to base 2 of its weights, become weights, in
   bfloat16; its output so far is scaled to the new maximum. Seen are the keys from `first` up to
   `end`. */
INLINE void soften(const float *scores, int first, int end, float scale, Softmax *of,
                   uint16_t *weights, float *out, int dim) {
    const I lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int hides = first > 0 || end < KEYS;
    V x[KEYS / LANES], most = splat(-INFINITY), sum = splat(0);
    EACH(j, KEYS / LANES) {
        x[j] = load(scores + j * LANES) * scale;
        I key = lane + j * LANES;
        if (hides) x[j] = pick((key >= first) & (key < end), x[j], splat(-INFINITY));
        most = (V)_mm512_max_ps((__m512)most, (__m512)x[j]);
    }
    const float top = _mm512_reduce_max_ps((__m512)most);
    if (top > of->top) {
        const float shrink = exp2f(of->top - top);
        of->sum *= shrink;
        of->top = top;
        for (int d = 0; d < dim; d += LANES) store(out + d, load(out + d) * shrink);
    }
    EACH(j, KEYS / LANES) {
        V e = power_of_2(x[j] - of->top);
        x[j] = hides ? pick(x[j] == -INFINITY, splat(0), e) : e;
        sum += x[j];
    }
    of->sum += _mm512_reduce_add_ps((__m512)sum);
    EACH(j, KEYS / LANES / 2) {
        __m512bh pairs = _mm512_cvtne2ps_pbh((__m512)x[2 * j + 1], (__m512)x[2 * j]);
        memcpy(weights + 2 * j * LANES, &pairs, sizeof pairs);
    }
}

static void attend_block(const void *job, int piece) {
    const Prompt *p = job;
    const int group = p->n_head / p->n_kv_head, dim = p->head_dim,
              per_block = ROWS / group ? ROWS / group : 1;
    const int query_blocks = (p->time + per_block - 1) / per_block,
              blocks = (p->length + KEYS - 1) / KEYS;
    /* The last queries see the most: they begin. */
    const int query_block = query_blocks - 1 - piece / (p->n_kv_head * p->batch);
    const int head = piece % p->n_kv_head, r = piece / p->n_kv_head % p->batch;
    const int begin = query_block * per_block, end = smaller(begin + per_block, p->time);
    const int before = p->length - p->time; /* query i stands at position before + i */
    for (int g0 = 0; g0 < group; g0 += ROWS) {
        const int heads = smaller(ROWS, group - g0), rows = (end - begin) * heads;
        const uint32_t *q[ROWS + TILE];
        Softmax of[ROWS];
        _Alignas(64) float out[(ROWS + TILE) * MOST_DIM], scores[(ROWS + TILE) * KEYS];
        _Alignas(64) uint16_t weights[(ROWS + TILE) * KEYS];
        const uint32_t *weight_rows[ROWS + TILE];
        for (int i = 0; i < rows + TILE; i++) {
            const int row = smaller(i, rows - 1), at = begin + row / heads;
            const int of_head = head * group + g0 + row % heads;
            q[i] = (const uint32_t *)(p->q + r * p->q_row + at * p->q_time + of_head * p->q_head);
            weight_rows[i] = (const uint32_t *)(weights + i * KEYS);
        }
        for (int i = 0; i < rows; i++) of[i] = (Softmax){-INFINITY, 0};
        memset(out, 0, sizeof(float) * (rows + TILE) * dim);
        memset(weights + rows * KEYS, 0, sizeof(uint16_t) * TILE * KEYS);
        const int first = p->left < 0 || before + begin < p->left ? 0 : before + begin - p->left;
        for (int block = first / KEYS; block * KEYS < before + end; block++) {
            const int64_t place =
                ((int64_t)(r * p->n_kv_head + head) * blocks + block) * KEYS * dim / 2;
            const int start = block * KEYS;
            for (int i = 0; i < rows; i += TILE)
                multiply(q + i, dim / 2, p->keys + place, KEYS, 4, scores + i * KEYS, KEYS, 0);
            for (int i = 0; i < rows; i++) {
                const int position = before + begin + i / heads,
                          oldest = p->left < 0 ? 0 : position - p->left;
                soften(scores + i * KEYS, oldest - start, position + 1 - start,
                       1.44269504f * p->scale, of + i, weights + i * KEYS, out + i * dim, dim);
            }
            for (int i = 0; i < rows; i += TILE) {
                int d = 0;
                for (; d + 64 <= dim; d += 64)
                    multiply(weight_rows + i, KEYS / 2, p->values + place + d, dim, 4,
                             out + i * dim + d, dim, 1);
                for (; d < dim; d += 32)
                    multiply(weight_rows + i, KEYS / 2, p->values + place + d, dim, 2,
                             out + i * dim + d, dim, 1);
            }
        }
        for (int i = 0; i < rows; i++) {
            const int at = begin + i / heads, of_head = head * group + g0 + i % heads;
            uint16_t *to = p->out + (((int64_t)r * p->time + at) * p->n_head + of_head) * dim;
            for (int d = 0; d < dim; d += LANES) {
                __m256bh rounded =
                    _mm512_cvtneps_pbh((__m512)(load(out + i * dim + d) * (1 / of[i].sum)));
                memcpy(to + d, &rounded, sizeof rounded);
            }
        }
    }
}

int can_attend(void) { return 1; }

void attend_prompt(const Prompt *p) {
    const int group = p->n_head / p->n_kv_head, per_block = ROWS / group ? ROWS / group : 1;
    enter(p->threads);
    parallel(lay_out, p, p->batch * p->n_kv_head * ((p->length + KEYS - 1) / KEYS));
    parallel(attend_block, p, p->batch * p->n_kv_head * ((p->time + per_block - 1) / per_block));
    leave();
}

#else

int can_attend(void) { return 0; }
void attend_prompt(const Prompt *p) { (void)p; }

#endif
