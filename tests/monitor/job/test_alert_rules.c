/* Alert rules: their syntax, the conditions under which each kind fires, and that a rule fires once until its condition
 * has been false again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/text.h"
#include "monitor/job/health/alert_rules.h"
#include "tests/message.h"

static bt_text heard;

static void collect_alert(void *ctx, const char *says) {
    (void)ctx;
    bt_text_printf(&heard, "%s\n", says);
}

static bt_alert_rules rules_of(const char *list) {
    bt_alert_rules r;
    bt_err err = BT_ERR_INIT;
    if (bt_alert_parse(&r, list, &err) != BT_OK) fail_msg("%s: %s", list, err.msg);
    r.tell = collect_alert;
    bt_text_clear(&heard);
    return r;
}

static void rules_are_read(void **state) {
    static const struct {
        const char *text;
        bt_alert_kind kind;
        int metric;
        double limit;
        bool bytes;
        int64_t n;
    } rows[] = {{"loss > 10", BT_ALERT_ABOVE, BT_MS_LOSS, 10, false, 1},
                {"loss>1e1for 2", BT_ALERT_ABOVE, BT_MS_LOSS, 10, false, 2},
                {"lr < -0.5 for 3 ", BT_ALERT_BELOW, BT_MS_LR, -0.5, false, 3},
                {"grad_norm > 100 for  9000000000", BT_ALERT_ABOVE, BT_MS_GRAD_NORM, 100, false,
                 9000000000},
                {"val_loss not better for 5", BT_ALERT_NOT_BETTER, BT_MS_VAL_LOSS, 0, false, 5},
                {"disk < 10 %", BT_ALERT_DISK, -1, 0.1, false, 1},
                {"disk<0.5%", BT_ALERT_DISK, -1, 0.005, false, 1},
                {"disk < 99 %", BT_ALERT_DISK, -1, 0.99, false, 1},
                {"disk < 200 GiB", BT_ALERT_DISK, -1, 200 * 1073741824.0, true, 1},
                {"rank lost", BT_ALERT_RANK_LOST, -1, 0, false, 1},
                {"run stalled", BT_ALERT_STALLED, -1, 0, false, 1},
                {"run failed", BT_ALERT_FAILED, -1, 0, false, 1},
                {"run done", BT_ALERT_DONE, -1, 0, false, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bt_alert_rules r = rules_of(rows[i].text);
        const bt_alert_rule *x = &r.rule[0];
        assert_int_equal(r.n, 1);
        assert_string_equal(x->text, rows[i].text);
        if (x->kind != rows[i].kind || x->metric != rows[i].metric ||
            fabs(x->limit - rows[i].limit) > 1e-12 || x->bytes != rows[i].bytes ||
            x->n != rows[i].n || x->count != 0 || x->reported || x->best_step != -1 ||
            !(x->best > 1e300))
            fail_msg("'%s' is read otherwise", rows[i].text);
        for (int k = BT_ALERT_BELOW; k <= BT_ALERT_DONE; k++)
            assert_int_equal(bt_alert_has(&r, (bt_alert_kind)k), k == (int)rows[i].kind);
    }
    const bt_alert_rules several = rules_of("\nrank lost\n\nloss > 1\n");
    assert_int_equal(several.n, 2);
    assert_int_equal(several.rule[0].kind, BT_ALERT_RANK_LOST);
    assert_string_equal(several.rule[1].text, "loss > 1");
    assert_int_equal(rules_of("").n, 0);
}

#define NO_RULE(text) \
    "alert.rules: '" text "' is not an alert rule (examples: 'loss > 10', 'val_loss not better " \
    "for 5', 'grad_norm > 100 for 3', " \
    "'disk < 10 %%', 'rank lost', 'run stalled', 'run failed', 'run done')"

static void bad_rules_are_named(void **state) {
    static const char *const bad[] = {"loss",
                                      "loss >",
                                      "loss > ten",
                                      "loss > inf",
                                      "loss > nan",
                                      "loss > 10 x",
                                      "loss > 10 for",
                                      "loss > 10 for x",
                                      "loss > 10 for 0",
                                      "loss > 10 for -1",
                                      "loss > 10 for 2 x",
                                      "loss > 10 fox 2",
                                      "val_loss not better for x",
                                      "val_loss not better ",
                                      "val_loss not better",
                                      "loss ~ 3",
                                      "disk < 10",
                                      "disk < 0.5",
                                      "disk < 0.5 GB",
                                      "disk < x %",
                                      "disk < 0 %",
                                      "disk < -1 GiB",
                                      "disk < 100 %",
                                      "disk < 200 %",
                                      "disk < 10 GB",
                                      "disk < 10 % x",
                                      "disk > 10 %",
                                      "rank lots",
                                      "run done ",
                                      "Rank lost",
                                      " loss > 1",
                                      "mood > 1"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char list[120], want[400];
        bt_alert_rules r;
        bt_err err = BT_ERR_INIT;
        snprintf(list, sizeof list, "rank lost\n%s\nloss > 1", bad[i]);
        snprintf(want, sizeof want, NO_RULE("%s"), bad[i]);
        if (bt_alert_parse(&r, list, &err) != BT_ARG) fail_msg("%s", bad[i]);
        if (strncmp(err.msg, want, sizeof err.msg - 1) != 0) fail_msg("%s", err.msg);
    }
    bt_alert_rules r;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_alert_parse(&r, "lss > 10", &err), BT_ARG);
    message_has(err.msg, "alert.rules: 'lss > 10'");
}

/* The maximum number and length of rules are accepted, and more are refused. */
static void rules_have_maximum_sizes(void **state) {
    char list[BT_ALERT_RULES * 12 + 40] = "", text[BT_ALERT_TEXT + 1];
    bt_alert_rules r;
    bt_err err = BT_ERR_INIT;
    (void)state;
    for (int i = 0; i < BT_ALERT_RULES; i++) strcat(list, "run done\n");
    assert_int_equal(rules_of(list).n, BT_ALERT_RULES);
    strcat(list, "\nrun failed");
    assert_int_equal(bt_alert_parse(&r, list, &err), BT_ARG);
    assert_string_equal(err.msg, "alert.rules: more than 16 rules");
    memset(text, ' ', sizeof text);
    memcpy(text, "loss > 1", 8);
    text[BT_ALERT_TEXT - 1] = '\0';
    assert_string_equal(rules_of(text).rule[0].text, text);
    text[BT_ALERT_TEXT - 1] = ' ';
    text[BT_ALERT_TEXT] = '\0';
    assert_int_equal(bt_alert_parse(&r, text, &err), BT_ARG);
}

