/* apply.h - private to store/: stores records as rows of one attempt, and the summary of its
 * run.
 * Order:    open -> (attempt -> (begin -> record* -> commit | rollback)*)* -> close. State that
 *           a transaction changes (summary, first step) is kept only when it commits, so a
 *           failed one may be repeated. */
#ifndef BT_STORE_WRITE_APPLY_H
#define BT_STORE_WRITE_APPLY_H

#include <sqlite3.h>

#include "store/record/record.h"
#include "store/sql/sql.h"

typedef struct bt_apply bt_apply;

typedef struct bt_apply_attempt {
    int64_t run, aid, from_step;
    int attempt;
} bt_apply_attempt;

bt_code bt_apply_open(bt_apply **out, sqlite3 *db, const char *path, bt_err *err) BT_MUST_CHECK;
void bt_apply_close(bt_apply *a);
/* Reads the run's summary, so that a resumed run continues it. */
bt_code bt_apply_set_attempt(bt_apply *a, const bt_apply_attempt *t, bt_err *err) BT_MUST_CHECK;

/* Reads the open summaries from the file again, for an attempt that may already have steps. */
void bt_apply_reread(bt_apply *a);

/* Stores many records in one transaction. Returns SQLITE_OK, or the code of the failure (rolled back, no state
 * changed). A record that can never be stored is skipped and counted. */
int bt_apply_transaction(bt_apply *a, const bt_record *list, uint64_t dropped_before);
/* Stores records that may have been stored before: skips steps up to known_step and existing events. */
int bt_apply_again(bt_apply *a, int64_t known_step, const bt_record *list);
/* Stores the parts of a run's time up to its newest record in its row. Requires a transaction. */
bt_code bt_apply_store_times(bt_apply *a, int64_t run, bt_err *err) BT_MUST_CHECK;
/* Returns the newest committed step of this attempt, -1: none. */
int64_t bt_apply_last_step(const bt_apply *a);
int64_t bt_apply_last_us(const bt_apply *a); /* end of the newest step; -1: none */
uint64_t bt_apply_skipped(const bt_apply *a);

#endif
