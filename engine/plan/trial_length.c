/* trial_length.c - chooses the length of trials: whole steps if the time suffices, otherwise shorter steps, smaller
 * models, fewer rounds or fewer layouts. */
#include "engine/plan/trial_length.h"

#include <math.h>

#include "engine/plan/trial_race.h"

/* A run has about as many steps as RUN_S allows. */
enum { STEPS_MOST = 16 };
static const double RUN_S = 0.3;

int64_t bt_trial_steps(const bt_trial_length *x) {
    return (int64_t)fmax(1, fmin(STEPS_MOST, RUN_S / x->run_s));
}

double bt_trial_race_s(const bt_trial_length *all, size_t k, int rounds, double start_s) {
    double spent = start_s;
    for (size_t i = 0; i < k; i++)
        spent += all[i].make_s +
                 (double)(BT_RACE_WARM + rounds * bt_trial_steps(&all[i])) * all[i].run_s;
    return spent;
}

static bool halve_micro_batches(bt_trial_length *x) {
    const int64_t half = x->micros / 2;
    if (x->micros % 2 != 0 || half < x->fewest || half % x->multiple != 0) return false;
    x->micros = half;
    return true;
}

static bool halve_layers(bt_trial_length *x) {
    const int64_t half = x->chunks > 0 ? x->layers / 2 / x->chunks * x->chunks : 0;
    if (half < 1) return false;
    x->layers = half;
    return true;
}

/* Halves the micro-batches or layers of each trial with `fewer`, where possible. Returns false: none is shorter. */
static bool halve_trial_lengths(bt_trial_length *all, size_t n, const bt_trial_time *t,
                                bool (*fewer)(bt_trial_length *x)) {
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        bt_trial_length x = all[i];
        if (!fewer(&x) || !t->predict(t->ctx, i, &x) || !(x.run_s > 0)) continue;
        all[i] = x;
        any = true;
    }
    return any;
}

size_t bt_trial_lengths(bt_trial_length *all, size_t n, const bt_trial_time *t) {
    int rounds = BT_RACE_ROUNDS_LEAST;
    if (n < 2) return 0;
    while (bt_trial_race_s(all, 2, rounds, t->start_s) > t->seconds &&
           (halve_trial_lengths(all, n, t, halve_micro_batches) ||
            halve_trial_lengths(all, n, t, halve_layers))) {}
    if (bt_trial_race_s(all, 2, rounds, t->start_s) > t->seconds) rounds = 1;
    size_t k = n;
    while (k > 1 && bt_trial_race_s(all, k, rounds, t->start_s) > t->seconds) k--;
    return k >= 2 ? k : 0;
}
