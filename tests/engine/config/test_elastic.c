/* test_elastic.c - the layout of a run that continues on another number of ranks: every result is legal, keeps the
 * properties that define the run, and is the first in the order of elastic.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/config/elastic.h"

static bt_run_cfg given, settled, out;
static bt_opts o;
static bt_err err;

static bt_code read_words(int world, const char *const *words) {
    int n = 0;
    bool help;
    while (words[n]) n++;
    memset(&err, 0, sizeof err);
    BT_TRY(bt_run_cfg_read(&o, &settled, n, (char *const *)(uintptr_t)words, &help, &err));
    given = settled;
    return bt_run_cfg_resolve_opts(&o, &settled, world, &err);
}
/* Settles a run with this number of ranks and these arguments. */
#define RUN(world, ...) \
    do { \
        if (read_words(world, (const char *const[]){__VA_ARGS__, NULL}) != BT_OK) \
            fail_msg("%s", err.msg); \
    } while (0)

static bt_code layout_text(int least, int most) {
    memset(&err, 0, sizeof err);
    return bt_elastic_layout(&given, &settled,
                             &(bt_layout_request){.least = least, .most = most, .zero = -1}, &out,
                             &err);
}

static void assert_described_as(const char *told) {
    char buf[96];
    assert_string_equal(bt_elastic_describe(&out, buf, sizeof buf), told);
}

/* Checks the layout chosen for `least` to `most` ranks. */
static void check_layout_for_ranks(int least, int most, const char *told) {
    if (layout_text(least, most) != BT_OK) fail_msg("%d:%d: %s", least, most, err.msg);
    assert_described_as(told);
}

static void test_ranges(void **state) {
    (void)state;
    bt_elastic e;
    assert_int_equal(bt_elastic_parse("1:4", &e, &err), BT_OK);
    assert_true(e.min == 1 && e.max == 4);
    assert_int_equal(bt_elastic_parse("3:3", &e, &err), BT_OK);
    assert_true(e.min == 3 && e.max == 3);
    assert_int_equal(bt_elastic_parse("", &e, &err), BT_OK);
    assert_true(e.min == 0 && e.max == 0);
    static const char *const wrong[] = {"4",   ":4",    "1:",  "4:1",      "0:4",  "-1:4", "1:4 ",
                                        "1-4", "1:2:3", "a:b", "1:999999", "+1:4", " 1:4", ":"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (bt_elastic_parse(wrong[i], &e, &err) != BT_ARG) fail_msg("'%s' was taken", wrong[i]);
        assert_non_null(strstr(err.msg, "MIN:MAX"));
    }
}

static void test_hosts_alive(void **state) {
    (void)state;
    const bt_elastic range = {2, 5};
    bt_elastic_host h[] = {{2, true}, {2, true}, {4, true}};
    assert_int_equal(bt_elastic_ranks(&range, h, 3), 5);
    h[2].alive = false;
    assert_int_equal(bt_elastic_ranks(&range, h, 3), 4);
    h[1].alive = false;
    assert_int_equal(bt_elastic_ranks(&range, h, 3), 2);
    h[0].slots = 1;
    assert_int_equal(bt_elastic_ranks(&range, h, 3), 0); /* fewer than the minimum */
    assert_int_equal(bt_elastic_ranks(&range, h, 0), 0);
}

static void test_data_parallel_shrinks_and_grows(void **state) {
    (void)state;
    RUN(4, "--batch-tokens", "4096", "--steps", "300"); /* 16 sequences of 256 */
    check_layout_for_ranks(1, 8, "8 ranks: dp 8");
    check_layout_for_ranks(1, 4, "4 ranks: dp 4");
    check_layout_for_ranks(1, 3, "2 ranks: dp 2"); /* 3 does not divide 16. */
    check_layout_for_ranks(1, 1, "1 rank");
    assert_int_equal(layout_text(3, 3), BT_ARG);
    assert_non_null(strstr(err.msg, "do not divide the 16 sequences"));
}

