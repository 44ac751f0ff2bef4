/* tp_group_internal.h - the two kinds of team. Private to engine/parallel. */
#ifndef BT_ENGINE_PARALLEL_TP_TP_GROUP_INTERNAL_H
#define BT_ENGINE_PARALLEL_TP_TP_GROUP_INTERNAL_H

#include "engine/base/clock.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/parallel/mpi/traffic.h"

bt_code bt_team_messages_create(bt_team **out, bt_comm *tp, size_t rows, size_t cols, bt_err *err) BT_MUST_CHECK;
size_t bt_team_messages_bytes(int size, size_t rows, size_t cols);
/* *out is NULL on every rank when any of them cannot see the others' memory */
bt_code bt_team_memory_create(bt_team **out, bt_comm *tp, size_t rows, size_t cols, bt_err *err) BT_MUST_CHECK;
size_t bt_team_memory_bytes(int size, size_t rows, size_t cols);

/* an exchange of the team is over: into its own time, and into its row of traffic.h */
static inline void bt_team_done(bt_team *t, const bt_traffic_mark *mark, bt_coll kind) {
    t->comm_ns += bt_now_ns() - mark->begin_ns;
    bt_traffic_end(mark, kind, BT_AXIS_TP);
}

#endif
