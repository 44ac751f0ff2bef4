/* trial_race.c - rounds, and what they tell. */
#include "engine/plan/trial_race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_of(const double *x, size_t n) {
    double sorted[BT_RACE_ROUNDS_MOST] = {0};
    memcpy(sorted, x, n * sizeof *x);
    qsort(sorted, n, sizeof *sorted, by_value);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static void hold_against(bt_racer *x, const bt_racer *best) {
    double ratios[BT_RACE_ROUNDS_MOST] = {0}, away[BT_RACE_ROUNDS_MOST] = {0};
    const size_t n = x->runs < best->runs ? x->runs : best->runs;
    for (size_t i = 0; i < n; i++) ratios[i] = x->took_s[i] / best->took_s[i];
    x->ratio = median_of(ratios, n);
    for (size_t i = 0; i < n; i++) away[i] = fabs(ratios[i] - x->ratio);
    x->error = 1.2533 * 1.4826 * median_of(away, n) / sqrt((double)n);
}

/* Those that were told apart stay behind, so that the best has run in every round. */
static void compare(bt_race *r) {
    size_t best = r->best;
    for (size_t i = 0; i < r->n; i++)
        r->racer[i].median_s = median_of(r->racer[i].took_s, r->racer[i].runs);
    for (size_t i = 0; i < r->n; i++)
        if (!r->racer[i].slower &&
            (r->racer[best].slower || r->racer[i].median_s < r->racer[best].median_s))
            best = i;
    r->best = best;
    r->settled = r->rounds >= BT_RACE_ROUNDS_LEAST;
    for (size_t i = 0; i < r->n; i++) {
        bt_racer *x = &r->racer[i];
        if (x->slower) continue;
        hold_against(x, &r->racer[best]);
        if (i == best) continue;
        const double n = (double)x->runs, least = x->ratio - 2 * (n + 1) / (n - 1) * x->error;
        if (r->rounds < BT_RACE_ROUNDS_LEAST) continue;
        x->slower = least > 1;
        r->settled = r->settled && least > 1 - BT_RACE_NEAR;
    }
}

/* forth, and back again */
static bt_code run_round(bt_race *r, double *round_s, bt_err *err) {
    *round_s = 0;
    for (size_t k = 0; k < r->n; k++) {
        const size_t i = r->rounds % 2 ? r->n - 1 - k : k;
        bt_racer *x = &r->racer[i];
        double took_s, spent_s;
        if (x->slower) continue;
        BT_TRY(r->run(r->ctx, i, &took_s, &spent_s, err));
        x->took_s[x->runs++] = took_s;
        *round_s += spent_s;
    }
    r->rounds++;
    r->spent_s += *round_s;
    return BT_OK;
}

bt_code bt_race_run(bt_race *r, bt_err *err) {
    double round_s;
    memset(r->racer, 0, sizeof r->racer);
    r->rounds = r->best = 0;
    r->spent_s = 0;
    do {
        BT_TRY(run_round(r, &round_s, err));
        compare(r);
    } while (!r->settled && r->rounds < BT_RACE_ROUNDS_MOST && r->spent_s + round_s <= r->budget_s);
    return BT_OK;
}
