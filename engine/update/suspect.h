/* suspect.h - identifies the damaged one of two replicas that differ, if there is no majority, by repeating the step
 * from an earlier checkpoint.
 *
 *     ranks differ after step s       suspect.json stores the two values of an element
 *     step s done after a restart     the replica whose stored value differs far more from the new one is blamed
 *
 * Both stored values are wrong, because the damaged rank's gradients are part of both. A replica is blamed if its
 * difference is at least FAR times the other one; the flip of a low bit remains undecided. The position of an element
 * depends on the layout, so the file is removed in another layout.
 * Order:    write before the run ends. In the next attempt: read -> (after `step` steps) resolve.
 * Ranks:    write is called on rank 0; read and resolve are collective over the world.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_UPDATE_SUSPECT_H
#define BT_ENGINE_UPDATE_SUSPECT_H

#include "engine/parallel/mpi/mesh.h"
#include "engine/update/replica_check.h"

typedef struct bt_suspect {
    int64_t step; /* number of steps after which they differed; -1: there is no suspicion */
    bt_replica_blame blame;
} bt_suspect;

/* Writes DIR/suspect.json; a failure only loses the suspicion. */
void bt_suspect_write(const char *dir, const bt_mesh *mesh, const bt_suspect *s);
/* Removes the file if it is of no use: for another layout, or if at_step is beyond its step. */
bt_code bt_suspect_read(const char *dir, const bt_mesh *mesh, int64_t at_step, bt_suspect *out,
                        bt_err *err) BT_MUST_CHECK;
/* Called when the step has been done again. *which: index (0 or 1) of the damaged replica, or -1 if it remains unknown.
 * Clears the suspicion. */
bt_code bt_suspect_resolve(const char *dir, bt_suspect *s, const bt_replica_check *c, int *which,
                           bt_err *err) BT_MUST_CHECK;

#endif
