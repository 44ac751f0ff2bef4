/* Counts of pairs of consecutive tokens, compared with a plain count over an epoch. */
#include "tests/engine/data/data_fixture.h"

#include "engine/data/shards/followers.h"

enum { V = 256 };
static uint32_t times[V][V];

static void count_epoch(const bt_loader_cfg *cfg) {
    bt_loader *l;
    bt_err err = BT_ERR_INIT;
    bt_loader_cfg one = *cfg;
    one.B = one.sequences_per_step = one.n_sequences = 1;
    one.first_sequence = 0;
    one.first_step = 0;
    memset(times, 0, sizeof times);
    assert_int_equal(bt_loader_open(&l, &one, &err), BT_OK);
    for (int64_t s = bt_loader_sequences(l); s > 0; s--) {
        bt_batch b;
        assert_int_equal(bt_loader_next(l, &b, &err), BT_OK);
        for (int i = 0; i < one.T; i++)
            if (b.targets[i] >= 0) times[b.inputs[i]][b.targets[i]]++;
    }
    bt_loader_close(l);
}

static void check_counts(const bt_loader_cfg *cfg) {
    bt_followers f;
    bt_err err = BT_ERR_INIT;
    if (bt_followers_count(&f, cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    count_epoch(cfg);
    assert_int_equal(f.at[0], 0);
    for (int t = 0; t < V; t++) {
        uint32_t all = 0, at = f.at[t];
        for (int v = 0; v < V; v++) all += times[t][v];
        for (int v = 0; v < V; v++) {
            if (!times[t][v]) continue;
            assert_true(at < f.at[t + 1]);
            assert_int_equal(f.token[at], v);
            assert_true(f.share[at++] == (float)times[t][v] / (float)all);
        }
        assert_int_equal(at, f.at[t + 1]);
    }
    assert_true(f.at[V] > 50);
    bt_followers_release(&f);
    assert_null(f.at);
}

/* The count depends neither on the layout nor on the step at which the run resumes, also for an odd number of
 * sequences. */
static void an_epoch_is_counted(void **state) {
    (void)state;
    char *text = fixture_prose(20011);
    bt_loader_cfg cfg = fixture_cfg(fixture_text("text.txt", text));
    check_counts(&cfg);
    cfg.B = 3;
    cfg.first_step = 7;
    cfg.sequences_per_step = 12;
    cfg.first_sequence = 6;
    cfg.n_sequences = 6;
    check_counts(&cfg);
    free(text);
}

/* In conversations only learned tokens count; the first token of a document is not a target. */
static void documents_are_counted_apart(void **state) {
    (void)state;
    char *text = fixture_prose(9000);
    for (char *p = strstr(text, ".\n"); p; p = strstr(p + 2, ".\n")) p[0] = '\n';
    bt_loader_cfg cfg = fixture_cfg(fixture_text("documents.txt", text));
    cfg.packing = BT_PACKING_DOCUMENTS;
    cfg.too_long = BT_TOO_LONG_TRUNCATE;
    cfg.T = 32;
    check_counts(&cfg);
    free(text);
}

static void read_errors_are_returned(void **state) {
    (void)state;
    bt_followers f;
    bt_err err = BT_ERR_INIT;
    bt_loader_cfg cfg = fixture_cfg("/nowhere/at-all.txt");
    assert_int_not_equal(bt_followers_count(&f, &cfg, &err), BT_OK);
    assert_non_null(strstr(err.msg, "/nowhere/at-all.txt"));
    assert_null(f.at);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_is_counted),
        cmocka_unit_test(documents_are_counted_apart),
        cmocka_unit_test(read_errors_are_returned),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
