/* ledger.h - divides a run's wall clock: each microsecond from its beginning to an instant
 * belongs to exactly one part of times.def, so the parts add up to the elapsed time.
 *
 * The clock is cut at records with a time, of rank 0 and of the supervisor:
 *   an attempt begins .. `started` or `resumed`      start-up; lost if training never began
 *   .. end of the last step                          steps: done again up to the last step that any
 *                                                    earlier attempt recorded, then productive
 *   .. the attempt ends                              end, if in order; lost if it failed
 *   .. the next attempt begins                       finished if all steps were done; paused after
 *                                                    another end in order; lost otherwise
 * and these intervals override it; the last applicable row wins:
 *   a step whose update was skipped (`bad_step`, `loss_scale`)         lost
 *   `stalled`, and the silence before it, .. `recovered`     lost
 *   `paused` .. `continued`                                  paused
 *   took_ms before an evaluation's event, or a checkpoint's end     validation, checkpoint
 * While the run is alive, the step in progress counts like a finished one.
 *
 * Order:    zeroed or initialised -> read* -> release. `read` reads the events since the
 *           previous read.
 * Owns:     span, valid until the next read.
 * Cost:     O(attempts) look-ups, and one pass over evaluations, checkpoints and pauses in
 *           memory.
 * Threads:  one caller. */
#ifndef BT_STORE_LEDGER_LEDGER_H
#define BT_STORE_LEDGER_LEDGER_H

#include <sqlite3.h>
#include <stdbool.h>

#include "engine/base/tables/time_part.h"
#include "store/store.h"

typedef struct bt_ledger_span {
    int64_t begin_us, end_us; /* since 1970 */
    bt_time_part part;
    int attempt; /* between two attempts: the earlier one */
} bt_ledger_span;

struct bt_ledger_mark;
typedef struct bt_ledger {
    int64_t begin_us, end_us;
    int64_t us[BT_TIME_PARTS]; /* the sum is end_us - begin_us */
    bt_ledger_span
        *span; /* spans in order of time, without gaps; adjacent spans differ in part or attempt */
    size_t n;
    /* cache between two reads */
    size_t cap, n_marks, cap_marks, n_saves, cap_marks_saved;
    struct bt_ledger_mark *mark, *save;
    int64_t run, seen;
} bt_ledger;

/* End of the ledger and the meaning of the time since the newest record of a live run */
typedef struct bt_ledger_until {
    int64_t now_us; /* 0: time of the newest record */
    bool alive;     /* the ranks train; false: the time since the newest record is lost */
} bt_ledger_until;

/* run: run.id. store/read/run_ledger.h finds a run by its name. */
bt_code bt_ledger_read(bt_ledger *l, sqlite3 *db, const char *path, int64_t run,
                       bt_ledger_until until, bt_err *err) BT_MUST_CHECK;
/* Makes the next read start over, after rows were removed or rolled back. */
void bt_ledger_forget(bt_ledger *l);
void bt_ledger_release(bt_ledger *l);

double bt_ledger_s(const bt_ledger *l, bt_time_part part);
/* Productive share of the elapsed time, without the time after the end of the run; NaN: no such time. */
double bt_ledger_goodput(const bt_ledger *l);

/* Stores the parts up to the newest record in the run's row (columns PART_us), for SQL. Requires a transaction. */
bt_code bt_ledger_store(bt_ledger *l, sqlite3 *db, const char *path, int64_t run, bt_err *err)
    BT_MUST_CHECK;
/* Stores the parts of all runs that lack them, from an older bitrain or a rescued file. */
bt_code bt_ledger_store_missing(sqlite3 *db, const char *path, bt_err *err) BT_MUST_CHECK;

#endif
