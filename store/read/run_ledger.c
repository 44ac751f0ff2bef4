/* run_ledger.c - the ledger of a run by its name. */
#include "store/read/run_ledger.h"

#include <math.h>

#include "store/sql/sql.h"

bt_code bt_run_ledger(bt_ledger *l, bt_db *db, const char *run, bt_ledger_until until,
                      bt_err *err) {
    double id;
    BT_TRY(bt_db_value(db, "SELECT id FROM run WHERE name = ?1", run, &id, err));
    if (isnan(id)) return bt_fail(err, BT_NOTFOUND, "no run '%s'", run);
    return bt_ledger_read(l, bt_db_handle(db), bt_db_path(db), (int64_t)id, until, err);
}
