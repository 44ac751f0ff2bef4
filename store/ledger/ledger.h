/* ledger.h - what became of a run's wall clock: each microsecond from its beginning to an instant belongs
 * to exactly one part of times.def, so the parts add up to the time elapsed.
 *
 * The clock is cut at records that carry their time, of rank 0 and of the supervisor:
 *   an attempt begins .. `started` or `resumed`      start-up; lost when training never began
 *   .. end of the last step                          steps: done again up to the last step that any
 *                                                    attempt before recorded, productive after it
 *   .. the attempt ends                              end, when in order; lost when it failed
 *   .. the next attempt begins                       ended when all steps were done; paused after
 *                                                    another end in order; lost otherwise
 * and on top of these, latest in this list first to count:
 *   a step whose update was skipped (`bad_step`, `loss_scale`)         lost
 *   `stalled`, and the silence before it, .. `recovered`     lost
 *   `paused` .. `continued`                                  paused
 *   took_ms before an evaluation's event, or a checkpoint's end     validation, checkpoint
 * The step in progress at the instant counts like a finished one while the run is alive.
 *
 * Order:    zeroed or initialised -> read* -> release. `read` reads the events since the read before.
 * Owns:     span, valid until the next read.
 * Cost:     O(attempts) look-ups, and one pass over evaluations, checkpoints and pauses in memory.
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
    int64_t us[BT_TIME_PARTS]; /* they sum to end_us - begin_us */
    bt_ledger_span *span;      /* in order and without gaps; neighbours differ */
    size_t n;
    /* what is kept between two reads */
    size_t cap, n_marks, cap_marks, n_saves, cap_marks_saved;
    struct bt_ledger_mark *mark, *save;
    int64_t run, seen;
} bt_ledger;

/* until when, and how to judge the time since the newest record of a run that has not ended */
typedef struct bt_ledger_until {
    int64_t now_us; /* 0: the newest record */
    bool alive;     /* the ranks are at work; false: that time is lost */
} bt_ledger_until;

/* run: run.id; by the name of a run: store/read/run_ledger.h */
bt_code bt_ledger_read(bt_ledger *l, sqlite3 *db, const char *path, int64_t run,
                       bt_ledger_until until, bt_err *err) BT_MUST_CHECK;
/* rows were removed or rolled back: the next read reads all */
void bt_ledger_forget(bt_ledger *l);
void bt_ledger_release(bt_ledger *l);

double bt_ledger_s(const bt_ledger *l, bt_time_part part);
/* productive share of the time elapsed, less that in which the run had ended; NaN: none has */
double bt_ledger_goodput(const bt_ledger *l);

/* The parts up to the newest record, into the row of the run: columns PART_us, from which SQL
 * answers. Inside a transaction. */
bt_code bt_ledger_store(bt_ledger *l, sqlite3 *db, const char *path, int64_t run, bt_err *err)
    BT_MUST_CHECK;
/* of all runs that have none: of a file by an older bitrain, or saved from a damaged one */
bt_code bt_ledger_store_missing(sqlite3 *db, const char *path, bt_err *err) BT_MUST_CHECK;

#endif