static void a_limit_fires_once_until_the_value_was_within(void **state) {
    (void)state;
    bt_alert_rules r = rules_of("loss<3 for 2"); /* no blanks around the operator */
    assert_int_equal(r.rule[0].kind, BT_ALERT_BELOW);
    assert_true(r.rule[0].limit == 3);
    r = rules_of("loss > 3 for 2");
    const double losses[] = {4, 2, 4, 5, 6, 2, 4, NAN};
    for (int i = 0; i < 8; i++) bt_alert_value(&r, BT_MS_LOSS, losses[i], i);
    assert_string_equal(bt_text_str(&heard), "loss > 3 for 2: it is 5.0000 at step 4\n"
                                             "loss > 3 for 2: it is - at step 8\n");
    r = rules_of("tokens_per_s < 100");
    bt_alert_value(&r, BT_MS_TOKENS_PER_S, 99, 0);
    bt_alert_value(&r, BT_MS_LOSS, 99, 0);
    bt_alert_value(&r, BT_MS_TOKENS_PER_S, 98, 1);
    assert_non_null(strstr(bt_text_str(&heard), "at step 1\n"));
    assert_null(strstr(bt_text_str(&heard), "step 2"));
}

static void values_that_are_not_recorded_are_ignored(void **state) {
    (void)state;
    bt_alert_rules r = rules_of("grad_norm > 1\nloss > 1");
    double values[BT_MS_COUNT];
    for (int m = 0; m < BT_MS_COUNT; m++) values[m] = NAN;
    bt_alert_step(&r, values, 6);
    assert_string_equal(bt_text_str(&heard), "loss > 1: it is - at step 7\n");
}

/* A value is counted once for all rules of its metric, and each metric is counted separately. */
static void a_step_is_counted_once(void **state) {
    (void)state;
    bt_alert_rules r =
        rules_of("loss > 1 for 2\nloss > 2 for 2\nlr < 1\nval_loss not better for 1");
    double values[BT_MS_COUNT];
    for (int m = 0; m < BT_MS_COUNT; m++) values[m] = NAN;
    values[BT_MS_LOSS] = 3;
    bt_alert_step(&r, values, 0);
    assert_string_equal(bt_text_str(&heard), "");
    values[BT_MS_LOSS] = 1.5;
    bt_alert_step(&r, values, 1);
    values[BT_MS_LR] = 0.5;
    values[BT_MS_VAL_LOSS] = 2;
    bt_alert_step(&r, values, 2);
    bt_alert_step(&r, values, 3);
    assert_string_equal(bt_text_str(&heard),
                        "loss > 1 for 2: it is 1.5000 at step 2\n"
                        "lr < 1: it is 0.5 at step 3\n"
                        "val_loss not better for 1: it is 2.0000, the best was 2.0000 at step 3\n");
}

