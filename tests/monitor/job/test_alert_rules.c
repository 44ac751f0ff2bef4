/* Alert rules: what is read, when each kind tells, that it tells once until it did not hold. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/text.h"
#include "monitor/job/health/alert_rules.h"

static bt_text heard;

static void hear(void *ctx, const char *says) {
    (void)ctx;
    bt_text_printf(&heard, "%s\n", says);
}

static bt_alert_rules rules_of(const char *list) {
    bt_alert_rules r;
    bt_err err = BT_ERR_INIT;
    if (bt_alert_parse(&r, list, &err) != BT_OK) fail_msg("%s: %s", list, err.msg);
    r.tell = hear;
    bt_text_clear(&heard);
    return r;
}

static void bad_rules_are_named(void **state) {
    static const struct {
        const char *list, *says;
    } rows[] = {
        {"loss", "'loss' is no rule"},
        {"loss >", "is no rule"},
        {"loss > ten", "is no rule"},
        {"loss > 10 for", "is no rule"},
        {"loss > 10 for 0", "is no rule"},
        {"lss > 10", "no metric 'lss' (did you mean 'loss'?)"},
        {"val_loss not better for x", "is no rule"},
        {"disk < 10", "is no rule"},
        {"disk < 200 %", "is no rule"},
        {"rank lots", "'rank lots' is no rule"},
        {"rank lost\nloss ~ 3", "'loss ~ 3' is no rule"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bt_alert_rules r;
        bt_err err = BT_ERR_INIT;
        assert_int_equal(bt_alert_parse(&r, rows[i].list, &err), BT_ARG);
        if (!strstr(err.msg, rows[i].says)) fail_msg("%s: %s", rows[i].list, err.msg);
    }
    bt_alert_rules none = rules_of("");
    assert_int_equal(none.n, 0);
}

static void a_limit_tells_once_until_it_did_not_hold(void **state) {
    (void)state;
    bt_alert_rules r = rules_of("loss<3 for 2"); /* without blanks */
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

static void values_that_are_not_recorded_say_nothing(void **state) {
    (void)state;
    bt_alert_rules r = rules_of("grad_norm > 1\nloss > 1");
    double values[BT_MS_COUNT];
    for (int m = 0; m < BT_MS_COUNT; m++) values[m] = NAN;
    bt_alert_step(&r, values, 6);
    assert_string_equal(bt_text_str(&heard), "loss > 1: it is - at step 7\n");
}

/* tokens are the first metric: what lies behind the last rule is none of it */
static void no_rule_but_the_listed_ones_tells(void **state) {
    (void)state;
    bt_alert_rules r = rules_of("tokens > 1000");
    for (int i = 1; i < 10; i++) bt_alert_value(&r, BT_MS_TOKENS, 100 * i, i);
    assert_string_equal(bt_text_str(&heard), "");
    bt_alert_value(&r, BT_MS_TOKENS, 1001, 10);
    assert_non_null(strstr(bt_text_str(&heard), "tokens > 1000: it is "));
}

static void a_smallest_value_begins_the_count_again(void **state) {
    (void)state;
    bt_alert_rules r = rules_of("val_loss not better for 2");
    const double values[] = {3, 2.5, 2.6, 2.4, 2.4, 2.6, 2.7, 2.3, 2.3, 2.3};
    for (int i = 0; i < 10; i++) bt_alert_value(&r, BT_MS_VAL_LOSS, values[i], 10 * i);
    assert_string_equal(
        bt_text_str(&heard),
        "val_loss not better for 2: it is 2.6000, the best was 2.4000 at step 31\n"
        "val_loss not better for 2: it is 2.3000, the best was 2.3000 at step 71\n");
}

static void disk_and_happenings(void **state) {
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
    bt_alert_disk(&r, 0, 0);              /* of a disk that tells no size nothing is known */
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
        cmocka_unit_test(bad_rules_are_named),
        cmocka_unit_test(a_limit_tells_once_until_it_did_not_hold),
        cmocka_unit_test(values_that_are_not_recorded_say_nothing),
        cmocka_unit_test(no_rule_but_the_listed_ones_tells),
        cmocka_unit_test(a_smallest_value_begins_the_count_again),
        cmocka_unit_test(disk_and_happenings),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}
