/* test_mixture.c - the shares of sources in a mixture are exact for any resume and layout, and change at the configured
 * step. */
#include "engine/base/rng.h"
#include "engine/data/shards/mixture.h"
#include "tests/engine/data/data_fixture.h"

static bt_err err;

static bt_mixture *make_mixture(const char *text, size_t n, int per_step) {
    bt_mixture *m;
    if (bt_mixture_create(&m, text, n, per_step, &err) != BT_OK) fail_msg("%s", err.msg);
    return m;
}

/* Checks that every source's sequences are read in order and without gaps, with exact shares in each period. */
static void check_order_and_shares(const char *text, size_t n, uint64_t period,
                                   const uint64_t *want) {
    bt_mixture *m = make_mixture(text, n, 4);
    uint64_t next[4] = {0};
    for (uint64_t q = 0; q < 40 * period; q++) {
        bt_mixture_pick at = bt_mixture_at(m, q);
        assert_true(at.source < n);
        assert_int_equal(at.index, next[at.source]++);
        if ((q + 1) % period == 0)
            for (size_t k = 0; k < n; k++) assert_int_equal(next[k], (q + 1) / period * want[k]);
    }
    bt_mixture_destroy(m);
}

static void sources_take_exact_turns(void **state) {
    (void)state;
    check_order_and_shares("3:1", 2, 4, (const uint64_t[]){3, 1});
    check_order_and_shares("6:2", 2, 4, (const uint64_t[]){3, 1});
    check_order_and_shares("0.5:0.25:0.25", 3, 4, (const uint64_t[]){2, 1, 1});
    check_order_and_shares("0:7", 2, 1, (const uint64_t[]){0, 1});
    check_order_and_shares("5:3:11", 3, 19, (const uint64_t[]){5, 3, 11});
}

static void stages_continue_where_the_previous_one_ends(void **state) {
    (void)state;
    bt_mixture *m = make_mixture("3:1,10=1:3,13=1:0", 2, 5);
    uint64_t next[2] = {0};
    for (uint64_t q = 0; q < 200; q++) {
        bt_mixture_pick at = bt_mixture_at(m, q);
        assert_int_equal(at.index, next[at.source]++);
        if (q == 49) assert_int_equal(next[1], 12); /* a quarter of 50 with weights 3:1, rounded */
        if (q >= 65) assert_int_equal(at.source, 0);
    }
    bt_mixture_destroy(m);
}

/* A rank of a resumed run reads the same sequences that a single rank would have read: 1 000 random pairs of resume and
 * layout. */
static void any_resume_and_layout_reads_the_same(void **state) {
    (void)state;
    enum { STEPS = 60, S = 12 };
    char *text = fixture_prose(6000), paths[600];
    const char *a = fixture_text("a.txt", text), *b = fixture_write("b.txt", text + 17, 2500);
    snprintf(paths, sizeof paths, "%s\n%s", a, b);
    bt_loader_cfg c = fixture_cfg(paths);
    static int32_t want[STEPS * S];
    bt_loader *l;
    bt_batch batch;
    c.mixture = "3:1,20=1:1";
    c.cache_dir = "";
    c.B = 1;
    c.sequences_per_step = c.n_sequences = S;
    assert_int_equal(bt_loader_open(&l, &c, &err), BT_OK);
    for (int i = 0; i < STEPS * S; i++) {
        assert_int_equal(bt_loader_next(l, &batch, &err), BT_OK);
        want[i] = batch.inputs[0] * 65536 + batch.inputs[1] * 256 + batch.inputs[2];
    }
    bt_loader_close(l);
    for (uint64_t k = 0; k < 1000; k++) {
        static const int layouts[] = {1, 2, 3, 4, 6, 12};
        int step = (int)(bt_rng_u64(1, 0, k) % (STEPS - 1)),
            ranks = layouts[bt_rng_u64(1, 1, k) % 6];
        int rank = (int)(bt_rng_u64(1, 2, k) % (uint64_t)ranks);
        c.first_step = step;
        c.n_sequences = S / ranks;
        c.first_sequence = rank * c.n_sequences;
        assert_int_equal(bt_loader_open(&l, &c, &err), BT_OK);
        for (int i = 0; i < 2 * c.n_sequences; i++) {
            int s = step + i / c.n_sequences, g = c.first_sequence + i % c.n_sequences;
            assert_int_equal(bt_loader_next(l, &batch, &err), BT_OK);
            assert_int_equal(batch.inputs[0] * 65536 + batch.inputs[1] * 256 + batch.inputs[2],
                             want[s * S + g]);
        }
        bt_loader_close(l);
    }
    free(text);
}

static void check_refused_mixture(const char *text, size_t n, const char *words) {
    bt_mixture *m;
    assert_int_equal(bt_mixture_create(&m, text, n, 4, &err), BT_ARG);
    if (!strstr(err.msg, words)) fail_msg("%s", err.msg);
}

static void bad_weights_are_refused(void **state) {
    (void)state;
    check_refused_mixture("3", 2, "1 weight in '3' for 2 sources");
    check_refused_mixture("1:2:3", 2, "3 weights");
    check_refused_mixture("0:0", 2, "all sources have the weight 0");
    check_refused_mixture("1:-1", 2, "does not begin with a weight");
    check_refused_mixture("1:x", 2, "'x' does not begin with a weight");
    check_refused_mixture("1:1,5", 2, "is not of the form ',STEP=WEIGHTS'");
    check_refused_mixture("1:1;", 2, "is not of the form ',STEP=WEIGHTS'");
    check_refused_mixture("1:1,9=1:2,9=2:1", 2, "step 9 is not greater than");
    check_refused_mixture("1:1,9=0:0", 2, "all sources have the weight 0");
    check_refused_mixture("99999.9999:0.0001", 2, "have a period of");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_take_exact_turns),
        cmocka_unit_test(stages_continue_where_the_previous_one_ends),
        cmocka_unit_test(any_resume_and_layout_reads_the_same),
        cmocka_unit_test(bad_weights_are_refused),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
