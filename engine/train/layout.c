/* layout.c - who holds what: the optimizer's state over the shards (ZeRO), and the few operations
 * whose meaning depends on it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/small.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/exact.h"
#include "engine/optim/norm.h"
#include "engine/train/parts.h"
#include "engine/train/plan.h"

/* of a tensor's piece, over the threads */
enum { BT_EXACT_SPANS = 64 };

static bool sharded(const bt_trainer *t) { return t->shards.n > 1; }

void bt_layout_meter_tp(bt_trainer *t, int64_t *total_ns) {
    if (!t->tp_group) return;
    int64_t all = t->tp_group->comm_ns - t->tp_ns, wait = t->tp_group->wait_ns - t->tp_wait_ns;
    t->tp_ns += all;
    t->tp_wait_ns += wait;
    if (!total_ns) return;
    *total_ns += all;
    bt_meter_add(&t->meter, BT_MR_COMM_EXPOSED, all - wait);
    bt_meter_add(&t->meter, BT_MR_COMM_BUSY, all - wait);
    bt_meter_add(&t->meter, BT_MR_WAIT, wait);
}

/* ---- plan ------------------------------------------------------------------------------------ */

/* This rank's pieces of the flat arrays, and moments for them. */
bt_code bt_layout_take_pieces(bt_trainer *t, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    bt_optim_cfg optim = {.beta1 = t->cfg.beta1, .beta2 = t->cfg.beta2, .eps = t->cfg.eps};
    const bt_mesh_shape *s = &t->mesh.shape;
    bt_model_cfg whole;
    bt_run_cfg_model(&t->cfg, &whole);
    BT_TRY(bt_params_init(&t->table, &whole,
                          (bt_model_slice){.tp_rank = t->mesh.me.tp, .tp_size = s->tp}, err));
    bt_shards_init(&t->shards, p->total, (size_t)t->cfg.bucket_bytes, s->dp_replicate,
                   t->cfg.zero > 0 ? s->dp_shard : 1);
    t->norm_blocks = calloc(bt_norm_blocks(p->total), sizeof *t->norm_blocks);
    t->tensor_squares = calloc(t->table.n, sizeof *t->tensor_squares);
    t->tp_norms = calloc((size_t)(s->tp > s->pp ? s->tp : s->pp), sizeof *t->tp_norms);
    t->spans = calloc(p->n, sizeof *t->spans);
    t->pieces = calloc(t->shards.n_stripes, sizeof *t->pieces);
    t->optims = calloc(t->shards.n_stripes, sizeof *t->optims);
    if (!t->norm_blocks || !t->tensor_squares || !t->tp_norms || !t->spans || !t->pieces ||
        !t->optims)
        return bt_fail(err, BT_NOMEM, "cannot take memory for %zu tensors", p->n);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        t->spans[i] = (bt_optim_span){x->offset, x->offset + x->count, x->decay};
    }
    for (t->n_pieces = 0; t->n_pieces < t->shards.n_stripes; t->n_pieces++) {
        bt_range r = bt_shards_piece(&t->shards, t->n_pieces, sharded(t) ? t->mesh.me.dp_shard : 0);
        t->pieces[t->n_pieces] = r;
        BT_TRY(bt_optim_create(&t->optims[t->n_pieces], &optim, r.begin, r.end, err));
    }
    const bt_weights_cfg weights = {t->model, &t->mesh, &t->shards, (int)t->cfg.zero,
                                    bt_plan_weight_source(&t->cfg)};
    return bt_weights_create(&t->weights, &weights, err);
}

void bt_layout_release(bt_trainer *t) {
    for (size_t i = 0; i < t->n_pieces; i++) bt_optim_destroy(t->optims[i]);
    bt_weights_destroy(t->weights);
    free(t->optims);
    free(t->pieces);
    free(t->spans);
    free(t->norm_blocks);
    free(t->tensor_squares);
    free(t->tp_norms);
    bt_params_release(&t->table);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* What the exchange has given back to the system is zero already; touching it would take the memory
 * again. */
void bt_layout_zero_grads(bt_trainer *t) {
    if (!sharded(t) || t->cfg.zero < 2) {
        bt_model_zero_grads(t->model);
        return;
    }
    float *grads = bt_model_grads(t->model);
    for (size_t i = 0; i < t->n_pieces; i++)
        bt_op_zero(grads + t->pieces[i].begin, t->pieces[i].end - t->pieces[i].begin);
}

/* Squares of a block without the tensors that another rank of the tensor-parallel group counts. */
static double counted_squares(const bt_trainer *t, size_t begin, size_t end) {
    const bt_params *p = bt_model_params(t->model);
    double sum = 0;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        size_t from = bt_max_size(x->offset + x->first_counted, begin),
               to = bt_min_size(x->offset + x->count, end);
        if (from < to) sum += bt_op_sum_squares(bt_model_grads(t->model) + from, to - from);
    }
    return sum;
}

