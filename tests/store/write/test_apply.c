/* test_apply.c - effect of records on the database: summaries and attempts of a run, repeated records, and deletion of
 * old rows. */
#include "engine/base/tables/derived.h"
#include "store/write/apply.h"
#include "store/write/attempt.h"
#include "store/write/retain.h"
#include "store/write/rollup.h"
#include "tests/store/store_test.h"

typedef struct base {
    const bt_tmp *t;
    sqlite3 *db;
    bt_apply *a;
    bt_attempt at;
} base;

static void open_base(base *b, const bt_tmp *t) {
    *b = (base){.t = t};
    OK(bt_sql_open_rw(&b->db, t->db, err));
    OK(bt_schema_apply(b->db, t->db, err));
    OK(bt_apply_open(&b->a, b->db, t->db, err));
}

static void close_base(base *b) {
    bt_apply_close(b->a);
    sqlite3_close(b->db);
}

static void begin_attempt(base *b, const bt_run_start *s) {
    OK(bt_attempt_begin(b->db, b->t->db, s, false, &b->at, err));
    OK(bt_apply_set_attempt(
        b->a, &(bt_apply_attempt){b->at.run, b->at.aid, s->from_step, b->at.attempt}, err));
}

/* Returns the cells of the first row separated by blanks; NULL is "-". */
static const char *cells_of_first_row(base *b, const char *sql) {
    static char out[1000];
    sqlite3_stmt *st = NULL;
    OK(bt_sql_prepare(b->db, b->t->db, sql, &st, err));
    out[0] = '\0';
    if (sqlite3_step(st) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(st); i++) {
            const char *c = (const char *)sqlite3_column_text(st, i);
            snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", i ? " " : "",
                     c ? c : "-");
        }
    sqlite3_finalize(st);
    return out;
}
#define CELLS(sql, want) assert_string_equal(cells_of_first_row(b, sql), want)

static int apply_record(base *b, bt_record *r, uint64_t dropped) {
    const int rc = bt_apply_transaction(b->a, r, dropped);
    bt_records_free(r);
    return rc;
}

static bt_record *step_of(int64_t step, double loss, double ms) {
    double v[BT_MS_COUNT];
    for (int i = 0; i < BT_MS_COUNT; i++) v[i] = NAN;
    v[BT_MS_LOSS] = loss;
    v[BT_MS_STEP_TIME] = ms;
    bt_record *r =
        bt_record_step(&(bt_step_record){.step = step, .wall_us = 1000 + 10 * step, .values = v});
    assert_non_null(r);
    return r;
}

