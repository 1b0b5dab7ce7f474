/* Attention of one new token per row: chunks of keys by the queries that see them, each with a
   softmax of its own; then the chunks of a query are merged by their maxima and sums. Keys that all
   rows share are read once for all. */

#include <math.h>

#include "pool.h"
#include "step.h"

#define TILE 8
#define KEYS 128 /* of a chunk */
#define MOST_DIM 256
#define QUERIES 24 /* at once */

typedef struct {
    const Step *step;
    const Op *op;
    int shared_chunks, own_chunks;
    int64_t first; /* the first position that may be seen */
} Attention;

INLINE int chunks(const Attention *a) { return a->shared_chunks + a->own_chunks; }

/* Of one chunk: the weighted values (head_dim), the largest score, the sum of the weights. */
INLINE float *partial(const Attention *a, int r, int head, int chunk) {
    const Step *s = a->step;
    return s->partials +
           (((int64_t)r * s->n_head + head) * chunks(a) + chunk) * (s->head_dim + LANES);
}

/* keys[d]: dimension d of LANES keys; in bfloat16 two dimensions are moved as one. */
INLINE void transpose_keys(int type, const char *k, int64_t bytes, int from, int count, int dim,
                           V *keys) {
    const int size = type == FLOAT32 ? 4 : 2, step = 4 / size * LANES;
    for (int d = 0; d < dim; d += step) {
        V words[LANES];
        for (int i = 0; i < LANES; i++)
            memcpy(words + i, k + (from + i < count ? from + i : count - 1) * bytes + d * size,
                   sizeof(V));
        transpose(words);
        for (int i = 0; i < LANES; i++)
            if (type == FLOAT32)
                keys[d + i] = words[i];
            else {
                keys[d + 2 * i] = (V)((U)words[i] << 16);
                keys[d + 2 * i + 1] = (V)((U)words[i] & 0xFFFF0000);
            }
    }
}

/* Scores of 2 * LANES keys. */
INLINE int score_tile(const float *const *q, const int Q, int dim, const V *keys, const V *more,
                      float *out) {
    V a[TILE], b[TILE];
    EACH(n, Q) a[n] = b[n] = splat(0);
    for (int d = 0; d < dim; d++)
        EACH(n, Q) {
            V x = splat(q[n][d]);
            a[n] += keys[d] * x;
            b[n] += more[d] * x;
        }
    EACH(n, Q) {
        store(out + n * KEYS, a[n]);
        store(out + n * KEYS + LANES, b[n]);
    }
    return Q;
}

/* Scores become exp((score - max) * scale), in place. Returns max * scale, and their sum. */
static float soften(float *p, int count, float scale, float *sum) {
    for (int i = count; i % LANES; i++) p[i] = -INFINITY;
    V most = load(p), total = splat(0);
    for (int i = LANES; i < count; i += LANES) most = pick(load(p + i) > most, load(p + i), most);
    float top = most[0];
    EACH(i, LANES) top = most[i] > top ? most[i] : top;
    for (int i = 0; i < count; i += LANES) {
        V x = load(p + i), e = pick(x == -INFINITY, splat(0), exponential((x - top) * scale));
        store(p + i, e);
        total += e;
    }
    *sum = total_of(total);
    return top * scale;
}

/* S vectors of the weighted sum of values. */
INLINE void value_slab(const float *p, const int Q, const int S, int type, const char *v,
                       int64_t bytes, int count, int d, float *const *out) {
    V a[TILE][4];
    EACH(n, Q)
        EACH(j, S) a[n][j] = splat(0);
    for (int key = 0; key < count; key++, v += bytes) {
        V value[4];
        EACH(j, S) value[j] = read(type, v, d + j * LANES);
        EACH(n, Q)
            EACH(j, S) a[n][j] += value[j] * p[n * KEYS + key];
    }
    EACH(n, Q)
        EACH(j, S) store(out[n] + d + j * LANES, a[n][j]);
}

INLINE int value_tile(const float *p, const int Q, int type, const char *v, int64_t bytes,
                      int count, int dim, float *const *out) {
    int d = 0;
    for (; d + 4 * LANES <= dim; d += 4 * LANES) value_slab(p, Q, 4, type, v, bytes, count, d, out);
    for (; d < dim; d += LANES) value_slab(p, Q, 1, type, v, bytes, count, d, out);
    return Q;
}

INLINE void attend_chunk(const Step *s, const int type, int queries, const float *const *q,
                         const char *k, const char *v, int64_t bytes, int count,
                         float *const *out) {
    const int dim = s->head_dim, size = type == FLOAT32 ? 4 : 2;
    float p[QUERIES * KEYS];
    for (int i = 0; i < count; i += 2 * LANES) {
        /* Into the second cache, far enough ahead: a third of the time of one row. */
        for (int key = i; key < i + 2 * LANES; key++)
            for (int at = 0; at < dim * size; at += 64) {
                __builtin_prefetch(k + (key + 4 * LANES) * bytes + at, 0, 2);
                __builtin_prefetch(v + (key + 2 * LANES) * bytes + at, 0, 2);
            }
        V keys[MOST_DIM], more[MOST_DIM];
        transpose_keys(type, k, bytes, i, count, dim, keys);
        transpose_keys(type, k, bytes, i + LANES, count, dim, more);
        for (int n = 0; n < queries;) {
            float *scores = p + n * KEYS + i;
            switch (queries - n) {
            case 1: n += score_tile(q + n, 1, dim, keys, more, scores); break;
            case 2: n += score_tile(q + n, 2, dim, keys, more, scores); break;
            case 3: n += score_tile(q + n, 3, dim, keys, more, scores); break;
            case 4:
            case 5: n += score_tile(q + n, 4, dim, keys, more, scores); break;
            case 6:
            case 7: n += score_tile(q + n, 6, dim, keys, more, scores); break;
            default: n += score_tile(q + n, 8, dim, keys, more, scores);
            }
        }
    }
    for (int n = 0; n < queries; n++)
        out[n][dim] = soften(p + n * KEYS, count, s->scale, out[n] + dim + 1);
    for (int n = 0; n < queries;) {
        const float *weights = p + n * KEYS;
        switch (queries - n) {
        case 1: n += value_tile(weights, 1, type, v, bytes, count, dim, out + n); break;
        case 2: n += value_tile(weights, 2, type, v, bytes, count, dim, out + n); break;
        case 3: n += value_tile(weights, 3, type, v, bytes, count, dim, out + n); break;
        case 4:
        case 5: n += value_tile(weights, 4, type, v, bytes, count, dim, out + n); break;
        default: n += value_tile(weights, 6, type, v, bytes, count, dim, out + n);
        }
    }
}

