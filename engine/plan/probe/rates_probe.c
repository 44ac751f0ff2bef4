/* rates_probe.c - measures layers and heads as pipeline stages that contain nothing else. */
#include "engine/plan/probe/rates_probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/small.h"
#include "engine/base/span.h"
#include "engine/base/tables/derived.h"
#include "engine/base/testing/testing.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/stage.h"
#include "engine/observe/energy.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/plan/probe/probe_clock.h"
#include "engine/plan/probe/probe_group.h"

/* PASSES: timed passes, after one untimed pass. */
enum { PASSES_LEAST = 3, PASSES_MOST = 24, PROBE_VOCAB = 32, TINY_HEAD = 32, TINY_FFN = 64 };
/* OPS_MOST: most operations of one pass; larger shapes are measured with fewer tokens or words. */
static const double OPS_MOST = 1.2e11, GROUP_OPS_MOST = 4e10, PART_S = 0.3, FFN_MOST = 9e6;
/* Time budgets that the limits above assume; a smaller budget reduces operations and rows proportionally. */
static const double FULL_S = 15, GROUPS_FULL_S = 3;

typedef struct stage {
    bt_model *model;
    bt_tp_group *group; /* tensor-parallel group of a slice; NULL: the whole layer or head */
    int32_t *tokens;
    bool head;
} stage;

/* Reduces a shape to one that is measured quickly and has a similar rate. */
static bt_part_shape shrink_part_shape(bt_part_shape s, double most, double share) {
    const double ops = most * share;
    const int32_t rows = share < 1 ? 128 : 256;
    while (s.B > 1 && bt_part_ops(&s) + bt_part_attention_ops(&s) > ops) s.B = (s.B + 1) / 2;
    while (s.T > rows && bt_part_ops(&s) + bt_part_attention_ops(&s) > ops) s.T = (s.T + 1) / 2;
    /* Of the widest layers only a part is measured, because allocating all of it would take longer than a pass. */
    while (s.kind == BT_PART_LAYER && s.F / s.tp > 4096 && (double)s.F / s.tp * s.C > FFN_MOST)
        s.F = (s.F / s.tp / 2 + 63) / 64 * 64 * s.tp;
    while (s.kind == BT_PART_HEAD && s.V / s.tp > 4096 && bt_part_ops(&s) > ops)
        s.V = (s.V + 1) / 2;
    return s;
}

static bt_model_setup probe_setup(const bt_part_shape *s) {
    bool head = s->kind == BT_PART_HEAD;
    bt_model_setup m = {.cfg = {.L = head ? 2 : 3,
                                .C = s->C,
                                .H = head ? s->tp : s->H,
                                .KV = head ? s->tp : s->KV,
                                .D = head ? TINY_HEAD : s->D,
                                .F = head ? TINY_FFN * s->tp : s->F,
                                .T = s->T,
                                .V = head ? s->V : PROBE_VOCAB * s->tp,
                                .norm = (bt_norm_kind)s->norm,
                                .act = (bt_act)s->act,
                                .linear = (bt_linear_kind)s->linear,
                                .tied = true,
                                .qk_norm = s->qk_norm != 0,
                                .rope_theta = 10000,
                                .norm_eps = 1e-5,
                                .init_std = 0.02,
                                .lora = {.rank = s->lora,
                                         .scale = 1,
                                         .targets = (unsigned)s->targets & BT_LORA_ALL,
                                         .dora = (s->targets & BT_PART_DORA) != 0}},
                        .B = s->B,
                        .in_flight = 1,
                        .prec = (bt_prec)s->precision,
                        .train = true,
                        .n_threads = bt_threads_count(),
                        .recompute = (bt_recompute)s->recompute,
                        .grad_int8 = s->grad_int8 % 2 != 0,
                        .attention_int8 = s->grad_int8 >= 2,
                        .sequence = s->sequence != 0,
                        .lean = s->lean != 0,
                        .base_q8 = s->base8 != 0,
                        .slice = {.pp_stage = 1, .pp_size = head ? 2 : 3, .tp_size = s->tp}};
    return m;
}

static void fill_uniform(float *x, size_t n, float amplitude) {
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = amplitude * ((float)(state >> 8) / 8388608.0f - 1.0f);
    }
}

