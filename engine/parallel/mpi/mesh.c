/* mesh.c - converts between ranks and coordinates (mesh.h), and creates one communicator per axis. */
#include "engine/parallel/mpi/mesh.h"

#include <stdio.h>
#include <string.h>

bt_code bt_mesh_resolve(bt_mesh_shape *s, int world_size, bt_err *err) {
    if (world_size < 1)
        return bt_fail(err, BT_ARG, "a mesh needs at least one rank, not %d", world_size);
    if (s->pp < 1 || s->dp_shard < 1 || s->tp < 1 || s->dp_replicate < 0) {
        return bt_fail(
            err, BT_ARG,
            "every axis of the mesh must be at least 1: pp %d, dp_replicate %d, dp_shard %d, tp %d",
            s->pp, s->dp_replicate, s->dp_shard, s->tp);
    }
    int64_t inner = (int64_t)s->pp * s->dp_shard * s->tp;
    if (s->dp_replicate == 0) {
        if (world_size % inner != 0) {
            const int64_t below = world_size / inner * inner;
            char fewer[32] = "";
            if (below) snprintf(fewer, sizeof fewer, "%lld or ", (long long)below);
            return bt_fail(err, BT_ARG,
                           "pp %d x dp_shard %d x tp %d = %lld does not divide the %d ranks (use "
                           "%s%lld ranks)",
                           s->pp, s->dp_shard, s->tp, (long long)inner, world_size, fewer,
                           (long long)(below + inner));
        }
        s->dp_replicate = (int)(world_size / inner);
    }
    int64_t all = inner * s->dp_replicate;
    if (all != world_size) {
        char or [48] = "";
        if (world_size % inner == 0)
            snprintf(or, sizeof or, ", or --dp-replicate %lld", (long long)(world_size / inner));
        return bt_fail(err, BT_ARG,
                       "pp %d x dp_replicate %d x dp_shard %d x tp %d = %lld ranks, but the job "
                       "has %d (use %lld ranks%s)",
                       s->pp, s->dp_replicate, s->dp_shard, s->tp, (long long)all, world_size,
                       (long long)all, or);
    }
    return BT_OK;
}

bt_mesh_coord bt_mesh_coord_of(const bt_mesh_shape *s, int rank) {
    bt_mesh_coord c;
    c.tp = rank % s->tp;
    c.dp_shard = rank / s->tp % s->dp_shard;
    c.dp_replicate = rank / (s->tp * s->dp_shard) % s->dp_replicate;
    c.pp = rank / (s->tp * s->dp_shard * s->dp_replicate);
    c.dp = c.dp_replicate * s->dp_shard + c.dp_shard;
    return c;
}

int bt_mesh_rank_of(const bt_mesh_shape *s, const bt_mesh_coord *c) {
    return ((c->pp * s->dp_replicate + c->dp_replicate) * s->dp_shard + c->dp_shard) * s->tp +
           c->tp;
}

int bt_mesh_peer(const bt_mesh *m, bt_axis axis, int rank) {
    bt_mesh_coord c = m->me;
    if (axis == BT_AXIS_DP || axis == BT_AXIS_SHARD) c.dp_shard = rank % m->shape.dp_shard;
    if (axis == BT_AXIS_DP) c.dp_replicate = rank / m->shape.dp_shard;
    if (axis == BT_AXIS_REPLICATE) c.dp_replicate = rank;
    if (axis == BT_AXIS_PP) c.pp = rank;
    return bt_mesh_rank_of(&m->shape, &c);
}

void bt_mesh_dp_hosts(const bt_mesh_shape *s, int rank, int *hosts) {
    bt_mesh_coord c = bt_mesh_coord_of(s, rank);
    for (int d = 0; d < s->dp_replicate * s->dp_shard; d++) {
        c.dp_replicate = d / s->dp_shard;
        c.dp_shard = d % s->dp_shard;
        hosts[d] = bt_comm_host(bt_mesh_rank_of(s, &c));
    }
}

int bt_mesh_sharers(const bt_mesh_shape *s, const bt_mesh_coord *me, bool sharded, bool first_host,
                    int *which) {
    int n = 0;
    *which = -1;
    for (int r = 0; r < s->dp_replicate; r++)
        for (int k = 0; k < s->dp_shard; k++) {
            bt_mesh_coord c = *me;
            if (sharded && k != me->dp_shard) continue;
            c.dp_replicate = r;
            c.dp_shard = k;
            if (first_host && bt_comm_host(bt_mesh_rank_of(s, &c)) != bt_comm_host(0)) continue;
            if (r == me->dp_replicate && k == me->dp_shard) *which = n;
            n++;
        }
    return n;
}

bool bt_mesh_first_host_has_all(const bt_mesh_shape *s, bool sharded) {
    const int size = s->pp * s->dp_replicate * s->dp_shard * s->tp;
    for (int r = 0; r < size; r++) {
        bt_mesh_coord c = bt_mesh_coord_of(s, r);
        int which;
        /* this rank is in the same group as the group's first member, which was checked */
        if (c.dp_replicate > 0 || (!sharded && c.dp_shard > 0)) continue;
        if (bt_mesh_sharers(s, &c, sharded, true, &which) == 0) return false;
    }
    return true;
}

/* Ranks of one communicator share all coordinates but one; their colour is the rank whose coordinate on that axis is
 * 0. */
bt_code bt_mesh_create(bt_mesh *m, const bt_mesh_shape *s, bt_comm *world, bt_err *err) {
    memset(m, 0, sizeof *m);
    m->shape = *s;
    m->world = world;
    m->me = bt_mesh_coord_of(s, bt_comm_rank(world));
    int me = bt_comm_rank(world);

    bt_mesh_coord dp = m->me, shard = m->me, replicate = m->me, tp = m->me, pp = m->me;
    dp.dp_replicate = dp.dp_shard = 0;
    shard.dp_shard = 0;
    replicate.dp_replicate = 0;
    tp.tp = 0;
    pp.pp = 0;
    BT_TRY(bt_comm_split(&m->dp, world, bt_mesh_rank_of(s, &dp), me, err));
    BT_TRY(bt_comm_split(&m->shard, world, bt_mesh_rank_of(s, &shard), me, err));
    BT_TRY(bt_comm_split(&m->replicate, world, bt_mesh_rank_of(s, &replicate), me, err));
    BT_TRY(bt_comm_split(&m->tp, world, bt_mesh_rank_of(s, &tp), me, err));
    BT_TRY(bt_comm_split(&m->pp, world, bt_mesh_rank_of(s, &pp), me, err));
    bt_comm_set_axis(m->dp, BT_AXIS_DP);
    bt_comm_set_axis(m->shard, BT_AXIS_SHARD);
    bt_comm_set_axis(m->replicate, BT_AXIS_REPLICATE);
    bt_comm_set_axis(m->tp, BT_AXIS_TP);
    bt_comm_set_axis(m->pp, BT_AXIS_PP);
    return BT_OK;
}

void bt_mesh_release(bt_mesh *m) {
    bt_comm_free(m->dp);
    bt_comm_free(m->shard);
    bt_comm_free(m->replicate);
    bt_comm_free(m->tp);
    bt_comm_free(m->pp);
    memset(m, 0, sizeof *m);
}
