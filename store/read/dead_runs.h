/* dead_runs.h - what killed runs recorded and nobody committed. */
#ifndef BT_STORE_READ_DEAD_RUNS_H
#define BT_STORE_READ_DEAD_RUNS_H

#include "store/store.h"

/* a reader's courtesy: runs of this host that were killed together with their ranks have records
 * that never became rows; they do now. Does nothing where there are none, or when the writer is
 * busy for wait_s */
void bt_store_rescue(bt_db *db, double wait_s);

#endif
