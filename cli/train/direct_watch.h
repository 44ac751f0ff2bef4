/* direct_watch.h - the ranks of a host watch each other if there is no supervisor: after the death of one, the rest
 * would wait in MPI until the launcher ends them.
 *
 * A thread holds a pidfd of every other rank of this host. If one exits while the watch is open, and this rank does
 * not exit by itself in the next moment, the lowest remaining rank of this host prints it, rank 0 records the end
 * of the run as failed, and the process exits with BT_LOST_RANK_EXIT. Ranks on other hosts or in another pid
 * namespace are left to the launcher.
 *
 * Order: open (all ranks of the world together) -> close, before MPI ends. Threads: the training thread opens and
 * closes. */
#ifndef BT_CLI_TRAIN_DIRECT_WATCH_H
#define BT_CLI_TRAIN_DIRECT_WATCH_H

#include "engine/base/status.h"
#include "store/store.h"

enum { BT_LOST_RANK_EXIT = 1 };

typedef struct bt_direct_watch bt_direct_watch;

/* Opens the watch. writer: of rank 0, NULL on the other ranks and if nothing is recorded; run: its name. Both are
 * borrowed until close. *out is NULL, with BT_OK, if there is no other rank on this host. Collective. */
bt_code bt_direct_watch_open(bt_direct_watch **out, const char *run, bt_writer *writer, bt_err *err)
    BT_MUST_CHECK;
void bt_direct_watch_close(bt_direct_watch *w); /* accepts NULL */

#endif
