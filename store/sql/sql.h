/* sql.h - private to store/: SQLite connections with the program's settings and error messages, the writer lock, the
 * schema.
 *
 * Lock:    FILE.lock, taken with flock around every writing transaction and every WAL checkpoint, so that two processes
 *          never do either at once (SQLite before 3.51.3 can then corrupt a WAL file). The text of the file names the
 *          holder.
 * Schema:  base tables from metrics.def plus the `metric` table inside the file. The views are created from that table,
 *          so a file with more metrics of a newer bitrain keeps its columns. Migrations increase user_version.
 * Threads: a connection and a lock belong to one thread at a time. */
#ifndef BT_STORE_SQL_SQL_H
#define BT_STORE_SQL_SQL_H

#include <math.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "engine/base/status.h"
#include "engine/base/tables/metric.h"
#include "engine/base/text.h"
#include "store/store.h"

/* "bitr" */
enum { BT_SCHEMA_VERSION = 11, BT_APPLICATION_ID = 0x62697472, BT_PATH_BYTES = 1024 };
#define BT_LIVE_FOREVER INT64_MAX /* attempt.live_to of the newest attempt */

/* ---- connection ---- */
/* Creates folders and file without a schema. */
bt_code bt_sql_open_rw(sqlite3 **out, const char *path, bt_err *err) BT_MUST_CHECK;
bt_code bt_sql_open_ro(sqlite3 **out, const char *path, bt_err *err) BT_MUST_CHECK;
/* Converts a result code to an error that names the file: BT_BUSY, BT_FORMAT, BT_IO, BT_NOMEM or BT_DB. */
bt_code bt_sql_fail(sqlite3 *db, int rc, const char *path, const char *doing, bt_err *err);
bt_code bt_sql_exec(sqlite3 *db, const char *path, const char *sql, bt_err *err) BT_MUST_CHECK;
bt_code bt_sql_prepare(sqlite3 *db, const char *path, const char *sql, sqlite3_stmt **out,
                       bt_err *err) BT_MUST_CHECK;
/* Reports the share of the file read by the connection to `to`, until `end`, for statements that read every page
 * about once. *r and *to must live until then. */
typedef struct bt_sql_reading {
    sqlite3 *db;
    const bt_store_progress *to;
    const char *what;
    double pages;
    int before; /* number of pages read at the beginning */
} bt_sql_reading;
void bt_sql_reading_begin(bt_sql_reading *r, sqlite3 *db, const bt_store_progress *to,
                          const char *what);
void bt_sql_reading_end(bt_sql_reading *r);
/* Reads the first cell of the first row; without a row *value is unchanged. */
bt_code bt_sql_get(sqlite3 *db, const char *path, const char *sql, int64_t *value, bt_err *err)
    BT_MUST_CHECK;
/* Reads a cell like bt_sql_get, but a failure counts as no row: do not use it for an id under which rows are
 * written. */
int64_t bt_sql_int(sqlite3 *db, const char *sql, int64_t otherwise);
/* Runs the statement once. types: one letter per parameter, 't' takes the next of texts (NULL allowed), 'i' the next
 * of ints. */
bt_code bt_sql_put_row(sqlite3 *db, const char *path, const char *sql, const char *types,
                       const char *const *texts, const int64_t *ints, bt_err *err) BT_MUST_CHECK;
/* Returns the name of a folder's file system if it does not support WAL, or NULL; kind: bt_file_system_of_path. A
 * FUSE file system is named by its program ("sshfs") if it is a network's, and "FUSE" if a temporary file in the
 * folder shows that processes of this host do not share its memory or locks. */
const char *bt_fs_fault(const char *folder, long kind);
/* Returns the program of a network's FUSE file system on the device major:minor, from lines like those of
 * /proc/self/mountinfo; NULL: none. */
const char *bt_fs_network_fuse(FILE *mounts, unsigned major, unsigned minor);
/* Tests whether mappings, reads, writes and locks of an empty file through descriptor a are visible through b. */
bool bt_fs_shares(int a, int b);

