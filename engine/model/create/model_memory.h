/* model_memory.h - the offsets of all arrays of a model, before memory is allocated. Private to engine/model/create. */
#ifndef BT_ENGINE_MODEL_CREATE_MODEL_MEMORY_H
#define BT_ENGINE_MODEL_CREATE_MODEL_MEMORY_H

#include "engine/model/net/net.h"
#include "engine/model/tp/tp_slice.h"

typedef struct bt_model_memory {
    bt_arena params, grads, quant, acts, scratch;
    size_t w, g;
    /* Each has an element for every tensor; NULL if only sizes are computed. latent: its latent weights, if not all are
     * fp32; packed: its packed weights, or the values received from its owners. */
    size_t *latent, *codes, *packed, *packed2, *scales, *by_group;
    size_t taken, fade, scaled, gathered;
    bt_acts_plan acts_plan;
    size_t x_final, final_rstd, row_loss, counted, head_slopes, logits, rope_cos, rope_sin,
        local_cos, local_sin, pos, documents, lora_x, lora_u, lora_du, lora_y, lora_xq, lora_dq,
        row_norms, adapter_w, noise_rows, drop_rows, lora_drop_rows, reference, row_weights,
        distil_parts, wide, class_rows, class_picked, confusion, relation, relation_grads,
        relation_rows, relation_losses;
    size_t head_packed, head_scale, head_xq, head_dq; /* bt_head8 */
    size_t logits_rows;
    size_t tied, d_tied; /* copies on a last stage */
    bt_tp_memory tp;
} bt_model_memory;

/* Makes the tables of the model and of its adapters; the table of a model without adapters has n 0. */
bt_code bt_model_tables(bt_params *params, bt_params *adapters, const bt_model_cfg *whole,
                        bt_model_slice slice, bt_err *err) BT_MUST_CHECK;
void bt_model_memory_plan(bt_model_memory *p, const bt_model_setup *s, const bt_params *params,
                          const bt_params *adapters, const bt_model_cfg *whole);

bool bt_model_head_int8(const bt_model_setup *s);
bool bt_model_head_rows(const bt_model_setup *s);
/* Returns true for a last stage with a copy of the first stage's embedding. */
bool bt_model_tied_copy(const bt_model_setup *s);
bool bt_model_tables8(const bt_model_setup *s);
/* Returns true if that copy is a table of bf16, because the first stage distributes its weights over several ranks. */
bool bt_model_tied_bf16(const bt_model_setup *s);
/* Returns the number of ranges of a weight's outputs that are packed separately, and the bytes of one range. */
size_t bt_model_ranges(const bt_model_setup *s, const bt_tensor *t);
size_t bt_model_packed_bytes(const bt_model_setup *s, const bt_tensor *t);
/* bytes of the matrix of one group of inputs in a range; the same if there is one scale or one for each row */
size_t bt_model_group_bytes(const bt_model_setup *s, const bt_tensor *t);

#endif
