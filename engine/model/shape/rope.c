/* rope.c - frequencies of the rotary embedding, computed in float where transformers does, so that a model rotates by
 * the same angles as in the program that trained it. */
#include "engine/model/shape/rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/system/ascii.h"

static const double PI = 3.14159265358979323846;

static float llama3_divisor(float freq, const bt_rope_scaling *s) {
    const double turns = (double)s->context * freq / (2 * PI);
    if (turns < s->low) return freq / (float)s->factor;
    if (turns > s->high) return freq;
    const float share = (float)((turns - s->low) / (s->high - s->low));
    return (1 - share) * freq / (float)s->factor + share * freq;
}

/* Returns the index of the dimension that makes this number of turns within the context. */
static double dimension_of(double turns, double theta, int context, int head_dim) {
    return head_dim * log(context / (turns * 2 * PI)) / (2 * log(theta));
}

static float yarn(float freq, double theta, const bt_rope_scaling *s, int i, int head_dim) {
    double first = floor(dimension_of(s->high, theta, s->context, head_dim)),
           last = ceil(dimension_of(s->low, theta, s->context, head_dim));
    if (first < 0) first = 0;
    if (last > head_dim - 1) last = head_dim - 1;
    if (first == last) last += 0.001; /* avoids a division by zero, as transformers does */
    double scaled = (i - first) / (last - first);
    scaled = scaled < 0 ? 0 : scaled > 1 ? 1 : scaled;
    return (float)(freq / s->factor * scaled + freq * (1 - scaled));
}

/* The operations have the order of those of transformers. */
static float longrope(double theta, const bt_rope_divisors *d, int i, int head_dim) {
    if (i >= d->n) return 0;
    return 1 / (d->by[i] * (float)pow(theta, (double)((float)(2 * i) / (float)head_dim)));
}

float bt_rope_frequency(int i, double theta, const bt_rope_scaling *s, int head_dim, int length) {
    const float plain = (float)pow(theta, -(double)((float)(2 * i) / (float)head_dim));
    switch (s->method) {
    case BT_ROPE_PLAIN: return plain;
    case BT_ROPE_LINEAR: return plain / (float)s->factor;
    case BT_ROPE_LLAMA3: return llama3_divisor(plain, s);
    case BT_ROPE_YARN: return yarn(plain, theta, s, i, head_dim);
    case BT_ROPE_LONGROPE:
        return longrope(theta, length > s->context ? &s->longer : &s->shorter, i, head_dim);
    }
    return plain;
}

float bt_rope_divisor(int i, double theta, const bt_rope_scaling *s, int head_dim) {
    const bt_rope_scaling plain = {0};
    return bt_rope_frequency(i, theta, &plain, head_dim, 1) /
           bt_rope_frequency(i, theta, s, head_dim, 1);
}

double bt_rope_attention(const bt_rope_scaling *s) {
    if (s->method != BT_ROPE_YARN && s->method != BT_ROPE_LONGROPE) return 1;
    if (s->attention > 0) return s->attention;
    if (!(s->factor > 1)) return 1;
    return s->method == BT_ROPE_YARN ? 0.1 * log(s->factor) + 1
                                     : sqrt(1 + log(s->factor) / log(s->context));
}

void bt_rope_divisors_write(const bt_rope_divisors *d, char *out, size_t size) {
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < d->n && at < size; i++) {
        char text[32] = "";
        for (int digits = 1; digits <= 9; digits++) {
            (void)snprintf(text, sizeof text, "%.*g", digits, (double)d->by[i]);
            if (strtof(text, NULL) == d->by[i]) break;
        }
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? "," : "", text);
    }
}

void bt_rope_divisors_read(bt_rope_divisors *d, const char *text) {
    d->n = 0;
    while (*text) {
        char *end = NULL;
        const float x = bt_ascii_digit(*text) ? strtof(text, &end) : 0;
        if (!(x > 0) || isinf(x) || d->n == BT_ROPE_PAIRS || (*end && *end != ',') ||
            (*end == ',' && !end[1])) {
            d->n = -1;
            return;
        }
        d->by[d->n++] = x;
        text = *end ? end + 1 : end;
    }
}

static bt_code check_divisors(const bt_rope_divisors *d, const char *setting, int pairs,
                              bt_err *err) {
    if (d->n < 0)
        return bt_fail(err, BT_ARG,
                       "%s is not a list of at most %d positive numbers with commas between them",
                       setting, BT_ROPE_PAIRS);
    if (d->n != pairs)
        return bt_fail(err, BT_ARG,
                       "%s has %d numbers but must have %d, one for each rotating pair of a head "
                       "(model.head_dim, model.rotary_dim)",
                       setting, d->n, pairs);
    return BT_OK;
}

bt_code bt_rope_check(const bt_rope_scaling *s, int pairs, bt_err *err) {
    if (s->method == BT_ROPE_PLAIN) return BT_OK;
    if (s->method < BT_ROPE_PLAIN || s->method > BT_ROPE_LONGROPE)
        return bt_fail(err, BT_ARG, "unknown model.rope_scaling %d", (int)s->method);
    if (!(s->factor >= 1))
        return bt_fail(err, BT_ARG, "model.rope_factor is %g but must be at least 1", s->factor);
    if (s->method == BT_ROPE_LINEAR) return BT_OK;
    if (s->context < 1)
        return bt_fail(err, BT_ARG,
                       "model.rope_context is %d, but llama3, yarn and longrope need the sequence "
                       "length before the scaling: set it",
                       s->context);
    if (s->method == BT_ROPE_LONGROPE) {
        BT_TRY(check_divisors(&s->shorter, "model.rope_short", pairs, err));
        return check_divisors(&s->longer, "model.rope_long", pairs, err);
    }
    if (!(s->low > 0) || !(s->high > s->low))
        return bt_fail(err, BT_ARG,
                       "model.rope_low is %g and model.rope_high is %g: rope_low must be positive "
                       "and less than rope_high",
                       s->low, s->high);
    return BT_OK;
}