static void test_model_parallel_sizes_are_kept(void **state) {
    (void)state;
    RUN(4, "--tp", "2", "--batch-tokens", "4096");
    check_layout_for_ranks(1, 4, "4 ranks: tp 2 x dp 2");
    /* This layout is preferred to three replicas of the whole model. */
    check_layout_for_ranks(1, 3, "2 ranks: tp 2");
    check_layout_for_ranks(1, 1, "1 rank"); /* the nearest possible layout */
    RUN(4, "--tp", "2", "--pp", "2", "--batch-tokens", "4096");
    check_layout_for_ranks(1, 8, "8 ranks: tp 2 x pp 2 x dp 2");
    check_layout_for_ranks(1, 3, "2 ranks: tp 2"); /* tp 4 is halved */
}

static void test_virtual_stages_are_kept_if_they_fit(void **state) {
    (void)state;
    RUN(4, "--pp", "2", "--virtual-stages", "2", "--batch-tokens", "4096");
    check_layout_for_ranks(1, 8, "8 ranks: pp 2 (2 virtual) x dp 4");
    check_layout_for_ranks(32, 32, "32 ranks: pp 2 x dp 16"); /* one micro-batch each */
    check_layout_for_ranks(1, 1, "1 rank");
}

static void test_zero_is_kept(void **state) {
    (void)state;
    RUN(4, "--zero", "3", "--batch-tokens", "4096");
    assert_int_equal(settled.mesh.dp_shard, 4);
    check_layout_for_ranks(1, 2, "2 ranks: dp 2, zero 3");
    assert_int_equal(out.mesh.dp_shard, 2);
    check_layout_for_ranks(1, 1, "1 rank, zero 3");
    check_layout_for_ranks(1, 8, "8 ranks: dp 8, zero 3");
    /* The number of shards is kept if it divides the ranks. */
    RUN(4, "--zero", "1", "--dp-replicate", "2", "--dp-shard", "2", "--batch-tokens", "4096");
    check_layout_for_ranks(1, 8, "8 ranks: dp 8, zero 1");
    assert_true(out.mesh.dp_shard == 2 && out.mesh.dp_replicate == 4);
    check_layout_for_ranks(1, 2, "2 ranks: dp 2, zero 1");
    assert_true(out.mesh.dp_shard == 2 && out.mesh.dp_replicate == 1);
}

static void test_a_requested_layout(void **state) {
    (void)state;
    RUN(1, "--set", "train.reproducible=true", "--batch-tokens", "4096");
    bt_layout_request w = {.least = 2, .most = 2, .tp = 2, .zero = -1};
    assert_int_equal(bt_elastic_layout(&given, &settled, &w, &out, &err), BT_OK);
    assert_described_as("2 ranks: tp 2");
    w = (bt_layout_request){.least = 4, .most = 4, .pp = 2, .zero = 3};
    assert_int_equal(bt_elastic_layout(&given, &settled, &w, &out, &err), BT_OK);
    assert_described_as("4 ranks: pp 2 x dp 2, zero 3");
    w = (bt_layout_request){.least = 7, .most = 7, .pp = 7, .zero = -1};
    assert_int_equal(bt_elastic_layout(&given, &settled, &w, &out, &err), BT_ARG);
    /* The message names the seven stages, more than the model has layers. */
    assert_non_null(strstr(err.msg, "7"));
    w = (bt_layout_request){.least = 2, .most = 2, .pp = 2, .zero = 0};
    assert_int_equal(bt_elastic_layout(&given, &settled, &w, &out, &err), BT_OK);
    assert_described_as("2 ranks: pp 2");
    w = (bt_layout_request){.least = 4, .most = 4, .tp = 3, .zero = -1};
    assert_int_equal(bt_elastic_layout(&given, &settled, &w, &out, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "do not divide 4 ranks"));
}

