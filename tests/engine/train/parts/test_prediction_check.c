/* test_prediction_check.c - the reason given if a step takes longer or shorter than predicted: the phase that deviates
 * most and the cause of its deviation. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/train/parts/prediction/prediction_check.h"

/* Sets forward 40, backward 80, wait 50, exchange 10 and every other phase 1 ms. */
static void set_phase_times(double *ms) {
    for (int i = 0; i < BT_PHASE_COUNT; i++) ms[i] = 1;
    ms[BT_PH_FWD] = 40;
    ms[BT_PH_BWD] = 80;
    ms[BT_PH_WAIT] = 50;
    ms[BT_PH_COMM_EXPOSED] = 10;
}

static double sum_of_phases(const double *ms) {
    double all = 0;
    for (int i = 0; i < BT_PHASE_COUNT; i++) all += ms[i];
    return all;
}

/* Checks the cause that is given if one phase deviates. */
static void assert_cause(bt_phase phase, double ms, double load, bool predicted,
                         const char *cause) {
    char buf[240];
    bt_predicted p;
    (void)bt_predicted_read("", &p);
    bt_prediction_seen s = {.load = load};
    set_phase_times(s.phase_ms);
    const double planned_ms = sum_of_phases(s.phase_ms);
    if (predicted) set_phase_times(p.phase_ms);
    s.phase_ms[phase] = ms;
    s.step_ms = sum_of_phases(s.phase_ms);
    s.ratio = s.step_ms / planned_ms;
    const bt_phase found = bt_prediction_phase(&s, &p);
    assert_int_equal(found, predicted ? phase : BT_PHASE_COUNT);
    assert_string_equal(bt_prediction_cause(&s, &p, found, buf, sizeof buf), cause);
}

static void every_phase_has_its_cause(void **state) {
    (void)state;
    /* The pipeline waits 50 ms as predicted, so this is not the cause. */
    assert_cause(
        BT_PH_BWD, 160, 0.9, true,
        "computing is slower than when its rates were measured ('bitrain plan --measure' measures "
        "again); most of it in backward: 160 ms, 80 predicted");
    assert_cause(
        BT_PH_WAIT, 120, 0.9, true,
        "ranks wait for a slower one, beyond what was predicted; most of it in wait: 120 ms, 50 "
        "predicted");
    assert_cause(BT_PH_COMM_EXPOSED, 80, 0.9, true,
                 "messages take longer than the measured links need; most of it in "
                 "communication: 80 ms, 10 predicted");
    assert_cause(BT_PH_DATA, 60, 0.9, true,
                 "batches are read too slowly; most of it in data: 60 ms, 1 predicted");
    assert_cause(BT_PH_CKPT, 60, 0.9, true,
                 "checkpoints take longer than the measured disk needs; most of it in checkpoint: "
                 "60 ms, 1 predicted");
    assert_cause(
        BT_PH_OTHER, 60, 0.9, true,
        "time is spent outside of the predicted phases; most of it in other: 60 ms, 1 predicted");
}

static void load_of_another_job_is_the_first_cause_and_the_phase_is_named(void **state) {
    (void)state;
    assert_cause(BT_PH_FWD, 120, 2.5, true,
                 "the machine is busy with other work, load 2.5; most of it in forward: 120 ms, 40 "
                 "predicted");
    assert_cause(
        BT_PH_BWD, 20, 0.9, true,
        "the machine is quieter than when its rates were measured; most of it in backward: 20 "
        "ms, 80 predicted");
}

static void without_predicted_phases_the_cause_is_guessed(void **state) {
    (void)state;
    assert_cause(BT_PH_WAIT, 120, 0.9, false,
                 "ranks wait for a slower one, beyond what was predicted");
    assert_cause(BT_PH_COMM_EXPOSED, 150, NAN, false,
                 "messages take longer than the measured links need");
    assert_cause(
        BT_PH_BWD, 400, 0.9, false,
        "computing is slower than when its rates were measured ('bitrain plan --measure' measures "
        "again)");
    assert_cause(BT_PH_BWD, 400, 2.5, false, "the machine is busy with other work, load 2.5");
}

