/* dead_runs.h - stores the uncommitted records of killed runs. */
#ifndef BT_STORE_READ_DEAD_RUNS_H
#define BT_STORE_READ_DEAD_RUNS_H

#include "store/store.h"

/* Stores the records of runs of this host that were killed together with their ranks. Does nothing if there are
 * none, or if the writer is busy for wait_s. */
void bt_store_rescue(bt_db *db, double wait_s);

#endif