static void close_stage(stage *s) {
    bt_model_destroy(s->model);
    if (s->group) s->group->destroy(s->group);
    free(s->tokens);
}

/* Fills the frozen base of adapters with values in the form that its loader produces (tune/base_weights.h). */
static bt_code fill_base(bt_model *m, size_t vocab, size_t C, bt_err *err) {
    const bt_params *base = bt_model_base(m);
    size_t most = C;
    for (size_t i = 0; i < base->n; i++) most = bt_max_size(most, base->tensors[i].count);
    float *x = malloc(most * sizeof *x);
    if (!x)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a layer of %zu weights", most);
    fill_uniform(x, most, 0.03f);
    for (size_t i = 0; i < base->n; i++)
        bt_model_base_put(m, i, 0, base->tensors[i].count, x, 0.015f);
    for (size_t row = 0; row < vocab; row++) bt_model_base_put_tied(m, row * C, C, x);
    free(x);
    bt_model_base_done(m);
    bt_model_quantise(m);
    return BT_OK;
}

/* with: the real group, which is closed with the stage. NULL: a group whose exchanges take no time is created. */
static bt_code open_stage(stage *out, const bt_part_shape *shape, bt_tp_group *with, bt_err *err) {
    bt_model_setup setup = probe_setup(shape);
    size_t tokens = (size_t)shape->B * (size_t)shape->T;
    *out = (stage){.head = shape->kind == BT_PART_HEAD, .group = with};
    if (shape->tp > 1 && !with)
        BT_TRY(bt_probe_group_create(&out->group, shape->tp, tokens, (size_t)shape->C, err));
    setup.tp_group = out->group;
    setup.slice.tp_rank = with ? with->rank : 0;
    BT_TRY(bt_model_create(&out->model, &setup, err));
    out->tokens = malloc(tokens * sizeof *out->tokens);
    if (!out->tokens)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu tokens", tokens);
    for (size_t i = 0; i < tokens; i++) out->tokens[i] = (int32_t)(i * 7919 % (size_t)setup.cfg.V);
    fill_uniform(bt_model_weights(out->model), bt_model_params(out->model)->total, 0.03f);
    if (shape->lora) BT_TRY(fill_base(out->model, (size_t)setup.cfg.V, (size_t)shape->C, err));
    if (out->head && !shape->lora) {
        size_t elem, words = bt_stage_tied_elems(&setup);
        void *table = bt_model_tied(out->model, &elem);
        if (table && elem == sizeof(float)) fill_uniform(table, words, 0.03f);
        if (table && elem == sizeof(uint16_t)) memset(table, 0x3c, words * elem);
    }
    fill_uniform(bt_model_stage_in(out->model), bt_stage_elems(&setup), 1.0f);
    if (!shape->lora) bt_model_quantise(out->model);
    bt_model_zero_grads(out->model);
    bt_model_gradient_passes(out->model, true);
    return BT_OK;
}

static void run_probe_pass(stage *s, size_t elems) {
    bt_model_slot(s->model, 0);
    if (s->head) {
        (void)bt_model_train_micro(s->model, s->tokens, s->tokens, 1e-4, NULL, NULL);
        return;
    }
    bt_model_stage_forward(s->model, s->tokens);
    fill_uniform(bt_model_stage_dx(s->model), elems < 4096 ? elems : 4096, 1e-3f);
    bt_model_stage_backward(s->model, s->tokens, NULL, NULL);
}

static void attention_frac(double *fwd_s, double *bwd_s) {
    bt_op_profile ops[BT_OPS_MAX];
    size_t n = bt_ops_profile_rows(ops, BT_OPS_MAX);
    uint64_t forward = 0, backward = 0; /* `forward` includes recomputation */
    *fwd_s = *bwd_s = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(ops[i].name, "attn_fwd") == 0)
            *fwd_s = (double)ops[i].ns / 1e9, forward = ops[i].calls;
        if (strcmp(ops[i].name, "attn_bwd") == 0)
            *bwd_s = (double)ops[i].ns / 1e9, backward = ops[i].calls;
    }
    if (forward > backward) *fwd_s *= (double)backward / (double)forward;
}

