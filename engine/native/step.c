/* One decode step of a network on a CPU: a list of operations on the activations of some rows.

   The list is made once per network (program.py); `step` runs it for rows that add one token each.
   Activations are float32 throughout, weights are read as they are stored: 4 or 8 bits in blocks,
   bfloat16 or float32. Every sum is taken in the same order whatever the number of rows: what a row
   gets does not depend on what runs beside it, bit for bit.

   Vectors are those of the compiler (GCC, Clang), as wide as the machine's: 16, 8 or 4 floats. */

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define EACH(i, n) UNROLL for (int i = 0; i < (n); i++)

typedef float V __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));
typedef uint32_t U __attribute__((vector_size(4 * LANES)));
typedef uint16_t H __attribute__((vector_size(2 * LANES)));

enum { FLOAT32, BFLOAT16, INT8, INT4 };

INLINE int ceil_div(int64_t a, int b) { return (int)((a + b - 1) / b); }
INLINE V splat(float x) { return x - (V){0}; }
INLINE V load(const float *p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store(float *p, V v) { memcpy(p, &v, sizeof v); }
INLINE V pick(I mask, V a, V b) { return (V)(((I)a & mask) | ((I)b & ~mask)); }
INLINE float total_of(V v) {
    float total = 0;
    EACH(i, LANES) total += v[i];
    return total;
}

INLINE V from_bf16(const uint16_t *p) {
    /* GCC 12 widens by many steps where the machine has one. */
#if LANES == 16
    return (V)((U)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)) << 16);
#elif defined(__AVX2__)
    return (V)((U)_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)) << 16);
#else
    H h;
    memcpy(&h, p, sizeof h);
    return (V)(__builtin_convertvector(h, U) << 16);
