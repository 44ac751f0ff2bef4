/* test_ckpt_interval.c - the time between two checkpoints: the formula of Young and Daly, its limits, the number of
 * failures in checkpoints; and which checkpoint is the best. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/train/ckpt_interval.h"
#include "tests/tiny_run.h"

enum { DAY_S = 86400 };
static const int64_t S = 1000000000;

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) fail_msg("%.12g, not %.12g", got, want);
}

static void the_interval_follows_the_formula(void **state) {
    (void)state;
    bt_ckpt_interval i = {.most_s = 1e9, .began_ns = 5 * S};
    bt_ckpt_interval_estimate(&i, 1000000000, true);
    near(i.cost_s, 1);    /* a copy at 1 GB/s */
    near(i.written_s, 5); /* to a disk at 200 MB/s */
    near(bt_ckpt_interval_mtbf_s(&i, 5 * S), DAY_S);
    near(bt_ckpt_interval_s(&i, 5 * S), sqrt(2.0 * DAY_S) - 1);
    bt_ckpt_interval_estimate(&i, 1000000000, false);
    near(i.cost_s, 5);
    /* Measured durations are smoothed and replace the estimate. */
    bt_ckpt_interval_measured(&i, 0.2, 3);
    near(i.cost_s, 0.2);
    bt_ckpt_interval_measured(&i, 0.4, 2);
    near(i.cost_s, 0.3);
    bt_ckpt_interval_estimate(&i, 1, true);
    near(i.cost_s, 0.3);
    /* One hour and three failures later the interval is a quarter of the trained time; one day later it is longer. */
    i.failures = 3;
    near(bt_ckpt_interval_mtbf_s(&i, 3605 * S), (DAY_S + 3600.0) / 4);
    near(bt_ckpt_interval_s(&i, 3605 * S), sqrt(2 * 0.3 * (DAY_S + 3600.0) / 4) - 0.3);
}

static void the_interval_has_limits(void **state) {
    (void)state;
    bt_ckpt_interval i = {.most_s = 1800};
    bt_ckpt_interval_measured(&i, 1e-6, 0.01);
    near(bt_ckpt_interval_s(&i, 0), 10);
    /* The interval is at least ten times the duration of a write. */
    bt_ckpt_interval_measured(&i, 1e-6, 4);
    near(bt_ckpt_interval_s(&i, 0), 40);
    bt_ckpt_interval_measured(&i, 1000, 4);
    near(bt_ckpt_interval_s(&i, 0), 1800);
}

static bt_ckpt_interval after_restart(const bt_ckpt_interval *before) {
    bt_ckpt_interval now = {.most_s = before->most_s};
    bt_state out = {0}, in = {0};
    bt_text values;
    bt_err err = BT_ERR_INIT;
    bt_text_init(&values);
    bt_ckpt_interval_add_state((bt_ckpt_interval *)(uintptr_t)before, &out);
    bt_ckpt_interval_add_state(&now, &in);
    assert_int_equal(bt_state_save_values(&out, &values, &err), BT_OK);
    assert_int_equal(bt_state_load_values(&in, &values, &err), BT_OK);
    bt_text_release(&values);
    return now;
}

static void failures_are_counted_across_restarts(void **state) {
    (void)state;
    bt_ckpt_interval i = {.most_s = 1800, .before_s = 500, .failures = 2};
    /* The attempt ended after the save, so the failure counts. */
    bt_ckpt_interval next = after_restart(&i);
    assert_int_equal(next.failures, 3);
    near(next.before_s, 500);
    i.closing = true;
    next = after_restart(&i);
    assert_int_equal(next.failures, 2);
}

/* Rows of an older program and damaged rows are read as far as they are valid. */
static void rows_of_any_kind_are_read(void **state) {
    (void)state;
    static const struct {
        const char *row;
        int64_t failures;
        double before_s;
    } rows[] = {{"{\"count\":3,\"trained_s\":100,\"closing\":true}", 3, 100},
                {"{\"count\":3,\"trained_s\":100,\"closing\":false}", 4, 100},
                {"{\"count\":3,\"trained_s\":100}", 3, 100},
                {"{\"count\":3}", 3, 0},
                {"{\"count\":0,\"trained_s\":0,\"closing\":false}", 1, 0},
                {"{\"count\":-1,\"trained_s\":100}", 0, 0},
                {"{\"trained_s\":100}", 0, 0},
                {"{\"count\":3,\"trained_s\":-0.5}", 0, 0},
                {"{\"count\":3,\"trained_s\":1e12}", 0, 0},
                {"{\"count\":3,\"trained_s\":999999999999}", 3, 999999999999.0}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        bt_ckpt_interval i = {.most_s = 1800};
        bt_state in = {0};
        bt_text values;
        bt_err err = BT_ERR_INIT;
        bt_text_init(&values);
        bt_text_printf(&values, "{\"failures\":%s}", rows[k].row);
        bt_ckpt_interval_add_state(&i, &in);
        assert_int_equal(bt_state_load_values(&in, &values, &err), BT_OK);
        if (i.failures != rows[k].failures || i.before_s != rows[k].before_s)
            fail_msg("%s: %lld failures, %g s", rows[k].row, (long long)i.failures, i.before_s);
        bt_text_release(&values);
    }
}

static char dir[64];
static fake_sink sink;

static int64_t best_step(void) {
    char link[192], name[64];
    snprintf(link, sizeof link, "%s/best", dir);
    const ssize_t n = readlink(link, name, sizeof name - 1);
    if (n < 0) return -1;
    name[n] = '\0';
    assert_int_equal(strncmp(name, "step-", 5), 0);
    snprintf(link, sizeof link, "%s/%.60s/manifest.json", dir, name);
    assert_int_equal(access(link, R_OK), 0); /* The file still exists. */
    return strtoll(name + 5, NULL, 10);
}

static void the_best_is_kept(void **state) {
    (void)state;
    char command[128];
    bt_run_cfg cfg;
    strcpy(dir, "/tmp/bt-best-XXXXXX");
    assert_non_null(mkdtemp(dir));
    /* The learning rate makes the loss fall first and rise later. */
    TINY(&cfg, "--out", dir, "--set", "data.val_frac=0.2", "--eval-every", "2", "--set",
         "train.eval_tokens=512", "--steps", "24", "--lr", "0.5", "--warmup", "4", "--set",
         "ckpt.every=3", "--set", "ckpt.keep=1", "--set", "optim.clip=0");
    tiny_run(&cfg, &sink, NULL, "");
    int64_t want = -1;
    double least = INFINITY;
    size_t evaluated = 0;
    for (size_t i = 0; i < sink.n_steps; i++) {
        const double loss = sink.steps[i].v[BT_MS_VAL_LOSS];
        if (isnan(loss)) continue;
        evaluated++;
        if (loss < least) {
            least = loss;
            want = sink.steps[i].step + 1;
        }
    }
    assert_true(evaluated >= 10);
    assert_int_equal(best_step(), want);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
    /* There is no best checkpoint unless ckpt.keep_best is set. */
    assert_non_null(mkdtemp(strcpy(dir, "/tmp/bt-best-XXXXXX")));
    memcpy(cfg.run.out, dir, sizeof dir);
    cfg.ckpt.keep_best = false;
    tiny_run(&cfg, &sink, NULL, "");
    assert_int_equal(best_step(), -1);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_interval_follows_the_formula),
                                       cmocka_unit_test(the_interval_has_limits),
                                       cmocka_unit_test(failures_are_counted_across_restarts),
                                       cmocka_unit_test(rows_of_any_kind_are_read),
                                       cmocka_unit_test(the_best_is_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
