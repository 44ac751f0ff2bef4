/* schedule_1f1b.c - a step's micro-batches through the stages of a pipeline, one forward and one
 * backward in turn (1F1B, PipeDream-Flush).
 *
 *     stage 0   F0 F1 F2 F3 .. .. B0 F4 B1 F5 B2 ...        stage s of n begins with n-1-s forward passes, then has
 *     stage 1      F0 F1 F2 .. B0 F3 B1 F4 B2               at most n-s micro-batches in flight; of m micro-batches
 *     stage 2         F0 F1 B0 F2 B1 F3 B2                  (n-1) / (m+n-1) of the time is the pipeline filling
 *     stage 3            F0 B0 F1 B1 F2 B2                  and draining
 * With preferences a micro-batch's pass through the base goes right before its own forward pass.
 * The gradients of a micro-batch are those of one rank: residuals and their gradients travel as
 * floats. The last stage computes the head's contribution to a tied embedding's gradient and sends
 * it to the first, where the embedding is updated; its new values come back. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kernels/ops/ops.h"
#include "engine/micro/micro_schedule.h"
#include "engine/model/net/stage.h"

typedef struct pipeline {
    bt_micro_schedule base; /* first: a bt_micro_schedule is this */
    bool first, last;
    int slots, behind;  /* micro-batches in flight at most; stages behind this one */
    size_t tokens;      /* of a micro-batch */
    size_t tied;        /* elements of a table that first and last stage share */
    int32_t *inputs;    /* (slots, tokens) the first stage's backward needs them again */
    int32_t *positions; /* (slots, tokens) of documents: every stage's backward does */
    bool documents;     /* the batches have positions */
    float *head_grads;  /* (tied) first stage */
} pipeline;

size_t bt_schedule_1f1b_bytes(const bt_model_setup *s, const bt_mesh_shape *shape) {
    bool first = bt_slice_is_first_stage(s->slice);
    size_t tokens = (size_t)s->B * (size_t)s->cfg.T;
    return bt_pipe_bytes(shape, s->slice.pp_stage, bt_stage_elems(s)) +
           2 * (size_t)s->in_flight * tokens * sizeof(int32_t) +
           (first ? bt_stage_tied_elems(s) * sizeof(float) : 0);
}

/* ---- one pass -------------------------------------------------------------------------------- */

static int32_t *positions_of(const pipeline *p, int slot) {
    return p->positions + (size_t)slot * p->tokens;
}

int64_t bt_micro_messages(const bt_model *model) { return bt_model_has_reference(model) ? 2 : 1; }

bt_code bt_micro_reference(bt_pipe *pipe, bt_model *model, const int32_t *inputs,
                           const int32_t *targets, bt_err *err) {
    const bt_model_slice part = bt_model_slice_of(model);
    if (!pipe || !bt_model_has_reference(model)) return BT_OK;
    if (!bt_slice_is_first_stage(part))
        BT_TRY(bt_pipe_recv(pipe, BT_PIPE_DOWN, bt_model_stage_in(model), err));
    bt_model_stage_reference(model, inputs, targets);
    return bt_slice_is_last_stage(part)
               ? BT_OK
               : bt_pipe_send(pipe, BT_PIPE_DOWN, bt_model_stage_out(model), err);
}

/* of the micro-batch in this slot; its time counts as this rank's own */
static bt_code reference(pipeline *p, bt_micro *m, const bt_batch *b, bt_err *err) {
    bt_micro_pass_begin(m);
    BT_TRY(bt_micro_reference(p->base.pipe, m->model, b->inputs, b->targets, err));
    return bt_micro_pass_end(m, err);
}

static bt_code forward(pipeline *p, bt_micro *m, int64_t i, bt_err *err) {
    int slot = (int)(i % p->slots);
    int32_t *inputs = p->inputs + (size_t)slot * p->tokens;
    bt_batch batch;
    BT_TRY(bt_micro_tokens(m, &batch, err));
    bt_model_slot(m->model, slot);
    if (p->first) memcpy(inputs, batch.inputs, p->tokens * sizeof *inputs);
    p->documents = batch.positions != NULL;
    if (p->documents)
        memcpy(positions_of(p, slot), batch.positions, p->tokens * sizeof *p->positions);
    bt_model_documents(m->model, batch.positions);
    BT_TRY(reference(p, m, &batch, err));
    if (!p->first)
        BT_TRY(bt_pipe_recv(p->base.pipe, BT_PIPE_DOWN, bt_model_stage_in(m->model), err));
    bt_micro_pass_begin(m);
    bt_model_stage_forward(m->model, inputs);
    BT_TRY(bt_micro_pass_end(m, err));
    return bt_pipe_send(p->base.pipe, BT_PIPE_DOWN, bt_model_stage_out(m->model), err);
}

/* the head's part of the tied embedding's gradient, added in the order of one rank: before the
 * embedding's own */
static bt_code receive_head_grads(pipeline *p, bt_model *model, bt_err *err) {
    BT_TRY(bt_pipe_copy(p->base.pipe, BT_PIPE_UP, p->head_grads, p->tied * sizeof *p->head_grads,
                        err));
    bt_op_add(bt_model_tied_grads(model), p->head_grads, p->tied);
    return BT_OK;
}

