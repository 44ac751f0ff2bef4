/* run_state.h - the state of a run from its row and the process that owns it, and the end of its
 * ledger. Screens, commands, filters and SQL all use it.
 * Threads:  any. */
#ifndef BT_STORE_READ_RUN_STATE_H
#define BT_STORE_READ_RUN_STATE_H

#include "engine/base/tables/verb.h"
#include "store/ledger/ledger.h"

/* The state in the file, or "lost" for a run that is live by its row but whose process (pid, on
 * this host) is gone. Processes of other hosts are not checked. */
const char *bt_run_state_word(const char *state, const char *host, int64_t pid);

/* state: the result of bt_run_state_word; age_s: time since the newest record; step_s: usual
 * step time, NaN: unknown; attempt_ended: no attempt is open */
bt_run_state bt_run_state_of(const char *state, double age_s, double step_s, bool attempt_ended);

/* Now by the clock of the run's record (engine/base/clock.h), microseconds since 1970; run: run.id */
int64_t bt_run_now_us(sqlite3 *db, int64_t run);

/* End of the ledger for a run in this state, and whether the time since the newest record counts
 * as training: nothing is known about a lost run after that record. */
bt_ledger_until bt_run_until(bt_run_state state, int64_t now_us);

#endif