static void a_run_and_its_attempts(void **state) {
    base one, *b = &one;
    bt_err why = BT_ERR_INIT;
    open_base(b, *state);
    bt_run_start s = bt_fake_run("a");
    s.started_us = 777;
    s.seed = 42;
    s.pid = 1234;
    begin_attempt(b, &s);
    assert_true(b->at.attempt == 0 && b->at.created_us == 777 && b->at.run == 1 && b->at.aid == 1);
    CELLS(
        "SELECT name, created_us, host, user, pid, build, mpi, note, out_dir, world, seed, state, "
        "n_attempts, ended_us FROM run",
        "a 777 here me 1234 test none  /tmp 2 42 running 1 -");
    CELLS("SELECT run, argv, config FROM run_doc",
          "1 bitrain train {\"train.steps\":{\"value\":10,\"origin\":\"flag\"}}");
    CELLS("SELECT id, run, attempt, started_us, ended_us, from_step, live_to, world, pid, host, "
          "reason, exit_kind, exit_code, raw_from FROM attempt",
          "1 1 0 777 - 0 9223372036854775807 2 1234 here start - - 0");
    CELLS("SELECT value FROM meta WHERE key = 'next_aid'", "2");
    OK(bt_attempt_end(b->db, b->t->db, &b->at, "failed", "killed", 9, 888, err));
    CELLS("SELECT state, exit_kind, exit_code, ended_us FROM run", "failed killed 9 888");
    CELLS("SELECT exit_kind, exit_code, ended_us FROM attempt", "killed 9 888");
    /* A resumed run keeps the fields for which it has no new value. */
    bt_run_start again = {.name = "a",
                          .resume = true,
                          .from_step = 5,
                          .world_size = 3,
                          .pid = 55,
                          .note = "",
                          .started_us = 999};
    begin_attempt(b, &again);
    assert_true(b->at.attempt == 1 && b->at.created_us == 777 && b->at.run == 1 && b->at.aid == 2);
    CELLS("SELECT host, pid, build, mpi, note, out_dir, world, state, exit_kind, exit_code, "
          "ended_us, "
          "n_attempts FROM run",
          "here 55 test none  /tmp 3 running - - - 2");
    CELLS("SELECT argv FROM run_doc", "bitrain train");
    CELLS("SELECT from_step, world, host, reason FROM attempt WHERE id = 2", "5 3 - -");
    /* A killed attempt ended with its last step. */
    assert_int_equal(apply_record(b, step_of(7, 2, 10), 0), SQLITE_OK);
    again = (bt_run_start){.name = "a",
                           .resume = true,
                           .host = "other",
                           .build = "new",
                           .mpi = "open",
                           .note = "hello",
                           .out_dir = "/o",
                           .argv = "args",
                           .config_json = "{}",
                           .pid = 56};
    const int64_t rev = bt_sql_int(b->db, "SELECT rev FROM run", -1);
    begin_attempt(b, &again);
    /* The revision changes, which a viewer detects. */
    assert_int_equal(bt_sql_int(b->db, "SELECT rev FROM run", -1), rev + 1);
    CELLS("SELECT ended_us, exit_kind, exit_code FROM attempt WHERE id = 2", "1070 lost -");
    CELLS("SELECT exit_kind, ended_us FROM attempt WHERE id = 1", "killed 888");
    CELLS("SELECT host, build, mpi, note, out_dir FROM run", "other test none  /tmp");
    /* test_start.c checks the effects of the first step. */
    assert_int_equal(apply_record(b, step_of(8, 2, 10), 0), SQLITE_OK);
    CELLS("SELECT host, build, mpi, note, out_dir FROM run", "other new open hello /o");
    CELLS("SELECT argv, config FROM run_doc", "args {}");
    /* The attempt starts at the present time. */
    CELLS("SELECT started_us > 1600000000000000 FROM attempt WHERE id = 3", "1");
    /* Numbers of removed attempts are not used again. */
    OK(bt_sql_exec(b->db, b->t->db, "DELETE FROM run", err));
    s.name = "b";
    begin_attempt(b, &s);
    assert_int_equal(b->at.aid, 4);
    OK(bt_sql_exec(b->db, b->t->db, "UPDATE meta SET value = 2 WHERE key = 'next_aid'", err));
    s.name = "c";
    begin_attempt(b, &s);
    assert_int_equal(b->at.aid, 5);
    /* The process is alive, so it may not resume the run. */
    s.pid = (int)getpid();
    char name[80];
    memset(name, 'n', sizeof name);
    name[65] = '\0';
    s.name = name;
    assert_int_equal(bt_attempt_begin(b->db, b->t->db, &s, false, &b->at, &why), BT_ARG);
    name[64] = '\0';
    OK(bt_attempt_begin(b->db, b->t->db, &s, false, &b->at, err));
    assert_int_equal(bt_attempt_begin(b->db, b->t->db, &s, false, &b->at, &why), BT_BUSY);
    s = (bt_run_start){.name = "none", .resume = true};
    assert_int_equal(bt_attempt_begin(b->db, b->t->db, &s, false, &b->at, &why), BT_NOTFOUND);
    assert_string_equal(why.msg, "no run 'none' to resume");
    close_base(b);
}

