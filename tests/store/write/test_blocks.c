/* test_blocks.c - summaries of blocks of steps: merging, keys of blocks, all blocks of a small run, and blocks that are
 * recomputed after a run goes back. */
#include "store/read/blocks.h"
#include "store/write/rollup.h"
#include "tests/store/store_test.h"

static void assert_block_stat(const bt_block_stat *s, double n, double min, double max,
                              double first, double last, double sum) {
    if (s->n != n || s->min != min || s->max != max || s->first != first || s->last != last ||
        s->sum != sum)
        fail_msg("%g: %g..%g, %g to %g, sum %g", s->n, s->min, s->max, s->first, s->last, s->sum);
}

static void values_add_up(void **state) {
    (void)state;
    bt_block_stat s = {0}, later = {0};
    bt_block_stat_add(&s, NAN);
    bt_block_stat_add(&s, INFINITY);
    assert_block_stat(&s, 0, 0, 0, 0, 0, 0);
    bt_block_stat_add(&s, -2);
    assert_block_stat(&s, 1, -2, -2, -2, -2, -2);
    bt_block_stat_add(&s, 5);
    assert_block_stat(&s, 2, -2, 5, -2, 5, 3);
    bt_block_stat_add(&s, -INFINITY);
    bt_block_stat_add(&s, 1);
    assert_block_stat(&s, 3, -2, 5, -2, 1, 4);
    bt_block_stat_add(&s, -3);
    assert_block_stat(&s, 4, -3, 5, -2, -3, 1);
    bt_block_stat_merge(&s, &later); /* a block without values */
    assert_block_stat(&s, 4, -3, 5, -2, -3, 1);
    bt_block_stat_merge(&later, &s);
    assert_block_stat(&later, 4, -3, 5, -2, -3, 1);
    bt_block_stat_merge(&s, &(bt_block_stat){2, -1, 4, 4, -1, 3});
    assert_block_stat(&s, 6, -3, 5, -2, -1, 4);
    bt_block_stat_merge(&s, &(bt_block_stat){2, -9, 9, 9, -9, 0});
    assert_block_stat(&s, 8, -9, 9, -2, -9, 4);
}

static void keys_are_adjacent(void **state) {
    (void)state;
    assert_true(bt_roll_key(0, 0, 0, 0) == 0);
    assert_true(bt_roll_key(0, 0, 0, 7) == 7);
    assert_true(bt_roll_key(0, 0, 3, 7) == (INT64_C(3) << 38) + 7);
    assert_true(bt_roll_key(0, 1, 3, 7) == (INT64_C(1) << 41) + (INT64_C(3) << 38) + 7);
    assert_true(bt_roll_key(5, 1, 3, 7) ==
                (INT64_C(5) << 42) + (INT64_C(1) << 41) + (INT64_C(3) << 38) + 7);
}

typedef struct base {
    const char *path;
    sqlite3 *db;
    bt_roll *roll;
    bt_slots slots;
} base;

static void open_base(base *b, const bt_tmp *t) {
    b->path = t->db;
    OK(bt_sql_open_rw(&b->db, t->db, err));
    OK(bt_schema_apply(b->db, t->db, err));
    OK(bt_sql_exec(b->db, t->db,
                   "INSERT INTO run(id, name, created_us, state) VALUES (1, 'a', 0, 'running');"
                   "INSERT INTO attempt(id, run, attempt, started_us, from_step, live_to) VALUES "
                   "(3, 1, 0, 0, 0, 99)",
                   err));
    OK(bt_slots_load(b->db, t->db, &b->slots, err));
    OK(bt_roll_open(&b->roll, b->db, t->db, err));
    bt_roll_start(b->roll, 3);
}

static void close_base(base *b) {
    bt_roll_close(b->roll);
    sqlite3_close(b->db);
}

/* Adds a row as the writer stores it: the loss equals the step, the step takes 2 s, and rank k takes step + 1000 k
 * ms. */
static void add_step(base *b, int64_t step, int n_ranks) {
    double v[BT_MS_COUNT], r[4 * BT_MR_COUNT];
    char sql[300];
    for (int i = 0; i < BT_MS_COUNT; i++) v[i] = NAN;
    for (int i = 0; i < 4 * BT_MR_COUNT; i++) r[i] = NAN;
    v[BT_MS_LOSS] = (double)step;
    v[BT_MS_STEP_TIME] = 2000.0004; /* stored in whole microseconds */
    for (int k = 0; k < n_ranks; k++)
        r[k * BT_MR_COUNT + BT_MR_STEP_TIME] = (double)step + 1000 * k;
    assert_int_equal(bt_roll_add(b->roll, &(bt_step_record){.step = step,
                                                            .wall_us = 5 * step,
                                                            .values = v,
                                                            .n_ranks = n_ranks,
                                                            .rank_values = r}),
                     SQLITE_OK);
    assert_int_equal(bt_roll_newest(b->roll), step);
    snprintf(sql, sizeof sql,
             "INSERT OR REPLACE INTO step(aid, step, wall_us, loss, step_us) VALUES (3, %lld, "
             "%lld, %lld, 2000000)",
             (long long)step, (long long)(5 * step), (long long)step);
    OK(bt_sql_exec(b->db, b->path, sql, err));
    for (int k = 0; k < n_ranks; k++) {
        snprintf(sql, sizeof sql,
                 "INSERT OR REPLACE INTO rank_step(key, step_us) VALUES (%lld, %lld)",
                 (long long)bt_rank_key(3, step, k), (long long)(1000 * (step + 1000 * k)));
        OK(bt_sql_exec(b->db, b->path, sql, err));
    }
}

