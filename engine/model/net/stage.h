/* stage.h - a model that is one stage of a pipeline: what enters and leaves it, and the two halves
 * of a micro-batch's work.
 *
 *     stage 0            embed - layers -> out      backward: dx -> layers - embed
 *     stage 0 < s < n-1  in    - layers -> out                dx -> layers -> dx
 *     stage n-1          in    - layers - norm - head: bt_model_train_micro, its `inputs` unused; then dx
 * A stage of several chunks (params.h, virtual_stages) makes such a pass through each of them: the first chunk of
 * stage 0 has the embedding, the last one of stage n-1 the head, and all others both neighbours.
 * Residuals are (S, C) floats, S the tokens whose residual this rank holds (bt_slice_rows).
 * With preferences each micro-batch passes through the base of all stages first (bt_model_stage_reference).
 * The embedding is the first stage's. A last stage whose head is tied to it has a copy, and
 * gradients that are the first stage's to add. */
#ifndef BT_ENGINE_MODEL_NET_STAGE_H
#define BT_ENGINE_MODEL_NET_STAGE_H

#include "engine/model/net/model.h"

/* Of what follows: the chunk of layers, and the micro-batch whose pass through it has its activations in slot
 * 0 .. in_flight-1. A model begins with chunk 0 and slot 0 */
void bt_model_chunk(bt_model *m, int chunk);
void bt_model_slot(bt_model *m, int slot);
/* of the pass that follows */
bool bt_model_begins(const bt_model *m);        /* with the embedding: nothing comes in */
bool bt_model_ends(const bt_model *m);          /* with the head: nothing goes out */
size_t bt_stage_elems(const bt_model_setup *s); /* of in, out and dx */
float *bt_model_stage_in(bt_model *m);
const float *bt_model_stage_out(const bt_model *m); /* until the next forward */
/* before backward the gradient of out, after it that of in */
float *bt_model_stage_dx(bt_model *m);
/* inputs: only the pass that begins looks at them */
void bt_model_stage_forward(bt_model *m, const int32_t *inputs);
/* Preferences (bt_model_dpo): before stage_forward, or the last stage's train_micro and eval_micro, of a
 * micro-batch its pass through the base without adapters, with an `in` and an `out` of its own. targets:
 * only the pass that ends looks at them. A model of one stage makes this pass by itself */
bool bt_model_has_reference(const bt_model *m);
void bt_model_stage_reference(bt_model *m, const int32_t *inputs, const int32_t *targets);
/* A stage of several chunks: before train_micro or eval_micro, which follows a forward pass of another chunk */
void bt_model_stage_meet(bt_model *m);
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