/* A run marked as running may be resumed if its recorded process cannot be training it. */
static void permission_to_resume(void **state) {
    static const struct {
        const char *host, *told_host, *run_state;
        bool lives, same, may;
    } rows[] = {{"here", "here", "running", true, false, false},
                {"here", "here", "running", false, false, true},
                {"here", "here", "running", true, true, true},
                {"here", "there", "running", true, false, true},
                {"here", NULL, "running", true, false, true},
                {"here", "here", "failed", true, false, true}};
    base one, *b = &one;
    open_base(b, *state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[8];
        bt_err why = BT_ERR_INIT;
        snprintf(name, sizeof name, "r%zu", i);
        const int pid = rows[i].lives ? (int)getpid() : 2147483000;
        bt_run_start s = {.name = name, .host = rows[i].host, .pid = pid};
        begin_attempt(b, &s);
        if (strcmp(rows[i].run_state, "running") != 0)
            OK(bt_attempt_end(b->db, b->t->db, &b->at, rows[i].run_state, "x", 1, 5, err));
        s = (bt_run_start){
            .name = name, .host = rows[i].told_host, .resume = true, .pid = rows[i].same ? pid : 1};
        if (bt_attempt_begin(b->db, b->t->db, &s, false, &b->at, &why) !=
            (rows[i].may ? BT_OK : BT_BUSY))
            fail_msg("row %zu: %s", i, why.msg);
    }
    close_base(b);
}

/* The database was replaced: existing parts of the attempt are used, missing parts are recreated. */
static void an_attempt_is_restored(void **state) {
    base one, *b = &one;
    open_base(b, *state);
    bt_run_start s = bt_fake_run("a"), copy;
    s.from_step = 3;
    bt_attempt at = {.run = 9, .aid = 9, .created_us = 555, .attempt = 2};
    OK(bt_attempt_restore(b->db, b->t->db, &s, &at, err));
    assert_true(at.run == 1 && at.aid == 1 && at.attempt == 2);
    CELLS("SELECT name, created_us, state, n_attempts FROM run", "a 555 running 3");
    CELLS("SELECT run, attempt, from_step FROM attempt", "1 2 3");
    OK(bt_attempt_end(b->db, b->t->db, &at, "done", "x", 0, 5, err));
    OK(bt_sql_exec(b->db, b->t->db, "UPDATE run SET n_attempts = 7", err));
    at = (bt_attempt){.run = 9, .aid = 9, .created_us = 666, .attempt = 2};
    OK(bt_attempt_restore(b->db, b->t->db, &s, &at, err));
    assert_true(at.run == 1 && at.aid == 1);
    CELLS("SELECT created_us, state, ended_us, n_attempts FROM run", "555 running - 7");
    CELLS("SELECT count(*) FROM attempt", "1");
    at.attempt = 8;
    OK(bt_attempt_restore(b->db, b->t->db, &s, &at, err));
    assert_int_equal(at.aid, 2);
    CELLS("SELECT n_attempts FROM run", "9");
    close_base(b);
    /* The copy does not share the text. */
    char text[] = "changes";
    s.note = text;
    s.reason = NULL;
    OK(bt_run_start_copy(&copy, &s, err));
    text[0] = 'C';
    assert_string_equal(copy.note, "changes");
    assert_null(copy.reason);
    static const size_t fields[] = {
        offsetof(bt_run_start, name),        offsetof(bt_run_start, argv),
        offsetof(bt_run_start, config_json), offsetof(bt_run_start, host),
        offsetof(bt_run_start, user),        offsetof(bt_run_start, build),
        offsetof(bt_run_start, mpi),         offsetof(bt_run_start, out_dir)};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *x = *(const char **)(void *)((char *)&s + fields[i]),
                   *y = *(const char **)(void *)((char *)&copy + fields[i]);
        assert_string_equal(x, y);
        assert_ptr_not_equal(x, y);
    }
    assert_true(copy.seed == s.seed && copy.pid == s.pid && copy.from_step == 3);
    bt_run_start_release(&copy);
    assert_true(!copy.name && !copy.note && copy.pid == 0);
    bt_run_start_release(&copy);
}