#endif
}
INLINE V read(int type, const void *p, int64_t i) {
    return type == FLOAT32 ? load((const float *)p + i) : from_bf16((const uint16_t *)p + i);
}
INLINE float read_one(int type, const void *p, int64_t i) {
    if (type == FLOAT32) return ((const float *)p)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
INLINE void write_one(int type, void *p, int64_t i, float f) {
    if (type == FLOAT32) {
        ((float *)p)[i] = f;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &f, 4);
    ((uint16_t *)p)[i] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Quarters of four lanes: of each, the first or last two of a and b in turn; or the even or odd
   quarters of a, then those of b. */
#if LANES == 16
#define FIRST 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define LAST 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define EVEN 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define ODD 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#elif LANES == 8
#define FIRST 0, 8, 1, 9, 4, 12, 5, 13
#define LAST 2, 10, 3, 11, 6, 14, 7, 15
#define EVEN 0, 1, 2, 3, 8, 9, 10, 11
#define ODD 4, 5, 6, 7, 12, 13, 14, 15
#else
#define FIRST 0, 4, 1, 5
#define LAST 2, 6, 3, 7
#endif
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (I){__VA_ARGS__})
#endif
#define EXCHANGE(bit, low, high)                                                                   \
    EACH(i, LANES) if (!(i & bit)) {                                                               \
        V a = s[i], b = s[i + bit];                                                                \
        s[i] = SHUFFLE(a, b, low);                                                                 \
        s[i + bit] = SHUFFLE(a, b, high);                                                          \
    }

/* Rows become columns. */
static __attribute__((noinline)) void transpose(V *of) {
    V s[LANES];
    EACH(i, LANES) s[i] = of[i];
    EXCHANGE(2, FIRST, LAST)
    EXCHANGE(1, FIRST, LAST)
#if LANES > 4
    EXCHANGE(4, EVEN, ODD)
#endif
#if LANES > 8
    EXCHANGE(8, EVEN, ODD)
#endif
    EACH(i, LANES) of[i] = s[i];
}

/* Lane i of the result is the sum of the lanes of s[i], which are lost. */
INLINE V sums(V *s) {
    transpose(s);
    UNROLL for (int n = LANES / 2; n; n /= 2) EACH(i, n) s[i] += s[i + n];
    return s[0];
}

/* e^x to 2 in 10^7: a polynomial on the fraction of x / ln 2 (Cephes), the rest in the exponent. */
INLINE V exponential(V x) {
    x = pick(x > 88.0f, splat(88.0f), pick(x < -87.0f, splat(-87.0f), x));
    V n = x * 1.44269504f + 12582912.0f;
    I exponent = (I)n << 23;
    n -= 12582912.0f;
    x -= n * 0.693359375f;
    x -= n * -2.12194440e-4f;
    V p = splat(1.9875691500e-4f);
    p = p * x + 1.3981999507e-3f;
    p = p * x + 8.3334519073e-3f;
    p = p * x + 4.1665795894e-2f;
    p = p * x + 1.6666665459e-1f;
    p = p * x + 5.0000001201e-1f;
    p = p * x * x + x + 1.0f;
    return (V)((I)p + exponent);
}

/* ---- Threads. The pieces of an operation are claimed one by one, so a thread that has lost its
   core to another process holds up nobody but by the piece in its hands. ---- */

typedef void (*Work)(const void *job, int piece);

#define MOST_THREADS 64
#define SPINS 4000 /* of waiting before a thread sleeps; between steps it sleeps at once */

static struct {
    _Alignas(64) _Atomic uint64_t ticket; /* operation << 40 | its pieces << 20 | the next piece */
    _Alignas(64) _Atomic int done;
    _Alignas(64) _Atomic int sleepers;
    Work work;
    const void *job;
    int threads;
    _Atomic int active, stepping;
    pthread_mutex_t busy, lock;
    pthread_cond_t wake;
} pool = {
    .threads = 1,
    .active = 1,
    .busy = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
};
static _Thread_local int alone; /* another caller has the pool */

INLINE void relax(void) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

INLINE int piece_of(uint64_t ticket) { return (int)(ticket & 0xFFFFF); }
INLINE int open_to(uint64_t ticket) { return piece_of(ticket) < (int)(ticket >> 20 & 0xFFFFF); }

static int claim(void) {
    if (!open_to(atomic_load(&pool.ticket))) return 0;
    uint64_t ticket = atomic_fetch_add(&pool.ticket, 1);
    if (!open_to(ticket)) return 0;
    /* The operation cannot end before this piece has: `work` and `job` are those of the ticket. */
    pool.work(pool.job, piece_of(ticket));
    atomic_fetch_add(&pool.done, 1);
    return 1;
}

static void *labour(void *number) {
    const int me = (int)(intptr_t)number;
    for (int spins = 0;; spins++) {
        if (me < pool.active && claim()) spins = 0;
        if (spins < SPINS && pool.stepping) {
            relax();
            continue;
        }
        pthread_mutex_lock(&pool.lock);
        for (;;) {
            atomic_fetch_add(&pool.sleepers, 1);
            if (me < pool.active && open_to(atomic_load(&pool.ticket))) break;
            pthread_cond_wait(&pool.wake, &pool.lock);
        }
        pthread_mutex_unlock(&pool.lock);
        spins = 0;
    }
    return 0;
}

static void parallel(Work work, const void *job, int pieces) {
    if (alone || pool.active == 1 || pieces == 1) {
        for (int piece = 0; piece < pieces; piece++) work(job, piece);
        return;
    }
    pool.work = work;
    pool.job = job;
    atomic_store(&pool.done, 0);
    uint64_t operation = (atomic_load(&pool.ticket) >> 40) + 1;
    atomic_store(&pool.ticket, operation << 40 | (uint64_t)pieces << 20);
    if (atomic_load(&pool.sleepers) && atomic_exchange(&pool.sleepers, 0)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    while (claim()) {}
    for (int spins = 0; atomic_load(&pool.done) < pieces; spins++)
        if (spins < SPINS) relax();
        else sched_yield();
}

static void take_threads(int wanted) {
    if (wanted > MOST_THREADS) wanted = MOST_THREADS;
    while (pool.threads < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, 0, labour, (void *)(intptr_t)pool.threads)) break;
        pthread_detach(thread);
        pool.threads++;
    }
    pool.active = wanted < pool.threads ? wanted : pool.threads;
}

/* ---- What a step is given; program.py has the same structures. ---- */

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

/* ---- Products ---- */