static bt_code send_head_grads(pipeline *p, bt_model *model, bt_err *err) {
    float *grads = bt_model_tied_grads(model);
    BT_TRY(bt_pipe_copy(p->base.pipe, BT_PIPE_UP, grads, p->tied * sizeof *grads, err));
    bt_op_zero(grads, p->tied);
    return BT_OK;
}

/* the last stage goes forward and backward at once */
static bt_code last_stage_pass(pipeline *p, bt_micro *m, int64_t i, double scale,
                               bt_grad_ready_fn ready, bt_err *err) {
    bt_batch batch;
    BT_TRY(bt_micro_tokens(m, &batch, err));
    bt_model_documents(m->model, batch.positions);
    BT_TRY(reference(p, m, &batch, err));
    BT_TRY(bt_pipe_recv(p->base.pipe, BT_PIPE_DOWN, bt_model_stage_in(m->model), err));
    bt_micro_pass_begin(m);
    *bt_micro_loss(m, i) = bt_model_train_micro(m->model, batch.inputs, batch.targets, scale, ready,
                                                m->reducer);
    return bt_micro_pass_end(m, err);
}

static bt_code backward(pipeline *p, bt_micro *m, int64_t i, double scale, bt_err *err) {
    bool tie = p->tied && (i == m->plan->n - 1 || m->reproducible);
    int slot = (int)(i % p->slots);
    bt_model_slot(m->model, slot);
    bt_grad_ready_fn ready = bt_micro_begin_backward(m, i);
    if (p->last) {
        BT_TRY(last_stage_pass(p, m, i, scale, ready, err));
    } else {
        BT_TRY(bt_pipe_recv(p->base.pipe, BT_PIPE_UP, bt_model_stage_dx(m->model), err));
        if (tie && p->first) BT_TRY(receive_head_grads(p, m->model, err));
        bt_model_documents(m->model, p->documents ? positions_of(p, slot) : NULL);
        bt_micro_pass_begin(m);
        bt_model_stage_backward(m->model, p->inputs + (size_t)slot * p->tokens, ready, m->reducer);
        BT_TRY(bt_micro_pass_end(m, err));
    }
    if (!p->first) BT_TRY(bt_pipe_send(p->base.pipe, BT_PIPE_UP, bt_model_stage_dx(m->model), err));
    /* after the message without which the first stage could not come to take them */
    if (tie && p->last) BT_TRY(send_head_grads(p, m->model, err));
    return bt_micro_end(m, i, err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static bt_code run(bt_micro_schedule *s, bt_micro *m, double grad_scale, bt_err *err) {
    pipeline *p = (pipeline *)s;
    int64_t n = m->plan->n, ahead = p->behind < n ? p->behind : n;
    double *losses = bt_micro_loss(m, 0);
    assert(ahead < p->slots || n <= p->slots);
    memset(losses, 0, (size_t)n * sizeof *losses);
    BT_TRY(bt_pipe_begin(s->pipe, n * bt_micro_messages(m->model), n, err));
    for (int64_t i = 0; i < ahead; i++) BT_TRY(forward(p, m, i, err));
    for (int64_t i = 0; i < n; i++) {
        if (!p->last && ahead + i < n) BT_TRY(forward(p, m, ahead + i, err));
        BT_TRY(backward(p, m, i, grad_scale, err));
    }
    BT_TRY(bt_pipe_end(s->pipe, err));
    return bt_pipe_sum(s->pipe, losses, (size_t)n, err);
}

static bt_code tie(bt_micro_schedule *s, bt_model *model, bt_err *err) {
    const pipeline *p = (pipeline *)s;
    size_t elem;
    void *table = bt_model_tied(model, &elem);
    return p->tied ? bt_pipe_copy(s->pipe, BT_PIPE_DOWN, table, p->tied * elem, err) : BT_OK;
}

static void destroy(bt_micro_schedule *s) {
    pipeline *p = (pipeline *)s;
    bt_pipe_destroy(s->pipe);
    free(p->inputs);
    free(p->positions);
    free(p->head_grads);
    free(p);
}

bt_code bt_schedule_1f1b_create(bt_micro_schedule **out, const bt_model_setup *s,
                                const bt_mesh *mesh, bt_err *err) {
    *out = NULL;
    pipeline *p = calloc(1, sizeof *p);
    if (!p) return bt_fail(err, BT_NOMEM, "cannot take memory for a pipeline stage");
    *p = (pipeline){.base = {.run = run, .tie = tie, .destroy = destroy},
                    .first = bt_slice_is_first_stage(s->slice),
                    .last = bt_slice_is_last_stage(s->slice),
                    .slots = s->in_flight,
                    .behind = mesh->shape.pp - 1 - mesh->me.pp,
                    .tokens = (size_t)s->B * (size_t)s->cfg.T,
                    .tied = bt_stage_tied_elems(s)};
    p->inputs = calloc((size_t)p->slots * p->tokens, sizeof *p->inputs);
    p->positions = calloc((size_t)p->slots * p->tokens, sizeof *p->positions);
    p->head_grads = p->first ? calloc(p->tied + 1, sizeof *p->head_grads) : NULL;
    bt_code code = p->inputs && p->positions && (!p->first || p->head_grads)
                       ? bt_pipe_create(&p->base.pipe, mesh, bt_stage_elems(s), s->stages_bf16, err)
                       : bt_fail(err, BT_NOMEM, "cannot take memory for a pipeline stage");
    if (code != BT_OK) {
        destroy(&p->base);
        return code;
    }
    *out = &p->base;
    return BT_OK;
}