static int count_interrupts(void *ctx) { return ctx == NULL; }

/* If the database cannot be read, it is not treated as empty, and no run is created. */
static void a_database_that_cannot_be_read(void **state) {
    base one, *b = &one;
    bt_err why = BT_ERR_INIT;
    bt_attempt at;
    char says[200];
    open_base(b, *state);
    const bt_run_start s = bt_fake_run("a");
    sqlite3_progress_handler(b->db, 1, count_interrupts, NULL);
    assert_int_equal(bt_attempt_begin(b->db, b->t->db, &s, false, &at, &why), BT_DB);
    sqlite3_progress_handler(b->db, 0, NULL, NULL);
    snprintf(says, sizeof says, "'%s': interrupted", b->t->db);
    assert_non_null(strstr(why.msg, says));
    CELLS("SELECT count(*) FROM run", "0");
    close_base(b);
}

#define SUMMARY \
    "SELECT last_step, last_us, tokens, loss, val_loss, best_val, best_val_step, tokens_per_s, " \
    "step_us, mfu, " \
    "comm_overhead, bytes_wire, rss_kib, energy_j, spark, dropped FROM run"

static bt_record *full_step(int64_t step, const double *some, double ms) {
    double v[BT_MS_COUNT];
    for (int i = 0; i < BT_MS_COUNT; i++) v[i] = NAN;
    v[BT_MS_STEP_TIME] = ms, v[BT_MS_STEP_MEAN] = ms / 2;
    v[BT_MS_TOKENS] = some[0], v[BT_MS_LOSS] = some[1], v[BT_MS_VAL_LOSS] = some[2];
    v[BT_MS_TOKENS_PER_S] = some[3], v[BT_MS_MFU] = some[4], v[BT_MS_COMM_OVERHEAD] = some[5];
    v[BT_MS_BYTES_WIRE] = some[6], v[BT_MS_RSS_MAX] = some[7], v[BT_MS_ENERGY] = some[8];
    bt_record *r =
        bt_record_step(&(bt_step_record){.step = step, .wall_us = 1000 + 10 * step, .values = v});
    assert_non_null(r);
    return r;
}

