// ctest: timeout=100
/* The summaries of a run (blocks of 16, 256, ... steps) equal the raw rows for any range and resolution, after
 * restarts, repeated steps, kills and failed transactions. */
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "store/read/blocks.h"
#include "store/view/view_impl.h"
#include "store/write/manage.h"
#include "store/write/rollup.h"
#include "store_test.h"
#include "synth_run.h"

typedef struct folded {
    bt_block_stat loss, val, data[4];
    int64_t blocks, end;
    bool disordered;
} folded;

static bool fold_block(void *ctx, const bt_block *b) {
    folded *f = ctx;
    if (b->step0 < f->end) f->disordered = true;
    f->end = b->step1 + 1;
    f->blocks++;
    bt_block_stat_merge(&f->loss, &b->steps[BT_MS_LOSS]);
    bt_block_stat_merge(&f->val, &b->steps[BT_MS_VAL_LOSS]);
    for (int k = 0; k < b->n_ranks && k < 4; k++)
        bt_block_stat_merge(&f->data[k], &b->ranks[k * BT_MR_COUNT + BT_MR_DATA]);
    return true;
}

static bool add_step(void *ctx, const bt_row *row) {
    folded *f = ctx;
    bt_block_stat_add(&f->loss, row->nums[0]);
    bt_block_stat_add(&f->val, row->nums[1]);
    return true;
}

static bool add_rank(void *ctx, const bt_row *row) {
    bt_block_stat_add(&((folded *)ctx)->data[(int)row->nums[0]], row->nums[1]);
    return true;
}

static void check_equal_numbers(const bt_block_stat *a, const bt_block_stat *b, double tolerance,
                                bool extremes) {
    assert_true(a->n == b->n);
    if (a->n == 0) return;
    assert_true(fabs(a->sum - b->sum) <= tolerance * fabs(b->sum) + 1e-12);
    if (!extremes) return;
    assert_true(fabs(a->min - b->min) <= tolerance * fabs(b->min));
    assert_true(fabs(a->max - b->max) <= tolerance * fabs(b->max));
    assert_true(fabs(a->first - b->first) <= tolerance * fabs(b->first));
    assert_true(fabs(a->last - b->last) <= tolerance * fabs(b->last));
}

static void check_range(bt_db *db, int64_t step0, int64_t step1, int64_t max_steps) {
    folded f = {0}, raw = {0};
    char a[24], b[24];
    const char *params[] = {"s", a, b};
    bt_blocks_request ask = {
        .run = "s", .step0 = step0, .step1 = step1, .max_steps = max_steps, .ranks = true};
    snprintf(a, sizeof a, "%lld", (long long)step0);
    snprintf(b, sizeof b, "%lld", (long long)step1);
    OK(bt_blocks_walk(db, &ask, fold_block, &f, err));
    OK(bt_db_query(
        db,
        &(bt_query){
            .sql = "SELECT loss, val_loss FROM steps WHERE run = ?1 AND step BETWEEN CAST(?2 AS "
                   "INTEGER) AND CAST(?3 AS INTEGER) ORDER BY step",
            .params = params,
            .n_params = 3},
        add_step, &raw, err));
    OK(bt_db_query(
        db,
        &(bt_query){
            .sql = "SELECT rank, data_ms FROM rank_steps WHERE run = ?1 AND step BETWEEN CAST(?2 "
                   "AS INTEGER) AND CAST(?3 AS INTEGER) ORDER BY step",
            .params = params,
            .n_params = 3},
        add_rank, &raw, err));
    assert_false(f.disordered);
    check_equal_numbers(&f.loss, &raw.loss, 1e-15 * (double)(step1 - step0 + 2), true);
    check_equal_numbers(&f.val, &raw.val, 1e-15 * (double)(step1 - step0 + 2), true);
    /* Values of ranks are stored as floats, and blocks of 16 steps contain only their means. */
    for (int k = 0; k < 4; k++) check_equal_numbers(&f.data[k], &raw.data[k], 3e-7, max_steps < 16);
    if (max_steps >= 4096 && step1 - step0 > 8192)
        assert_true(f.blocks < (step1 - step0) / 4096 + 16 * 3 * 6);
}

