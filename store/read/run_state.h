/* run_state.h - the state of a run, from its row and the process that owns it, and what that says of
 * its time since the newest record. Screens, commands, filters and SQL all ask here.
 * Threads: any. */
#ifndef BT_STORE_READ_RUN_STATE_H
#define BT_STORE_READ_RUN_STATE_H

#include "engine/base/tables/verb.h"
#include "store/ledger/ledger.h"

/* The file's word, or "lost" for a run that goes on by its row but whose process (pid, on this host) is
 * gone, which the file cannot know. Another host's process is not judged. */
const char *bt_run_state_word(const char *state, const char *host, int64_t pid);

/* state: such a word; age_s: since the newest record; step_s: what its steps take, NaN;
 * attempt_ended: no attempt is open */
bt_run_state bt_run_state_of(const char *state, double age_s, double step_s, bool attempt_ended);

/* Now by the clock of the run's record (engine/base/clock.h), microseconds since 1970; run: run.id */
int64_t bt_run_now_us(sqlite3 *db, int64_t run);

/* Up to when the time of a run in this state is counted, and whether the time since the newest record is training:
 * of a lost run nothing is known after that record. */
bt_ledger_until bt_run_until(bt_run_state state, int64_t now_us);

#endif