static void a_summary_is_of_its_steps(void **state) {
    base one, *b = &one;
    open_base(b, *state);
    bt_run_start s = bt_fake_run("a");
    begin_attempt(b, &s);
    CELLS(SUMMARY, "- - - - - - - - - - - - - - - 0");
    assert_true(bt_apply_last_step(b->a) == -1 && bt_apply_last_us(b->a) == -1);
    assert_int_equal(
        apply_record(b, full_step(0, (double[]){100, 3.5, 4, 1000, 0.25, 0.5, 10, 1.5, 2.5}, 20),
                     3),
        SQLITE_OK);
    CELLS(SUMMARY, "0 1000 100 3.5 4.0 4.0 0 1000.0 20000 0.25 0.5 10 1536 2.5 [3.5] 3");
    assert_true(bt_apply_last_step(b->a) == 0 && bt_apply_last_us(b->a) == 1000);
    /* Unknown values leave the present values; invalid values are ignored. */
    assert_int_equal(
        apply_record(
            b, full_step(1, (double[]){NAN, NAN, INFINITY, NAN, NAN, NAN, -500, -1, 1e15}, 40), 0),
        SQLITE_OK);
    /* The step's row keeps impossible values; the run's row ignores them. */
    CELLS("SELECT bytes_wire, rss_kib FROM step WHERE step = 1", "-500 -1024");
    CELLS("SELECT last_step, last_us, tokens, loss, val_loss, best_val, best_val_step, step_us, "
          "bytes_wire, "
          "rss_kib, energy_j, spark, dropped FROM run",
          "1 1010 100 - 4.0 4.0 0 30000 10 1536 2.5 [3.5] 0");
    for (int i = 0; i < 2; i++) { /* A step cannot take thirty years. */
        assert_int_equal(
            apply_record(b,
                         full_step(1, (double[]){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN},
                                   i ? 1e12 : 1e13),
                         0),
            SQLITE_OK);
        CELLS("SELECT step_us FROM run", "30000");
    }
    /* medians of the newest steps, sums, and the lowest validation loss */
    assert_int_equal(
        apply_record(b, full_step(2, (double[]){300, 2.5, 4.5, 3000, 0.75, 0.25, 0.6, 1, 0.25}, 60),
                     0),
        SQLITE_OK);
    CELLS("SELECT tokens, loss, val_loss, best_val, best_val_step, tokens_per_s, step_us, mfu, "
          "bytes_wire, "
          "rss_kib, energy_j, spark FROM run",
          "300 2.5 4.5 4.0 0 2000.0 40000 0.5 11 1536 2.75 [3.5,null,2.5]");
    assert_int_equal(
        apply_record(b, full_step(3, (double[]){400, 1.5, 3.25, NAN, NAN, NAN, NAN, 2, NAN}, -1),
                     0),
        SQLITE_OK);
    CELLS("SELECT val_loss, best_val, best_val_step, step_us, rss_kib FROM run",
          "3.25 3.25 3 40000 2048");
    assert_int_equal(
        apply_record(b, full_step(4, (double[]){500, 1, 3.25, NAN, NAN, NAN, NAN, 2, NAN}, 20), 0),
        SQLITE_OK);
    CELLS("SELECT val_loss, best_val_step, step_us FROM run", "3.25 3 30000"); /* a worse loss */
    /* A resumed run continues its sums. */
    s.resume = true;
    s.from_step = 3;
    begin_attempt(b, &s);
    assert_true(bt_apply_last_step(b->a) == -1);
    assert_int_equal(
        apply_record(b, full_step(3, (double[]){410, 1.25, NAN, NAN, NAN, NAN, 5, 1, 1}, 20), 0),
        SQLITE_OK);
    CELLS("SELECT last_step, tokens, loss, val_loss, best_val, best_val_step, bytes_wire, rss_kib, "
          "energy_j, spark "
          "FROM run",
          "3 410 1.25 3.25 3.25 3 16 2048 3.75 [3.5,null,2.5,1.25]");
    CELLS("SELECT live_to FROM attempt WHERE attempt = 0", "3");
    CELLS("SELECT count(*) FROM step", "6");
    close_base(b);
}

/* Medians cover the newest steps, including those of earlier attempts up to the step at which each was resumed. */
static void recent_figures_continue(void **state) {
    base one, *b = &one;
    open_base(b, *state);
    bt_run_start s = bt_fake_run("a");
    begin_attempt(b, &s);
    enum { N = 2 * BT_RECENT_STEPS };
    for (int64_t step = 0; step < N; step++)
        assert_int_equal(
            apply_record(b, step_of(step, 1, step < N / 2 ? 1 : 100 + (double)step), 0), SQLITE_OK);
    char want[40];
    const double middle = 100 + N / 2 + (BT_RECENT_STEPS - 1) / 2.0;
    snprintf(want, sizeof want, "%.0f", middle * 1e3);
    CELLS("SELECT step_us FROM run", want);
    s.resume = true;
    s.from_step = 4; /* The first four steps of the earlier attempt remain. */
    begin_attempt(b, &s);
    assert_int_equal(apply_record(b, step_of(4, 1, 7), 0), SQLITE_OK);
    CELLS("SELECT step_us FROM run", "1000");
    for (int64_t step = 5; step < 9; step++)
        assert_int_equal(apply_record(b, step_of(step, 1, 7), 0), SQLITE_OK);
    CELLS("SELECT step_us FROM run", "7000"); /* median of five new and four earlier steps */
    close_base(b);
}

/* A failed transaction is rolled back and leaves cached figures unchanged. A row that can never be stored is
 * skipped. */
