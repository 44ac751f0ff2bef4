/* apply.h - private to store/: records into rows of one attempt, and the summary of its run.
 *
 * Order:    open -> (attempt -> (begin -> record* -> commit | rollback)*)* -> close.
 * Whatever a transaction learns (summary, first step) is kept only when it commits: a failed one
 * may be tried again. */
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
/* reads the run's summary, so that a resumed run goes on from it */
bt_code bt_apply_set_attempt(bt_apply *a, const bt_apply_attempt *t, bt_err *err) BT_MUST_CHECK;

/* the attempt has steps already, perhaps: open summaries are read from the file first */
void bt_apply_reread(bt_apply *a);

/* one transaction of many records. SQLITE_OK, or the code that failed it (rolled back, nothing
 * learnt). A record that can never be stored is skipped and counted. */
int bt_apply_transaction(bt_apply *a, const bt_record *list, uint64_t dropped_before);
/* the same with records of which some were stored before: steps up to known_step and events that
 * are there are left out */
int bt_apply_again(bt_apply *a, int64_t known_step, const bt_record *list);
/* the parts of a run's time up to its newest record, into its row; inside the caller's
 * transaction */
bt_code bt_apply_store_times(bt_apply *a, int64_t run, bt_err *err) BT_MUST_CHECK;
/* newest committed step of this attempt, -1: none */
int64_t bt_apply_last_step(const bt_apply *a);
int64_t bt_apply_last_us(const bt_apply *a); /* when it ended, -1: none */
uint64_t bt_apply_skipped(const bt_apply *a);

#endif
