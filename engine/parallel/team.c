/* team.c - which kind of team; see team.h. */
#include "engine/parallel/team_internal.h"

bool bt_team_messages_only;

bt_code bt_team_create(bt_team **out, bt_comm *tp, size_t rows, size_t cols, bt_err *err) {
    *out = NULL;
    if (bt_comm_size(tp) == 1) return BT_OK;
    if (!bt_team_messages_only) BT_TRY(bt_team_memory_create(out, tp, rows, cols, err));
    return *out ? BT_OK : bt_team_messages_create(out, tp, rows, cols, err);
}

void bt_team_destroy(bt_team *t) {
    if (t) t->destroy(t);
}

size_t bt_team_bytes(int size, size_t rows, size_t cols) {
    if (size == 1) return 0;
    size_t a = bt_team_memory_bytes(size, rows, cols), b = bt_team_messages_bytes(size, rows, cols);
    return a > b ? a : b;
}

bt_code bt_team_check(const bt_team *t, bt_err *err) {
    if (!t || t->failed == BT_OK) return BT_OK;
    if (err) *err = t->why;
    return t->failed;
}
