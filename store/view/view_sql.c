/* view_sql.c - numeric queries for the view model with cached prepared statements. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/sql/sql.h"
#include "store/view/view_impl.h"

static bt_code cached_statement(bt_view_impl *m, const char *sql, sqlite3_stmt **out, bt_err *err) {
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

static bt_code begin_view_query(bt_view_impl *m, const char *sql, const char *run,
                                const double *args, int n_args, sqlite3_stmt **out, int *n,
                                bt_err *err) {
    BT_TRY(cached_statement(m, sql, out, err));
    if (run) sqlite3_bind_text(*out, 1, run, -1, SQLITE_STATIC);
    for (int i = 0; i < n_args; i++) {
        if (args[i] == floor(args[i]) && fabs(args[i]) < 9e15)
            sqlite3_bind_int64(*out, i + 2, (int64_t)args[i]);
        else
            sqlite3_bind_double(*out, i + 2, args[i]);
    }
    *n = sqlite3_column_count(*out);
    if (*n > BT_VQ_COLUMNS) *n = BT_VQ_COLUMNS;
    return BT_OK;
}

/* A reset ends the read transaction, so no lock is held between loads. */
static bt_code finish_view_query(bt_view_impl *m, sqlite3_stmt *st, int rc, bt_err *err) {
    bt_code code = rc == SQLITE_DONE
                       ? BT_OK
                       : bt_sql_fail(bt_db_handle(m->db), rc, bt_db_path(m->db), "read", err);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return code;
}

static double column_as_number(sqlite3_stmt *st, int i, int type) {
    return type == SQLITE_INTEGER || type == SQLITE_FLOAT ? sqlite3_column_double(st, i) : NAN;
}

bt_code bt_vq_each(bt_view_impl *m, const char *sql, const char *run, const double *args,
                   int n_args, bt_vq_fn fn, void *ctx, bt_err *err) {
    sqlite3_stmt *st = NULL;
    double col[BT_VQ_COLUMNS];
    int n, rc;
    BT_TRY(begin_view_query(m, sql, run, args, n_args, &st, &n, err));
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        for (int i = 0; i < n; i++) col[i] = column_as_number(st, i, sqlite3_column_type(st, i));
        if (fn(ctx, col, n)) continue;
        rc = SQLITE_DONE;
        break;
    }
    return finish_view_query(m, st, rc, err);
}

bt_code bt_vq_rows(bt_view_impl *m, const char *sql, const char *run, const double *args,
                   int n_args, bt_row_fn fn, void *ctx, bt_err *err) {
    sqlite3_stmt *st = NULL;
    const char *cell[BT_VQ_COLUMNS];
    double num[BT_VQ_COLUMNS];
    int n, rc;
    BT_TRY(begin_view_query(m, sql, run, args, n_args, &st, &n, err));
    const bt_row row = {.n = n, .cells = cell, .nums = num};
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        for (int i = 0; i < n; i++) {
            int type = sqlite3_column_type(st, i);
            num[i] = column_as_number(st, i, type);
            cell[i] = type == SQLITE_TEXT ? (const char *)sqlite3_column_text(st, i) : NULL;
        }
        if (fn(ctx, &row)) continue;
        rc = SQLITE_DONE;
        break;
    }
    return finish_view_query(m, st, rc, err);
}

typedef struct one_row {
    double *out;
    int n;
} one_row;

static bool read_view_row(void *ctx, const double *col, int n) {
    one_row *o = ctx;
    for (int i = 0; i < o->n && i < n; i++) o->out[i] = col[i];
    return false;
}

bt_code bt_vq_row(bt_view_impl *m, const char *sql, const char *run, const double *args, int n_args,
                  double *out, int n_out, bt_err *err) {
    for (int i = 0; i < n_out; i++) out[i] = NAN;
    one_row o = {out, n_out};
    return bt_vq_each(m, sql, run, args, n_args, read_view_row, &o, err);
}

void bt_vq_release(bt_view_impl *m) {
    for (int i = 0; i < m->n_statements; i++) {
        sqlite3_finalize(m->statement[i].stmt);
        free(m->statement[i].sql);
    }
    m->n_statements = 0;
}

bt_code bt_view_sql(char **keep, bt_text *sql, bt_err *err) {
    *keep = sql->failed ? NULL : strdup(bt_text_str(sql));
    bt_text_release(sql);
    return *keep ? BT_OK : bt_fail(err, BT_NOMEM, "cannot build a query: out of memory");
}