/* A value at the limit does not fire; one beyond it fires once, and again after a value within the limit. */
static void limits_are_not_included(void **state) {
    (void)state;
    bt_alert_rules r = rules_of("lr > 2\nlr < -2");
    const double values[] = {2, -2, 2.5, 3, 2, 2.5, -2.5, -3, -2, -2.5};
    for (int i = 0; i < 10; i++) bt_alert_value(&r, BT_MS_LR, values[i], i);
    assert_string_equal(bt_text_str(&heard),
                        "lr > 2: it is 2.5 at step 3\nlr > 2: it is 2.5 at step 6\n"
                        "lr < -2: it is -2.5 at step 7\nlr < -2: it is -2.5 at step 10\n");
    r = rules_of("disk < 2 GiB");
    const double gib[] = {1, 1.5, 2, 1};
    for (int i = 0; i < 4; i++) bt_alert_disk(&r, gib[i] * 1073741824.0, 1e12);
    assert_string_equal(
        bt_text_str(&heard),
        "disk < 2 GiB: 1.00 GiB (0.1 %) is free where the run keeps its checkpoints\n"
        "disk < 2 GiB: 1.00 GiB (0.1 %) is free where the run keeps its checkpoints\n");
    r = rules_of("run done\nrun failed\nrun stalled\nrun done");
    r.tell = NULL; /* the rules have no receiver */
    bt_alert_happened(&r, BT_ALERT_DONE, "x");
    r.tell = collect_alert;
    bt_alert_happened(&r, BT_ALERT_DONE, "100 steps");
    bt_alert_happened(&r, BT_ALERT_RANK_LOST, "none");
    bt_alert_happened(&r, BT_ALERT_FAILED, "odd");
    bt_alert_disk(&r, 0, 1);
    bt_alert_value(&r, -1, 0, 0);
    assert_string_equal(strstr(bt_text_str(&heard), "run done"),
                        "run done: 100 steps\nrun done: 100 steps\nrun failed: odd\n");
}

/* The number of tokens is metric 0, which is also the metric of the zeroed rule after the last one. */
static void only_listed_rules_fire(void **state) {
    (void)state;
    bt_alert_rules r = rules_of("tokens > 1000");
    for (int i = 1; i < 10; i++) bt_alert_value(&r, BT_MS_TOKENS, 100 * i, i);
    assert_string_equal(bt_text_str(&heard), "");
    bt_alert_value(&r, BT_MS_TOKENS, 1001, 10);
    assert_non_null(strstr(bt_text_str(&heard), "tokens > 1000: it is "));
}

static void a_new_minimum_restarts_the_count(void **state) {
    (void)state;
    bt_alert_rules r = rules_of("val_loss not better for 2");
    const double values[] = {3, 2.5, 2.6, 2.4, 2.4, 2.6, 2.7, 2.3, 2.3, 2.3};
    for (int i = 0; i < 10; i++) bt_alert_value(&r, BT_MS_VAL_LOSS, values[i], 10 * i);
    assert_string_equal(
        bt_text_str(&heard),
        "val_loss not better for 2: it is 2.6000, the best was 2.4000 at step 31\n"
        "val_loss not better for 2: it is 2.3000, the best was 2.3000 at step 71\n");
}

static void disk_and_event_rules(void **state) {
    (void)state;
    bt_alert_rules r = rules_of("disk < 10 %\ndisk < 2 GiB\nrank lost");
    const double gib = 1073741824.0;
    assert_true(bt_alert_has(&r, BT_ALERT_DISK) && !bt_alert_has(&r, BT_ALERT_DONE));
    bt_alert_disk(&r, 20 * gib, 100 * gib);
    assert_string_equal(bt_text_str(&heard), "");
    bt_alert_disk(&r, 9 * gib, 100 * gib);
    bt_alert_disk(&r, 8 * gib, 100 * gib);
    assert_string_equal(bt_text_str(&heard), "disk < 10 %: 9.00 GiB (9.0 %) is free where the run "
                                             "keeps its checkpoints\n");
    bt_alert_disk(&r, 1 * gib, 100 * gib);
    assert_non_null(strstr(bt_text_str(&heard), "\ndisk < 2 GiB: 1.00 GiB (1.0 %)"));
    bt_text_clear(&heard);
    r = rules_of("disk < 10 %\ndisk < 2 GiB");
    bt_alert_disk(&r, 0, 0);              /* a disk of unknown size is ignored */
    bt_alert_disk(&r, 2 * gib, 20 * gib); /* exactly at both limits */
    assert_string_equal(bt_text_str(&heard), "");
    r = rules_of("rank lost");
    bt_alert_happened(&r, BT_ALERT_STALLED, "no step for 40 s");
    bt_alert_happened(&r, BT_ALERT_RANK_LOST, "rank 1 was ended by signal 9 (Killed)");
    assert_string_equal(bt_text_str(&heard), "rank lost: rank 1 was ended by signal 9 (Killed)\n");
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_read),
        cmocka_unit_test(bad_rules_are_named),
        cmocka_unit_test(rules_have_maximum_sizes),
        cmocka_unit_test(a_step_is_counted_once),
        cmocka_unit_test(limits_are_not_included),
        cmocka_unit_test(a_limit_fires_once_until_the_value_was_within),
        cmocka_unit_test(values_that_are_not_recorded_are_ignored),
        cmocka_unit_test(only_listed_rules_fire),
        cmocka_unit_test(a_new_minimum_restarts_the_count),
        cmocka_unit_test(disk_and_event_rules),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
