/* rope.h - frequencies of the rotary embedding, with the scaling methods of long-context models.
 *
 * Threads: any; pure functions. */
#ifndef BT_ENGINE_MODEL_SHAPE_ROPE_H
#define BT_ENGINE_MODEL_SHAPE_ROPE_H

#include <stddef.h>

#include "engine/base/status.h"

/* in the order of the words of model.rope_scaling */
typedef enum {
    BT_ROPE_PLAIN,
    BT_ROPE_LINEAR,
    BT_ROPE_LLAMA3,
    BT_ROPE_YARN,
    BT_ROPE_LONGROPE
} bt_rope_method;

/* pairs of a head that LONGROPE may scale */
enum { BT_ROPE_PAIRS = 128 };

typedef struct bt_rope_divisors {
    int n; /* -1: the text that lists them is malformed */
    float by[BT_ROPE_PAIRS];
} bt_rope_divisors;

/* How the frequencies of a model that was trained on `context` tokens are scaled for longer texts.
 * LINEAR divides every frequency by `factor`. LLAMA3 and YARN (arXiv:2309.00071) divide a frequency that turns less
 * than `low` times within `context`, keep one that turns more than `high` times, and interpolate between: LLAMA3 in
 * the number of turns, YARN in the index of the dimension. LONGROPE (arXiv:2402.13753) divides each frequency by its
 * own number: one of `shorter` in texts of at most `context` tokens, of `longer` in longer ones. */
typedef struct bt_rope_scaling {
    bt_rope_method method;
    double factor;
    int context;
    double low, high;
    /* factor on cosine and sine; 0: 0.1 ln(factor) + 1 of YARN, sqrt(1 + ln(factor) / ln(context)) of LONGROPE */
    double attention;
    bt_rope_divisors shorter, longer; /* LONGROPE; one for each pair that rotates */
} bt_rope_scaling;

/* Returns the angle per token of the pair i of head_dim / 2 in a text of `length` tokens. */
float bt_rope_frequency(int i, double theta, const bt_rope_scaling *s, int head_dim, int length);
/* Returns the number by which the scaling divides the frequency of the pair i; not for LONGROPE. */
float bt_rope_divisor(int i, double theta, const bt_rope_scaling *s, int head_dim);
/* Returns the factor on cosine and sine: 1 except for YARN and LONGROPE. */
double bt_rope_attention(const bt_rope_scaling *s);
/* Writes the divisors as numbers with commas, each with the fewest digits that give the same float, and reads them;
 * d->n becomes -1 if the text is no such list of at most BT_ROPE_PAIRS positive numbers. */
void bt_rope_divisors_write(const bt_rope_divisors *d, char *out, size_t size);
void bt_rope_divisors_read(bt_rope_divisors *d, const char *text);
/* BT_ARG names a setting that contradicts another, or whose number of divisors is not that of the rotating pairs. */
bt_code bt_rope_check(const bt_rope_scaling *s, int pairs, bt_err *err) BT_MUST_CHECK;

#endif