static void a_failed_transaction_changes_nothing(void **state) {
    base one, *b = &one;
    open_base(b, *state);
    bt_run_start s = bt_fake_run("a");
    begin_attempt(b, &s);
    assert_int_equal(apply_record(b, step_of(0, 3, 10), 0), SQLITE_OK);
    OK(bt_sql_exec(b->db, b->t->db,
                   "CREATE TRIGGER no BEFORE INSERT ON event BEGIN SELECT raise(ABORT, 'no'); END;"
                   "CREATE TRIGGER never BEFORE INSERT ON ckpt BEGIN SELECT "
                   "abs(-9223372036854775807 - 1); END",
                   err));
    bt_record *list = step_of(1, 2, 10);
    list->next = bt_record_event(&(bt_event){.kind = BT_EVENT_WARNING, .step = 1, .title = "x"});
    assert_int_equal(apply_record(b, list, 2), SQLITE_OK);
    assert_int_equal(bt_apply_skipped(b->a), 1);
    CELLS("SELECT (SELECT count(*) FROM event), last_step, dropped FROM run", "0 1 3");
    list = step_of(2, 1, 10);
    list->next = bt_record_ckpt(&(bt_ckpt_record){.step = 1, .path = "p"});
    assert_int_not_equal(apply_record(b, list, 0), SQLITE_OK);
    assert_true(sqlite3_get_autocommit(b->db));
    CELLS("SELECT (SELECT count(*) FROM step), last_step, spark FROM run", "2 1 [3,2]");
    assert_int_equal(bt_apply_last_step(b->a), 1);
    OK(bt_sql_exec(b->db, b->t->db, "DROP TRIGGER never", err));
    bt_record *odd = bt_record_fact("k", "v"); /* unknown kind */
    odd->head.kind = 99;
    odd->next = step_of(2, 1, 10);
    assert_int_equal(apply_record(b, odd, 0), SQLITE_OK);
    assert_int_equal(bt_apply_skipped(b->a), 2);
    CELLS("SELECT (SELECT count(*) FROM step), last_step, spark, dropped FROM run",
          "3 2 [3,2,1] 2");
    close_base(b);
}

/* Ranks, facts, events and checkpoints are stored in their tables. */
static void each_record_has_its_row(void **state) {
    base one, *b = &one;
    open_base(b, *state);
    bt_run_start s = bt_fake_run("a");
    begin_attempt(b, &s);
    const bt_rank_info ranks[] = {{3, 33, 4, "h", "avx2", 5, 6, 7, 8},
                                  {4, 44, 2, "i", "amx", 0, 0, 0, 0}};
    bt_record *list = bt_record_ranks(ranks, 2);
    list->next = bt_record_fact("key", "old");
    list->next->next = bt_record_fact("key", "value");
    list->next->next->next = bt_record_ckpt(&(bt_ckpt_record){10, 1111, "/p", 2222, 3333, "00ff"});
    assert_int_equal(apply_record(b, list, 0), SQLITE_OK);
    CELLS("SELECT aid, rank, host, pid, isa, threads, pp, dp_replicate, dp_shard, tp FROM rank "
          "WHERE rank = 3",
          "1 3 h 33 avx2 4 5 6 7 8");
    CELLS("SELECT count(*) FROM rank", "2");
    CELLS("SELECT run, key, value, attempt FROM fact WHERE key <> 'clock'", "1 key value 0");
    CELLS("SELECT run, step, attempt, t_us, path, bytes, took_us, hash FROM ckpt",
          "1 10 0 1111 /p 2222 3333 00ff");
    CELLS("SELECT last_step FROM run", "-"); /* There is no summary before the first step. */
    list = bt_record_event(&(bt_event){BT_EVENT_WARNING, 7, 2, 99, "title", "{}"});
    list->next = bt_record_event(&(bt_event){BT_EVENT_NOTICE, -1, -1, 98, "title", NULL});
    assert_int_equal(apply_record(b, list, 0), SQLITE_OK);
    CELLS("SELECT run, aid, t_us, step, rank, kind, level, title, body FROM event WHERE seq = 1",
          "1 1 99 7 2 warning 1 title {}");
    CELLS("SELECT t_us, step, rank, kind, body FROM event WHERE seq = 2", "98 - - notice -");
    /* The event `resumed` defines the step at which an attempt begins. */
    list = bt_record_event(&(bt_event){BT_EVENT_RESUMED, 41, -1, 99, "title", NULL});
    assert_int_equal(apply_record(b, list, 0), SQLITE_OK);
    CELLS("SELECT from_step FROM attempt", "42");
    assert_int_equal(apply_record(b, step_of(50, 1, 1), 0), SQLITE_OK);
    CELLS("SELECT from_step FROM attempt", "42");
    list = bt_record_event(&(bt_event){BT_EVENT_RESUMED, 0, -1, 99, "title", NULL});
    assert_int_equal(apply_record(b, list, 0), SQLITE_OK);
    CELLS("SELECT from_step FROM attempt", "1");
    close_base(b);
}

