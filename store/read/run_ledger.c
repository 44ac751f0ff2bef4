/* run_ledger.c - reads the ledger of a run by its name. */
#include "store/read/run_ledger.h"

#include <math.h>

#include "store/read/run_state.h"
#include "store/sql/sql.h"

static bt_code find_run_id(bt_db *db, const char *run, int64_t *out, bt_err *err) {
    double id;
    BT_TRY(bt_db_value(db, "SELECT id FROM run WHERE name = ?1", run, &id, err));
    if (isnan(id)) return bt_fail(err, BT_NOTFOUND, "no run '%s'", run);
    *out = (int64_t)id;
    return BT_OK;
}

bt_code bt_run_now(bt_db *db, const char *run, int64_t *now_us, bt_err *err) {
    int64_t id = 0;
    BT_TRY(find_run_id(db, run, &id, err));
    *now_us = bt_run_now_us(bt_db_handle(db), id);
    return BT_OK;
}

bt_code bt_run_ledger(bt_ledger *l, bt_db *db, const char *run, bt_ledger_until until,
                      bt_err *err) {
    int64_t id = 0;
    BT_TRY(find_run_id(db, run, &id, err));
    return bt_ledger_read(l, bt_db_handle(db), bt_db_path(db), id, until, err);
}
