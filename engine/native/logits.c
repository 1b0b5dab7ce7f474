/* The largest logits of a row, and what a row says of one id; logits.py has the same structure. */

#include <math.h>

#include "pool.h"
#include "vectors.h"

typedef struct {
    const float *logits;
    int64_t stride; /* from row to row */
    int32_t rows, vocab, most, threads;
    float *values; /* (rows, most): the largest, and */
    int64_t *ids;  /* where they stand */
    /* Of each row: its temperature, and from how many of the largest it is sampled. */
    const int64_t *kept;
    const float *temperatures;
    /* To sample: uniform numbers; where the ids go. */
    const double *draws;
    int64_t *sampled;
    /* To score: the ids; where the cells go, (rows, 4 + 2 * alternatives). */
    const int64_t *chosen;
    double *scores;
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
    int i = 0;
    while (i + LANES <= count) {
        V weights = splat(0), weighted = splat(0);
        I larger = {0};
        for (int end = i + 64 * LANES; i < end && i + LANES <= count; i += LANES) {
            V logits = load(x + i), y = (logits - top) / temperature;
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
        double y = fmax((x[i] - top) / temperature, -87), e = exp(y);
        found.weights += e;
        found.weighted += e * y;
        found.larger += x[i] > chosen;
    }
    return found;
}

/* The first place at which the weights so far reach the draw's share of all. */
static int64_t sample(const float *values, const int64_t *ids, int64_t kept, float temperature,
                      double draw) {
    if (temperature == 0) return ids[0];
    double total = 0, reached = 0;
    for (int i = 0; i < kept; i++) total += exp((values[i] - values[0]) / temperature);
    for (int i = 0; i < kept - 1; i++) {
        reached += exp((values[i] - values[0]) / temperature);
        if (reached >= draw * total) return ids[i];
    }
    return ids[kept - 1];
}

static void logits_piece(const void *job, int r) {
    const Logits *l = job;
    const float *x = l->logits + r * l->stride;
    float *values = l->values + (int64_t)r * l->most;
    int64_t *ids = l->ids + (int64_t)r * l->most;
    largest(x, l->vocab, l->most, values, ids);
    if (l->sampled)
        l->sampled[r] = sample(values, ids, l->kept[r], l->temperatures[r], l->draws[r]);
    if (!l->scores) return;
    double *out = l->scores + (int64_t)r * (4 + 2 * l->alternatives);
    const float top = values[0], chosen = x[l->chosen[r]], temperature = l->temperatures[r];
    const Survey all = survey(x, l->vocab, top, 1, chosen);
    const double total = top + log(all.weights);
    double drawn = 0;
    if (l->kept[r] >= l->vocab)
        drawn =
            temperature == 1 ? all.weights : survey(x, l->vocab, top, temperature, chosen).weights;
    else
        for (int i = 0; i < l->kept[r]; i++) drawn += exp((values[i] - top) / temperature);
    out[0] = chosen - total;
    out[1] = (chosen - top) / temperature - log(drawn);
    out[2] = log(all.weights) - all.weighted / all.weights;
    out[3] = (double)all.larger;
    for (int i = 0; i < l->alternatives; i++) {
        out[4 + i] = values[i] - total;
        out[4 + l->alternatives + i] = (double)ids[i];
    }
}

void read_logits(const Logits *l) {
    enter(l->threads);
    parallel(logits_piece, l, l->rows);
    leave();
}
