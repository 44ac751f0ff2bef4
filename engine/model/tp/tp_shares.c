/* tp_shares.c - the rows that a rank owns, and the ranges of a layer that a leaf has. */
#include "engine/model/tp/tp_state.h"

static bt_rows rows_of_rank(const bt_tp_group *t, size_t M) {
    size_t first = bt_tp_first_row(M, t->rank, t->size);
    return (bt_rows){first, bt_tp_first_row(M, t->rank + 1, t->size) - first};
}

bt_rows bt_tp_own_rows(const bt_model *m, size_t M) {
    return m->tp_state->sequence ? rows_of_rank(m->tp_state->group, M) : (bt_rows){0, M};
}

bt_tp_ranges bt_tp_ranges_in(const bt_model_setup *s, const bt_linear *l, size_t leaf,
                             size_t leaves) {
    if (l->tensor->shard == BT_SHARD_KVROW && bt_leaves_split_kv(&s->cfg, s->slice, s->leaves))
        return (bt_tp_ranges){bt_leaves_first_kv(&s->cfg, s->slice, s->leaves, leaf),
                              bt_leaves_first_kv(&s->cfg, s->slice, s->leaves, leaf + 1)};
    size_t each = leaves / l->ranges;
    if (leaf % each || !l->contributes_dx) return (bt_tp_ranges){0, 0};
    return (bt_tp_ranges){leaf / each, leaf / each + 1};
}
