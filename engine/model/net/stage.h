/* stage.h - a model that is one stage of a pipeline: what enters and leaves it, and the two halves
 * of a micro-batch's work.
 *
 *     stage 0            embed - layers -> out      backward: dx -> layers - embed
 *     stage 0 < s < n-1  in    - layers -> out                dx -> layers -> dx
 *     stage n-1          in    - layers - norm - head: bt_model_train_micro, its `inputs` unused; then dx
 * Residuals are (S, C) floats, S the tokens whose residual this rank holds (bt_slice_rows).
 * With preferences each micro-batch passes through the base of all stages first (bt_model_stage_reference).
 * The embedding is the first stage's. A last stage whose head is tied to it has a copy, and
 * gradients that are the first stage's to add. */
#ifndef BT_ENGINE_MODEL_NET_STAGE_H
#define BT_ENGINE_MODEL_NET_STAGE_H

#include "engine/model/net/model.h"

/* of what follows: the micro-batch whose activations are in slot 0 .. in_flight-1 */
void bt_model_slot(bt_model *m, int slot);
size_t bt_stage_elems(const bt_model_setup *s); /* of in, out and dx */
float *bt_model_stage_in(bt_model *m);
const float *bt_model_stage_out(const bt_model *m); /* until the next forward */
/* before backward the gradient of out, after it that of in */
float *bt_model_stage_dx(bt_model *m);
/* inputs: only the first stage looks at them */
void bt_model_stage_forward(bt_model *m, const int32_t *inputs);
/* Preferences (bt_model_dpo): before stage_forward, or the last stage's train_micro and eval_micro, of a
 * micro-batch its pass through the base without adapters, with an `in` and an `out` of its own. targets:
 * only the last stage looks at them. A model of one stage makes this pass by itself */
bool bt_model_has_reference(const bt_model *m);
void bt_model_stage_reference(bt_model *m, const int32_t *inputs, const int32_t *targets);
/* of the micro-batch in this slot; as in bt_model_train_micro */
void bt_model_stage_backward(bt_model *m, const int32_t *inputs, bt_grad_ready_fn ready,
                             void *ready_ctx);

/* The tied table's elements in this part that pass between stages; 0 where no other stage has it too, and
 * for the frozen base of adapters, of which each of the two stages reads its own. */
size_t bt_stage_tied_elems(const bt_model_setup *s);
/* first stage: the embedding as it is read; last: its copy. Both of `*elem` bytes an element; other
 * stages NULL */
void *bt_model_tied(bt_model *m, size_t *elem);
/* first: where gradients are added now; last: the head's, to be sent and zeroed */
float *bt_model_tied_grads(bt_model *m);

#endif
