/* schedule_pipeline.c - runs a step's micro-batches through the stages of a pipeline, in the order of
 * pass_order.h: one forward and one backward in turn (1F1B), interleaved with several chunks of layers per stage.
 *
 * With preferences a micro-batch's pass through the base immediately precedes its own forward pass. The gradients
 * of a micro-batch are those of one rank: residuals and their gradients are sent as floats. The last stage
 * computes the head's contribution to a tied embedding's gradient and sends it to the first, which posts its
 * receive at the beginning of the step and computes meanwhile. The first stage updates the embedding and sends its
 * new values back. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kernels/ops/ops.h"
#include "engine/micro/micro_schedule.h"
#include "engine/model/net/stage.h"
#include "engine/parallel/schedule/pass_order.h"

typedef struct pipeline {
    bt_micro_schedule base; /* first: a bt_micro_schedule is this */
    bool last;              /* stage */
    bt_pass_order order;
    int slots, ring; /* maximum number of passes, and of micro-batches, in flight */
    size_t tokens;   /* per micro-batch */
    size_t tied;     /* elements of a table that first and last stage share */
    int32_t
        *inputs; /* (ring, tokens) needed again by the embedding's backward and the head's loss */
    int32_t *positions; /* (ring, tokens) positions in documents: needed by every pass */
    int32_t *targets;   /* (ring, tokens) last stage */
    bool documents;     /* the batches have positions */
    float *head_grads;  /* (tied) first stage; (sent, tied) last stage: on their way */
    int sent;           /* tables on their way at most; 0: the last stage waits for each */
    int *free_slots;    /* (n_free of slots) */
    int n_free;
    int *slot_of; /* (chunks, ring) of passes in flight */
} pipeline;

/* Number of gradients of the head in flight. If a stage has several chunks, the first stage cannot receive these
 * gradients before the last one has continued, so they are sent asynchronously. Reproducible training sends one
 * per micro-batch, and up to this many follow before the first stage receives them (pass_order.h); otherwise there
 * is one sum. */
static int tables_sent(const bt_model_setup *s) {
    if (bt_slice_chunks(s->slice) == 1 || bt_stage_tied_elems(s) == 0) return 0;
    return s->leaves > 1 ? s->slice.pp_size : 1;
}

static bt_pipe_cfg pipe_cfg(const bt_model_setup *s) {
    return (bt_pipe_cfg){.elems = bt_stage_elems(s),
                         .bf16 = s->stages_bf16,
                         .chunks = bt_slice_chunks(s->slice),
                         .tables = bt_slice_is_last_stage(s->slice)    ? tables_sent(s)
                                   : bt_slice_is_first_stage(s->slice) ? bt_stage_tied_elems(s) > 0
                                                                       : 0,
                         .table_bytes = bt_stage_tied_elems(s) * sizeof(float)};
}

/* tables of head_grads */
static size_t head_gradient_tables(const bt_model_setup *s) {
    return bt_slice_is_first_stage(s->slice) ? 1 : (size_t)pipe_cfg(s).tables;
}

size_t bt_schedule_pipeline_bytes(const bt_model_setup *s, const bt_mesh_shape *shape) {
    const bt_pipe_cfg pipe = pipe_cfg(s);
    size_t tokens = (size_t)s->B * (size_t)s->cfg.T;
    return bt_pipe_bytes(shape, s->slice.pp_stage, &pipe) +
           (bt_slice_is_last_stage(s->slice) ? 3 : 2) * (size_t)s->micros_in_flight * tokens *
               sizeof(int32_t) +
           head_gradient_tables(s) * bt_stage_tied_elems(s) * sizeof(float);
}

/* ---- stored micro-batches ----------------------------------------------------------------------------- */

static size_t ring_offset(const pipeline *p, int64_t i) {
    return (size_t)(i % p->ring) * p->tokens;
}

static int *activation_slot(const pipeline *p, const bt_pass *x) {
    return &p->slot_of[x->chunk * p->ring + (int)(x->micro % p->ring)];
}

static void copy_tokens(const int32_t *from, int32_t *kept, size_t at, size_t n) {
    if (kept) memcpy(kept + at, from, n * sizeof *from);
}

