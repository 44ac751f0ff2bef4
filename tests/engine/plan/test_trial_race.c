/* test_trial_race.c - races between layouts with given times of every run: which layout wins, when the race ends, and
 * its cost. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/plan/trial_race.h"

typedef struct track { /* true times; width of the noise, common drift per run, and outliers */
    double truth[BT_RACE_MOST], predicted[BT_RACE_MOST];
    double noise, drift;
    size_t spike_every;
    uint64_t seed;
    size_t runs, fails_at; /* 0: never */
    size_t order[64];
} track;

static bt_code run_of_layout(void *ctx, size_t i, double *took_s, double *spent_s, bt_err *err) {
    track *t = ctx;
    float x;
    bt_rng_normal(&x, 1, t->runs, 1, t->seed, 7);
    if (t->runs < 64) t->order[t->runs] = i;
    t->runs++;
    if (t->fails_at && t->runs == t->fails_at) return bt_fail(err, BT_MPI, "a run failed");
    *took_s = t->truth[i] * (1 + t->noise * (double)x) * (1 + t->drift * (double)t->runs);
    if (t->spike_every && t->runs % t->spike_every == 0) *took_s *= 3;
    *spent_s = 1 + 3 * *took_s;
    return BT_OK;
}

static bt_race race_layouts(track *t, size_t n, double budget_s) {
    bt_race r = {.n = n, .budget_s = budget_s, .run = run_of_layout, .ctx = t};
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < n; i++) r.racer[i].predicted_s = t->predicted[i];
    assert_int_equal(bt_race_run(&r, &err), BT_OK);
    return r;
}

static void clear_winners_end_after_the_least_rounds(void **state) {
    (void)state;
    track t = {.truth = {1.2, 1, 1.5}};
    const bt_race r = race_layouts(&t, 3, 1000);
    assert_int_equal(r.best, 1);
    assert_int_equal(r.rounds, BT_RACE_ROUNDS_LEAST);
    assert_true(r.settled && r.racer[0].out && r.racer[2].out && !r.racer[1].out);
    assert_true(fabs(r.racer[0].time_s / r.racer[1].time_s - 1.2) < 1e-12);
    assert_true(fabs(r.racer[1].time_s - 1) < 1e-12 && r.loss_frac < BT_RACE_LOSS);
    /* forwards and backwards */
    static const size_t order[] = {0, 1, 2, 2, 1, 0};
    assert_memory_equal(t.order, order, sizeof order);
}

/* Layouts that are much slower are not run again while the remaining layouts are compared. */
static void slow_layouts_are_not_run_again(void **state) {
    (void)state;
    track t = {.truth = {1.5, 1, 1}, .noise = 0.1, .seed = 2};
    const bt_race r = race_layouts(&t, 3, 1e6);
    assert_true(r.rounds > BT_RACE_ROUNDS_LEAST);
    assert_true(r.racer[0].out && r.racer[0].runs < r.rounds);
    assert_int_equal(r.racer[r.best].runs, r.rounds);
}

static void predictions_decide_what_runs_cannot(void **state) {
    (void)state;
    size_t first = 0, rounds = 0, rounds_without = 0, misled = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        track t = {.truth = {1, 1.05}, .predicted = {10, 10.5}, .noise = 0.05, .seed = seed};
        const bt_race r = race_layouts(&t, 2, 1e6);
        first += r.best == 0;
        rounds += r.rounds;
        track without = {.truth = {1, 1.05}, .noise = 0.05, .seed = seed};
        rounds_without += race_layouts(&without, 2, 1e6).rounds;
        track wrong = {.truth = {1.15, 1}, .predicted = {10, 10.5}, .noise = 0.02, .seed = seed};
        misled += race_layouts(&wrong, 2, 1e6).best == 0;
    }
    /* The average loss of the choice equals the configured one. */
    assert_true((double)(100 - first) * 0.05 <= 100 * BT_RACE_LOSS);
    assert_true(rounds < rounds_without);
    assert_true(misled <= 1);
}