/* Returns the time of a phase by the clock that measures passes. */
static double phase_seconds(bt_rank_metric phase) {
    return (double)(bt_threads_count() == 1 ? bt_span_processor_ns((int)phase)
                                            : bt_span_ns((int)phase)) /
           1e9;
}

/* The probe's clock measures whole passes, spans their forward and backward part, the profile attention's share. */
static void time_stage(stage *s, const bt_part_shape *shape, bt_part_rate *out) {
    bt_model_setup setup = probe_setup(shape);
    double took[PASSES_MOST], attn_fwd, attn_bwd;
    int64_t until = bt_now_ns() + (int64_t)(PART_S * 1e9);
    size_t n = 0, elems = bt_stage_elems(&setup);
    run_probe_pass(s, elems);
    if (s->group) bt_probe_group_skip_copies(s->group);
    bt_span_reset();
    bt_span_processor(bt_threads_count() == 1);
    bt_ops_profile(true);
    bt_span_begin(BT_MR_BWD);
    while (n < PASSES_LEAST || (n < PASSES_MOST && bt_now_ns() < until)) {
        double start = bt_probe_clock();
        run_probe_pass(s, elems);
        took[n++] = bt_probe_clock() - start;
    }
    bt_span_end();
    bt_ops_profile(false);
    attention_frac(&attn_fwd, &attn_bwd);
    double fwd = phase_seconds(BT_MR_FWD), bwd = phase_seconds(BT_MR_BWD),
           pass_s = bt_probe_typical(took, n), share = pass_s / (fwd + bwd),
           wall = pass_s * 1e9 / (double)(bt_span_ns(BT_MR_FWD) + bt_span_ns(BT_MR_BWD));
    bt_span_reset();
    *out = (bt_part_rate){.shape = *shape,
                          .fwd_s = fwd * share,
                          .bwd_s = bwd * share,
                          .attn_fwd_s = s->head ? 0 : attn_fwd * wall,
                          .attn_bwd_s = s->head ? 0 : attn_bwd * wall};
    bt_span_processor(false);
}

static double time_quantise(stage *s) {
    double took[PASSES_LEAST];
    for (size_t i = 0; i < PASSES_LEAST; i++) {
        double start = bt_probe_clock();
        bt_model_quantise(s->model);
        took[i] = bt_probe_clock() - start;
    }
    return bt_probe_typical(took, PASSES_LEAST);
}

/* Returns the shape of the one small layer that a stage with a head must have. */
static bt_part_shape small_layer_shape(const bt_part_shape *head) {
    bt_part_shape s = *head;
    s.kind = BT_PART_LAYER;
    s.V = 0;
    s.H = s.KV = s.tp;
    s.D = TINY_HEAD;
    s.F = TINY_FFN * s.tp;
    return s;
}

static bt_code measure_part(const bt_part_shape *shape, bt_part_rate *out, bt_err *err) {
    stage s;
    bt_code code = open_stage(&s, shape, NULL, err);
    if (code == BT_OK) {
        time_stage(&s, shape, out);
        out->quantise_s = s.head || shape->lora ? 0 : time_quantise(&s);
    }
    close_stage(&s);
    if (code != BT_OK || shape->kind != BT_PART_HEAD) return code;
    bt_part_shape small = small_layer_shape(shape);
    bt_part_rate layer;
    BT_TRY(measure_part(&small, &layer, err));
    out->fwd_s = fmax(0.1 * out->fwd_s, out->fwd_s - layer.fwd_s);
    out->bwd_s = fmax(0.1 * out->bwd_s, out->bwd_s - layer.bwd_s);
    return BT_OK;
}

static bt_code mean_part_rate(bt_part_rate *p, bt_err *err) {
    double v[] = {p->fwd_s, p->bwd_s, p->attn_fwd_s, p->attn_bwd_s, p->quantise_s};
    double n = bt_comm_size(bt_comm_world());
    BT_TRY(bt_all_reduce_f64(bt_comm_world(), v, sizeof v / sizeof *v, BT_SUM, err));
    p->fwd_s = v[0] / n;
    p->bwd_s = v[1] / n;
    p->attn_fwd_s = v[2] / n;
    p->attn_bwd_s = v[3] / n;
    p->quantise_s = v[4] / n;
    return BT_OK;
}

