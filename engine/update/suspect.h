/* suspect.h - identifies the damaged one of two replicas that differ, by repeating the step from an earlier
 * checkpoint; two replicas have no majority.
 *
 *     ranks differ after step s      suspect.json: the two values of an element
 *     after a restart, step s done   the replica whose value differs far more from the new one is blamed
 *
 * Both values are wrong, because the damaged rank's gradients are part of both. The larger difference must be FAR
 * times the other one. A flip of a low bit remains undecided. Elements have the same position only in the same
 * layout; in another one the file is removed.
 * Order:    write, before the run ends. In the next attempt: read -> (after `step` steps) settle.
 * Ranks:    write is called on rank 0; read and settle are collective over the world.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_UPDATE_SUSPECT_H
#define BT_ENGINE_UPDATE_SUSPECT_H

#include "engine/parallel/mpi/mesh.h"
#include "engine/update/replica_check.h"

typedef struct bt_suspect {
    int64_t step; /* number of steps after which they differed; -1: no suspicion */
    bt_replica_blame blame;
} bt_suspect;

/* writes DIR/suspect.json; if this fails, the suspicion is lost */
void bt_suspect_write(const char *dir, const bt_mesh *mesh, const bt_suspect *s);
/* removes the file if it is no longer useful: for another layout, or if at_step is beyond it */
bt_code bt_suspect_read(const char *dir, const bt_mesh *mesh, int64_t at_step, bt_suspect *out,
                        bt_err *err) BT_MUST_CHECK;
/* The step has been done again: *which is 0 or 1, the index of the one that was damaged, or -1: not
 * known. Forgets the suspicion. */
bt_code bt_suspect_resolve(const char *dir, bt_suspect *s, const bt_replica_check *c, int *which,
                           bt_err *err) BT_MUST_CHECK;

#endif
