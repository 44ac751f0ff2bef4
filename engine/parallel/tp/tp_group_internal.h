/* tp_group_internal.h - the two kinds of tensor-parallel group. Private to engine/parallel. */
#ifndef BT_ENGINE_PARALLEL_TP_TP_GROUP_INTERNAL_H
#define BT_ENGINE_PARALLEL_TP_TP_GROUP_INTERNAL_H

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/parallel/mpi/traffic.h"
#include "engine/parallel/tp/tp_group_create.h"

bt_code bt_tp_group_messages_create(bt_tp_group **out, bt_comm *tp, size_t rows, size_t cols,
                                    bt_err *err) BT_MUST_CHECK;
size_t bt_tp_group_messages_bytes(int size, size_t rows, size_t cols);
/* *out is NULL on every rank if any rank cannot map the memory. */
bt_code bt_tp_group_shm_create(bt_tp_group **out, bt_comm *tp, size_t rows, size_t cols,
                               bt_err *err) BT_MUST_CHECK;
size_t bt_tp_group_shm_bytes(int size, size_t rows, size_t cols);

/* Begins an exchange of the group: a span of exposed communication, counted in its row of traffic.h. */
static inline bt_traffic_mark bt_tp_group_start(void) {
    bt_span_begin(BT_MR_COMM_EXPOSED);
    return bt_traffic_begin();
}

static inline void bt_tp_group_done(bt_tp_group *t, const bt_traffic_mark *mark, bt_coll kind) {
    t->busy_ns += bt_now_ns() - mark->begin_ns;
    bt_traffic_end(mark, kind, BT_AXIS_TP);
    bt_span_end();
}

#endif