/* Returns the tokens of micro-batch i for the pass of any chunk. */
static bt_batch stored_batch(const pipeline *p, int64_t i) {
    const size_t at = ring_offset(p, i);
    return (bt_batch){.inputs = p->inputs + at,
                      .targets = p->targets ? p->targets + at : NULL,
                      .positions = p->documents ? p->positions + at : NULL};
}

/* Takes the next micro-batch and stores its tokens. */
static bt_code take_tokens(pipeline *p, bt_micro *m, int64_t i, bt_err *err) {
    const size_t at = ring_offset(p, i);
    bt_batch batch;
    BT_TRY(bt_micro_tokens(m, i, &batch, err));
    p->documents = batch.positions != NULL;
    copy_tokens(batch.inputs, p->inputs, at, p->tokens);
    copy_tokens(batch.targets, p->targets, at, p->tokens);
    if (p->documents) copy_tokens(batch.positions, p->positions, at, p->tokens);
    return BT_OK;
}

/* ---- one pass -------------------------------------------------------------------------------- */

int64_t bt_micro_messages(const bt_model *model) { return bt_model_has_reference(model) ? 2 : 1; }

bt_code bt_micro_reference(bt_pipe *pipe, bt_model *model, const int32_t *inputs,
                           const int32_t *targets, bt_err *err) {
    if (!pipe || !bt_model_has_reference(model)) return BT_OK;
    if (!bt_model_begins(model))
        BT_TRY(bt_pipe_recv(pipe, BT_PIPE_DOWN, bt_model_stage_in(model), err));
    bt_model_stage_reference(model, inputs, targets);
    return bt_model_ends(model) ? BT_OK
                                : bt_pipe_send(pipe, BT_PIPE_DOWN, bt_model_stage_out(model), err);
}

/* Pass through the base of the micro-batch in this slot; its time counts as this rank's own. */
static bt_code forward_reference(pipeline *p, bt_micro *m, const bt_batch *b, bt_err *err) {
    bt_micro_pass_begin(m);
    BT_TRY(bt_micro_reference(p->base.pipe, m->model, b->inputs, b->targets, err));
    return bt_micro_pass_end(m, err);
}

static bt_code stage_forward(pipeline *p, bt_micro *m, const bt_batch *b, bt_err *err) {
    BT_TRY(forward_reference(p, m, b, err));
    if (!bt_model_begins(m->model))
        BT_TRY(bt_pipe_recv(p->base.pipe, BT_PIPE_DOWN, bt_model_stage_in(m->model), err));
    bt_micro_pass_begin(m);
    bt_model_stage_forward(m->model, b->inputs);
    BT_TRY(bt_micro_pass_end(m, err));
    return bt_pipe_send(p->base.pipe, BT_PIPE_DOWN, bt_model_stage_out(m->model), err);
}

/* Posts the receive of the head's gradient while the first stage computes, if the step has only one message. With
 * reproducible training each micro-batch sends a message, received when it is needed. */
static bt_code expect_head_grads(pipeline *p, const bt_micro *m, bt_err *err) {
    return p->tied && p->order.stage == 0 && !m->reproducible
               ? bt_pipe_expect(p->base.pipe, p->head_grads, err)
               : BT_OK;
}

/* Receives the head's part of the tied embedding's gradient and adds it before the embedding's own part, as one rank
 * would. */
static bt_code receive_head_grads(pipeline *p, const bt_micro *m, bt_err *err) {
    bt_model *model = m->model;
    BT_TRY(m->reproducible ? bt_pipe_copy(p->base.pipe, BT_PIPE_UP, p->head_grads,
                                          p->tied * sizeof *p->head_grads, err)
                           : bt_pipe_take(p->base.pipe, err));
    bt_op_add(bt_model_tied_grads(model), p->head_grads, p->tied);
    return BT_OK;
}

static bt_code send_head_grads(pipeline *p, bt_model *model, bt_err *err) {
    float *grads = bt_model_tied_grads(model);
    BT_TRY(bt_pipe_copy(p->base.pipe, BT_PIPE_UP, grads, p->tied * sizeof *grads, err));
    bt_op_zero(grads, p->tied);
    return BT_OK;
}

