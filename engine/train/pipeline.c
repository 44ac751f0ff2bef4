/* pipeline.c - a step's micro-batches through the stages of a pipeline, one forward and one
 * backward in turn (1F1B, PipeDream-Flush).
 *
 *     stage 0   F0 F1 F2 F3 .. .. B0 F4 B1 F5 B2 ...        stage s of n begins with n-1-s forward
 *               passes, then has at most n-s
 *     stage 1      F0 F1 F2 .. B0 F3 B1 F4 B2               micro-batches in flight; of m
 *                  micro-batches a share (n-1) / (m+n-1)
 *     stage 2         F0 F1 B0 F2 B1 F3 B2                  of the time is the pipeline filling and draining
 *     stage 3            F0 B0 F1 B1 F2 B2
 * The gradients of a micro-batch are those of one rank: residuals and their gradients travel as
 * floats. The head's part of a tied embedding's gradient goes from the last stage to the first,
 * where the embedding is updated; its new values come back. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/stage.h"
#include "engine/train/parts.h"

struct bt_pipeline {
    bt_pipe *pipe;
    bool first, last;
    int slots;
    /* of a micro-batch; elements of a table that first and last stage share */
    size_t tokens, tied;
    /* (slots, tokens) the first stage's backward needs them again */
    int32_t *inputs;
    float *head_grads; /* (tied) first stage */
};

size_t bt_pipeline_bytes(const bt_model_setup *s, const bt_mesh_shape *shape) {
    if (shape->pp == 1) return 0;
    bool first = bt_slice_is_first_stage(s->slice);
    size_t tokens = (size_t)s->B * (size_t)s->cfg.T;
    return bt_pipe_bytes(shape, s->slice.pp_stage, bt_stage_elems(s)) +
           (size_t)s->in_flight * tokens * sizeof(int32_t) +
           (first ? bt_stage_tied_elems(s) * sizeof(float) : 0);
}

bt_code bt_pipeline_create(bt_trainer *t, const bt_model_setup *s, bt_err *err) {
    if (t->mesh.shape.pp == 1) return BT_OK;
    bt_pipeline *p = t->pipeline = calloc(1, sizeof *p);
    if (p) {
        *p = (bt_pipeline){.first = bt_slice_is_first_stage(s->slice),
                           .last = bt_slice_is_last_stage(s->slice),
                           .slots = s->in_flight,
                           .tokens = (size_t)s->B * (size_t)s->cfg.T,
                           .tied = bt_stage_tied_elems(s)};
        p->inputs = calloc((size_t)p->slots * p->tokens, sizeof *p->inputs);
        p->head_grads = p->first ? calloc(p->tied + 1, sizeof *p->head_grads) : NULL;
    }
    if (!p || !p->inputs || (p->first && !p->head_grads))
        return bt_fail(err, BT_NOMEM, "cannot take memory for a pipeline stage");
    return bt_pipe_create(&p->pipe, &t->mesh, bt_stage_elems(s), err);
}

void bt_pipeline_release(bt_trainer *t) {
    bt_pipeline *p = t->pipeline;
    if (!p) return;
    bt_pipe_destroy(p->pipe);
    free(p->inputs);
    free(p->head_grads);
    free(p);
    t->pipeline = NULL;
}

bt_pipe *bt_pipeline_pipe(const bt_trainer *t) { return t->pipeline ? t->pipeline->pipe : NULL; }

bt_code bt_pipeline_tie(bt_trainer *t, int64_t *comm_ns, bt_err *err) {
    bt_pipeline *p = t->pipeline;
    bt_pipe_times took = {0};
    if (!p || p->tied == 0) return BT_OK;
    BT_TRY(bt_pipe_share(p->pipe, BT_PIPE_DOWN, bt_model_tied(t->model), p->tied, &took, err));
    *comm_ns += took.moved_ns;
    return BT_OK;
}

/* ---- a micro-batch --------------------------------------------------------------------------- */

static bt_code forward(bt_trainer *t, int64_t i, bt_pipe_times *times, bt_err *err) {
    bt_pipeline *p = t->pipeline;
    int slot = (int)(i % p->slots);
    int32_t *inputs = p->inputs + (size_t)slot * p->tokens;
    bt_micro_times took;
    bt_batch batch;
    BT_TRY(bt_step_batch(t, &batch, err));
    bt_model_slot(t->model, slot);
    if (p->first)
        memcpy(inputs, batch.inputs, p->tokens * sizeof *inputs);
    else
        BT_TRY(bt_pipe_recv(p->pipe, BT_PIPE_DOWN, bt_model_stage_in(t->model), times, err));
    bt_layout_meter_tp(t, NULL);
    bt_model_stage_forward(t->model, inputs, &took);
    BT_TRY(bt_step_computed(t, &took, err));
    return bt_pipe_send(p->pipe, BT_PIPE_DOWN, bt_model_stage_out(t->model), times, err);
}