/* Reads the operations per second of the products in the last measured part; they are only displayed. */
static void read_product_rates(bt_rates *r) {
    bt_op_profile ops[BT_OPS_MAX];
    size_t n = bt_ops_profile_rows(ops, BT_OPS_MAX);
    r->n_ops = 0;
    for (size_t i = 0; i < n && r->n_ops < BT_RATE_OPS; i++) {
        if (!(ops[i].ops > 0) || ops[i].ns == 0) continue;
        bt_op_rate *o = &r->ops[r->n_ops++];
        snprintf(o->op, sizeof o->op, "%s", ops[i].name);
        snprintf(o->unit, sizeof o->unit, "GOP/s");
        o->rate = ops[i].ops / (double)ops[i].ns;
    }
}

static bt_code measure_part_on_all_ranks(const bt_part_shape *shape, bt_part_rate *out,
                                         bt_err *err) {
    BT_TRY(bt_barrier(bt_comm_world(), err));
    BT_TRY(bt_agree(bt_comm_world(), measure_part(shape, out, err), err));
    return mean_part_rate(out, err);
}

/* Measures a doubtful rate twice and keeps the shorter time, because disturbances only lengthen a pass. */
static bt_code probe_part(bt_rates *r, const bt_part_shape *want, double budget_s, bt_err *err) {
    bt_part_shape shape = shrink_part_shape(*want, OPS_MOST, fmin(1, budget_s / FULL_S));
    bt_part_rate rate, again;
    BT_TRY(measure_part_on_all_ranks(&shape, &rate, err));
    if (shape.kind == BT_PART_LAYER) read_product_rates(r);
    if (bt_rates_part_doubtful(r, &rate)) {
        BT_TRY(measure_part_on_all_ranks(&shape, &again, err));
        if (again.fwd_s + again.bwd_s < rate.fwd_s + rate.bwd_s) rate = again;
    }
    rate = bt_part_scaled(&rate, want);
    bt_rates_put_part(r, &rate);
    return BT_OK;
}

static double pass_wall_seconds(stage *s, size_t elems) {
    int64_t start = bt_now_ns();
    run_probe_pass(s, elems);
    return (double)(bt_now_ns() - start) / 1e9;
}

/* Runs equally many passes on all ranks, alternately with and without exchanges. Takes medians, and their mean. */
static bt_code time_groups_alternately(stage *real, stage *alone, bt_group_rate *g, bt_err *err) {
    bt_comm *world = bt_comm_world();
    const bt_model_setup setup = probe_setup(&g->shape);
    const size_t elems = bt_stage_elems(&setup);
    double together[PASSES_MOST], by_itself[PASSES_MOST];
    run_probe_pass(real, elems);
    run_probe_pass(alone, elems);
    bt_probe_group_skip_copies(alone->group);
    BT_TRY(bt_barrier(world, err));
    double first = pass_wall_seconds(real, elems) + pass_wall_seconds(alone, elems);
    BT_TRY(bt_all_reduce_f64(world, &first, 1, BT_MAX, err));
    const size_t n = (size_t)fmin(PASSES_MOST, fmax(PASSES_LEAST, 2 * PART_S / first));
    for (size_t i = 0; i < n; i++) {
        together[i] = pass_wall_seconds(real, elems);
        by_itself[i] = pass_wall_seconds(alone, elems);
    }
    double v[] = {bt_median_known(together, n), bt_median_known(by_itself, n)};
    BT_TRY(bt_all_reduce_f64(world, v, 2, BT_SUM, err));
    g->pass_s = v[0] / bt_comm_size(world);
    g->alone_s = v[1] / bt_comm_size(world);
    return bt_agree(world, bt_tp_group_check(real->group, err), err);
}

