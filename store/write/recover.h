/* recover.h - private to store/: stores the records of rank 0's ring file as rows of its
 * attempt. */
#ifndef BT_STORE_WRITE_RECOVER_H
#define BT_STORE_WRITE_RECOVER_H

#include "store/write/apply.h"

typedef struct bt_lost {
    const char *run;
    int attempt;
    const bt_record *list;
} bt_lost;

/* Facts are recorded before the first step, so the database has them, or newer ones. */
void bt_recover_drop_facts(bt_record **list);
/* If the attempt is the newest of its run, stores those of its records that the database lacks. The
 * caller holds the lock file. open: id of the attempt that `apply` writes. aid receives the id of
 * the lost attempt, or 0 if nothing was stored; steps receives the number of recovered steps. */
bt_code bt_recover_store(const bt_lost *lost, sqlite3 *db, const char *path, bt_apply *apply,
                         int64_t open, int64_t *aid, int64_t *steps, bt_err *err) BT_MUST_CHECK;

#endif
