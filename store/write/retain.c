/* retain.c - deletes one chunk of old rank rows at a time. */

#include <stdio.h>

#include "store/write/retain.h"
#include "store/write/rollup.h"

static int run_bound_statement(sqlite3 *db, const char *sql, int64_t a, int64_t b, int64_t c) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    const int64_t args[] = {a, b, c};
    for (int i = 0; rc == SQLITE_OK && i < sqlite3_bind_parameter_count(st); i++)
        // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): no statement has more than three parameters
        sqlite3_bind_int64(st, i + 1, args[i]);
    if (rc == SQLITE_OK) rc = sqlite3_step(st);
    sqlite3_finalize(st);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int64_t read_bound_integer(sqlite3 *db, const char *sql, int64_t a, int64_t otherwise) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK) sqlite3_bind_int64(st, 1, a);
    if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW &&
        sqlite3_column_type(st, 0) != SQLITE_NULL)
        otherwise = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return otherwise;
}

/* Keeps old rows around warnings, errors and restarts. */
static const char *const drop_sql =
    "DELETE FROM rank_step WHERE key >= ?1 AND key < ?2 AND NOT EXISTS (SELECT 1 FROM event e "
    "WHERE e.aid = ?3 AND e.level > 0"
    " AND (rank_step.key >> 16) & 0x3fffffff BETWEEN e.step - 200 AND e.step + 200)";

/* True if the file has the ranks' summaries of these steps. */
static bool are_summaries_stored(sqlite3 *db, int64_t aid, int64_t from, int64_t end) {
    char sql[400];
    snprintf(sql, sizeof sql,
             "SELECT (SELECT count(DISTINCT key >> 20) FROM rank_step WHERE key >= %lld AND key < "
             "%lld) <="
             " (SELECT count(*) FROM roll WHERE key >= %lld AND key < %lld)",
             (long long)bt_rank_key_end(aid, from), (long long)bt_rank_key_end(aid, end),
             (long long)bt_roll_key(aid, BT_ROLL_RANKS, 1, from >> BT_ROLL_SHIFT),
             (long long)bt_roll_key(aid, BT_ROLL_RANKS, 1, end >> BT_ROLL_SHIFT));
    return bt_sql_int(db, sql, 0) > 0;
}

int bt_retain_chunk(sqlite3 *db, int64_t aid, int64_t newest, bool *more, int64_t *rows) {
    *more = false;
    int64_t keep = bt_sql_int(db, "SELECT value FROM meta WHERE key = 'keep_rank_steps'", 0);
    int64_t from = read_bound_integer(db, "SELECT raw_from FROM attempt WHERE id = ?", aid,
                                      INT64_MAX);
    if (keep <= 0 || from > newest - keep - BT_RETAIN_CHUNK) return SQLITE_OK;
    /* Skips missing steps: a resumed attempt begins late. */
    int64_t first =
        read_bound_integer(db,
                           "SELECT (min(key) >> 16) & 0x3fffffff FROM rank_step WHERE key >= ?1 "
                           "<< 46 AND key < (?1 + 1) << 46",
                           aid, newest);
    if (from == 0 && first > from) from = first / BT_RETAIN_CHUNK * BT_RETAIN_CHUNK;
    int64_t end = (from / BT_RETAIN_CHUNK + 1) * BT_RETAIN_CHUNK;
    if (end > newest - keep) return SQLITE_OK;
    if (!are_summaries_stored(db, aid, from, end)) return SQLITE_OK;
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    rc = run_bound_statement(db, drop_sql, bt_rank_key_end(aid, from), bt_rank_key_end(aid, end),
                             aid);
    if (rc == SQLITE_OK) *rows += sqlite3_changes64(db);
    if (rc == SQLITE_OK)
        rc = run_bound_statement(db, "UPDATE attempt SET raw_from = ?2 WHERE id = ?1", aid, end, 0);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    *more = rc == SQLITE_OK && end + BT_RETAIN_CHUNK <= newest - keep;
    return rc;
}