/* Every element once: what several ranks of the tensor-parallel group hold is counted by one of
 *                     them. */
static void count_once(bt_trainer *t, bt_range piece) {
    const bt_params *p = bt_model_params(t->model);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        size_t from = bt_max_size(x->offset, piece.begin),
               to = bt_min_size(x->offset + x->first_counted, piece.end);
        if (from >= to) continue;
        for (size_t b = from / BT_SUM_BLOCK; b * BT_SUM_BLOCK < to; b++) {
            t->norm_blocks[b] = counted_squares(t, b * BT_SUM_BLOCK,
                                                bt_min_size((b + 1) * BT_SUM_BLOCK, piece.end));
        }
    }
}

static double sum_over_tp(bt_trainer *t, double x) {
    if (!t->tp_group) return x;
    t->tp_group->share(t->tp_group, &x, t->tp_norms, sizeof x);
    double sum = 0;
    for (int k = 0; k < t->tp_group->size; k++) sum += t->tp_norms[k];
    return sum;
}

/* in the order of the stages: the same bits on all of them */
static bt_code sum_over_stages(bt_trainer *t, double *x, bt_err *err) {
    double mine = *x, sum = 0;
    if (t->mesh.shape.pp == 1) return BT_OK;
    BT_TRY(bt_all_gather(t->mesh.pp, &mine, sizeof mine, t->tp_norms, err));
    for (int k = 0; k < t->mesh.shape.pp; k++) sum += t->tp_norms[k];
    *x = sum;
    return BT_OK;
}

/* ---- the norm without rounding: the same bits however the arrays lie in ranks ---------------- */

typedef struct exact_job {
    const float *x;
    size_t n;
    uint32_t most[BT_EXACT_SPANS];
    double sum[BT_EXACT_SPANS][2];
    bt_exact units;
    bool squares;
} exact_job;

static void exact_range(void *ctx, int thread, size_t begin, size_t end) {
    (void)thread;
    exact_job *j = ctx;
    for (size_t i = begin; i < end; i++) {
        size_t from = j->n * i / BT_EXACT_SPANS, to = j->n * (i + 1) / BT_EXACT_SPANS;
        if (j->squares)
            bt_exact_add(j->sum[i], j->x + from, to - from, BT_EXACT_SQUARE, &j->units);
        else
            j->most[i] = bt_exact_most(j->x + from, to - from);
    }
}

/* over this rank's pieces: the largest magnitude, or the sum of squares of what this rank counts */
static void exact_pass(const bt_trainer *t, exact_job *j, uint32_t *most_bits, double sum[2]) {
    const bt_params *p = bt_model_params(t->model);
    for (size_t i = 0; i < t->n_pieces; i++) {
        for (size_t k = 0; k < p->n; k++) {
            const bt_tensor *x = &p->tensors[k];
            size_t from = bt_max_size(x->offset + x->first_counted, t->pieces[i].begin),
                   to = bt_min_size(x->offset + x->count, t->pieces[i].end);
            if (from >= to) continue;
            j->x = bt_model_grads(t->model) + from;
            j->n = to - from;
            memset(j->sum, 0, sizeof j->sum);
            bt_parallel_for(BT_EXACT_SPANS, to - from < BT_SUM_BLOCK ? BT_EXACT_SPANS : 1,
                            exact_range, j);
            for (size_t s = 0; s < BT_EXACT_SPANS; s++) {
                if (j->squares)
                    sum[0] += j->sum[s][0], sum[1] += j->sum[s][1];
                else if (j->most[s] > *most_bits)
                    *most_bits = j->most[s];
            }
        }
    }
}

static bt_code exact_norm(bt_trainer *t, double *norm, bt_err *err) {
    exact_job j = {.squares = false};
    uint32_t bits = 0;
    float largest;
    double n = 0, sum[2] = {0, 0};
    exact_pass(t, &j, &bits, sum);
    int64_t top = bits;
    BT_TRY(bt_all_reduce_i64(t->mesh.shard, &top, 1, BT_MAX, err));
    BT_TRY(bt_all_reduce_i64(t->mesh.tp, &top, 1, BT_MAX, err));
    BT_TRY(bt_all_reduce_i64(t->mesh.pp, &top, 1, BT_MAX, err));
    bits = (uint32_t)top;
    memcpy(&largest, &bits, sizeof largest);
    *norm = (double)largest;
    if (!isfinite(largest) || largest == 0) return BT_OK;
    for (size_t i = 0; i < t->table.n; i++)
        n += (double)t->table.tensors[i].whole_rows * (double)t->table.tensors[i].whole_cols;
    j.units = bt_exact_units((double)largest * (double)largest, n);
    j.squares = true;
    exact_pass(t, &j, &bits, sum);
    if (sharded(t)) BT_TRY(bt_all_reduce_f64(t->mesh.shard, sum, 2, BT_SUM, err));
    BT_TRY(bt_all_reduce_f64(t->mesh.tp, sum, 2, BT_SUM, err));
    BT_TRY(bt_all_reduce_f64(t->mesh.pp, sum, 2, BT_SUM, err));
    *norm = sqrt(sum[0] + sum[1]) * t->unscale;
    return BT_OK;
}