/* What the last stage's head made of the tied embedding's gradient, in the order of one rank:
 * before the embedding's own. */
static bt_code take_head_grads(bt_trainer *t, bt_pipe_times *times, bt_err *err) {
    bt_pipeline *p = t->pipeline;
    BT_TRY(bt_pipe_share(p->pipe, BT_PIPE_UP, p->head_grads, p->tied, times, err));
    bt_op_add(bt_model_tied_grads(t->model), p->head_grads, p->tied);
    return BT_OK;
}

static bt_code give_head_grads(bt_trainer *t, bt_pipe_times *times, bt_err *err) {
    bt_pipeline *p = t->pipeline;
    float *grads = bt_model_tied_grads(t->model);
    BT_TRY(bt_pipe_share(p->pipe, BT_PIPE_UP, grads, p->tied, times, err));
    bt_op_zero(grads, p->tied);
    return BT_OK;
}

/* The last stage goes forward and back at once. */
static bt_code backward(bt_trainer *t, int64_t i, double scale, bt_pipe_times *times, bt_err *err) {
    bt_pipeline *p = t->pipeline;
    bool last_micro = i == t->n_micro - 1, tie = p->tied && (last_micro || t->cfg.reproducible);
    int slot = (int)(i % p->slots);
    int32_t *inputs = p->inputs + (size_t)slot * p->tokens;
    bt_micro_times took;
    bt_batch batch;
    if (p->last) BT_TRY(bt_step_batch(t, &batch, err));
    bt_model_slot(t->model, slot);
    if (p->last)
        BT_TRY(bt_pipe_recv(p->pipe, BT_PIPE_DOWN, bt_model_stage_in(t->model), times, err));
    else
        BT_TRY(bt_pipe_recv(p->pipe, BT_PIPE_UP, bt_model_stage_dx(t->model), times, err));
    bt_grad_ready_fn ready = bt_step_unit(t, i);
    if (tie && p->first) BT_TRY(take_head_grads(t, times, err));
    bt_layout_meter_tp(t, NULL);
    if (p->last)
        t->micro_losses[t->first_micro + i] = bt_model_train_micro(
            t->model, batch.inputs, batch.targets, scale, ready, t->reducer, &took);
    else
        bt_model_stage_backward(t->model, inputs, ready, t->reducer, &took);
    BT_TRY(bt_step_computed(t, &took, err));
    if (!p->first)
        BT_TRY(bt_pipe_send(p->pipe, BT_PIPE_UP, bt_model_stage_dx(t->model), times, err));
    /* after what the first stage needs to come and take them */
    if (tie && p->last) BT_TRY(give_head_grads(t, times, err));
    return bt_step_unit_done(t, i, err);
}

bt_code bt_pipeline_micros(bt_trainer *t, double scale, bt_err *err) {
    bt_pipeline *p = t->pipeline;
    int64_t n = t->n_micro, ahead = t->mesh.shape.pp - 1 - t->mesh.me.pp;
    bt_pipe_times took = {0};
    double *losses = t->micro_losses + t->first_micro;
    if (ahead > n) ahead = n;
    assert(ahead < p->slots || n <= p->slots);
    memset(losses, 0, (size_t)n * sizeof *losses);
    BT_TRY(bt_pipe_begin(p->pipe, n, n, err));
    for (int64_t i = 0; i < ahead; i++) BT_TRY(forward(t, i, &took, err));
    for (int64_t i = 0; i < n; i++) {
        if (!p->last && ahead + i < n) BT_TRY(forward(t, ahead + i, &took, err));
        BT_TRY(backward(t, i, scale, &took, err));
    }
    BT_TRY(bt_pipe_end(p->pipe, &took, err));
    BT_TRY(bt_pipe_sum(p->pipe, losses, (size_t)n, &took, err));
    bt_meter_add(&t->meter, BT_MR_WAIT, took.waited_ns);
    bt_meter_add(&t->meter, BT_MR_COMM_EXPOSED, took.moved_ns);
    bt_meter_add(&t->meter, BT_MR_COMM_BUSY, took.moved_ns);
    return BT_OK;
}
