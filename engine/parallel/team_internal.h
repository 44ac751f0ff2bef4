/* team_internal.h - the two kinds of team. Private to engine/parallel. */
#ifndef BT_ENGINE_PARALLEL_TEAM_INTERNAL_H
#define BT_ENGINE_PARALLEL_TEAM_INTERNAL_H

#include "engine/parallel/team.h"

bt_code bt_team_messages_create(bt_team **out, bt_comm *tp, size_t rows, size_t cols, bt_err *err) BT_MUST_CHECK;
size_t bt_team_messages_bytes(int size, size_t rows, size_t cols);
/* *out is NULL on every rank when any of them cannot see the others' memory */
bt_code bt_team_memory_create(bt_team **out, bt_comm *tp, size_t rows, size_t cols, bt_err *err) BT_MUST_CHECK;
size_t bt_team_memory_bytes(int size, size_t rows, size_t cols);

#endif
