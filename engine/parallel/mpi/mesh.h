/* mesh.h - ranks on a grid: row-major over (pp, dp_replicate, dp_shard, tp), tp fastest.
 *     rank = ((p*R + r)*S + s)*T + t        dp_rank = r*S + s        dp_size = R*S */
#ifndef BT_ENGINE_PARALLEL_MPI_MESH_H
#define BT_ENGINE_PARALLEL_MPI_MESH_H

#include "engine/parallel/mpi/comm.h"

typedef struct bt_mesh_shape {
    int pp, dp_replicate, dp_shard, tp;
} bt_mesh_shape;
/* dp = r*S + s */
typedef struct bt_mesh_coord {
    int pp, dp_replicate, dp_shard, tp, dp;
} bt_mesh_coord;

typedef struct bt_mesh {
    bt_mesh_shape shape;
    bt_mesh_coord me;
    /* an axis of size 1 is a communicator of one */
    bt_comm *world, *dp, *shard, *replicate, *tp, *pp;
} bt_mesh;

/* Sets a dp_replicate of 0 to the remaining factor. The error names the sizes if their product is not world_size. */
bt_code bt_mesh_resolve(bt_mesh_shape *s, int world_size, bt_err *err) BT_MUST_CHECK;
bt_mesh_coord bt_mesh_coord_of(const bt_mesh_shape *s, int rank);
int bt_mesh_rank_of(const bt_mesh_shape *s, const bt_mesh_coord *c);
/* Returns the world rank of the rank with index `rank` on this rank's dp, shard, replicate or pp axis. */
int bt_mesh_peer(const bt_mesh *m, bt_axis axis, int rank);
/* Stores the host (as in bt_comm_host) of each rank of the data-parallel group that contains a world rank:
 * (dp_replicate * dp_shard), in the order of the group */
void bt_mesh_dp_hosts(const bt_mesh_shape *s, int rank, int *hosts);
/* Returns the number of ranks with the same state as the rank at `me`: its data-parallel group, or with sharded
 * states the ranks along dp_replicate. first_host: counts only ranks on rank 0's host. *which: index of the rank at
 * `me` among these ranks; -1: not one of them */
int bt_mesh_sharers(const bt_mesh_shape *s, const bt_mesh_coord *me, bool sharded, bool first_host,
                    int *which);
/* true if the ranks on rank 0's host together hold all states */
bool bt_mesh_first_host_has_all(const bt_mesh_shape *s, bool sharded);
/* collective */
bt_code bt_mesh_create(bt_mesh *m, const bt_mesh_shape *s, bt_comm *world, bt_err *err)
    BT_MUST_CHECK;
void bt_mesh_release(bt_mesh *m);

#endif