/* --micro-batch is kept if it fits and changed otherwise; shares of individual ranks cannot be kept. */
static void test_values_derived_from_the_ranks(void **state) {
    (void)state;
    RUN(2, "--micro-batch", "8", "--accum", "1", "--batch-tokens", "4096");
    check_layout_for_ranks(1, 1, "1 rank");
    assert_true(out.train.micro_batch == 8 && out.train.accum == 2);
    check_layout_for_ranks(4, 4, "4 ranks: dp 4");
    assert_true(out.train.micro_batch == 4 && out.train.accum == 1);
    RUN(2, "--balance", "3,1", "--batch-tokens", "4096");
    check_layout_for_ranks(4, 4, "4 ranks: dp 4");
    assert_string_equal(out.parallel.balance, "even");
}

/* The expected result: the resolver accepts this layout on the command line. */
static bool is_legal_layout(const char *tp, const char *pp, int ranks) {
    static bt_run_cfg c;
    static bt_opts opts;
    bt_err why = BT_ERR_INIT;
    bool help;
    const char *const words[] = {"--tp",           tp,
                                 "--pp",           pp,
                                 "--batch-tokens", "3072",
                                 "--set",          "train.reproducible=true",
                                 "--set",          "train.unit=1"};
    return bt_run_cfg_read(&opts, &c, (int)(sizeof words / sizeof *words),
                           (char *const *)(uintptr_t)words, &help, &why) == BT_OK &&
           bt_run_cfg_resolve(&c, ranks, &why) == BT_OK;
}

static void test_every_answer_is_legal_and_the_largest(void **state) {
    (void)state;
    static const char *const sizes[] = {"1", "2", "3", "4"};
    for (int t = 0; t < 4; t++)
        for (int p = 0; p < 4; p++) {
            const int inner = atoi(sizes[t]) * atoi(sizes[p]);
            if (!is_legal_layout(sizes[t], sizes[p], inner)) continue;
            RUN(inner, "--tp", sizes[t], "--pp", sizes[p], "--batch-tokens", "3072", "--set",
                "train.reproducible=true", "--set", "train.unit=1");
            for (int most = 1; most <= 14; most++) {
                int best = 0;
                for (int n = 1; n <= most; n++)
                    if (n % inner == 0 && is_legal_layout(sizes[t], sizes[p], n)) best = n;
                const bt_code code = layout_text(1, most);
                if (code != BT_OK)
                    fail_msg("tp %s pp %s, 1:%d: %s", sizes[t], sizes[p], most, err.msg);
                assert_int_equal(out.launch.ranks, out.mesh.tp * out.mesh.pp *
                                                       out.mesh.dp_replicate * out.mesh.dp_shard);
                if (best) {
                    assert_int_equal(out.launch.ranks, best);
                    assert_true(out.mesh.tp == settled.mesh.tp && out.mesh.pp == settled.mesh.pp);
                } else
                    assert_true(out.launch.ranks >= 1 && out.launch.ranks <= most);
                /* properties that define the run */
                assert_true(out.train.batch_tokens == settled.train.batch_tokens &&
                            out.train.steps == settled.train.steps &&
                            out.optim.lr == settled.optim.lr &&
                            out.optim.warmup == settled.optim.warmup &&
                            out.train.unit == settled.train.unit &&
                            out.train.parts == settled.train.parts &&
                            out.train.eval_every == settled.train.eval_every &&
                            out.run.seed == settled.run.seed);
                /* Resolving the result again changes nothing. */
                static bt_run_cfg again;
                again = out;
                assert_int_equal(
                    bt_run_cfg_resolve(&again, out.launch.ranks == 0 ? 1 : (int)out.launch.ranks,
                                       &err),
                    BT_OK);
                assert_memory_equal(&again, &out, sizeof out);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_hosts_alive),
        cmocka_unit_test(test_data_parallel_shrinks_and_grows),
        cmocka_unit_test(test_model_parallel_sizes_are_kept),
        cmocka_unit_test(test_virtual_stages_are_kept_if_they_fit),
        cmocka_unit_test(test_zero_is_kept),
        cmocka_unit_test(test_a_requested_layout),
        cmocka_unit_test(test_values_derived_from_the_ranks),
        cmocka_unit_test(test_every_answer_is_legal_and_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
