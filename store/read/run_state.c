/* run_state.c - derives a run's state from its row, its process, and the age of its records. */
#include "store/read/run_state.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/system/pid.h"
#include "engine/base/tables/verb.h"
#include "store/store.h"

const char *bt_run_state_word(const char *state, const char *host, int64_t pid) {
    char here[BT_HOST_MAX] = "";
    const bool goes_on = strcmp(state, bt_run_states[BT_STATE_RUNNING].name) == 0 ||
                         strcmp(state, bt_run_states[BT_STATE_PAUSED].name) == 0;
    if (!goes_on || pid <= 0 || gethostname(here, sizeof here - 1) != 0 || strcmp(here, host) != 0)
        return state;
    return bt_pid_lives(pid) ? state : bt_run_states[BT_STATE_LOST].name;
}

bt_run_state bt_run_state_of(const char *state, double age_s, double step_s, bool attempt_ended) {
    for (int k = 0; k < BT_STATE_COUNT; k++)
        if (!bt_run_states[k].live && strcmp(state, bt_run_states[k].name) == 0)
            return (bt_run_state)k;
    double quiet = fmax(30, isnan(step_s) ? 30 : 10 * step_s);
    if (attempt_ended) return BT_STATE_RESTARTING;
    if (strcmp(state, bt_run_states[BT_STATE_PAUSED].name) == 0) return BT_STATE_PAUSED;
    return age_s > quiet ? BT_STATE_STALLED : BT_STATE_RUNNING;
}

int64_t bt_run_now_us(sqlite3 *db, int64_t run) {
    sqlite3_stmt *st = NULL;
    int64_t now = bt_wall_us();
    if (sqlite3_prepare_v2(db, "SELECT value FROM main.fact WHERE run = ? AND key = 'clock'", -1,
                           &st, NULL) != SQLITE_OK)
        return now;
    sqlite3_bind_int64(st, 1, run);
    if (sqlite3_step(st) == SQLITE_ROW)
        now = bt_clock_now_us((const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return now;
}

bt_ledger_until bt_run_until(bt_run_state state, int64_t now_us) {
    const bool lost = state == BT_STATE_LOST,
               alive = lost || (bt_run_states[state].live && state != BT_STATE_STALLED);
    return (bt_ledger_until){.now_us = lost ? 0 : now_us, .alive = alive};
}