#define GROUP 32 /* weights with a scale of their own */
#define TILE 8   /* rows at once */
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
        EACH(j, bits) {
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
            EACH(r, R) s[r] = j ? s[r] + a[r] : a[r];
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
   is asked for AHEAD of time, in bytes: with 8 rows that is twice as fast. */
INLINE void dense_tile(const Product *p, int block, int r0, const int type, const int R) {
    const Matrix *m = p->matrix;
    const float *x = row(p->step, r0, p->op->src);
    const int64_t stride = p->step->stride;
    V y[TILE][LANES];
    const int64_t size = type == FLOAT32 ? 4 : 2;
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

INLINE int product_tile(const Product *p, int block, int r0, const int R) {
    switch (p->matrix->type) {
    case INT4: packed_tile(p, block, r0, 4, R); break;
    case INT8: packed_tile(p, block, r0, 8, R); break;
    case BFLOAT16: dense_tile(p, block, r0, BFLOAT16, R); break;
    default: dense_tile(p, block, r0, FLOAT32, R);
    }
    return R;
}

static void product_piece(const void *job, int piece) {
    const Product *p = job;
    const int rows = p->step->rows;
    int end = (piece + 1) * p->per_piece;
    if (end > p->blocks) end = p->blocks;
    for (int block = piece * p->per_piece; block < end; block++)
        for (int r = 0; r < rows;) switch (rows - r) {
            case 1: r += product_tile(p, block, r, 1); break;
            case 2: r += product_tile(p, block, r, 2); break;
            case 3: r += product_tile(p, block, r, 3); break;
            case 4: case 5: r += product_tile(p, block, r, 4); break;
            case 6: case 7: r += product_tile(p, block, r, 6); break;
            default: r += product_tile(p, block, r, 8);
            }
}

/* dst = matrix (data) * src; with a flag added to dst; dst below 0 is the logits. */
static void product(const Step *s, const Op *op) {
    const Matrix *m = op->data;
    if (m->type == INT4)
        for (int r = 0; r < s->rows; r++)
            for (int g = 0; g < m->in / GROUP; g++) {
                const float *x = row(s, r, op->src) + g * GROUP;
                V a = splat(0);
                EACH(k, GROUP / LANES) a += load(x + k * LANES);
                row(s, r, s->sums)[g] = total_of(a);
            }
    int blocks = ceil_div(m->out, LANES), per_piece = ceil_div(blocks, 8 * pool.active);
    Product p = {s, op, m, blocks, per_piece};
    parallel(product_piece, &p, ceil_div(blocks, per_piece));
}

/* ---- Attention: chunks of keys by the queries that see them, each with a softmax of its own; then
   the chunks of a query are merged by their maxima and sums. ---- */

#define KEYS 128    /* of a chunk */
#define MOST_DIM 256
#define QUERIES 24  /* at once */

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
    return s->partials + (((int64_t)r * s->n_head + head) * chunks(a) + chunk) * (s->head_dim + LANES);
}

/* keys[d]: dimension d of LANES keys; in bfloat16 two dimensions are moved as one. */
INLINE void transpose_keys(int type, const char *k, int64_t bytes, int from, int count, int dim, V *keys) {
    const int size = type == FLOAT32 ? 4 : 2, step = 4 / size * LANES;
    for (int d = 0; d < dim; d += step) {
        V words[LANES];
        for (int i = 0; i < LANES; i++)
            memcpy(words + i, k + (from + i < count ? from + i : count - 1) * bytes + d * size, sizeof(V));
        transpose(words);
        for (int i = 0; i < LANES; i++)
            if (type == FLOAT32) keys[d + i] = words[i];
            else {
                keys[d + 2 * i] = (V)((U)words[i] << 16);
                keys[d + 2 * i + 1] = (V)((U)words[i] & 0xFFFF0000);
            }
    }
}

/* Scores of 2 * LANES keys. */
INLINE int score_tile(const float *const *q, const int Q, int dim, const V *keys, const V *more, float *out) {
    V a[TILE], b[TILE];
    EACH(n, Q) a[n] = b[n] = splat(0);
    for (int d = 0; d < dim; d++) EACH(n, Q) {
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
INLINE void value_slab(const float *p, const int Q, const int S, int type, const char *v, int64_t bytes, int count, int d, float *const *out) {
    V a[TILE][4];
    EACH(n, Q) EACH(j, S) a[n][j] = splat(0);
    for (int key = 0; key < count; key++, v += bytes) {
        V value[4];
        EACH(j, S) value[j] = read(type, v, d + j * LANES);
        EACH(n, Q) EACH(j, S) a[n][j] += value[j] * p[n * KEYS + key];
    }
    EACH(n, Q) EACH(j, S) store(out[n] + d + j * LANES, a[n][j]);
}

INLINE int value_tile(const float *p, const int Q, int type, const char *v, int64_t bytes, int count, int dim, float *const *out) {
    int d = 0;
    for (; d + 4 * LANES <= dim; d += 4 * LANES) value_slab(p, Q, 4, type, v, bytes, count, d, out);
    for (; d < dim; d += LANES) value_slab(p, Q, 1, type, v, bytes, count, d, out);
    return Q;
}

INLINE void attend_chunk(const Step *s, const int type, int queries, const float *const *q, const char *k, const char *v, int64_t bytes, int count, float *const *out) {
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
            case 4: case 5: n += score_tile(q + n, 4, dim, keys, more, scores); break;
            case 6: case 7: n += score_tile(q + n, 6, dim, keys, more, scores); break;
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
        case 4: case 5: n += value_tile(weights, 4, type, v, bytes, count, dim, out + n); break;
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
    const int64_t length = span->length + is_own, first = a->first - (is_own ? s->shared.length : 0);
    int64_t start = (int64_t)place * KEYS, end = start + KEYS < length ? start + KEYS : length;
    if (start < first) start = first;
    const int size = s->kv_type == FLOAT32 ? 4 : 2;
    const int64_t bytes = span->position * size;
    const int64_t offset = (a->op->index * span->layer + r0 * span->row + kv_head * span->head) * size + start * bytes;
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
        else attend_chunk(s, BFLOAT16, queries, q, k, v, bytes, (int)(end - start), out);
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
        for (int c = 0; c < chunks(a); c++) most = p[c * step + dim] > most ? p[c * step + dim] : most;
        for (int d = 0; d < dim; d += LANES) store(dst + d, splat(0));
        for (int c = 0; c < chunks(a); c++, p += step) {
            if (p[dim] == -INFINITY) continue;
            float weight = expf(p[dim] - most);
            total += weight * p[dim + 1];
            for (int d = 0; d < dim; d += LANES) store(dst + d, load(dst + d) + load(p + d) * weight);
        }
        for (int d = 0; d < dim; d += LANES) store(dst + d, load(dst + d) * (1 / total));
    }
}

/* src: q, k and v of all heads. k and v are appended to layer `index`; flag: the window, or -1. */
static void attend(const Step *s, const Op *op) {
    const int dim = s->head_dim, size = s->kv_type == FLOAT32 ? 4 : 2;
    const Span *own = &s->own;
    for (int r = 0; r < s->rows; r++)
        for (int h = 0; h < s->n_kv_head; h++) {
            int64_t at = op->index * own->layer + r * own->row + h * own->head + own->length * own->position;
            const float *k = row(s, r, op->src + (s->n_head + h) * dim), *v = k + s->n_kv_head * dim;
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

/* ---- What is small ---- */

static void norm(const float *x, float *y, const float *weight, int width, float eps) {
    V squares = splat(0);
    for (int i = 0; i < width; i += LANES) squares += load(x + i) * load(x + i);
    float scale = 1 / sqrtf(total_of(squares) / width + eps);
    for (int i = 0; i < width; i += LANES)
        store(y + i, weight ? load(x + i) * scale * load(weight + i) : load(x + i) * scale);
}

enum {
    PRODUCT, ATTEND, EMBED, NORM, ROTATE_PAIRS, ROTATE_HALVES, GATED, SQUARED_RELU, MIX, VALUE, CAP
};

static void small(const Step *s, const Op *op, int r) {
    float *dst = row(s, r, op->dst);
    const float *src = row(s, r, op->src);
    const int width = op->width;
    switch (op->kind) {
    case EMBED: /* a * (the row of the table `data`, of type `flag`) */
        for (int i = 0; i < width; i++)
            dst[i] = op->a * read_one(op->flag, op->data, s->ids[r] * width + i);
        break;
    case NORM: /* of each head; `data`: weights (heads, width) or none; a: epsilon */
        for (int h = 0; h < op->heads; h++) {
            const float *weight = op->data ? (const float *)op->data + h * width : 0;
            norm(src + h * width, dst + h * width, weight, width, op->a);
        }
        break;
    case ROTATE_PAIRS: /* of dst: adjacent pairs times complex numbers, turns[index] */
        for (int h = 0; h < op->heads; h++)
            for (int i = 0; i < width; i += 2) {
                const float *turn = s->turns[op->index] + i;
                float *pair = dst + h * width + i, x = pair[0], y = pair[1];
                pair[0] = x * turn[0] - y * turn[1];
                pair[1] = x * turn[1] + y * turn[0];
            }
        break;
    case ROTATE_HALVES: /* of dst: x * turns[0] + roll(x, width / 2) * turns[1] */
        for (int h = 0; h < op->heads; h++)
            for (int i = 0, j = width / 2; j < width; i++, j++) {
                float *x = dst + h * width, low = x[i], high = x[j];
                x[i] = low * s->turns[0][i] + high * s->turns[1][i];
                x[j] = high * s->turns[0][j] + low * s->turns[1][j];
            }
        break;
    case GATED: /* act(first half of src) * second half; flag: GELU by tanh, else SiLU */
        for (int i = 0; i < width; i += LANES) {
            V gate = load(src + i);
            V slope = op->flag ? 1.5957691216f * (gate + 0.044715f * gate * gate * gate) : gate;
            store(dst + i, gate / (1 + exponential(-slope)) * load(src + width + i));
        }
        break;
    case SQUARED_RELU:
        for (int i = 0; i < width; i += LANES) {
            V x = load(src + i);
            store(dst + i, pick(x > 0, x * x, splat(0)));
        }
        break;
    case MIX: /* a * dst + b * src */
        for (int i = 0; i < width; i += LANES)
            store(dst + i, op->a ? op->a * load(dst + i) + op->b * load(src + i) : op->b * load(src + i));
        break;
    case VALUE: /* dst += a * sigmoid(gate of src) * (the row of `data`), head by head; `more`: gate
                   weights (heads, index) */
        for (int h = 0; h < op->heads; h++) {
            float gate = 0;
            for (int i = 0; i < op->index; i++) gate += src[i] * ((const float *)op->more)[h * op->index + i];
            gate = op->a / (1 + expf(-gate));
            for (int i = h * width; i < (h + 1) * width; i++)
                dst[i] += gate * read_one(op->flag, op->data, s->ids[r] * op->heads * width + i);
        }
        break;
    case CAP: /* of the logits: a * tanh(x / a) */
        for (float *x = s->logits + r * s->vocab, *end = x + s->vocab; x < end; x += LANES) {
            const int64_t size = (end - x < LANES ? end - x : LANES) * 4;
            V v = splat(0);
            memcpy(&v, x, size);
            v = op->a - 2 * op->a / (1 + exponential(2 / op->a * v));
            memcpy(x, &v, size);
        }
    }
}

/* ---- Logits: the largest of a row, and what a row says of one id. ---- */

typedef struct {
    const float *logits;
    int64_t stride; /* from row to row */
    int32_t rows, vocab, most, threads;
    float *values; /* (rows, most): the largest, and */
    int64_t *ids;  /* where they stand */
    /* To score: of each row the id, its temperature, from how many of the largest it was sampled. */
    const int64_t *chosen, *kept;
    const float *temperatures;
    double *scores; /* (rows, 4 + 2 * alternatives) */
    int32_t alternatives;
} Logits;

INLINE int any(I mask) {
    int64_t words[sizeof mask / 8], all = 0;
    memcpy(words, &mask, sizeof mask);
    EACH(i, (int)(sizeof mask / 8)) all |= words[i];
    return all != 0;
}

/* The `most` largest in order, of equal ones the first. */
static void largest(const float *x, int count, int most, float *values, int64_t *ids) {
    int held = 0;
    float least = -INFINITY;
    for (int i = 0; i < count; i += LANES) {
        const int lanes = count - i < LANES ? count - i : LANES;
        if (held == most && lanes == LANES && !any(load(x + i) > least)) continue;
        for (int j = i; j < i + lanes; j++) {
            if (held == most && !(x[j] > least)) continue;
            int at = held < most ? held++ : most - 1;
            for (; at && x[j] > values[at - 1]; at--) {
                values[at] = values[at - 1];
                ids[at] = ids[at - 1];
            }
            values[at] = x[j];
            ids[at] = j;
            least = values[held - 1];
        }
    }
}

/* Sums over a row of exp(y) and of exp(y) * y, for y = (logit - top) / temperature; and how many
   logits are larger than `chosen`. Every so often in double. */
typedef struct {
    double weights, weighted;
    int64_t larger;
} Survey;

static Survey survey(const float *x, int count, float top, float temperature, float chosen) {
    Survey found = {0, 0, 0};
    const float scale = 1 / temperature;
    int i = 0;
    while (i + LANES <= count) {
        V weights = splat(0), weighted = splat(0);
        I larger = {0};
        for (int end = i + 64 * LANES; i < end && i + LANES <= count; i += LANES) {
            V logits = load(x + i), y = (logits - top) * scale;
            y = pick(y < -87.0f, splat(-87.0f), y); /* also minus infinity */
            V e = exponential(y);
            weights += e;
            weighted += e * y;
            larger -= logits > chosen;
        }
        found.weights += total_of(weights);
        found.weighted += total_of(weighted);
        EACH(j, LANES) found.larger += larger[j];
    }
    for (; i < count; i++) {
        double y = fmax((x[i] - top) * scale, -87), e = exp(y);
        found.weights += e;
        found.weighted += e * y;
        found.larger += x[i] > chosen;
    }
    return found;
}

static void logits_piece(const void *job, int r) {
    const Logits *l = job;
    const float *x = l->logits + r * l->stride;
    float *values = l->values + (int64_t)r * l->most;
    int64_t *ids = l->ids + (int64_t)r * l->most;
    largest(x, l->vocab, l->most, values, ids);
    if (!l->scores) return;
    double *out = l->scores + (int64_t)r * (4 + 2 * l->alternatives);
    const float top = values[0], chosen = x[l->chosen[r]], temperature = l->temperatures[r];
    const Survey all = survey(x, l->vocab, top, 1, chosen);
    const double total = top + log(all.weights);
    double drawn = 0;
    if (l->kept[r] >= l->vocab)
        drawn = temperature == 1 ? all.weights : survey(x, l->vocab, top, temperature, chosen).weights;
    else for (int i = 0; i < l->kept[r]; i++) drawn += exp((values[i] - top) / temperature);
    out[0] = chosen - total;
    out[1] = (chosen - top) / temperature - log(drawn);
    out[2] = log(all.weights) - all.weighted / all.weights;
    out[3] = (double)all.larger;
    for (int i = 0; i < l->alternatives; i++) {
        out[4 + i] = values[i] - total;
        out[4 + l->alternatives + i] = (double)ids[i];
    }
}

/* ---- What is called ---- */

static void enter(int threads) {
    alone = pthread_mutex_trylock(&pool.busy) != 0;
    if (alone) return;
    take_threads(threads);
    pool.stepping = 1;
}

static void leave(void) {
    if (alone) return;
    pool.stepping = 0;
    pthread_mutex_unlock(&pool.busy);
}

int lanes(void) { return LANES; }

void read_logits(const Logits *l) {
    enter(l->threads);
    parallel(logits_piece, l, l->rows);
    leave();
}

void step(const Op *ops, int count, const Step *s) {
    enter(s->threads);
    for (const Op *op = ops; op < ops + count; op++)
        if (op->kind == PRODUCT) product(s, op);
        else if (op->kind == ATTEND) attend(s, op);
        else
            for (int r = 0; r < s->rows; r++) small(s, op, r);
    leave();
}
