/* One decode step of a network on a CPU: a list of operations on the activations of some rows.

   The list is made once per network (program.py); `step` runs it for rows that add one token each.
   Activations are float32 throughout, weights are read as they are stored: 4 or 8 bits in blocks,
   bfloat16 or float32. Every sum is taken in the same order whatever the number of rows: what a row
   gets does not depend on what runs beside it, bit for bit. */

#include <math.h>

#include "pool.h"
#include "step.h"

static void norm(const float *x, float *y, const float *weight, int width, float eps) {
    V squares = splat(0);
    for (int i = 0; i < width; i += LANES) squares += load(x + i) * load(x + i);
    float scale = 1 / sqrtf(total_of(squares) / width + eps);
    for (int i = 0; i < width; i += LANES)
        store(y + i, weight ? load(x + i) * scale * load(weight + i) : load(x + i) * scale);
}

enum {
    PRODUCT,
    ATTEND,
    EMBED,
    NORM,
    ROTATE_PAIRS,
    ROTATE_HALVES,
    GATED,
    SQUARED_RELU,
    MIX,
    VALUE,
    CAP
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
            store(dst + i,
                  op->a ? op->a * load(dst + i) + op->b * load(src + i) : op->b * load(src + i));
        break;
    case VALUE: /* dst += a * sigmoid(gate of src) * (the row of `data`), head by head; `more`: gate
                   weights (heads, index) */
        for (int h = 0; h < op->heads; h++) {
            float gate = 0;
            for (int i = 0; i < op->index; i++)
                gate += src[i] * ((const float *)op->more)[h * op->index + i];
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

int lanes(void) { return LANES; }

void step(const Op *ops, int count, const Step *s) {
    enter(s->threads);
    for (const Op *op = ops; op < ops + count; op++)
        if (op->kind == PRODUCT)
            product(s, op);
        else if (op->kind == ATTEND)
            attend(s, op);
        else
            for (int r = 0; r < s->rows; r++) small(s, op, r);
    leave();
}
