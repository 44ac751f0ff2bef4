/* suspect.h - two replicas disagreed, and two cannot outvote each other: which of them was damaged is
 * known when the same step has been done again from a checkpoint of before.
 *
 *     ranks differ after step s      suspect.json: the values of an element that the two hold otherwise
 *     started again, step s is done  whose value is far from what the element is now was damaged
 * Both values are off: the gradients of the damaged rank had their part in both. Far is: FAR times as far
 * as the other. A flip of a low bit stays undecided.
 * Elements have the same place only in the same layout; in another one the file is removed.
 * Order:    write, before the run ends. In the next attempt: read -> (when `step` steps are done) settle.
 * Ranks:    write is of rank 0; read and settle are collective over the world.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_UPDATE_SUSPECT_H
#define BT_ENGINE_UPDATE_SUSPECT_H

#include "engine/parallel/mpi/mesh.h"
#include "engine/update/replica_check.h"

typedef struct bt_suspect {
    int64_t step; /* steps done when they differed; -1: nobody is suspected */
    bt_replica_blame blame;
} bt_suspect;

/* DIR/suspect.json; what cannot be written is not remembered */
void bt_suspect_write(const char *dir, const bt_mesh *mesh, const bt_suspect *s);
/* takes the file away where it can tell nothing any more: of another layout, or at_step is behind it */
bt_code bt_suspect_read(const char *dir, const bt_mesh *mesh, int64_t at_step, bt_suspect *out,
                        bt_err *err) BT_MUST_CHECK;
/* The step has been done again: *which is 0 or 1, the index of the one that was damaged, or -1: not
 * known. Forgets the suspicion. */
bt_code bt_suspect_settle(const char *dir, bt_suspect *s, const bt_replica_check *c, int *which,
                          bt_err *err) BT_MUST_CHECK;

#endif
