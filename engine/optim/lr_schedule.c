/* lr_schedule.c - computes learning-rate schedules as functions of the step; `bitnet` is the two-stage schedule of the
 * BitNet training FAQ.
 *
 * The update number t = step + 1 runs from 1 to `steps`. Warm-up is linear and reaches the peak at t = warmup; the
 * schedule then reaches its final value at the last update. */
#include <math.h>

#include "engine/optim/lr_schedule.h"

static const double PI = 3.14159265358979323846;

/* Returns how far the step is from the end of warm-up to the last update, 0..1. */
static double decay_progress(const bt_lr_schedule *s, int64_t step) {
    int64_t span = s->steps - s->warmup, done = step + 1 - s->warmup;
    if (span <= 0 || done >= span) return 1.0;
    return done <= 0 ? 0.0 : (double)done / (double)span;
}

/* Two lines that both end at zero after `steps`. The second begins after half of the steps with its own peak, an abrupt
 * drop (BitNet training FAQ: t < T/2: p1 (1 - t/T), then p2 (1 - t/T); t counts all steps, including warm-up). */
static double bitnet_rate(const bt_lr_schedule *s, int64_t step) {
    double peak = 2 * step < s->steps ? s->lr : s->lr2 > 0 ? s->lr2 : s->lr * (2.0 / 3.0);
    double left = 1.0 - (double)step / (double)s->steps;
    return left > 0 ? peak * left : 0.0;
}

/* Learning-rate range test (Smith, WACV 2017, section 3.3), geometric from lr_min_frac of the rate to all of it. */
static double range_test_rate(const bt_lr_schedule *s, int64_t step) {
    if (step + 1 >= s->steps) return s->lr;
    return s->lr * pow(s->lr_min_frac, 1 - (double)step / (double)(s->steps - 1));
}

double bt_schedule_lr(const bt_lr_schedule *s, int64_t step) {
    if (step < 0) step = 0;
    if (s->kind == BT_SCHED_RANGE) return range_test_rate(s, step);
    double warm = s->warmup > 0 && step + 1 < s->warmup ? (double)(step + 1) / (double)s->warmup
                                                        : 1.0;
    if (s->kind == BT_SCHED_BITNET) return warm * bitnet_rate(s, step);
    if (warm < 1.0) return warm * s->lr;
    double p = decay_progress(s, step), low = s->lr * s->lr_min_frac;
    switch (s->kind) {
    case BT_SCHED_CONSTANT:
    case BT_SCHED_BITNET:
    case BT_SCHED_RANGE: return s->lr;
    case BT_SCHED_COSINE: return low + 0.5 * (s->lr - low) * (1.0 + cos(PI * p));
    case BT_SCHED_LINEAR: return s->lr + (low - s->lr) * p;
    case BT_SCHED_WSD: { /* warm-up, stable, then a linear decay in the last decay_frac of all steps */
        double left = (double)(s->steps - step - 1), tail = s->decay_frac * (double)s->steps;
        if (tail <= 0 || left >= tail) return s->lr;
        return low + (s->lr - low) * (left > 0 ? left / tail : 0.0);
    }
    }
    return s->lr;
}

double bt_schedule_decay(const bt_lr_schedule *s, int64_t step) {
    if (s->kind == BT_SCHED_BITNET && 2 * step >= s->steps) return 0.0;
    return s->weight_decay;
}