/* A record that is already stored is skipped. */
static void repeated_records_are_skipped(void **state) {
    base one, *b = &one;
    open_base(b, *state);
    bt_run_start s = bt_fake_run("a");
    begin_attempt(b, &s);
    const bt_event e = {BT_EVENT_WARNING, 1, 0, 99, "title", NULL};
    bt_record *list = step_of(0, 3, 10);
    list->next = step_of(1, 2, 10);
    list->next->next = bt_record_event(&e);
    list->next->next->next = step_of(2, 1, 10);
    assert_int_equal(bt_apply_again(b->a, 0, list), SQLITE_OK);
    CELLS("SELECT (SELECT count(*) FROM step), (SELECT count(*) FROM event), last_step FROM run",
          "2 1 2");
    assert_int_equal(bt_apply_last_step(b->a), 2);
    assert_int_equal(bt_apply_again(b->a, -1, list), SQLITE_OK);
    CELLS("SELECT (SELECT count(*) FROM step), (SELECT count(*) FROM event), spark FROM run",
          "2 1 [null,2,1]");
    bt_records_free(list);
    /* An event that differs in any field is stored. */
    bt_event others[] = {e, e, e};
    others[0].wall_us = 100, others[1].kind = BT_EVENT_NOTICE, others[2].title = "other";
    for (int i = 0; i < 3; i++) {
        list = bt_record_event(&others[i]);
        for (int k = 0; k < 2; k++) assert_int_equal(bt_apply_again(b->a, -1, list), SQLITE_OK);
        bt_records_free(list);
    }
    CELLS("SELECT count(*) FROM event", "4");
    /* Unlike bt_apply_again, this call stores it again. */
    assert_int_equal(apply_record(b, bt_record_event(&e), 0), SQLITE_OK);
    CELLS("SELECT count(*) FROM event", "5");
    bt_apply_reread(b->a);
    assert_int_equal(apply_record(b, step_of(3, 1, 10), 0), SQLITE_OK);
    close_base(b);
}

/* Rank rows outside the range of their key are counted and not stored. */
static void rank_rows_outside_their_key_are_dropped(void **state) {
    base one, *b = &one;
    bt_fake f;
    open_base(b, *state);
    bt_run_start s = bt_fake_run("a");
    begin_attempt(b, &s);
    const int64_t last = (INT64_C(1) << BT_STEP_BITS) - 1;
    assert_int_equal(apply_record(b, bt_record_step(bt_fake_step(&f, last, 2)), 0), SQLITE_OK);
    CELLS("SELECT count(*), max(key) FROM rank_step", "2 140737488289793");
    assert_int_equal(bt_apply_skipped(b->a), 0);
    assert_int_equal(apply_record(b, bt_record_step(bt_fake_step(&f, last + 1, 2)), 0), SQLITE_OK);
    CELLS("SELECT count(*) FROM rank_step", "2");
    CELLS("SELECT count(*) FROM step", "2");
    assert_int_equal(bt_apply_skipped(b->a), 2);
    close_base(b);
}

