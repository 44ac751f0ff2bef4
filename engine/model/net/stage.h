/* stage.h - a model that is one stage of a pipeline: its inputs and outputs, and the two halves of a micro-batch's
 * work.
 *
 *     stage 0            embed - layers -> out      backward: dx -> layers - embed
 *     stage 0 < s < n-1  in    - layers -> out                dx -> layers -> dx
 *     stage n-1          in    - layers - norm - head: bt_model_train_micro, its `inputs` unused; then dx
 *
 * A stage of several chunks (params.h, virtual_stages) passes through each of them: the first chunk of stage 0 has the
 * embedding, the last one of stage n-1 the head, and every other chunk is between two others. Residuals are (S, C)
 * floats, S the tokens whose residual this rank holds (bt_slice_rows). With preferences each micro-batch passes through
 * the base of all stages first (bt_model_stage_reference). The first stage owns the embedding. A last stage whose head
 * is tied to it has a copy, and its gradients are added by the first stage.
 * Threads: the training thread. */
#ifndef BT_ENGINE_MODEL_NET_STAGE_H
#define BT_ENGINE_MODEL_NET_STAGE_H

#include "engine/model/net/model.h"

/* Selects the chunk of layers of the following calls, and the slot 0 .. in_flight-1 with the activations of the
 * micro-batch. A model begins with chunk 0 and slot 0. */
void bt_model_chunk(bt_model *m, int chunk);
void bt_model_slot(bt_model *m, int slot);
/* The kind of the next pass: whether it begins with the embedding, so that there is no input residual; and whether it
 * ends with the head, so that there is no output residual. */
bool bt_model_begins(const bt_model *m);
bool bt_model_ends(const bt_model *m);
size_t bt_stage_elems(const bt_model_setup *s); /* elements of in, out and dx */
float *bt_model_stage_in(bt_model *m);
const float *bt_model_stage_out(const bt_model *m); /* valid until the next forward */
/* Returns the gradient of out before backward, and that of in after it. */
float *bt_model_stage_dx(bt_model *m);
/* inputs is used only if the pass begins with the embedding. */
void bt_model_stage_forward(bt_model *m, const int32_t *inputs);
/* Preferences (bt_model_dpo): passes a micro-batch through the base without adapters, with separate `in` and `out`,
 * before stage_forward, or before train_micro and eval_micro of the last stage. targets is used only if the pass ends
 * with the head. A model of one stage makes this pass itself. */
bool bt_model_has_reference(const bt_model *m);
void bt_model_stage_reference(bt_model *m, const int32_t *inputs, const int32_t *targets);
/* Called by a stage of several chunks before train_micro or eval_micro, after a forward pass of another chunk. */
void bt_model_stage_synchronise(bt_model *m);
/* Computes the backward pass of the micro-batch in this slot; arguments as in bt_model_train_micro. */
void bt_model_stage_backward(bt_model *m, const int32_t *inputs, bt_grad_ready_fn ready,
                             void *ready_ctx);

/* Returns the number of elements of the tied table in this part that stages exchange. 0 if no other stage has the
 * table, and for the frozen base of adapters, which both stages load. */
size_t bt_stage_tied_elems(const bt_model_setup *s);
/* Returns the embedding as products read it: first stage; its copy: last stage; else NULL. *elem: bytes of an
 * element. */
void *bt_model_tied(bt_model *m, size_t *elem);
/* Returns the array to which gradients are currently added on the first stage; on the last stage the gradients of the
 * head, which are sent and then set to zero. */
float *bt_model_tied_grads(bt_model *m);

#endif
