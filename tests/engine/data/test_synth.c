/* test_synth.c - synth:chain and synth:random equal the Python function at any first index; the loader takes sequences
 * of T + 1 ids. */
#include "tests/engine/data/data_fixture.h"

#include "engine/data/shards/synth.h"
#include "tests/engine/data/synth_golden.h"

static void golden_values(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        bt_synth s;
        int32_t ids[12];
        bt_synth_init(&s, golden[i].name, golden[i].V, golden[i].seed);
        bt_synth_read(&s, golden[i].first, 12, ids);
        assert_memory_equal(ids, golden[i].ids, sizeof ids);
        bt_synth_read(&s, golden[i].first, 12, ids); /* reads backwards */
        assert_memory_equal(ids, golden[i].ids, sizeof ids);
    }
}

static void any_order_gives_the_same(void **state) {
    (void)state;
    enum { N = 4096 };
    int32_t all[N], some[64];
    bt_synth s;
    bt_synth_init(&s, "synth:chain", 8192, 3);
    bt_synth_read(&s, 0, N, all);
    uint32_t x = 1;
    for (int i = 0; i < 500; i++) {
        x = x * 1664525u + 1013904223u;
        size_t first = x % (N - 64), n = (x >> 16) % 64;
        bt_synth_read(&s, first, n, some);
        assert_memory_equal(some, all + first, n * sizeof *some);
    }
}

/* Sequence j of step s begins at id (s * sequences_per_step + j) * (T + 1). */
static void the_loader_takes_consecutive_sequences(void **state) {
    (void)state;
    bt_synth s;
    int32_t row[17];
    bt_loader_cfg cfg = fixture_cfg("synth:chain");
    cfg.first_step = 5;
    cfg.sequences_per_step = 8;
    cfg.first_sequence = 2;
    bt_loader *l;
    bt_batch b;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_loader_open(&l, &cfg, &err), BT_OK);
    assert_int_equal(bt_loader_tokens(l), -1);
    assert_int_equal(bt_loader_sequences(l), -1);
    bt_synth_init(&s, "synth:chain", 256, 1);
    for (uint64_t step = 5; step < 9; step++) {
        for (uint64_t g = 2; g < 6; g++) {
            if (g % 2 == 0) assert_int_equal(bt_loader_next(l, &b, &err), BT_OK);
            bt_synth_read(&s, (step * 8 + g) * 17, 17, row);
            assert_memory_equal(b.inputs + (g % 2) * 16, row, 16 * sizeof *row);
            assert_memory_equal(b.targets + (g % 2) * 16, row + 1, 16 * sizeof *row);
        }
    }
    bt_loader_close(l);
}

static void validation_has_other_noise(void **state) {
    (void)state;
    bt_loader_cfg cfg = fixture_cfg("synth:chain");
    bt_loader *l, *v;
    bt_batch a, b;
    assert_int_equal(bt_loader_open(&l, &cfg, NULL), BT_OK);
    cfg.split = BT_SPLIT_VAL;
    assert_int_equal(bt_loader_open(&v, &cfg, NULL), BT_OK);
    assert_int_equal(bt_loader_next(l, &a, NULL), BT_OK);
    assert_int_equal(bt_loader_next(v, &b, NULL), BT_OK);
    assert_memory_not_equal(a.targets, b.targets, 32 * sizeof *a.targets);
    assert_true(bt_loader_hash(l) != bt_loader_hash(v));
    bt_loader_close(l);
    bt_loader_close(v);
}

static void unknown_synthetic_data_are_refused(void **state) {
    (void)state;
    bt_loader *l;
    bt_err err;
    bt_loader_cfg cfg = fixture_cfg("synth:chian");
    assert_int_equal(bt_loader_open(&l, &cfg, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "synth:chain"));
    cfg = fixture_cfg("synth:chain\nsynth:random");
    assert_int_equal(bt_loader_open(&l, &cfg, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "cannot be combined"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_values),
        cmocka_unit_test(any_order_gives_the_same),
        cmocka_unit_test(the_loader_takes_consecutive_sequences),
        cmocka_unit_test(validation_has_other_noise),
        cmocka_unit_test(unknown_synthetic_data_are_refused),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
