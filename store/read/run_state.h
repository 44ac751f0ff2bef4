/* run_state.h - the state of a run from its row and the process that owns it, and the end of its
 * ledger. Screens, commands, filters and SQL use these functions.
 * Threads:  any. */
#ifndef BT_STORE_READ_RUN_STATE_H
#define BT_STORE_READ_RUN_STATE_H

#include "engine/base/tables/verb.h"
#include "store/ledger/ledger.h"

/* Returns the state in the file, or "lost" if the run is live by its row but its process (pid, on this host) has
 * ended. Processes of other hosts are not checked. */
const char *bt_run_state_word(const char *state, const char *host, int64_t pid);

/* state: result of bt_run_state_word; age_s: time since the newest record; step_s: usual step time, NaN: unknown;
 * attempt_ended: no attempt is open. */
bt_run_state bt_run_state_of(const char *state, double age_s, double step_s, bool attempt_ended);

/* Returns the current time by the clock of the run's record (engine/base/clock.h), in microseconds since 1970; run:
 * run.id. */
int64_t bt_run_now_us(sqlite3 *db, int64_t run);

/* Returns the end of the ledger for a run in this state, and whether the time since the newest record counts as
 * training; after that record nothing is known about a lost run. */
bt_ledger_until bt_run_until(bt_run_state state, int64_t now_us);

#endif
