/* view_sql.c - numeric queries for the view model: statements are prepared once and kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/sql.h"
#include "store/view_impl.h"

static bt_code statement(bt_view_impl *m, const char *sql, sqlite3_stmt **out, bt_err *err) {
    for (int i = 0; i < m->n_statements; i++) {
        if (strcmp(m->statement[i].sql, sql) == 0) {
            *out = m->statement[i].stmt;
            return BT_OK;
        }
    }
    sqlite3 *db = bt_db_handle(m->db);
    int slot = m->n_statements < BT_VQ_STATEMENTS ? m->n_statements++ : BT_VQ_STATEMENTS - 1;
    sqlite3_finalize(m->statement[slot].stmt);
    free(m->statement[slot].sql);
    m->statement[slot].stmt = NULL;
    m->statement[slot].sql = strdup(sql);
    if (!m->statement[slot].sql) {
        m->n_statements = slot;
        return bt_fail(err, BT_NOMEM, "cannot keep a query: out of memory");
    }
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL);
    m->statement[slot].stmt = st;
    if (rc != SQLITE_OK) {
        free(m->statement[slot].sql);
        m->statement[slot].sql = NULL;
        m->n_statements = slot;
        return bt_sql_fail(db, rc, bt_db_path(m->db), "read", err);
    }
    *out = st;
    return BT_OK;
}

bt_code bt_vq_each(bt_view_impl *m, const char *sql, const char *run, const double *args, int n_args, bt_vq_fn fn, void *ctx, bt_err *err) {
    sqlite3_stmt *st = NULL;
    BT_TRY(statement(m, sql, &st, err));
    if (run) sqlite3_bind_text(st, 1, run, -1, SQLITE_STATIC);
    for (int i = 0; i < n_args; i++) {
        if (args[i] == floor(args[i]) && fabs(args[i]) < 9e15) sqlite3_bind_int64(st, i + 2, (int64_t)args[i]);
        else sqlite3_bind_double(st, i + 2, args[i]);
    }
    int n = sqlite3_column_count(st), rc;
    if (n > BT_VQ_COLUMNS) n = BT_VQ_COLUMNS;
    double col[BT_VQ_COLUMNS];
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        for (int i = 0; i < n; i++) {
            int type = sqlite3_column_type(st, i);
            col[i] = type == SQLITE_INTEGER || type == SQLITE_FLOAT ? sqlite3_column_double(st, i) : NAN;
        }
        if (!fn(ctx, col, n)) {
            rc = SQLITE_DONE;
            break;
        }
    }
    bt_code code = rc == SQLITE_DONE ? BT_OK : bt_sql_fail(bt_db_handle(m->db), rc, bt_db_path(m->db), "read", err);
    sqlite3_reset(st);              /* ends the read transaction: nothing is held between loads */
    sqlite3_clear_bindings(st);
    return code;
}

typedef struct one_row { double *out; int n; } one_row;

static bool take_row(void *ctx, const double *col, int n) {
    one_row *o = ctx;
    for (int i = 0; i < o->n && i < n; i++) o->out[i] = col[i];
    return false;
}

bt_code bt_vq_row(bt_view_impl *m, const char *sql, const char *run, const double *args, int n_args, double *out, int n_out, bt_err *err) {
    for (int i = 0; i < n_out; i++) out[i] = NAN;
    one_row o = {out, n_out};
    return bt_vq_each(m, sql, run, args, n_args, take_row, &o, err);
}

void bt_vq_release(bt_view_impl *m) {
    for (int i = 0; i < m->n_statements; i++) {
        sqlite3_finalize(m->statement[i].stmt);
        free(m->statement[i].sql);
    }
    m->n_statements = 0;
}
