/* put_row.c - runs a statement once with bound texts and integers. */
#include "store/sql/sql.h"

bt_code bt_sql_put_row(sqlite3 *db, const char *path, const char *sql, const char *types,
                       const char *const *texts, const int64_t *ints, bt_err *err) {
    sqlite3_stmt *st = NULL;
    BT_TRY(bt_sql_prepare(db, path, sql, &st, err));
    for (int i = 0; types[i]; i++) {
        if (types[i] == 'i')
            sqlite3_bind_int64(st, i + 1, *ints++);
        else {
            const char *t = *texts++;
            if (t) sqlite3_bind_text(st, i + 1, t, -1, SQLITE_STATIC);
        }
    }
    int rc = sqlite3_step(st);
    bt_code code = rc == SQLITE_DONE ? BT_OK : bt_sql_fail(db, rc, path, "write", err);
    sqlite3_finalize(st);
    return code;
}