bt_code bt_layout_grad_norm(bt_trainer *t, double *norm, bt_err *err) {
    const float *grads = bt_model_grads(t->model);
    size_t n = bt_norm_blocks(t->shards.total);
    if (t->cfg.parts > 1) return exact_norm(t, norm, err);
    if (sharded(t)) memset(t->norm_blocks, 0, n * sizeof *t->norm_blocks);
    for (size_t i = 0; i < t->n_pieces; i++) {
        bt_norm_fill(t->norm_blocks, grads, t->pieces[i].begin, t->pieces[i].end);
        if (t->tp_group) count_once(t, t->pieces[i]);
    }
    /* x + 0 is x: no bit changes */
    if (sharded(t)) BT_TRY(bt_all_reduce_f64(t->mesh.shard, t->norm_blocks, n, BT_SUM, err));
    double squares = sum_over_tp(t, bt_norm_sum(t->norm_blocks, n));
    BT_TRY(sum_over_stages(t, &squares, err));
    *norm = sqrt(squares) * t->unscale;
    return bt_tp_group_check(t->tp_group, err);
}

bt_code bt_layout_update(bt_trainer *t, float grad_scale, float lr, float decay, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    int64_t start = bt_now_ns(), comm_ns = 0, tp_ns = 0;
    for (size_t i = t->n_pieces; i-- > 0;) {
        bt_optim_step(t->optims[i], bt_model_weights(t->model), bt_model_grads(t->model), t->spans,
                      p->n, t->at.updates + 1, grad_scale, lr, decay);
        BT_TRY(bt_weights_gather(t->weights, i, err));
    }
    bt_layout_meter_tp(t, NULL); /* the norm's few bytes stay with the optimizer */
    BT_TRY(bt_weights_quantise(t->weights, &comm_ns, err));
    BT_TRY(bt_pipeline_tie(t, &comm_ns, err));
    BT_TRY(bt_tp_group_check(t->tp_group, err));
    bt_layout_meter_tp(t, &tp_ns);
    bt_meter_add(&t->meter, BT_MR_OPTIM, bt_now_ns() - start - comm_ns - tp_ns);
    bt_meter_add(&t->meter, BT_MR_COMM_EXPOSED, comm_ns);
    bt_meter_add(&t->meter, BT_MR_COMM_BUSY, comm_ns);
    return BT_OK;
}

/* Initial values of what this rank holds: a function of the seed and the element's place alone. */
void bt_layout_init_weights(bt_trainer *t) {
    const bt_params *p = bt_model_params(t->model);
    uint64_t seed = (uint64_t)t->cfg.seed;
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *x = &p->tensors[k];
        if (bt_weights_holds(t->weights, x)) {
            bt_model_init_range(t->model, seed, x->offset, x->offset + x->count);
            continue;
        }
        for (size_t i = 0; i < t->n_pieces; i++) {
            bt_model_init_range(t->model, seed, bt_max_size(t->pieces[i].begin, x->offset),
                                bt_min_size(t->pieces[i].end, x->offset + x->count));
        }
    }
}

bt_code bt_layout_quantise(bt_trainer *t, bt_err *err) {
    int64_t unmeasured = 0;
    BT_TRY(bt_weights_quantise(t->weights, &unmeasured, err));
    BT_TRY(bt_pipeline_tie(t, &unmeasured, err));
    return bt_tp_group_check(t->tp_group, err);
}

/* ---- per tensor ------------------------------------------------------------------------------ */

static double own_squares(const bt_trainer *t, const bt_tensor *x) {
    const float *grads = bt_model_grads(t->model);
    double sum = 0;
    for (size_t i = 0; i < t->n_pieces; i++) {
        size_t from = bt_max_size(x->offset + x->first_counted, t->pieces[i].begin),
               to = bt_min_size(x->offset + x->count, t->pieces[i].end);
        if (from < to) sum += bt_op_sum_squares(grads + from, to - from);
    }
    return sum;
}

bt_code bt_layout_tensor_squares(bt_trainer *t, const double **out, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    memset(t->tensor_squares, 0, t->table.n * sizeof *t->tensor_squares);
    for (size_t i = 0; i < p->n; i++)
        t->tensor_squares[p->before + i] = own_squares(t, &p->tensors[i]) * t->unscale * t->unscale;
    if (sharded(t))
        BT_TRY(bt_all_reduce_f64(t->mesh.shard, t->tensor_squares, t->table.n, BT_SUM, err));
    BT_TRY(bt_all_reduce_f64(t->mesh.tp, t->tensor_squares, t->table.n, BT_SUM, err));
    BT_TRY(bt_all_reduce_f64(t->mesh.pp, t->tensor_squares, t->table.n, BT_SUM, err));
    *out = t->tensor_squares;
    return BT_OK;
}
