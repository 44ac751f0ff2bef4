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

/* Sets a dp_replicate of 0 to the remaining factor. The error lists numbers whose product is not world_size. */
bt_code bt_mesh_resolve(bt_mesh_shape *s, int world_size, bt_err *err) BT_MUST_CHECK;
bt_mesh_coord bt_mesh_coord_of(const bt_mesh_shape *s, int rank);
int bt_mesh_rank_of(const bt_mesh_shape *s, const bt_mesh_coord *c);
/* rank of the world of this rank's `rank`th neighbour along dp, shard, replicate or pp */
int bt_mesh_peer(const bt_mesh *m, bt_axis axis, int rank);
/* the hosts of the data-parallel group in which a rank of the world is, in the group's order:
 * (dp_replicate * dp_shard) as bt_comm_host names them */
void bt_mesh_dp_hosts(const bt_mesh_shape *s, int rank, int *hosts);
/* Number of ranks with the same state as the one at `me`, itself included: its data-parallel group, or with
 * sharded states the ranks along dp_replicate. first_host: counts only those on rank 0's host. *which: index of
 * the one at `me` among them; -1: not among them */
int bt_mesh_sharers(const bt_mesh_shape *s, const bt_mesh_coord *me, bool sharded, bool first_host,
                    int *which);
/* true if the ranks of rank 0's host together hold the whole state */
bool bt_mesh_first_host_has_all(const bt_mesh_shape *s, bool sharded);
/* collective */
bt_code bt_mesh_create(bt_mesh *m, const bt_mesh_shape *s, bt_comm *world, bt_err *err)
    BT_MUST_CHECK;
void bt_mesh_release(bt_mesh *m);

#endif