/* The chosen phase has the largest deviation in the direction of the step's deviation. */
static void the_phase_that_deviates_most_is_found(void **state) {
    (void)state;
    char buf[240];
    bt_predicted p;
    bt_prediction_seen s = {.ratio = 1.5, .step_ms = 100};
    (void)bt_predicted_read("", &p);
    set_phase_times(s.phase_ms);
    set_phase_times(p.phase_ms);
    assert_int_equal(bt_prediction_phase(&s, &p), BT_PHASE_COUNT);
    for (int i = 0; i < BT_PHASE_COUNT; i++) {
        const int less = (i + 1) % BT_PHASE_COUNT;
        s.phase_ms[i] = p.phase_ms[i] + 0.5, s.phase_ms[less] = p.phase_ms[less] - 0.75;
        s.ratio = 1; /* Equal deviations do not replace the first. */
        assert_int_equal(bt_prediction_phase(&s, &p), i);
        s.ratio = 0.99;
        assert_int_equal(bt_prediction_phase(&s, &p), less);
        s.phase_ms[less] = p.phase_ms[less] + 0.25; /* Another phase grows too. */
        s.ratio = 1.5;
        assert_int_equal(bt_prediction_phase(&s, &p), i);
        s.phase_ms[i] = NAN;
        assert_int_equal(bt_prediction_phase(&s, &p), less);
        set_phase_times(s.phase_ms);
    }
    /* Limits: a load of 1.2 is not attributed to another job, and a quarter of the step is not a large share. */
    (void)bt_predicted_read("", &p);
    set_phase_times(s.phase_ms);
    static const struct {
        double wait, comm, load;
        const char *cause;
    } rows[] = {{25, 25, 1.2,
                 "computing is slower than when its rates were measured ('bitrain plan --measure' "
                 "measures again)"},
                {25.1, 60, 1.2, "ranks wait for a slower one, beyond what was predicted"},
                {25, 25.1, 1.2, "messages take longer than the measured links need"},
                {60, 60, 1.21, "the machine is busy with other work, load 1.2"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        s.phase_ms[BT_PH_WAIT] = rows[i].wait, s.phase_ms[BT_PH_COMM_EXPOSED] = rows[i].comm;
        s.load = rows[i].load;
        assert_string_equal(bt_prediction_cause(&s, &p, BT_PHASE_COUNT, buf, sizeof buf),
                            rows[i].cause);
    }
    s.ratio = 0.99, s.load = 3;
    assert_string_equal(bt_prediction_cause(&s, &p, BT_PHASE_COUNT, buf, sizeof buf),
                        "the machine is quieter than when its rates were measured");
    s.ratio = 1; /* A host with the predicted load is not called quieter. */
    assert_string_equal(bt_prediction_cause(&s, &p, BT_PHASE_COUNT, buf, sizeof buf),
                        "the machine is busy with other work, load 3");
}

typedef struct told {
    int n;
    bt_event_kind kind;
    int64_t step;
    char title[512], body[512];
} told;

static void on_event(void *ctx, const bt_event *e) {
    told *x = ctx;
    x->n++;
    x->kind = e->kind;
    x->step = e->step;
    snprintf(x->title, sizeof x->title, "%s", e->title);
    snprintf(x->body, sizeof x->body, "%s", e->body);
}

static void run_prediction_checks(bt_prediction_check *c, bt_telemetry *t) {
    for (int i = 0; i < BT_PREDICTION_EVERY; i++) bt_prediction_check_step(c, t, i);
}

static void the_event_has_both_numbers_of_the_phase(void **state) {
    (void)state;
    told x = {0};
    bt_prediction_check c = {0};
    bt_telemetry t = {.sink = {.ctx = &x, .event = on_event}, .predicted_ms = 100, .seen = 1};
    double(*history)[BT_MR_COUNT] = calloc(BT_HISTORY, sizeof *history);
    assert_non_null(history);
    t.history = history;
    for (int m = 0; m < BT_MR_COUNT; m++) history[0][m] = NAN;
    history[0][BT_MR_STEP_TIME] = 150;
    history[0][BT_MR_WAIT] = 75;
    history[0][BT_MR_BWD] = 60;
    assert_true(bt_predicted_read("step_ms=90 tried_ms=100 wait_ms=30 bwd_ms=55", &c.predicted));
    run_prediction_checks(&c, &t);
    assert_true(x.n == 1 && x.kind == BT_EVENT_PREDICTION);
    if (!strstr(x.title, "steps take 150 ms, 50 % longer than the 100 ms of the trial before the "
                         "run: ranks wait for a slower one"))
        fail_msg("%s", x.title);
    assert_string_equal(
        x.body, "{\"predicted_ms\":100,\"tried_ms\":100,\"step_ms\":150,\"machine_load\":null,"
                "\"phase\":\"wait_ms\",\"phase_ms\":75,\"phase_predicted_ms\":30}");
    run_prediction_checks(&c, &t);
    assert_int_equal(x.n, 1); /* A second check emits no second event. */
    history[0][BT_MR_STEP_TIME] = 105;
    run_prediction_checks(&c, &t);
    assert_true(x.n == 2 && x.kind == BT_EVENT_LAYOUT);
    assert_string_equal(x.title,
                        "steps take 105 ms, as expected (the 100 ms of the trial before the run)");
    /* If there was no trial, steps are compared with the prediction. */
    assert_true(bt_predicted_read("step_ms=100", &c.predicted));
    history[0][BT_MR_STEP_TIME] = 150;
    run_prediction_checks(&c, &t);
    if (!strstr(x.title, "longer than the 100 ms predicted: ")) fail_msg("%s", x.title);
    free(history);
}

/* Returns the history of a trainer's telemetry, which has one step. */
static double (*history_of(bt_telemetry *t, told *x))[BT_MR_COUNT] {
    double(*history)[BT_MR_COUNT] = calloc(BT_HISTORY, sizeof *history);
    assert_non_null(history);
    *t = (bt_telemetry){
        .sink = {.ctx = x, .event = on_event}, .predicted_ms = 100, .seen = 1, .history = history};
    for (int m = 0; m < BT_MR_COUNT; m++) history[0][m] = NAN;
    return history;
}

/* The check runs at a fixed interval. It reports when the deviation exceeds a fifth in either direction, and when the
 * deviation ends. */
static void a_changed_deviation_is_reported(void **state) {
    (void)state;
    static const struct {
        double ms;
        const char *title; /* title of the event; NULL: no event */
    } rows[] = {
        {119.9, NULL},
        {80.1, NULL},
        {121, "steps take 121 ms, 21 % longer than the 100 ms predicted: computing is slower than "
              "when its rates were measured ('bitrain plan --measure' measures again)"},
        {75, NULL}, /* the deviation continues */
        {NAN, NULL},
        {100, "steps take 100 ms, as expected (the 100 ms predicted)"},
        {100, NULL},
        {75, "steps take 75 ms, 25 % less than the 100 ms predicted: the machine is quieter than "
             "when its rates were measured"},
        {119.9, "steps take 120 ms, as expected (the 100 ms predicted)"}};
    told x = {0};
    bt_telemetry t;
    bt_prediction_check c = {0};
    double(*history)[BT_MR_COUNT] = history_of(&t, &x);
    assert_true(bt_predicted_read("", &c.predicted));
    int64_t step = 100;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int before = x.n;
        char body[200];
        history[0][BT_MR_STEP_TIME] = rows[i].ms;
        history[0][BT_MR_LOAD] = 0.5;
        for (int k = 1; k < BT_PREDICTION_EVERY; k++) bt_prediction_check_step(&c, &t, step++);
        assert_int_equal(x.n, before);
        bt_prediction_check_step(&c, &t, step++);
        assert_int_equal(x.n, before + (rows[i].title != NULL));
        if (!rows[i].title) continue;
        assert_string_equal(x.title, rows[i].title);
        assert_int_equal(x.step, step - 1);
        assert_int_equal(x.kind, i == 2 || i == 7 ? BT_EVENT_PREDICTION : BT_EVENT_LAYOUT);
        snprintf(body, sizeof body,
                 "{\"predicted_ms\":100,\"tried_ms\":null,\"step_ms\":%.17g,\"machine_load\":0.5}",
                 rows[i].ms);
        if (i < 8) assert_string_equal(x.body, body);
    }
    free(history);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_phase_has_its_cause),
        cmocka_unit_test(load_of_another_job_is_the_first_cause_and_the_phase_is_named),
        cmocka_unit_test(without_predicted_phases_the_cause_is_guessed),
        cmocka_unit_test(the_phase_that_deviates_most_is_found),
        cmocka_unit_test(the_event_has_both_numbers_of_the_phase),
        cmocka_unit_test(a_changed_deviation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