static void old_rows_are_deleted_in_chunks(void **state) {
    base one, *b = &one;
    bt_fake f;
    bool more = true;
    int64_t rows = 0;
    open_base(b, *state);
    bt_run_start s = bt_fake_run("a");
    begin_attempt(b, &s);
    bt_record *list = NULL, **at = &list;
    for (int64_t step = 0; step < 1300; step++) {
        *at = bt_record_step(bt_fake_step(&f, step, 1));
        at = &(*at)->next;
    }
    assert_int_equal(apply_record(b, list, 0), SQLITE_OK);
    CELLS("SELECT value FROM meta WHERE key = 'keep_rank_steps'", "50000");
    assert_int_equal(bt_retain_chunk(b->db, 1, 1299, &more, &rows), SQLITE_OK);
    assert_true(!more && rows == 0);
    static const struct {
        int keep;
        int64_t newest, gone, raw_from;
        bool more;
    } looks[] = {
        {0, 1299, 0, 0, false},                                       /* all rows are kept */
        {1044, 1299, 0, 0, false},                                    /* a chunk has 256 steps */
        {1043, 1299, 256, 256, false}, {1043, 1299, 256, 256, false}, /* deleted only once */
        {500, 1299, 512, 512, true},   {500, 1299, 768, 768, false},  {500, 1299, 768, 768, false}};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        char sql[120], want[60];
        snprintf(sql, sizeof sql, "UPDATE meta SET value = %d WHERE key = 'keep_rank_steps'",
                 looks[i].keep);
        OK(bt_sql_exec(b->db, b->t->db, sql, err));
        assert_int_equal(bt_retain_chunk(b->db, 1, looks[i].newest, &more, &rows), SQLITE_OK);
        snprintf(want, sizeof want, "%lld %lld %d", (long long)looks[i].raw_from,
                 (long long)(1300 - looks[i].gone), (int)looks[i].gone);
        if (more != looks[i].more || rows != looks[i].gone)
            fail_msg("look %zu: %d rows", i, (int)rows);
        snprintf(sql, sizeof sql,
                 "SELECT (SELECT raw_from FROM attempt), count(*), (min(key) >> 16) & 0x3fffffff "
                 "FROM rank_step");
        CELLS(sql, want);
    }
    /* Rows around a warning are kept, and so are all rows without a summary. */
    OK(bt_sql_exec(
        b->db, b->t->db,
        "UPDATE meta SET value = 10 WHERE key = 'keep_rank_steps';"
        "INSERT INTO event(run, aid, t_us, step, kind, level) VALUES (1, 1, 0, 600, 'warning', 1), "
        "(1, 1, 0, 900, 'notice', 0), (1, 2, 0, 900, 'warning', 1)",
        err));
    assert_int_equal(bt_retain_chunk(b->db, 1, 1299, &more, &rows), SQLITE_OK);
    CELLS("SELECT count(*), (min(key) >> 16) & 0x3fffffff FROM rank_step WHERE ((key >> 16) & "
          "0x3fffffff) < 1024",
          "33 768");
    assert_true(more == true && rows == 768 + 256 - 33);
    OK(bt_sql_exec(b->db, b->t->db, "DELETE FROM roll", err));
    assert_int_equal(bt_retain_chunk(b->db, 1, 1299, &more, &rows), SQLITE_OK);
    assert_true(!more && rows == 768 + 256 - 33);
    assert_int_equal(bt_retain_chunk(b->db, 77, 1299, &more, &rows), SQLITE_OK);
    assert_false(more);
    close_base(b);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {TEST(a_run_and_its_attempts),
                                       TEST(permission_to_resume),
                                       TEST(an_attempt_is_restored),
                                       TEST(a_summary_is_of_its_steps),
                                       TEST(a_database_that_cannot_be_read),
                                       TEST(recent_figures_continue),
                                       TEST(a_failed_transaction_changes_nothing),
                                       TEST(each_record_has_its_row),
                                       TEST(repeated_records_are_skipped),
                                       TEST(rank_rows_outside_their_key_are_dropped),
                                       TEST(old_rows_are_deleted_in_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