static void check_ranges(const char *path) {
    bt_db *db = NULL;
    uint32_t x = 99;
    OK(bt_db_open(&db, path, err));
    for (int i = 0; i < 60; i++) {
        x = x * 1664525u + 1013904223u;
        int64_t a = x % 5000, b = a + (x >> 13) % 5000;
        check_range(db, a, b, (int64_t)1 << (x >> 28));
    }
    check_range(db, 0, 1000000, 1048576);
    check_range(db, 0, 1000000, 1);
    bt_db_close(db);
}

/* Returns the table of summaries as text. */
static char *summaries_as_text(const char *path) {
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    bt_text t;
    bt_text_init(&t);
    sqlite3_open(path, &db);
    sqlite3_prepare_v2(db, "SELECT key, hex(data) FROM roll ORDER BY key", -1, &st, NULL);
    while (sqlite3_step(st) == SQLITE_ROW)
        bt_text_printf(&t, "%s %s\n", (const char *)sqlite3_column_text(st, 0),
                       (const char *)sqlite3_column_text(st, 1));
    sqlite3_finalize(st);
    sqlite3_close(db);
    return t.data;
}

static void rebuild_summaries(const char *path) {
    sqlite3 *db = NULL;
    bt_roll *r = NULL;
    OK(bt_sql_open_rw(&db, path, err));
    OK(bt_roll_open(&r, db, path, err));
    int64_t n = bt_sql_int(db, "SELECT max(id) FROM attempt", 0);
    OK(bt_sql_exec(db, path, "BEGIN", err));
    for (int64_t aid = 1; aid <= n; aid++) OK(bt_roll_rebuild(r, aid, err));
    OK(bt_sql_exec(db, path, "COMMIT", err));
    bt_roll_close(r);
    sqlite3_close(db);
}

static void check_incremental_equals_rebuilt(const char *path) {
    char *before = summaries_as_text(path);
    rebuild_summaries(path);
    char *after = summaries_as_text(path);
    assert_non_null(before);
    if (strcmp(before, after) != 0) {
        size_t i = 0;
        while (before[i] && before[i] == after[i]) i++;
        size_t line = i;
        while (line > 0 && before[line - 1] != '\n') line--;
        fail_msg("pyramids differ in '%.30s' at byte %zu: '%.40s' is '%.40s'", before + line,
                 (i - line) / 2, before + i, after + i);
    }
    free(before);
    free(after);
}

static void summaries_of_a_plain_run(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    s.steps = 9000;
    s.jitter = 0.2;
    s.straggler = 1;
    s.excess = 0.3;
    OK(bt_synth_make(t->db, &s, err));
    assert_true(bt_number(t->db, "SELECT count(*) FROM roll", NULL) > 9000 / 16 * 2);
    check_ranges(t->db);
    check_incremental_equals_rebuilt(t->db);
}

/* A rank's summary is smaller than a step's, and both are written to the same buffer. */
static void summaries_of_a_single_rank(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    s.ranks = 1;
    s.steps = 700;
    OK(bt_synth_make(t->db, &s, err));
    assert_true(bt_number(t->db, "SELECT count(*) FROM roll", NULL) > 700 / 16 * 2);
    check_incremental_equals_rebuilt(t->db);
}

static void a_run_with_a_restart(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    s.steps = 7000;
    s.jitter = 0.2;
    s.fail_at = 5003;
    s.resume_from = 4500;
    OK(bt_synth_make(t->db, &s, err));
    check_ranges(t->db);
    check_incremental_equals_rebuilt(t->db);
}

