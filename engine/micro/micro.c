/* micro.c - prepares tokens, rounding keys and gradient destinations of a pass, and checks its results. */
#include "engine/micro/micro.h"

#include <inttypes.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/base/testing/testing.h"
#include "engine/parallel/tp/tp_group_create.h"

size_t bt_micro_bytes(int64_t micros, int64_t rows) {
    return (size_t)micros * sizeof(double) + (size_t)rows * sizeof(int32_t);
}

bt_code bt_micro_create(bt_micro *m, int64_t micros, bt_err *err) {
    m->losses = calloc((size_t)micros, sizeof *m->losses);
    if (m->stretch) m->positions = calloc((size_t)m->rows, sizeof *m->positions);
    if (!m->losses || (m->stretch && !m->positions))
        return bt_fail(err, BT_NOMEM, "cannot take memory for %" PRId64 " micro-batches", micros);
    m->slowdown = bt_testing_slowness(bt_comm_rank(bt_comm_world()));
    m->delay_ns = bt_testing_delay_ns();
    return BT_OK;
}

void bt_micro_release(bt_micro *m) {
    free(m->losses);
    free(m->positions);
}

double *bt_micro_loss(const bt_micro *m, int64_t i) { return m->losses + m->plan->first + i; }

/* positions begin again at every stretch of a sequence, or of a document in it */
static void cut_positions(bt_micro *m, bt_batch *batch) {
    if (!m->stretch || m->stretch == m->seq_len) return;
    for (int64_t i = 0; i < m->rows; i++) {
        const int64_t at = batch->positions ? batch->positions[i] : i % m->seq_len;
        m->positions[i] = (int32_t)(at < 0 ? at : at % m->stretch);
    }
    batch->positions = m->positions;
}

/* number of micro-batch i's first token in the global batch */
static int64_t first_row_of_micro(const bt_micro *m, int64_t i) {
    return m->before_rows + (m->plan->first + i) * m->rows;
}

bt_code bt_micro_tokens(bt_micro *m, int64_t i, bt_batch *out, bt_err *err) {
    bt_progress_enter(m->page, BT_AT_DATA, m->step);
    bt_span_begin(BT_MR_DATA);
    BT_TRY(bt_loader_next(m->loader, out, err));
    if (out->positions) m->counted += out->counted;
    cut_positions(m, out);
    if (m->loaded) m->loaded(m->ctx, out, first_row_of_micro(m, i));
    bt_span_end();
    bt_progress_enter(m->page, BT_AT_COMPUTE, m->step);
    return BT_OK;
}

void bt_micro_point(bt_micro *m, int64_t i, const int32_t *positions) {
    bt_model_documents(m->model, positions);
    if (m->before_pass) m->before_pass(m->ctx, first_row_of_micro(m, i));
}

bt_code bt_micro_look_up(bt_micro *m, const bt_batch *b, bt_err *err) {
    if (!m->look_up) return BT_OK;
    bt_progress_enter(m->page, BT_AT_DATA, m->step);
    bt_span_begin(BT_MR_DATA);
    BT_TRY(m->look_up(m->look_up_ctx, b, err));
    bt_span_end();
    bt_progress_enter(m->page, BT_AT_COMPUTE, m->step);
    return BT_OK;
}

/* In reproducible training the reducer takes a unit as a whole, when it is done. */
static void ignore_ready(void *ctx, size_t begin, size_t end) { (void)ctx, (void)begin, (void)end; }

bt_grad_ready_fn bt_micro_begin_backward(bt_micro *m, int chunk, int64_t i) {
    const bool last = i == m->plan->n - 1,
               first_chunk = chunk == bt_slice_chunks(bt_model_slice_of(m->model)) - 1;
    bt_model_noise(m->model, m->seed, (uint64_t)m->step, (uint64_t)first_row_of_micro(m, i));
    if (m->reproducible) bt_model_grads_into(m->model, bt_reducer_unit(m->reducer, chunk));
    if (last && first_chunk) bt_reducer_last(m->reducer);
    return last ? bt_reducer_ready : m->reproducible ? ignore_ready : NULL;
}

static int64_t computed_ns(void) { return bt_span_ns(BT_MR_FWD) + bt_span_ns(BT_MR_BWD); }

void bt_micro_pass_begin(bt_micro *m) {
    m->computed_ns = computed_ns();
    bt_span_begin(BT_MR_BWD);
}

bt_code bt_micro_pass_end(bt_micro *m, bt_err *err) {
    BT_TRY(bt_tp_group_check(m->update->tp_group, err));
    BT_TRY(bt_weights_check(m->update->weights, err));
    if (m->slowdown > 1)
        bt_sleep_ns((int64_t)((m->slowdown - 1) * (double)(computed_ns() - m->computed_ns)));
    if (m->delay_ns > 0) bt_sleep_ns(m->delay_ns);
    bt_span_end();
    return BT_OK;
}

bt_code bt_micro_end(bt_micro *m, int chunk, int64_t i, bt_err *err) {
    bt_span_begin(BT_MR_BWD);
    if (m->reproducible && i < m->plan->n - 1) bt_reducer_unit_done(m->reducer, chunk);
    bt_span_end();
    bt_span_begin(BT_MR_MONITOR);
    BT_TRY(bt_telemetry_poll(m->telemetry, err));
    bt_span_end();
    return BT_OK;
}
