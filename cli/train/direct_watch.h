/* direct_watch.h - detects the death of a rank on this host without a supervisor. Otherwise the remaining ranks would
 * wait in MPI until the launcher ends them.
 *
 * A thread holds a pidfd of every other rank of this host. If one exits while the watch is open and this rank does not
 * exit in the next moment, the lowest remaining rank of this host prints the loss, rank 0 records the run as failed,
 * and the process exits with BT_LOST_RANK_EXIT. The launcher handles ranks on other hosts and in other pid namespaces.
 *
 * Order: open (all ranks of the world) -> close, before MPI ends. Threads: the training thread opens and closes. */
#ifndef BT_CLI_TRAIN_DIRECT_WATCH_H
#define BT_CLI_TRAIN_DIRECT_WATCH_H

#include "engine/base/status.h"
#include "store/store.h"

enum { BT_LOST_RANK_EXIT = 1 };

typedef struct bt_direct_watch bt_direct_watch;

/* Opens the watch. writer: that of rank 0; NULL on other ranks and if nothing is recorded; run: its name. Writer and
 * run are borrowed until close. *out is NULL, with BT_OK, if this host has no other rank. Collective. */
bt_code bt_direct_watch_open(bt_direct_watch **out, const char *run, bt_writer *writer, bt_err *err)
    BT_MUST_CHECK;
void bt_direct_watch_close(bt_direct_watch *w); /* accepts NULL */

#endif
