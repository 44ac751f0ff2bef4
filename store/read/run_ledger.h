/* run_ledger.h - the ledger of a run by its name, for readers. */
#ifndef BT_STORE_READ_RUN_LEDGER_H
#define BT_STORE_READ_RUN_LEDGER_H

#include "store/ledger/ledger.h"

/* BT_NOTFOUND: no such run. Zero l before the first call; the caller releases it. */
bt_code bt_run_ledger(bt_ledger *l, bt_db *db, const char *run, bt_ledger_until until, bt_err *err)
    BT_MUST_CHECK;
/* Returns the current time by the clock of the run's record (engine/base/clock.h), in microseconds since 1970.
 * BT_NOTFOUND: no such run. */
bt_code bt_run_now(bt_db *db, const char *run, int64_t *now_us, bt_err *err) BT_MUST_CHECK;

#endif