/* Steps have records every 7th step and ranks every 21st. The attempt goes back twice, and transactions fail. */
static void gaps_returns_and_failures(void **state) {
    const bt_tmp *t = *state;
    static const struct { int64_t first, last; } legs[] = {{6, 4206}, {1406, 4507}, {4416, 9799}};
    bt_writer *w = NULL;
    sqlite3 *other = NULL;
    int attempt;
    bt_synth s = bt_synth_default("s");
    double values[BT_MS_COUNT], ranks[4 * BT_MR_COUNT];
    s.jitter = 0.3;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start start = bt_fake_run("s");
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    assert_int_equal(sqlite3_open(t->db, &other), SQLITE_OK);
    for (int leg = 0; leg < 3; leg++) {
        for (int64_t step = legs[leg].first; step <= legs[leg].last; step += 7) {
            bt_synth_step(&s, step + leg, values, ranks);
            if (step % 5 == 0) values[BT_MS_LOSS] = NAN;
            sink->step(sink->ctx, &(bt_step_record){.step = step,
                                                    .wall_us = step * 1000,
                                                    .values = values,
                                                    .n_ranks = step % 3 == 0 ? 4 : 0,
                                                    .rank_values = ranks});
            /* Another process locks the file briefly, so this transaction fails and is repeated. */
            if (step % 1200 < 7) {
                OK(bt_writer_flush(w, err));
                assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL),
                                 SQLITE_OK);
            }
            if (step % 1200 >= 100 && step % 1200 < 107)
                sqlite3_exec(other, "COMMIT", NULL, NULL, NULL);
        }
        sqlite3_exec(other, "COMMIT", NULL, NULL, NULL);
        OK(bt_writer_flush(w, err));
        check_ranges(t->db);
    }
    sqlite3_close(other);
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    check_incremental_equals_rebuilt(t->db);
}

/* A validation loss that arrives during a pause is added to the block of its step, also if the step is the last one of
 * a block. */
static void late_evaluations_are_in_their_blocks(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bt_synth s = bt_synth_default("s");
    s.jitter = 0.3;
    double values[BT_MS_COUNT], ranks[4 * BT_MR_COUNT];
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start start = bt_fake_run("s");
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 0; step < 4200; step++) {
        bt_synth_step(&s, step, values, ranks);
        values[BT_MS_VAL_LOSS] = NAN;
        sink->step(sink->ctx, &(bt_step_record){.step = step,
                                                .wall_us = step * 1000,
                                                .values = values,
                                                .n_ranks = 4,
                                                .rank_values = ranks});
        if (step == 15 || step == 20 || step == 255 || step == 511 || step == 4095)
            sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_EVALUATION,
                                               .step = step,
                                               .rank = -1,
                                               .wall_us = step * 1000,
                                               .title = "validation",
                                               .body = "{\"val_loss\":2.5}"});
        if (step == 255) OK(bt_writer_flush(w, err));
    }
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    assert_true(bt_number(t->db, "SELECT count(val_loss) FROM steps WHERE run = ?1", "s") == 5);
    check_ranges(t->db);
    check_incremental_equals_rebuilt(t->db);
}

static void child_writes(const char *path, int64_t next, _Atomic int64_t *written) {
    bt_writer *w = NULL;
    bt_err err = BT_ERR_INIT;
    int attempt;
    double values[BT_MS_COUNT], ranks[4 * BT_MR_COUNT];
    bt_synth s = bt_synth_default("s");
    bt_run_start start = bt_fake_run("s");
    s.jitter = 0.3;
    start.resume = next > 0;
    start.from_step = next;
    if (bt_writer_open(&w, path, 5, &err) != BT_OK ||
        bt_writer_begin(w, &start, &attempt, &err) != BT_OK)
        _exit(1);
    for (int64_t step = next;; step++) {
        bt_synth_step(&s, step, values, ranks);
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, &(bt_step_record){.step = step,
                                                                          .wall_us = step,
                                                                          .values = values,
                                                                          .n_ranks = 4,
                                                                          .rank_values = ranks});
        if (step % 40 == 0) (void)!bt_writer_flush(w, &err);
        atomic_store(written, bt_writer_committed_step(w));
    }
}

static void a_writer_killed_again_and_again(void **state) {
    const bt_tmp *t = *state;
    _Atomic int64_t *written = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                    -1, 0);
    uint32_t seed = 5;
    int64_t next = 0;
    for (int round = 0; round < 12; round++) {
        atomic_store(written, -1);
        pid_t pid = fork();
        if (pid == 0) child_writes(t->db, next, written);
        seed = seed * 1664525u + 1013904223u;
        int64_t goal = next + 30 + (seed >> 8) % 600;
        while (atomic_load(written) < goal && waitpid(pid, NULL, WNOHANG) == 0) bt_sleep_ns(200000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_true(atomic_load(written) >= goal);
        next = (int64_t)bt_number(t->db, "SELECT max(step) FROM steps WHERE run = ?1", "s") - 23;
    }
    munmap((void *)written, 4096);
    check_ranges(t->db);
    check_incremental_equals_rebuilt(t->db);
}

