/* rope.h - frequencies of the rotary embedding, with the scaling methods of long-context models.
 *
 * Threads: any; pure functions. */
#ifndef BT_ENGINE_MODEL_SHAPE_ROPE_H
#define BT_ENGINE_MODEL_SHAPE_ROPE_H

#include <stddef.h>

#include "engine/base/status.h"

/* in the order of the words of model.rope_scaling */
typedef enum { BT_ROPE_PLAIN, BT_ROPE_LINEAR, BT_ROPE_LLAMA3, BT_ROPE_YARN } bt_rope_method;

/* How the frequencies of a model that was trained on `context` tokens are scaled for longer texts.
 * LINEAR divides every frequency by `factor`. LLAMA3 and YARN (arXiv:2309.00071) divide a frequency that turns less
 * than `low` times within `context`, keep one that turns more than `high` times, and interpolate between: LLAMA3 in
 * the number of turns, YARN in the index of the dimension. */
typedef struct bt_rope_scaling {
    bt_rope_method method;
    double factor;
    int context;
    double low, high;
    /* YARN: factor on cosine and sine; 0: 0.1 ln(factor) + 1 */
    double attention;
} bt_rope_scaling;

/* Angle per token of the pair i of head_dim / 2. */
float bt_rope_frequency(int i, double theta, const bt_rope_scaling *s, int head_dim);
/* Number by which the scaling divides the frequency of the pair i. */
float bt_rope_divisor(int i, double theta, const bt_rope_scaling *s, int head_dim);
/* Returns the factor on cosine and sine: 1 except for YARN. */
double bt_rope_attention(const bt_rope_scaling *s);
/* BT_ARG: the values contradict each other; the error names the setting. */
bt_code bt_rope_check(const bt_rope_scaling *s, bt_err *err) BT_MUST_CHECK;

#endif