/* First the chunks of the shared keys, seen by all rows; then those of each row's own. */
static void attend_piece(const void *job, int piece) {
    const Attention *a = job;
    const Step *s = a->step;
    const int group = s->n_head / s->n_kv_head, of_shared = a->shared_chunks * s->n_kv_head;
    const int is_own = piece >= of_shared;
    if (is_own) piece -= of_shared;
    const Span *span = is_own ? &s->own : &s->shared;
    const int kv_head = piece % s->n_kv_head, rest = piece / s->n_kv_head;
    const int r0 = is_own ? rest % s->rows : 0, rows = is_own ? 1 : s->rows;
    const int place = is_own ? rest / s->rows : rest;
    const int chunk = is_own ? a->shared_chunks + place : place;
    const int64_t length = span->length + is_own,
                  first = a->first - (is_own ? s->shared.length : 0);
    int64_t start = (int64_t)place * KEYS, end = start + KEYS < length ? start + KEYS : length;
    if (start < first) start = first;
    const int size = s->kv_type == FLOAT32 ? 4 : 2;
    const int64_t bytes = span->position * size;
    const int64_t offset =
        (a->op->index * span->layer + r0 * span->row + kv_head * span->head) * size + start * bytes;
    const float *q[QUERIES];
    float *out[QUERIES];
    for (int done = 0, all = rows * group; done < all;) {
        int queries = 0;
        for (; queries < QUERIES && done < all; queries++, done++) {
            int r = r0 + done / group, head = kv_head * group + done % group;
            q[queries] = row(s, r, a->op->src + head * s->head_dim);
            out[queries] = partial(a, r, head, chunk);
            out[queries][s->head_dim] = -INFINITY;
        }
        if (start >= end) continue;
        const char *k = span->k + offset, *v = span->v + offset;
        if (s->kv_type == FLOAT32)
            attend_chunk(s, FLOAT32, queries, q, k, v, bytes, (int)(end - start), out);
        else
            attend_chunk(s, BFLOAT16, queries, q, k, v, bytes, (int)(end - start), out);
    }
}

static void merge_piece(const void *job, int r) {
    const Attention *a = job;
    const Step *s = a->step;
    const int dim = s->head_dim;
    for (int head = 0; head < s->n_head; head++) {
        const float *p = partial(a, r, head, 0);
        const int step = dim + LANES;
        float *dst = row(s, r, a->op->dst + head * dim), most = -INFINITY, total = 0;
        for (int c = 0; c < chunks(a); c++)
            most = p[c * step + dim] > most ? p[c * step + dim] : most;
        for (int d = 0; d < dim; d += LANES) store(dst + d, splat(0));
        for (int c = 0; c < chunks(a); c++, p += step) {
            if (p[dim] == -INFINITY) continue;
            float weight = expf(p[dim] - most);
            total += weight * p[dim + 1];
            for (int d = 0; d < dim; d += LANES)
                store(dst + d, load(dst + d) + load(p + d) * weight);
        }
        for (int d = 0; d < dim; d += LANES) store(dst + d, load(dst + d) * (1 / total));
    }
}

/* src: q, k and v of all heads. k and v are appended to layer `index`; flag: the window, or -1. */
void attend(const Step *s, const Op *op) {
    const int dim = s->head_dim, size = s->kv_type == FLOAT32 ? 4 : 2;
    const Span *own = &s->own;
    for (int r = 0; r < s->rows; r++)
        for (int h = 0; h < s->n_kv_head; h++) {
            int64_t at =
                op->index * own->layer + r * own->row + h * own->head + own->length * own->position;
            const float *k = row(s, r, op->src + (s->n_head + h) * dim),
                        *v = k + s->n_kv_head * dim;
            for (int d = 0; d < dim; d++) {
                write_one(s->kv_type, own->k + at * size, d, k[d]);
                write_one(s->kv_type, own->v + at * size, d, v[d]);
            }
        }
    const int64_t position = s->shared.length + own->length;
    const int64_t first = op->flag < 0 || position < op->flag ? 0 : position - op->flag;
    Attention a = {s, op, ceil_div(s->shared.length, KEYS), ceil_div(own->length + 1, KEYS), first};
    parallel(attend_piece, &a, s->n_kv_head * (a.shared_chunks + a.own_chunks * s->rows));
    parallel(merge_piece, &a, s->rows);
}

int chunk_keys(void) { return KEYS; }