static int64_t count_blocks(base *b, int kind, int level) {
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM roll WHERE key >= %lld AND key < %lld",
             (long long)bt_roll_key(3, kind, level, 0),
             (long long)bt_roll_key(3, kind, level + 1, 0));
    return bt_sql_int(b->db, sql, -1);
}

/* Returns false if the block does not exist. */
static bool read_one_block(base *b, int kind, int level, int64_t at, int rank, int slot,
                           bt_block_stat *out) {
    sqlite3_stmt *st = NULL;
    bt_block_stat all[256];
    bt_rank_block ranks;
    OK(bt_sql_prepare(b->db, b->path, "SELECT data FROM roll WHERE key = ?", &st, err));
    sqlite3_bind_int64(st, 1, bt_roll_key(3, kind, level, at));
    const bool there = sqlite3_step(st) == SQLITE_ROW;
    if (there && kind == BT_ROLL_STEPS) {
        assert_true(bt_roll_decode_steps(sqlite3_column_blob(st, 0),
                                         (size_t)sqlite3_column_bytes(st, 0), all,
                                         b->slots.n_steps));
        *out = all[slot];
    } else if (there) {
        assert_true(bt_roll_decode_ranks(sqlite3_column_blob(st, 0),
                                         (size_t)sqlite3_column_bytes(st, 0), &ranks));
        assert_int_equal(ranks.full, level > 1);
        assert_int_equal(ranks.n_slots, b->slots.n_ranks);
        bt_rank_block_stat(&ranks, rank, slot, out);
    }
    sqlite3_finalize(st);
    return there;
}

/* The sum of the whole numbers first to end - 1. */
static double sum_of(int64_t first, int64_t end) {
    return (double)(end * (end - 1) - first * (first - 1)) / 2;
}

/* Compares each complete block with sums computed by hand. */
static void check_blocks(base *b, int64_t steps, int n_ranks) {
    const int loss = b->slots.step[BT_MS_LOSS], seconds = b->slots.step[BT_MS_STEP_TIME],
              ms = b->slots.rank[BT_MR_STEP_TIME];
    for (int level = 1; level <= 3; level++) {
        const int64_t size = INT64_C(1) << (4 * level), closed = (steps - 1) / size;
        assert_int_equal(count_blocks(b, BT_ROLL_STEPS, level), closed);
        assert_int_equal(count_blocks(b, BT_ROLL_RANKS, level), closed);
        for (int64_t k = 0; k < closed; k++) {
            const int64_t from = k * size, end = from + size;
            const double n = (double)size, a = (double)from, z = (double)(end - 1);
            bt_block_stat s;
            assert_true(read_one_block(b, BT_ROLL_STEPS, level, k, 0, loss, &s));
            assert_block_stat(&s, n, a, z, a, z, sum_of(from, end));
            assert_true(read_one_block(b, BT_ROLL_STEPS, level, k, 0, 0, &s));
            assert_block_stat(&s, n, 5 * a, 5 * z, 5 * a, 5 * z, 5 * sum_of(from, end));
            assert_true(read_one_block(b, BT_ROLL_STEPS, level, k, 0, seconds, &s));
            assert_block_stat(&s, n, 2000, 2000, 2000, 2000, 2000 * n);
            assert_true(
                read_one_block(b, BT_ROLL_STEPS, level, k, 0, b->slots.step[BT_MS_MFU], &s));
            assert_block_stat(&s, 0, 0, 0, 0, 0, 0);
            for (int r = 0; r < n_ranks; r++) {
                const double more = 1000 * r, mean = (a + z) / 2 + more;
                assert_true(read_one_block(b, BT_ROLL_RANKS, level, k, r, ms, &s));
                if (level == 1)
                    assert_block_stat(&s, n, mean, mean, mean, mean, n * mean);
                else
                    assert_block_stat(&s, n, a + more, z + more, a + more, z + more,
                                      sum_of(from, end) + n * more);
            }
            assert_true(read_one_block(b, BT_ROLL_RANKS, level, k, n_ranks, ms, &s));
            assert_block_stat(&s, 0, 0, 0, 0, 0, 0);
            assert_true(read_one_block(b, BT_ROLL_RANKS, level, k, 0, b->slots.n_ranks, &s));
            assert_block_stat(&s, 0, 0, 0, 0, 0, 0);
        }
    }
}

