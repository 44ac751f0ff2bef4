/* live_runs.h - private to store/: the view `runs` as readers see it.
 *
 * The row of a run that has not ended tells its time up to the newest record, and cannot know that its process
 * is gone. In front of the file's view stands a TEMP view of the same name that tells the state by the process
 * (run_state.h), and duration, parts and goodput of such a run up to now, all of one instant, so that lists,
 * `show`, filters, lenses and SQL say what the live views say. */
#ifndef BT_STORE_READ_LIVE_RUNS_H
#define BT_STORE_READ_LIVE_RUNS_H

#include "store/sql/sql.h"

/* of SQL: bt_live_s(run, microseconds since 1970, "duration", "goodput" or the key of a part) */
#define BT_LIVE_FUNCTION "bt_live_s"
/* of SQL: run_state(state, host, pid) of the file's row */
#define BT_STATE_FUNCTION "run_state"

/* before the connection is guarded; once a connection */
bt_code bt_live_runs_install(sqlite3 *db, const char *path, bt_err *err) BT_MUST_CHECK;

#endif
