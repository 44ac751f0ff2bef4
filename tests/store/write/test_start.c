/* A resumed run that ends before its first step leaves its record unchanged; with its first step the new settings
 * replace the old ones. */
#include "tests/store/store_test.h"

#define SETTINGS \
    "SELECT d.argv, d.config, r.note, r.out_dir, r.build FROM run r JOIN run_doc d ON d.run = " \
    "r.id"

/* Returns all data that a reader can see; the columns rev and next_aid are internal. */
static char *record_of(const char *path) {
    static const char *const tables[] = {
        "SELECT name, host, pid, build, mpi, note, out_dir, world, state, ended_us, exit_kind, "
        "exit_code, n_attempts, last_step, loss, productive_us, startup_us, lost_us, paused_us, "
        "finished_us FROM run",
        "SELECT * FROM run_doc",
        "SELECT * FROM attempt",
        "SELECT * FROM rank",
        "SELECT * FROM fact",
        "SELECT * FROM event",
        "SELECT * FROM step",
        "SELECT * FROM ckpt",
        "SELECT * FROM proposal",
    };
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char *rows = bt_table(path, tables[i]);
        fprintf(out, "%s\n%s\n", tables[i], rows);
        free(rows);
    }
    fclose(out);
    return text;
}

static bt_run_start resumed_start(void) {
    bt_run_start s = bt_fake_run("a");
    s.resume = true;
    s.from_step = 1;
    s.argv = "bitrain train --resume a --lr 9";
    s.config_json = "{\"optim.lr\":9}";
    s.note = "other";
    s.out_dir = "/elsewhere";
    s.build = "newer";
    s.world_size = 7;
    return s;
}

static void record_start(bt_writer *w, const char *fact) {
    const bt_sink *sink = bt_writer_sink(w);
    const bt_rank_info rank = {.host = "here", .isa = "avx2"};
    const bt_event e = {.kind = BT_EVENT_FAILURE, .step = -1, .rank = 0, .title = "refused"};
    sink->ranks(sink->ctx, &rank, 1);
    sink->fact(sink->ctx, "cpu", fact);
    sink->fact(sink->ctx, fact, "only here");
    sink->event(sink->ctx, &e);
}

/* Records run "a", which ended after one step. */
static void make_run(const bt_tmp *t) {
    bt_writer *w = NULL;
    bt_fake f;
    int attempt;
    const bt_run_start s = bt_fake_run("a");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    record_start(w, "old");
    bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, 0, 1));
    OK(bt_writer_end(w, "done", "done", 0, err));
    bt_writer_close(w);
}

static void a_refused_start_leaves_no_trace(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bool withdrawn = false;
    bt_run_start s = resumed_start();
    make_run(t);
    char *before = record_of(t->db);
    OK(bt_writer_open(&w, t->db, 1, err));
    for (int launch = 0; launch < 2; launch++) { /* the second launch is a restart */
        OK(bt_writer_begin(w, &s, &attempt, err));
        assert_int_equal(attempt, 1 + launch);
        record_start(w, "new");
        OK(bt_writer_end(w, "failed", "error", 2, err));
    }
    OK(bt_writer_withdraw(w, &withdrawn, err));
    assert_true(withdrawn);
    bt_writer_close(w);
    char *after = record_of(t->db);
    assert_string_equal(after, before);
    free(before);
    free(after);
}

static void settings_are_those_of_the_first_step(void **state) {
    static const char *const old =
        "bitrain train|{\"train.steps\":{\"value\":10,\"origin\":\"flag\"}}||/tmp|test\n";
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_fake f;
    int attempt;
    bool withdrawn = true;
    const bt_run_start s = resumed_start();
    make_run(t);
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    record_start(w, "new");
    bt_writer_close(w); /* Closing without bt_writer_end simulates a killed process. */
    bt_table_is(t->db, SETTINGS, old);
    bt_table_is(t->db, "SELECT state, world FROM run", "running|7\n");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    bt_table_is(t->db, SETTINGS, old);
    bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, 1, 1));
    OK(bt_writer_flush(w, err));
    bt_table_is(t->db, SETTINGS,
                "bitrain train --resume a --lr 9|{\"optim.lr\":9}|other|/elsewhere|newer\n");
    OK(bt_writer_end(w, "failed", "signal", 1, err));
    OK(bt_writer_withdraw(w, &withdrawn, err));
    assert_false(withdrawn);
    bt_writer_close(w);
    bt_table_is(t->db, "SELECT count(*) FROM proposal", "0\n");
    bt_table_is(t->db, "SELECT state, n_attempts, last_step FROM run", "failed|3|1\n");
}

/* If a new run fails before its first step, its record is kept as the only evidence, and its name may be used again. */
static void a_new_run_that_failed_at_its_start(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_fake f;
    int attempt;
    bool withdrawn = true;
    bt_err why = BT_ERR_INIT;
    bt_run_start s = bt_fake_run("a");
    for (int launch = 0; launch < 2; launch++) {
        OK(bt_writer_open(&w, t->db, 1, err));
        OK(bt_writer_begin(w, &s, &attempt, err));
        assert_int_equal(attempt, 0);
        record_start(w, "new");
        if (launch) bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, 0, 1));
        OK(bt_writer_end(w, "failed", "error", 2, err));
        OK(bt_writer_withdraw(w, &withdrawn, err));
        assert_false(withdrawn);
        bt_writer_close(w);
        bt_table_is(t->db, "SELECT name, n_attempts, config FROM run JOIN run_doc ON run = id",
                    launch ? "a|1|{\"optim.lr\":9}\n"
                           : "a|1|{\"train.steps\":{\"value\":10,\"origin\":\"flag\"}}\n");
        bt_table_is(t->db, "SELECT count(*) FROM event", "1\n");
        s.config_json = "{\"optim.lr\":9}";
    }
    OK(bt_writer_open(&w, t->db, 1, err));
    assert_int_equal(bt_writer_begin(w, &s, &attempt, &why), BT_BUSY); /* The run has a step. */
    bt_writer_close(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_refused_start_leaves_no_trace, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(settings_are_those_of_the_first_step, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_new_run_that_failed_at_its_start, bt_tmp_make,
                                        bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
