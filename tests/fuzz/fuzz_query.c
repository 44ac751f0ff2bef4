/* fuzz_query.c - arbitrary text as an SQL statement of `bitrain query` and the dashboard: executed or refused in
 * bounded time, without any change of the database or the disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"
#include "tests/fuzz/fuzz_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char path[96];
static bt_db *db;
static struct stat before;

static void close_db(void) { bt_db_close(db); }

static void open_fuzz_database(void) {
    bt_err err = BT_ERR_INIT;
    bt_writer *w;
    atexit(close_db); /* runs before the folder is removed */
    snprintf(path, sizeof path, "%s/m.db", dir);
    const bt_run_start start = {
        .name = "fuzz", .reason = "start", .out_dir = dir, .argv = "fuzz", .config_json = "{}"};
    int attempt;
    if (bt_writer_open(&w, path, 5, &err) != BT_OK ||
        bt_writer_begin(w, &start, &attempt, &err) != BT_OK)
        abort();
    if (bt_writer_end(w, "done", "", 0, &err) != BT_OK) abort();
    bt_writer_close(w);
    if (bt_db_open(&db, path, &err) != BT_OK || stat(path, &before) != 0) abort();
}

static bool on_row(void *ctx, const bt_row *r) {
    size_t *sum = ctx;
    for (int i = 0; i < r->n; i++) *sum += r->cells[i] ? strlen(r->cells[i]) : 0;
    return true;
}

/* SQLite writes a precision of 2000000000 byte by byte in one operation, which only the end of its process interrupts
 * (web/api/query_process.h, tested in tests/web/test_contracts.c). Such statements are skipped here. */
static bool takes_long(const char *sql) {
    if (!strcasestr(sql, "printf") && !strcasestr(sql, "format")) return false;
    for (const char *p = sql; *p; p++)
        if (strspn(p, "0123456789") > 6) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    bt_err err = BT_ERR_INIT;
    struct stat now;
    size_t sum = 0;
    if (make_dir()) open_fuzz_database();
    char *sql = malloc(n + 1);
    memcpy(sql, data, n);
    sql[n] = '\0';
    const bt_query q = {.sql = sql, .max_rows = 20, .max_s = 0.2};
    if (!takes_long(sql) && bt_db_query(db, &q, on_row, &sum, &err) != BT_OK && !err.msg[0])
        abort();
    free(sql);
    if (stat(path, &now) != 0 || now.st_size != before.st_size ||
        memcmp(&now.st_mtim, &before.st_mtim, sizeof now.st_mtim) != 0)
        abort();
    return 0;
}
