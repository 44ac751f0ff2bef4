/* trial_race.c - runs the rounds of a race and estimates the candidates' times. */
#include "engine/plan/trial_race.h"
#include "engine/base/small.h"
#include "engine/base/tables/derived.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POLISH = 8, RUNS_MOST = BT_RACE_MOST * BT_RACE_ROUNDS_MOST, PRIOR_RUNS = 2 };

/* Additive model of the logarithms: a run took round[k] + part[i] + noise. */
typedef struct split {
    double round[BT_RACE_ROUNDS_MOST], part[BT_RACE_MOST], noise;
} split;

/* Returns the residual of candidate i in round k; a dropped candidate ran only in the first rounds. */
static double residual_of_racer(const bt_race *r, const split *s, size_t i, size_t k) {
    return log(r->racer[i].took_s[k]) - s->round[k] - s->part[i];
}

static void remove_common_factors(const bt_race *r, split *s) {
    double x[BT_RACE_ROUNDS_MOST > BT_RACE_MOST ? BT_RACE_ROUNDS_MOST : BT_RACE_MOST] = {0};
    for (size_t k = 0; k < r->rounds; k++) {
        size_t n = 0;
        for (size_t i = 0; i < r->n; i++)
            if (k < r->racer[i].runs) x[n++] = residual_of_racer(r, s, i, k);
        s->round[k] += bt_median_known(x, n);
    }
    for (size_t i = 0; i < r->n; i++) {
        const size_t n = r->racer[i].runs;
        for (size_t k = 0; k < n; k++) x[k] = residual_of_racer(r, s, i, k);
        s->part[i] += bt_median_known(x, n);
    }
}

/* Returns the standard deviation of the noise. Each round effect and candidate effect reduces about one residual to
 * zero, so as many of the smallest residuals are ignored. */
static double estimate_noise(const bt_race *r, const split *s) {
    double x[RUNS_MOST] = {0};
    size_t n = 0, absorbed = r->rounds + r->n - 1;
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->racer[i].runs; k++) x[n++] = fabs(residual_of_racer(r, s, i, k));
    qsort(x, n, sizeof *x, bt_compare_doubles);
    const size_t free_runs = n > absorbed ? n - absorbed : 0;
    const double seen = free_runs ? 1.4826 * bt_median_known(x + absorbed, free_runs) : 0;
    return sqrt((PRIOR_RUNS * BT_RACE_NOISE * BT_RACE_NOISE + (double)free_runs * seen * seen) /
                (double)(PRIOR_RUNS + free_runs));
}

typedef struct belief { /* normal distribution of the logarithm of a time */
    double mean, variance;
} belief;

/* Combines runs and predictions. The factor common to all predictions is chosen to fit the runs best. */
static void combine_with_predictions(const bt_race *r, const split *s, belief out[BT_RACE_MOST]) {
    const double prior = BT_RACE_PRIOR * BT_RACE_PRIOR;
    double error[BT_RACE_MOST] = {0}, rounds[BT_RACE_ROUNDS_MOST], factor = 0, weights = 0;
    memcpy(rounds, s->round, sizeof rounds);
    const double typical = bt_median_known(rounds, r->rounds);
    for (size_t i = 0; i < r->n; i++) {
        const double e = 1.2533 * s->noise, predicted = r->racer[i].predicted_s;
        error[i] = e * e / (double)r->racer[i].runs;
        out[i] = (belief){s->part[i] + typical, error[i]};
        if (!(predicted > 0)) continue;
        factor += (out[i].mean - log(predicted)) / (prior + error[i]);
        weights += 1 / (prior + error[i]);
    }
    for (size_t i = 0; i < r->n && weights > 0; i++) {
        const double predicted = r->racer[i].predicted_s, sum = prior + error[i];
        if (!(predicted > 0)) continue;
        out[i].mean = (out[i].mean * prior + (log(predicted) + factor / weights) * error[i]) / sum;
        out[i].variance = prior * error[i] / sum;
    }
}

/* Returns the expected loss of choosing the best candidate instead of one whose logarithm is d larger, where s is the
 * standard deviation of the difference. */
static double expected_loss(double d, double s) {
    static const double SQRT_2PI = 2.5066282746310002, SQRT_2 = 1.4142135623730951;
    if (!(s > 0)) return 0;
    return s * exp(-d * d / (2 * s * s)) / SQRT_2PI - d * erfc(d / s / SQRT_2) / 2;
}

static void estimate_candidates(bt_race *r) {
    split s = {0};
    belief all[BT_RACE_MOST];
    for (int i = 0; i < POLISH; i++) remove_common_factors(r, &s);
    s.noise = estimate_noise(r, &s);
    combine_with_predictions(r, &s, all);
    r->best = 0;
    for (size_t i = 1; i < r->n; i++)
        if (all[i].mean < all[r->best].mean) r->best = i;
    r->loss_frac = 0;
    const bool enough = r->rounds >= BT_RACE_ROUNDS_LEAST;
    for (size_t i = 0; i < r->n; i++) {
        bt_racer *x = &r->racer[i];
        x->time_s = exp(all[i].mean);
        x->loss_frac = i == r->best ? 0
                                    : expected_loss(all[i].mean - all[r->best].mean,
                                                    sqrt(all[i].variance + all[r->best].variance));
        r->loss_frac += x->loss_frac;
        x->out = enough && i != r->best && x->loss_frac < BT_RACE_LOSS / 4;
    }
    r->settled = enough && r->loss_frac < BT_RACE_LOSS;
}

/* Returns false for a dropped candidate, which has missed rounds and is never run again. */
static bool takes_part_in_round(const bt_race *r, size_t i) {
    return r->racer[i].runs == r->rounds && !r->racer[i].out;
}

static bt_code run_round(bt_race *r, double *round_s, bt_err *err) {
    *round_s = 0;
    for (size_t k = 0; k < r->n; k++) {
        const size_t i = r->rounds % 2 ? r->n - 1 - k : k;
        bt_racer *x = &r->racer[i];
        double took_s, spent_s;
        if (!takes_part_in_round(r, i)) continue;
        BT_TRY(r->run(r->ctx, i, &took_s, &spent_s, err));
        x->took_s[x->runs++] = took_s;
        *round_s += spent_s;
    }
    r->rounds++;
    r->spent_s += *round_s;
    return BT_OK;
}

static size_t count_running(const bt_race *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) n += takes_part_in_round(r, i);
    return n;
}

bt_code bt_race_run(bt_race *r, bt_err *err) {
    double round_s;
    for (size_t i = 0; i < r->n; i++)
        r->racer[i] = (bt_racer){.predicted_s = r->racer[i].predicted_s};
    r->rounds = r->best = 0;
    r->spent_s = 0;
    do {
        BT_TRY(run_round(r, &round_s, err));
        estimate_candidates(r);
    } while (!r->settled && count_running(r) > 1 && r->rounds < BT_RACE_ROUNDS_MOST &&
             r->spent_s + round_s <= r->budget_s);
    return BT_OK;
}
