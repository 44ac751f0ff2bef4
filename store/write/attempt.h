/* attempt.h - private to store/: the rows that begin and end an attempt of a run. Requires a transaction. */
#ifndef BT_STORE_WRITE_ATTEMPT_H
#define BT_STORE_WRITE_ATTEMPT_H

#include "store/sql/sql.h"
#include "store/store.h"

typedef struct bt_attempt {
    int64_t run, aid, created_us; /* run.id, attempt.id, beginning of the run */
    int attempt;
} bt_attempt;

/* remember: bt_start_withdraw can restore the rows of a resumed run. */
bt_code bt_attempt_begin(sqlite3 *db, const char *path, const bt_run_start *s, bool remember,
                         bt_attempt *out, bt_err *err) BT_MUST_CHECK;
/* Begins the next attempt of a live run, with the number a->attempt; a->created_us is the run's. Sets a->run and
 * a->aid, and creates these rows if a replaced database lacks them. */
bt_code bt_attempt_follow(sqlite3 *db, const char *path, const bt_run_start *s, bt_attempt *a,
                          bt_err *err) BT_MUST_CHECK;
bt_code bt_attempt_end(sqlite3 *db, const char *path, const bt_attempt *a, const char *state,
                       const char *exit_kind, int exit_code, int64_t now_us, bt_err *err)
    BT_MUST_CHECK;
/* After the loss of the file: finds the rescued rows of this attempt and recreates missing ones; run and aid may
 * change. */
bt_code bt_attempt_restore(sqlite3 *db, const char *path, const bt_run_start *s, bt_attempt *a,
                           bt_err *err) BT_MUST_CHECK;

/* Makes a deep copy; release accepts an all-zero struct. */
bt_code bt_run_start_copy(bt_run_start *out, const bt_run_start *s, bt_err *err) BT_MUST_CHECK;
void bt_run_start_release(bt_run_start *s);

#endif
