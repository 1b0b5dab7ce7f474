/* Vectors of floats as wide as the machine's: the compiler's own (GCC, Clang), 16, 8 or 4 lanes. */

#pragma once

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
    EACH(i, LANES)                                                                                 \
        if (!(i & bit)) {                                                                          \
            V a = s[i], b = s[i + bit];                                                            \
            s[i] = SHUFFLE(a, b, low);                                                             \
            s[i + bit] = SHUFFLE(a, b, high);                                                      \
        }

/* Rows become columns. */
__attribute__((unused, noinline)) static void transpose(V *of) {
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
