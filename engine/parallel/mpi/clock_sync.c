/* clock_sync.c - measures clock offsets by ping-pong with rank 0, one rank after the other (a trip delayed by its
 * turn is not the shortest). */
#include "engine/parallel/mpi/clock_sync.h"

#include "engine/base/clock.h"
#include "engine/parallel/mpi/comm_internal.h"

enum { ROUNDS = 24, TAG = 7001 };

static bt_code send_i64(bt_comm *c, int64_t v, int to, bt_err *err) {
    return bt_mpi_check(MPI_Send(&v, 1, MPI_INT64_T, to, TAG, c->mpi), "clock ping", err);
}

static bt_code recv_i64(bt_comm *c, int64_t *v, int from, bt_err *err) {
    return bt_mpi_check(MPI_Recv(v, 1, MPI_INT64_T, from, TAG, c->mpi, MPI_STATUS_IGNORE),
                        "clock ping", err);
}

bt_code bt_clock_sync_ping(bt_clock_sync *s, bt_comm *c, bt_err *err) {
    *s = (bt_clock_sync){0};
    if (c->size == 1) return BT_OK;
    if (c->rank == 0) {
        for (int r = 1; r < c->size; r++) {
            for (int i = 0; i < ROUNDS; i++) {
                int64_t ignored;
                BT_TRY(recv_i64(c, &ignored, r, err));
                BT_TRY(send_i64(c, bt_now_ns(), r, err));
            }
        }
    } else {
        int64_t shortest = INT64_MAX;
        for (int i = 0; i < ROUNDS; i++) {
            int64_t sent = bt_now_ns(), theirs = 0;
            BT_TRY(send_i64(c, sent, 0, err));
            BT_TRY(recv_i64(c, &theirs, 0, err));
            int64_t trip = bt_now_ns() - sent;
            if (trip < shortest) {
                shortest = trip;
                s->offset_ns = theirs - (sent + trip / 2);
                s->error_ns = trip / 2 + 1;
            }
        }
    }
    return bt_all_reduce_i64(c, &s->error_ns, 1, BT_MAX, err);
}

bt_code bt_clock_sync_measure(bt_clock_sync *s, bt_comm *c, bt_err *err) {
    *s = (bt_clock_sync){0};
    int64_t elsewhere = bt_comm_local_size() < bt_comm_size(bt_comm_world());
    BT_TRY(bt_all_reduce_i64(c, &elsewhere, 1, BT_MAX, err));
    return elsewhere ? bt_clock_sync_ping(s, c, err) : BT_OK;
}

int64_t bt_clock_sync_common(const bt_clock_sync *s, int64_t now_ns) {
    return now_ns + s->offset_ns;
}
