/* tp_slice.h - tensor parallelism of a model: the slice of each rank, and sums over leaves. This module implements
 * engine/model/net/tp_ops.h.
 *
 * Order:    reserve (scratch memory in the model's arena) -> create -> wire, after the memory is committed and before
 * the layers are wired; wire_layer for each layer -> release. */
#ifndef BT_ENGINE_MODEL_TP_TP_SLICE_H
#define BT_ENGINE_MODEL_TP_TP_SLICE_H

#include "engine/model/net/net.h"

typedef struct bt_tp_memory {
    size_t ones, mine, all, a, b, index;
    size_t spare, gains;   /* partial sums of leaves */
    size_t shared_kv_sums; /* partial sums of kv heads shared by two neighbours */
    size_t adapter_rows, adapter_spare;
} bt_tp_memory;

/* Returns true if the model is a slice, or adds its sums as a tree of leaves; otherwise it uses bt_tp_one_rank. */
static inline bool bt_tp_needed(const bt_model_setup *s) {
    return s->slice.tp_size > 1 || s->leaves > 1;
}
static inline int bt_tp_size(const bt_model_setup *s) {
    return s->slice.tp_size > 1 ? s->slice.tp_size : 1;
}

/* s->cfg is that of the slice. */
void bt_tp_reserve(bt_tp_memory *p, bt_arena *scratch, const bt_model_setup *s,
                   const bt_model_cfg *whole);
/* BT_ARG unless the setup's group, slice and leaves are consistent */
bt_code bt_tp_create(bt_model *m, bt_err *err) BT_MUST_CHECK;
void bt_tp_wire(bt_model *m, const bt_tp_memory *p);
void bt_tp_wire_layer(bt_model *m, bt_layer *l);
void bt_tp_release(bt_model *m);

#endif