/* Returns a cell as a number; NaN for NULL. */
static inline double bt_sql_number(sqlite3_stmt *st, int i) {
    return sqlite3_column_type(st, i) == SQLITE_NULL ? NAN : sqlite3_column_double(st, i);
}

/* ---- the connection behind a bt_db (query.c) ---- */
sqlite3 *bt_db_handle(bt_db *db);
const char *bt_db_path(const bt_db *db);
/* Between begin and end every query sees the same state, and the file is locked once instead of once per query. */
bt_code bt_db_snapshot(bt_db *db, bt_err *err) BT_MUST_CHECK;
void bt_db_snapshot_end(bt_db *db); /* also without a snapshot */

/* ---- lock ---- */
typedef struct bt_lock {
    int fd;
    char path[BT_PATH_BYTES + 8];
    char me[128]; /* "pid 4711 on host" */
} bt_lock;
bt_code bt_lock_open(bt_lock *l, const char *db_path, bt_err *err) BT_MUST_CHECK;
/* The message of BT_BUSY names the holder. */
bt_code bt_lock_take(bt_lock *l, double wait_s, bt_err *err) BT_MUST_CHECK;
void bt_lock_drop(bt_lock *l);
void bt_lock_close(bt_lock *l); /* accepts fd -1 */

/* ---- schema ---- */
typedef struct bt_column {
    char name[64]; /* for example "step_us" */
    bool integer;
    double scale; /* stored = value * scale */
} bt_column;
/* rank_step.key packs (attempt.id, step, rank) into one integer, which is appended to full pages; a composite key
 * would leave a fifth of them empty. Rows beyond these bounds are not stored and count as dropped. */
enum {
    BT_RANK_BITS = 16,
    BT_STEP_BITS = 30,
    BT_AID_SHIFT = BT_RANK_BITS + BT_STEP_BITS,
    BT_AID_BITS = 63 - BT_AID_SHIFT
};
static inline int64_t bt_rank_key(int64_t aid, int64_t step, int64_t rank) {
    return (int64_t)(((uint64_t)aid << BT_AID_SHIFT) + ((uint64_t)step << BT_RANK_BITS) +
                     (uint64_t)rank);
}
/* Returns the first key of this step or, beyond the last step, of the next attempt. */
static inline int64_t bt_rank_key_end(int64_t aid, int64_t step) {
    int64_t last = INT64_C(1) << BT_STEP_BITS;
    return bt_rank_key(aid, step < last ? step : last, 0);
}
void bt_column_of(bt_scope scope, const bt_metric *m, bt_column *out);
/* INSERT OR REPLACE of the columns before the metrics (bt_scope_fixed of them), then the metrics in table order.
 * STEPS: aid, step, wall_us, flags; PACKED: key; SAMPLED: aid, step and the keys. */
void bt_schema_insert(bt_scope scope, bt_text *sql);
int bt_scope_fixed(bt_scope scope);
/* CREATE TABLE IF NOT EXISTS of a sampled scope, without metrics. */
void bt_schema_create(bt_scope scope, bt_text *sql);
/* Writes the primary key of the scope's table, "aid, step, layer, tensor", each followed by `end` (" DESC"). */
void bt_schema_keys(bt_scope scope, const char *end, bt_text *sql);
/* views.c: drop the views; recreate them; test whether those in the file are current. */
bt_code bt_views_drop(sqlite3 *db, const char *path, bt_err *err) BT_MUST_CHECK;
bt_code bt_views_create(sqlite3 *db, const char *path, bt_err *err) BT_MUST_CHECK;
bt_code bt_views_check(sqlite3 *db, const char *path, bool *differ, bt_err *err) BT_MUST_CHECK;
/* Creates or migrates the schema, and adds tables and columns of new scopes and metrics. Requires the lock.
 * BT_FORMAT: another program's file, or a newer version. */
bt_code bt_schema_apply(sqlite3 *db, const char *path, bt_err *err) BT_MUST_CHECK;
/* Checks that the file is a bitrain database of this version. *outdated: it is older, or lacks a metric of this
 * program. */
bt_code bt_schema_check(sqlite3 *db, const char *path, bool *outdated, bt_err *err) BT_MUST_CHECK;

#endif