/* Losses equal the formula for equal times with a known deviation. */
static void losses_are_those_of_the_formula(void **state) {
    (void)state;
    track t = {.truth = {1, 1}};
    const bt_race r = race_layouts(&t, 2, 0);
    /* After one round the noise is an assumption, and there is no prediction. */
    const double width = sqrt(2.0) * 1.2533 * BT_RACE_NOISE;
    assert_true(fabs(r.loss_frac - width / sqrt(2 * acos(-1))) < 1e-9);
    assert_false(r.settled);
}

/* The machine becomes slower by 2 % with every run, so single times are misleading. */
static void drift_affects_all_equally(void **state) {
    (void)state;
    track t = {.truth = {1, 1.06}, .drift = 0.02};
    const bt_race r = race_layouts(&t, 2, 1000);
    assert_int_equal(r.best, 0);
    assert_true(r.settled);
}

static void one_slow_run_decides_nothing(void **state) {
    (void)state;
    track t = {.truth = {1, 1.1, 1.1}, .spike_every = 4};
    const bt_race r = race_layouts(&t, 3, 1000);
    assert_int_equal(r.best, 0);
    assert_true(r.settled);
}

/* Over many seeds, noisy races end with a choice that costs at most 5 %, except for one in forty, and take longer than
 * races without noise. */
static void noise_is_averaged_out(void **state) {
    (void)state;
    size_t wrong = 0, settled = 0, rounds = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        track t = {.truth = {1.08, 1, 1.02}, .noise = 0.05, .seed = seed};
        const bt_race r = race_layouts(&t, 3, 1e6);
        settled += r.settled;
        rounds += r.rounds;
        wrong += r.settled && t.truth[r.best] > 1.05;
    }
    assert_true(settled > 360);
    assert_true(rounds > 400 * (BT_RACE_ROUNDS_LEAST + 1));
    assert_true(wrong <= 10);
}

static void the_budget_ends_the_race(void **state) {
    (void)state;
    /* A run takes 4 s and a round 8 s: three rounds fit in 31 s, and one is always run. */
    track t = {.truth = {1, 1}, .noise = 0.3, .seed = 3};
    bt_race r = race_layouts(&t, 2, 31);
    assert_true(r.spent_s <= 31 && r.rounds <= 3);
    track again = {.truth = {1, 1.3}};
    r = race_layouts(&again, 2, 0);
    assert_int_equal(r.rounds, 1);
    assert_int_equal(r.best, 0);
    assert_false(r.settled);
}

/* Equal layouts cannot be distinguished; the race ends when the choice cannot cost much. */
static void equal_layouts_end_the_race(void **state) {
    (void)state;
    track t = {.truth = {1, 1, 1.001}, .noise = 0.01, .seed = 5};
    const bt_race r = race_layouts(&t, 3, 1000);
    assert_true(r.settled);
    assert_true(r.rounds <= 6);
}

static void a_failed_run_is_reported(void **state) {
    (void)state;
    track t = {.truth = {1, 1}, .fails_at = 4};
    bt_race r = {.n = 2, .budget_s = 100, .run = run_of_layout, .ctx = &t};
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_race_run(&r, &err), BT_MPI);
    assert_int_equal(r.rounds, 1);
    assert_int_equal(r.racer[0].runs + r.racer[1].runs, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clear_winners_end_after_the_least_rounds),
        cmocka_unit_test(slow_layouts_are_not_run_again),
        cmocka_unit_test(predictions_decide_what_runs_cannot),
        cmocka_unit_test(losses_are_those_of_the_formula),
        cmocka_unit_test(drift_affects_all_equally),
        cmocka_unit_test(one_slow_run_decides_nothing),
        cmocka_unit_test(noise_is_averaged_out),
        cmocka_unit_test(the_budget_ends_the_race),
        cmocka_unit_test(equal_layouts_end_the_race),
        cmocka_unit_test(a_failed_run_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
