/* live_runs.h - private to store/: the view `runs` for readers.
 *
 * The row of a live run has its times up to the newest record, and does not show that its
 * process is gone. A TEMP view of the same name replaces the file's view: it computes the state
 * from the process (run_state.h), and duration, parts and goodput of a live run up to now, all
 * at one instant, so that lists, `show`, filters, lenses and SQL agree with the live views. */
#ifndef BT_STORE_READ_LIVE_RUNS_H
#define BT_STORE_READ_LIVE_RUNS_H

#include "store/sql/sql.h"

/* SQL function bt_live_s(run, microseconds since 1970, "duration", "goodput" or the key of a
 * part) */
#define BT_LIVE_FUNCTION "bt_live_s"
/* SQL function run_state(state, host, pid) over the file's row */
#define BT_STATE_FUNCTION "run_state"

/* To be called once per connection, before the query gate is installed. */
bt_code bt_live_runs_install(sqlite3 *db, const char *path, bt_err *err) BT_MUST_CHECK;

#endif
