/* run_query.h - private to store/export/: runs a composed query. */
#ifndef BT_STORE_EXPORT_RUN_QUERY_H
#define BT_STORE_EXPORT_RUN_QUERY_H

#include "engine/base/text.h"
#include "store/store.h"

/* Runs a query that was composed in `sql`; BT_NOMEM if `sql` ran out of memory. */
static inline bt_code bt_export_query(bt_db *db, const bt_text *sql, const char *const *params,
                                      int n_params, bt_row_fn fn, void *ctx, bt_err *err) {
    const bt_query q = {.sql = bt_text_str(sql), .params = params, .n_params = n_params};
    return sql->failed ? bt_fail(err, BT_NOMEM, "cannot export: out of memory")
                       : bt_db_query(db, &q, fn, ctx, err);
}

#endif