static bt_code start_head_grads(pipeline *p, bt_model *model, int64_t i, bt_err *err) {
    const int at = (int)(i % p->sent);
    float *grads = bt_model_tied_grads(model), *leaving = p->head_grads + (size_t)at * p->tied;
    BT_TRY(bt_pipe_copy_up_wait(p->base.pipe, at, err));
    memcpy(leaving, grads, p->tied * sizeof *grads);
    bt_op_zero(grads, p->tied);
    return bt_pipe_copy_up(p->base.pipe, at, leaving, err);
}

static bt_code end_head_grads(const pipeline *p, bt_err *err) {
    for (int i = 0; i < p->sent && p->last; i++) BT_TRY(bt_pipe_copy_up_wait(p->base.pipe, i, err));
    return BT_OK;
}

/* the last virtual stage runs backward immediately after forward */
static bt_code forward_and_back(pipeline *p, bt_micro *m, int64_t i, double scale,
                                const bt_batch *b, bt_grad_ready_fn ready, bt_err *err) {
    BT_TRY(bt_micro_look_up(m, b, err));
    BT_TRY(forward_reference(p, m, b, err));
    BT_TRY(bt_pipe_recv(p->base.pipe, BT_PIPE_DOWN, bt_model_stage_in(m->model), err));
    bt_micro_pass_begin(m);
    bt_model_stage_synchronise(m->model);
    *bt_micro_loss(m, i) = bt_model_train_micro(m->model, b->inputs, b->targets, scale, ready,
                                                m->reducer);
    return bt_micro_pass_end(m, err);
}

static bt_code stage_backward_pass(pipeline *p, bt_micro *m, const bt_batch *b, bool tie,
                                   bt_grad_ready_fn ready, bt_err *err) {
    BT_TRY(bt_pipe_recv(p->base.pipe, BT_PIPE_UP, bt_model_stage_dx(m->model), err));
    if (tie && bt_model_begins(m->model)) BT_TRY(receive_head_grads(p, m, err));
    bt_micro_pass_begin(m);
    bt_model_stage_backward(m->model, b->inputs, ready, m->reducer);
    return bt_micro_pass_end(m, err);
}

