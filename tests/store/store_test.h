/* store_test.h - helpers for the tests of store/: a temporary folder, and records with known values. */
#ifndef BT_TESTS_STORE_TEST_H
#define BT_TESTS_STORE_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>
#include <cmocka.h>

#include "engine/base/clock.h"
#include "store/store.h"

typedef struct bt_tmp {
    char dir[64], db[96];
} bt_tmp;

static inline int bt_tmp_make(void **state) {
    bt_tmp *t = calloc(1, sizeof *t);
    strcpy(t->dir, "/tmp/bt_store_XXXXXX");
    if (!t || !mkdtemp(t->dir)) return -1;
    snprintf(t->db, sizeof t->db, "%s/m.db", t->dir);
    *state = t;
    return 0;
}

static inline int bt_tmp_drop(void **state) {
    bt_tmp *t = *state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", t->dir);
    int rc = system(cmd);
    free(t);
    return rc == 0 ? 0 : -1;
}

#define OK(call) \
    do { \
        bt_err ok_e_ = BT_ERR_INIT, *err = &ok_e_; \
        bt_code ok_c_ = (call); \
        if (ok_c_ != BT_OK) fail_msg("%s: %s: %s", #call, bt_code_name(ok_c_), ok_e_.msg); \
    } while (0)

/* Returns the value of metric i at a step. Its stored unit represents it exactly. */
static inline double bt_truth(int64_t step, int i) { return (1000 + (double)step * 100 + i) / 8.0; }
static inline double bt_rank_truth(int64_t step, int rank, int i) {
    return (4000 + (double)step * 64 + rank * 8 + i) / 8.0;
}

typedef struct bt_fake {
    double values[BT_MS_COUNT], ranks[16 * BT_MR_COUNT];
    bt_step_record r;
} bt_fake;

static inline const bt_step_record *bt_fake_step(bt_fake *f, int64_t step, int n_ranks) {
    for (int i = 0; i < BT_MS_COUNT; i++) f->values[i] = bt_truth(step, i);
    for (int k = 0; k < n_ranks; k++) {
        for (int i = 0; i < BT_MR_COUNT; i++)
            f->ranks[k * BT_MR_COUNT + i] = bt_rank_truth(step, k, i);
    }
    f->r = (bt_step_record){.step = step,
                            .wall_us = bt_wall_us(),
                            .values = f->values,
                            .n_ranks = n_ranks,
                            .rank_values = f->ranks};
    return &f->r;
}

static inline bt_run_start bt_fake_run(const char *name) {
    return (bt_run_start){.name = name,
                          .reason = "start",
                          .argv = "bitrain train",
                          .config_json = "{\"train.steps\":{\"value\":10,\"origin\":\"flag\"}}",
                          .host = "here",
                          .user = "me",
                          .build = "test",
                          .mpi = "none",
                          .note = "",
                          .out_dir = "/tmp",
                          .world_size = 2,
                          .seed = 1,
                          .pid = (int)getpid()};
}

static inline void run_sql(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    char *why = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) fail_msg("%s: %s", sql, why);
    sqlite3_close(db);
}

/* Returns all rows of a query: cells separated by '|', NULL as "-", one line per row. The caller frees the text. */
static inline char *bt_table(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    while (sqlite3_step(st) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(st); i++) {
            const char *cell = (const char *)sqlite3_column_text(st, i);
            fprintf(out, "%s%s", i ? "|" : "", cell ? cell : "-");
        }
        fputc('\n', out);
    }
    sqlite3_finalize(st);
    sqlite3_close(db);
    fclose(out);
    return text;
}

static inline void bt_table_is(const char *path, const char *sql, const char *want) {
    char *text = bt_table(path, sql);
    assert_string_equal(text, want);
    free(text);
}

static inline double bt_number(const char *path, const char *sql, const char *run) {
    bt_db *db = NULL;
    double v = NAN;
    OK(bt_db_open(&db, path, err));
    OK(bt_db_value(db, sql, run, &v, err));
    bt_db_close(db);
    return v;
}

static inline bool bt_keep_text(void *ctx, const bt_row *row) {
    snprintf(ctx, 512, "%s", row->cells[0] ? row->cells[0] : "NULL");
    return false;
}

static inline const char *bt_word(const char *path, const char *sql, const char *run) {
    static char out[512];
    bt_db *db = NULL;
    out[0] = 0;
    OK(bt_db_open(&db, path, err));
    OK(bt_db_query(db, &(bt_query){.sql = sql, .params = &run, .n_params = 1}, bt_keep_text, out,
                   err));
    bt_db_close(db);
    return out;
}

#endif