static void damaged_blobs_are_refused(void **state) {
    (void)state;
    bt_block_stat out[20];
    bt_rank_block b;
    unsigned char blob[256];
    uint32_t x = 1;
    for (int round = 0; round < 20000; round++) {
        for (size_t i = 0; i < sizeof blob; i++)
            blob[i] = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
        blob[0] = 1;
        blob[1] = (unsigned char)(round & 1);
        blob[2] = (unsigned char)(round % 7);
        blob[3] = 0;
        if (round % 3) memset(blob + 4, 0, 3), blob[4] = (unsigned char)(round % 11);
        size_t n = (x >> 9) % (sizeof blob + 1);
        unsigned char *exact = malloc(n ? n : 1);
        memcpy(exact, blob, n);
        bt_roll_decode_steps(exact, n, out, 20);
        if (bt_roll_decode_ranks(exact, n, &b)) {
            bt_block_stat one;
            for (int k = 0; k < b.n_ranks; k++) bt_rank_block_stat(&b, k, b.n_slots - 1, &one);
        }
        free(exact);
    }
}

static bool count_block(void *ctx, const bt_block *b) {
    ++*(int *)ctx;
    return b->step0 >= 0;
}

/* The error is reported at any level, and the summary is computed again from the rows. A query without ranks does not
 * read their summary. */
static void a_damaged_summary_is_reported(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    s.steps = 600;
    OK(bt_synth_make(t->db, &s, err));
    for (int kind = BT_ROLL_STEPS; kind <= BT_ROLL_RANKS; kind++)
        for (int level = 1; level <= 2; level++) {
            char sql[120];
            bt_db *db = NULL;
            int blocks = 0;
            bt_err why = BT_ERR_INIT;
            bt_gc_result r;
            bt_blocks_request ask = {.run = "s",
                                     .step1 = 511,
                                     .max_steps = (int64_t)1 << (BT_ROLL_SHIFT * level),
                                     .ranks = true};
            snprintf(sql, sizeof sql, "UPDATE roll SET data = x'01' WHERE key = %lld",
                     (long long)bt_roll_key(1, kind, level, 1));
            run_sql(t->db, sql);
            OK(bt_db_open(&db, t->db, err));
            assert_int_equal(bt_blocks_walk(db, &ask, count_block, &blocks, &why), BT_FORMAT);
            assert_non_null(strstr(why.msg, "has a damaged summary"));
            assert_int_equal(blocks, 1); /* the block before the damaged one */
            ask.ranks = false;
            assert_int_equal(bt_blocks_walk(db, &ask, count_block, &blocks, &why),
                             kind == BT_ROLL_STEPS ? BT_FORMAT : BT_OK);
            OK(bt_store_gc(t->db, &(bt_gc_cfg){.keep_rank_steps = -1, .rebuild = true}, 1, &r,
                           err));
            ask.ranks = true;
            blocks = 0;
            OK(bt_blocks_walk(db, &ask, count_block, &blocks, err));
            assert_int_equal(blocks, 512 >> (BT_ROLL_SHIFT * level));
            bt_db_close(db);
        }
}

static bool without_ranks(void *ctx, const bt_block *b) {
    assert_int_equal(b->n_ranks, 0);
    assert_null(b->ranks);
    return count_block(ctx, b);
}

/* Steps without ranks have no values of ranks, both in rows and in summaries. */
static void steps_without_ranks(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    bt_fake f;
    int attempt;
    bt_run_start start = bt_fake_run("s");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    for (int64_t step = 0; step < 40; step++)
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, step, 0));
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    static const struct {
        int64_t max_steps;
        int blocks;
    } rows[] = {{1, 40}, {15, 40}, {16, 2 + 8}, {255, 2 + 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int blocks = 0;
        OK(bt_blocks_walk(
            db,
            &(bt_blocks_request){
                .run = "s", .step1 = 39, .max_steps = rows[i].max_steps, .ranks = true},
            without_ranks, &blocks, err));
        assert_int_equal(blocks, rows[i].blocks);
    }
    bt_db_close(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps_without_ranks, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(summaries_of_a_plain_run, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(summaries_of_a_single_rank, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_run_with_a_restart, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(gaps_returns_and_failures, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(late_evaluations_are_in_their_blocks, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_writer_killed_again_and_again, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test(damaged_blobs_are_refused),
        cmocka_unit_test_setup_teardown(a_damaged_summary_is_reported, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