static bt_code stage_backward(pipeline *p, bt_micro *m, const bt_pass *x, double scale,
                              const bt_batch *b, bt_err *err) {
    const bool tie = p->tied && (x->micro == m->plan->n - 1 || m->reproducible),
               ends = bt_model_ends(m->model);
    bt_grad_ready_fn ready = bt_micro_begin_backward(m, x->chunk, x->micro);
    if (ends)
        BT_TRY(forward_and_back(p, m, x->micro, scale, b, ready, err));
    else
        BT_TRY(stage_backward_pass(p, m, b, tie, ready, err));
    if (!bt_model_begins(m->model))
        BT_TRY(bt_pipe_send(p->base.pipe, BT_PIPE_UP, bt_model_stage_dx(m->model), err));
    /* They are sent after the message that the first stage needs before it can receive them. */
    if (tie && ends)
        BT_TRY(p->sent ? start_head_grads(p, m->model, x->micro, err)
                       : send_head_grads(p, m->model, err));
    return bt_micro_end(m, x->chunk, x->micro, err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Assigns slots as passes begin, so that there are no more than passes in flight. */
static bt_code run_pass(pipeline *p, bt_micro *m, bt_pass x, double scale, bt_err *err) {
    const bool tail = p->last &&
                      x.chunk == p->order.chunks - 1; /* together with its backward pass */
    if (x.chunk == 0 && !x.backward) BT_TRY(take_tokens(p, m, x.micro, err));
    if (tail && !x.backward) return BT_OK;
    bt_batch b = stored_batch(p, x.micro);
    if (!x.backward || tail) {
        assert(p->n_free > 0);
        *activation_slot(p, &x) = p->free_slots[--p->n_free];
    }
    bt_model_chunk(m->model, x.chunk);
    bt_model_slot(m->model, *activation_slot(p, &x));
    bt_micro_point(m, x.micro, b.positions);
    if (!x.backward) return stage_forward(p, m, &b, err);
    BT_TRY(stage_backward(p, m, &x, scale, &b, err));
    p->free_slots[p->n_free++] = *activation_slot(p, &x);
    return BT_OK;
}

static bt_code run_pipeline_schedule(bt_micro_schedule *s, bt_micro *m, double grad_scale,
                                     bt_err *err) {
    pipeline *p = (pipeline *)s;
    const int64_t n = p->order.micros = m->plan->n;
    double *losses = bt_micro_loss(m, 0);
    if (p->order.chunks > 1 && n % p->order.stages != 0)
        return bt_fail(err, BT_ARG,
                       "%" PRId64 " micro-batches of a rank are no multiple of %d pipeline stages",
                       n, p->order.stages);
    memset(losses, 0, (size_t)n * sizeof *losses);
    for (p->n_free = 0; p->n_free < p->slots; p->n_free++)
        p->free_slots[p->n_free] = p->slots - 1 - p->n_free;
    BT_TRY(bt_pipe_begin(s->pipe, n * bt_micro_messages(m->model), n, err));
    BT_TRY(expect_head_grads(p, m, err));
    for (int64_t i = 0; i < bt_pass_count(&p->order); i++)
        BT_TRY(run_pass(p, m, bt_pass_at(&p->order, i), grad_scale, err));
    BT_TRY(end_head_grads(p, err));
    bt_model_chunk(m->model, 0);
    BT_TRY(bt_pipe_end(s->pipe, err));
    return bt_pipe_sum(s->pipe, losses, (size_t)n, err);
}

static bt_code tie_pipeline_gradients(bt_micro_schedule *s, bt_model *model, bt_err *err) {
    const pipeline *p = (pipeline *)s;
    size_t elem;
    void *table = bt_model_tied(model, &elem);
    return p->tied ? bt_pipe_copy(s->pipe, BT_PIPE_DOWN, table, p->tied * elem, err) : BT_OK;
}

static void destroy_pipeline_schedule(bt_micro_schedule *s) {
    pipeline *p = (pipeline *)s;
    bt_pipe_destroy(s->pipe);
    free(p->inputs);
    free(p->positions);
    free(p->targets);
    free(p->head_grads);
    free(p->free_slots);
    free(p->slot_of);
    free(p);
}

static bt_code allocate_pipeline(pipeline *p, const bt_model_setup *s, bt_err *err) {
    const size_t kept = (size_t)p->ring * p->tokens;
    p->inputs = calloc(kept, sizeof *p->inputs);
    p->positions = calloc(kept, sizeof *p->positions);
    p->targets = p->last ? calloc(kept, sizeof *p->targets) : NULL;
    p->head_grads = calloc(head_gradient_tables(s) * p->tied + 1, sizeof *p->head_grads);
    p->free_slots = calloc((size_t)p->slots, sizeof *p->free_slots);
    p->slot_of = calloc((size_t)(p->order.chunks * p->ring), sizeof *p->slot_of);
    if (p->inputs && p->positions && (p->targets || !p->last) && p->head_grads && p->free_slots &&
        p->slot_of)
        return BT_OK;
    return bt_fail(err, BT_NOMEM, "cannot take memory for a pipeline stage");
}

bt_code bt_schedule_pipeline_create(bt_micro_schedule **out, const bt_model_setup *s,
                                    const bt_mesh *mesh, bt_err *err) {
    *out = NULL;
    const bt_pipe_cfg pipe = pipe_cfg(s);
    pipeline *p = calloc(1, sizeof *p);
    if (!p) return bt_fail(err, BT_NOMEM, "cannot take memory for a pipeline stage");
    *p = (pipeline){.base = {.run = run_pipeline_schedule,
                             .tie = tie_pipeline_gradients,
                             .destroy = destroy_pipeline_schedule},
                    .last = bt_slice_is_last_stage(s->slice),
                    .order = {.stages = mesh->shape.pp,
                              .stage = mesh->me.pp,
                              .chunks = bt_slice_chunks(s->slice)},
                    .slots = s->in_flight,
                    .ring = s->micros_in_flight,
                    .tokens = (size_t)s->B * (size_t)s->cfg.T,
                    .tied = bt_stage_tied_elems(s),
                    .sent = tables_sent(s)};
    bt_code code = allocate_pipeline(p, s, err);
    if (code == BT_OK) code = bt_pipe_create(&p->base.pipe, mesh, &pipe, err);
    if (code != BT_OK) {
        destroy_pipeline_schedule(&p->base);
        return code;
    }
    *out = &p->base;
    return BT_OK;
}
