/* attempt_change.h - private to store/: the end of an attempt and the beginning of the next one as records of the
 * writer's queue.
 *
 * The writer's thread executes them in order with the surrounding records, so a run whose database is full or locked
 * restarts without waiting for it. Such a record never leaves the process. */
#ifndef BT_STORE_WRITE_ATTEMPT_CHANGE_H
#define BT_STORE_WRITE_ATTEMPT_CHANGE_H

#include <sys/types.h>

#include "store/record/record.h"
#include "store/write/apply.h"
#include "store/write/attempt.h"

typedef struct bt_attempt_change {
    bool ends; /* true: the record ends an attempt; false: it begins one */
    int64_t us;
    /* if `ends`: */
    char state[16], exit_kind[64];
    int exit_code;
    bt_record *lost; /* records of rank 0's ring file; owned */
    int lost_attempt;
    char ring[BT_PATH_BYTES]; /* ring file and its inode; "": none */
    ino_t ring_inode;
    /* otherwise: */
    bt_run_start start; /* owned copy */
    int attempt;
} bt_attempt_change;

/* Returns a record that owns t; NULL if out of memory (t is freed). */
bt_record *bt_attempt_change_record(bt_attempt_change *t);
/* Returns NULL for an ordinary record. */
bt_attempt_change *bt_attempt_change_of(const bt_record *r);
/* accepts NULL */
void bt_attempt_change_free(bt_attempt_change *t);
/* Frees a list that may contain such records. */
void bt_attempt_changes_free(bt_record *list);
/* Reads the ring file into t. BT_OK also if there is none. */
bt_code bt_turn_read_ring(bt_attempt_change *t, const char *path, bt_err *err) BT_MUST_CHECK;
/* Stores the change in separate transactions, under the lock file. at: the open attempt, in: before the change, out:
 * after it. The call may be repeated after a failure. */
bt_code bt_attempt_change_apply(bt_attempt_change *t, sqlite3 *db, const char *path,
                                bt_apply *apply, bt_attempt *at, bt_err *err) BT_MUST_CHECK;

#endif