static void blocks_of_a_small_run(void **state) {
    base one, *b = &one;
    open_base(b, *state);
    assert_int_equal(bt_roll_newest(b->roll), -1);
    OK(bt_sql_exec(b->db, b->path, "BEGIN", err));
    for (int64_t step = 0; step < 300; step++) {
        add_step(b, step, 2);
        if (step == 15)
            assert_int_equal(count_blocks(b, BT_ROLL_STEPS, 1), 0); /* The block is incomplete. */
        if (step == 16) assert_int_equal(count_blocks(b, BT_ROLL_STEPS, 1), 1);
        if (step == 255) assert_int_equal(count_blocks(b, BT_ROLL_STEPS, 2), 0);
        if (step % 37 == 5) bt_roll_forget(b->roll); /* after a failed transaction */
    }
    check_blocks(b, 300, 2);
    /* The run goes back to the middle of a block, to its first step, and to the step before it. */
    static const int64_t back[] = {290, 288, 287, 256, 255, 17, 0};
    for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
        char sql[200];
        snprintf(sql, sizeof sql,
                 "DELETE FROM step WHERE step >= %lld; DELETE FROM rank_step WHERE key >= %lld",
                 (long long)back[i], (long long)bt_rank_key(3, back[i], 0));
        OK(bt_sql_exec(b->db, b->path, sql, err));
        add_step(b, back[i], 2);
        check_blocks(b, back[i] + 1, 2);
        for (int64_t step = back[i] + 1; step < 300; step++) add_step(b, step, 2);
        check_blocks(b, 300, 2);
    }
    OK(bt_sql_exec(b->db, b->path, "DELETE FROM roll WHERE key % 3 = 1", err));
    OK(bt_roll_rebuild(b->roll, 3, err));
    assert_int_equal(bt_roll_newest(b->roll), 299);
    check_blocks(b, 300, 2);
    OK(bt_sql_exec(b->db, b->path, "COMMIT", err));
    /* A new attempt has no blocks. */
    bt_roll_start(b->roll, 4);
    assert_int_equal(bt_roll_newest(b->roll), -1);
    close_base(b);
}

/* Formats the steps of each block and its number of ranks: "0-15:0 16-31:3". */
static bool format_block(void *ctx, const bt_block *x) {
    const size_t n = strlen(ctx);
    snprintf((char *)ctx + n, 200 - n, "%s%d-%d:%d", n ? " " : "", (int)x->step0, (int)x->step1,
             x->n_ranks);
    return true;
}

static void check_walk(const char *path, bool ranks, int64_t most, const char *want) {
    char told[200] = "";
    bt_db *db = NULL;
    OK(bt_db_open(&db, path, err));
    OK(bt_blocks_walk(db,
                      &(bt_blocks_request){
                          .run = "a", .step0 = 0, .step1 = 34, .max_steps = most, .ranks = ranks},
                      format_block, told, err));
    assert_string_equal(told, want);
    bt_db_close(db);
}

static void ranks_may_be_recorded_later(void **state) {
    base one, *b = &one;
    bt_block_stat s;
    open_base(b, *state);
    OK(bt_sql_exec(b->db, b->path, "BEGIN", err));
    for (int64_t step = 0; step < 33; step++) add_step(b, step, step < 16 ? 0 : step < 20 ? 1 : 3);
    assert_int_equal(count_blocks(b, BT_ROLL_STEPS, 1), 2);
    assert_int_equal(count_blocks(b, BT_ROLL_RANKS, 1), 1);
    const int ms = b->slots.rank[BT_MR_STEP_TIME];
    assert_false(read_one_block(b, BT_ROLL_RANKS, 1, 0, 0, ms, &s));
    assert_true(read_one_block(b, BT_ROLL_RANKS, 1, 1, 0, ms, &s));
    assert_block_stat(&s, 16, 23.5, 23.5, 23.5, 23.5, 16 * 23.5);
    assert_true(read_one_block(b, BT_ROLL_RANKS, 1, 1, 2, ms, &s));
    assert_block_stat(&s, 12, 2025.5, 2025.5, 2025.5, 2025.5, 12 * 2025.5);
    for (int64_t step = 33; step < 35; step++) add_step(b, step, step == 33 ? 3 : 0);
    OK(bt_sql_exec(b->db, b->path, "COMMIT", err));
    close_base(b);
    /* Steps without ranks have none, and neither has any step in a query without ranks. */
    check_walk(b->path, true, 16, "0-15:0 16-31:3 32-32:3 33-33:3 34-34:0");
    check_walk(b->path, false, 16, "0-15:0 16-31:0 32-32:0 33-33:0 34-34:0");
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_add_up),
                                       cmocka_unit_test(keys_are_adjacent),
                                       TEST(blocks_of_a_small_run),
                                       TEST(ranks_may_be_recorded_later)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