static bt_code probe_part_group(bt_rates *r, const bt_part_shape *want, double budget_s,
                                bt_err *err) {
    bt_comm *world = bt_comm_world(), *tp = NULL;
    const int me = bt_comm_rank(world);
    bt_group_rate g = {.world = bt_comm_size(world),
                       .shape = shrink_part_shape(*want, GROUP_OPS_MOST,
                                                  fmin(1, budget_s / GROUPS_FULL_S))};
    const size_t tokens = (size_t)g.shape.B * (size_t)g.shape.T;
    bt_tp_group *group = NULL;
    stage real = {0}, alone = {0};
    if (g.shape.tp < 2 || g.world % g.shape.tp != 0) return BT_OK;
    BT_TRY(bt_comm_split(&tp, world, me / g.shape.tp, me, err));
    bt_code code = bt_tp_group_create(&group, tp, tokens, (size_t)g.shape.C, err);
    code = bt_agree(world, code, err);
    if (code == BT_OK) {
        code = open_stage(&real, &g.shape, group, err);
        if (code == BT_OK) code = open_stage(&alone, &g.shape, NULL, err);
        code = bt_agree(world, code, err);
        if (code == BT_OK) code = time_groups_alternately(&real, &alone, &g, err);
        close_stage(&real);
        close_stage(&alone);
    } else {
        bt_tp_group_destroy(group);
    }
    bt_comm_free(tp);
    if (code == BT_OK) bt_rates_put_group(r, &g);
    return code;
}

/* The progress is the share of measured parts, or the share of the used budget if that is larger. */
static void report_probe_progress(const bt_probe_job *job, size_t done, double spent_s) {
    if (!job->progress) return;
    job->progress(fmin(1, fmax((double)done / (double)job->n_parts, spent_s / job->budget_s)),
                  job->links ? "links and groups of ranks" : "layers and heads");
}

static bt_code probe_groups(bt_rates *r, const bt_probe_job *job, bt_err *err) {
    const int64_t start = bt_now_ns();
    for (size_t i = 0; i < job->n_parts; i++) {
        double spent = (double)(bt_now_ns() - start) / 1e9;
        BT_TRY(bt_all_reduce_f64(bt_comm_world(), &spent, 1, BT_MAX, err));
        report_probe_progress(job, i, spent);
        if (i > 0 && spent > job->budget_s) break;
        BT_TRY(probe_part_group(r, &job->parts[i], job->budget_s, err));
    }
    return BT_OK;
}

static bt_code probe_parts(bt_rates *r, const bt_probe_job *job, int64_t start, bt_err *err) {
    for (size_t i = 0; i < job->n_parts; i++) {
        double spent = (double)(bt_now_ns() - start) / 1e9;
        BT_TRY(bt_all_reduce_f64(bt_comm_world(), &spent, 1, BT_MAX, err));
        report_probe_progress(job, i, spent);
        if (i > 1 && spent > job->budget_s) break;
        BT_TRY(probe_part(r, &job->parts[i], job->budget_s, err));
    }
    return BT_OK;
}

/* Stores the mean power of the ranks. If no rank can measure its energy, the previous value is kept. */
static bt_code store_mean_watts(bt_rates *r, double joules, int64_t since, bt_err *err) {
    double sums[] = {0, 0}; /* sum of watts; number of ranks that measured */
    if (joules > 0) {
        sums[0] = joules / ((double)(bt_now_ns() - since) / 1e9);
        sums[1] = 1;
    }
    BT_TRY(bt_all_reduce_f64(bt_comm_world(), sums, 2, BT_SUM, err));
    if (sums[1] > 0) r->rank_watts = sums[0] / sums[1];
    return BT_OK;
}

bt_code bt_rates_probe(bt_rates *r, const bt_probe_job *job, bt_err *err) {
    int64_t start = bt_now_ns();
    char why[BT_ENERGY_WHY];
    double spent[1];
    bt_energy energy;
    r->ranks = bt_comm_local_size();
    r->threads = bt_threads_count();
    if (getloadavg(spent, 1) == 1) r->load = spent[0] / (r->cores > 0 ? r->cores : 1);
    if (job->progress) job->progress(0, job->links ? "links" : job->machine ? "memory" : "");
    if (job->machine) BT_TRY(bt_rates_probe_machine(r, job->disk_dir, err));
    if (job->links) BT_TRY(bt_rates_probe_links(r, err));
    const int64_t parts_start = bt_now_ns();
    bt_energy_open(&energy, bt_testing_powercap(), why, sizeof why);
    bt_code code = job->links ? probe_groups(r, job, err) : probe_parts(r, job, start, err);
    const double joules = bt_energy_take(&energy);
    bt_energy_close(&energy);
    BT_TRY(code);
    BT_TRY(store_mean_watts(r, joules, parts_start, err));
    r->probe_s += (double)(bt_now_ns() - start) / 1e9;
    return BT_OK;
}
