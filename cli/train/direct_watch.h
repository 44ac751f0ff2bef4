/* direct_watch.h - the ranks of a host watch each other where no supervisor does: with one of them dead
 * the others would wait in MPI until their launcher ends them.
 *
 * A thread holds a pidfd of every other rank of this host. When one has gone while the watch is open,
 * and this rank does not leave by itself in the next moment, the lowest rank of this host that is left
 * says so, rank 0 records the end of the run as failed, and the process ends with BT_LOST_RANK_EXIT.
 * Ranks on other hosts, or behind another pid namespace, are left to the launcher.
 * Order:    open (all ranks of the world together) -> close, before MPI ends.
 * Threads:  the training thread opens and closes. */
#ifndef BT_CLI_TRAIN_DIRECT_WATCH_H
#define BT_CLI_TRAIN_DIRECT_WATCH_H

#include "engine/base/status.h"
#include "store/store.h"

enum { BT_LOST_RANK_EXIT = 1 };

typedef struct bt_direct_watch bt_direct_watch;

/* writer: rank 0's, NULL elsewhere and where nothing is recorded; run: its name. Both are borrowed until
 * close. *out is NULL, and BT_OK, where there is nobody to watch. Collective. */
bt_code bt_direct_watch_open(bt_direct_watch **out, const char *run, bt_writer *writer, bt_err *err)
    BT_MUST_CHECK;
void bt_direct_watch_close(bt_direct_watch *w); /* accepts NULL */

#endif
