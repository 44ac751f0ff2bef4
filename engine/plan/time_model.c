/* time_model.c - computes the durations of the operations in a step from settings and rates. */
#include "engine/plan/time_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/config/rank_setup.h"
#include "engine/config/tune_cfg.h"
#include "engine/model/net/acts.h"
#include "engine/model/net/stage.h"
#include "engine/optim/muon.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/shard/weight_prefetch.h"
#include "engine/plan/wires.h"

/* A larger share of waiting had another cause than the exchange when it was measured. */
static const double MEET_FRAC_MOST = 1.5;

typedef struct model { /* state of one prediction */
    const bt_run_cfg *cfg;
    const bt_rates *r;
    const bt_cluster *c;
    bt_mesh_shape shape;
    bt_model_cfg whole;
    int chunks;           /* chunks of layers per stage */
    double tokens, crowd; /* tokens of a micro-batch; slow-down by shared cores */
    /* waiting for the slowest tensor-parallel rank, relative to computing and exchanging */
    double meet_frac;
    bt_part_rate layer, head;
    bt_prediction *out;
} model;

double bt_cluster_crowd(const bt_cluster *c, const bt_run_cfg *cfg) {
    int here = bt_cluster_fullest(c);
    double threads = (double)here * (double)(cfg->launch.threads > 0 ? cfg->launch.threads : 1);
    return c->cores > 0 && threads > c->cores ? threads / c->cores : 1;
}

/* Estimates a layer with adapters from the rates of a trained layer, if none with adapters was measured. Backward then
 * has one product with the layer's weights instead of two, plus the products of the adapters, and the head has no
 * gradient. */
static void estimate_adapters(model *m) {
    const double layers = m->whole.L, tp = m->shape.tp;
    bt_model_cfg base = m->whole;
    base.lora = (bt_lora){0};
    const bt_model_counts own = bt_model_count(&m->whole), full = bt_model_count(&base);
    const double adapters_s = 2 * (double)own.adapters / layers / tp * m->tokens *
                              m->r->matrix_op_s,
                 again = m->cfg->train.recompute == BT_RECOMPUTE_FULL ? 1
                         : m->cfg->train.recompute == BT_RECOMPUTE_SELECTIVE
                             ? 2.0 * m->whole.C * m->whole.F * layers / (double)full.linear
                             : 0,
                 kept = (1 + again) / (2 + again);
    bt_part_rate *l = &m->layer;
    l->bwd_s = l->attn_bwd_s + (l->bwd_s - l->attn_bwd_s) * kept + (3 + again) * adapters_s;
    l->fwd_s += adapters_s;
    l->quantise_s = 0;
    m->head.bwd_s /= 2;
    m->head.quantise_s = 0;
}

/* Returns the number of additional forward passes without backward, in forward passes of this model: those of the base
 * model in preference training, or of the teacher. */
static double extra_forward_passes(const bt_run_cfg *c) {
    bt_model_cfg m;
    bt_run_cfg_model(c, &m);
    const bt_model_counts own = bt_model_count(&m);
    return (bt_tune_count(c).flop_token - own.flop_token) / own.flop_forward;
}

static bt_part_shape trained_shape(bt_part_shape s) {
    s.lora = s.targets = s.lean = s.base8 = 0;
    return s;
}

/* A frozen head is applied only to tokens that the loss includes (model/net/one_rank.c), a classifier's head only to
 * the last token of each text. */
static void apply_learned_share(model *m) {
    double part = m->whole.classes ? 0 : 1;
    if (m->whole.lora.rank && m->c->data.learned_frac > 0) part *= m->c->data.learned_frac;
    m->head.fwd_s *= part;
    m->head.bwd_s *= part;
}

/* Reduces the time of attention to the positions within documents, also where backward recomputes it. */
static void apply_attended_share(model *m) {
    bt_part_rate *l = &m->layer;
    const double less = m->c->data.attended_frac > 0 ? fmax(0, 1 - m->c->data.attended_frac) : 0,
                 again = m->cfg->train.recompute == BT_RECOMPUTE_FULL ? l->attn_fwd_s : 0;
    l->fwd_s -= less * l->attn_fwd_s;
    l->bwd_s -= less * (l->attn_bwd_s + again);
    l->attn_fwd_s *= 1 - less;
    l->attn_bwd_s *= 1 - less;
}

static bt_code find_rates(model *m, bt_err *err) {
    const bt_part_shape layer = bt_part_layer(m->cfg, m->shape.tp),
                        head = bt_part_head(m->cfg, m->shape.tp), plain = trained_shape(layer),
                        plain_head = trained_shape(head);
    m->out->scaled = !bt_rates_part(m->r, &layer) || !bt_rates_part(m->r, &head);
    bool known = bt_rates_part_near(m->r, &layer, &m->layer) &&
                 bt_rates_part_near(m->r, &head, &m->head);
    if (!known && layer.lora) {
        known = bt_rates_part_near(m->r, &plain, &m->layer) &&
                bt_rates_part_near(m->r, &plain_head, &m->head);
        if (known) estimate_adapters(m);
    }
    if (known) {
        apply_learned_share(m);
        apply_attended_share(m);
        return BT_OK;
    }
    return bt_fail(err, BT_NOTFOUND,
                   "no rates of a layer and a head were measured: measure them with --measure");
}

/* Time of the exchanges in one layer, forward or backward (tp_exchange.c, tp_input.c): rows of int8 and of floats, and
 * synchronisations that send little. */
static double tp_layer_s(const model *m, bool backward) {
    if (m->shape.tp == 1) return 0;
    const bt_run_cfg *c = m->cfg;
    double floats = m->tokens * (double)c->model.d_model * sizeof(float),
           inputs = c->model.linear == BT_LIN_DENSE ? floats
                                                    : floats / 4 + m->tokens * sizeof(float),
           stats = m->tokens * sizeof(bt_row_stat), meetings = 4, bytes;
    bt_model_setup setup = bt_run_cfg_setup(c, 0);
    bool normed = c->model.norm != BT_NORM_PRE;
    if (bt_slice_cfg(&setup.cfg, &m->whole, (bt_model_slice){.tp_size = m->shape.tp}, NULL) !=
        BT_OK)
        return 0;
    double blocks = ceil(m->tokens / (double)bt_acts_block(&setup, (size_t)m->tokens));
    if (backward)
        bytes = 4 * floats + (c->model.linear == BT_LIN_DENSE ? 2 * inputs : 0);
    else
        bytes = c->mesh.sequence ? 2 * inputs + 2 * floats : 4 * floats;
    if (backward ? normed : normed || c->model.linear != BT_LIN_DENSE) {
        bytes += 2 * stats;
        meetings += 1 + blocks;
    }
    if (m->whole.lora.rank && !backward) { /* inputs of the o and down products, times A */
        bytes += 2 * m->tokens * m->whole.lora.rank * sizeof(float);
        meetings += 2;
    }
    if (backward && c->train.recompute == BT_RECOMPUTE_FULL)
        return tp_layer_s(m, false) * 0.75 +
               bt_wire_rows_s(m->r, m->c, m->shape.tp, meetings, bytes);
    return bt_wire_rows_s(m->r, m->c, m->shape.tp, meetings, bytes);
}

/* Returns the share of time spent waiting for slower ranks: the time of a layer in real groups of this job's ranks,
 * minus its time without exchanges and minus the exchanges. */
static double tp_waiting_frac(const model *m) {
    const bt_part_shape wanted = bt_part_layer(m->cfg, m->shape.tp);
    const bt_group_rate *g = m->shape.tp > 1 ? bt_rates_group(m->r, m->c->ranks, &wanted) : NULL;
    bt_part_rate alone;
    if (!g || g->shape.tp < 2 || !bt_rates_part_near(m->r, &g->shape, &alone)) return 0;
    model at = *m;
    at.tokens = (double)g->shape.B * g->shape.T;
    at.shape.tp = g->shape.tp;
    const double exchanging = (tp_layer_s(&at, false) + tp_layer_s(&at, true)) /
                              (alone.fwd_s + alone.bwd_s);
    return fmin(MEET_FRAC_MOST, fmax(0, g->pass_s / (g->alone_s * (1 + exchanging)) - 1));
}

/* Time of the exchanges of head (rows to all slices of the vocabulary, statistics, dx back) and embedding (rows). */
static double tp_head_embedding_s(const model *m, bool backward) {
    if (m->shape.tp == 1) return 0;
    double floats = m->tokens * (double)m->cfg->model.d_model * sizeof(float);
    return bt_wire_rows_s(m->r, m->c, m->shape.tp, backward ? 2 : 6,
                          backward ? floats : 2 * floats);
}

static double sent_weight_bytes(const bt_rank_setup *s, int layer) {
    double bytes = 0;
    for (size_t i = 0; i < s->params.n; i++) {
        const bt_tensor *t = &s->params.tensors[i];
        if (!t->linear || (layer >= 0 && t->layer != layer)) continue;
        bytes += (double)bt_read_bytes(bt_model_read(t, s->model.prec), t->count);
    }
    return bytes;
}

static bool prefetches_weights(const model *m) {
    return bt_run_cfg_weight_source(m->cfg) == BT_WEIGHTS_PREFETCHED;
}

/* Returns the time to gather one layer's weights that the computation of the previous layer does not hide. */
static double gather_exposed_s(const model *m, const bt_rank_setup *s, double hidden_by) {
    if (!prefetches_weights(m)) return 0;
    bt_wire wire = bt_wire_of(m->r, m->c, m->shape.dp_shard, m->shape.tp);
    double n = m->shape.dp_shard, layers = s->model.cfg.L,
           bytes = sent_weight_bytes(s, -1) / layers * (n - 1) / n,
           took = bt_wire_s(&wire, 1, bytes);
    return wire.copies ? took : fmax(0, took - hidden_by * m->crowd);
}

/* Time of converting the gathered weights of all layers to the form that products read: 2 bits to codes to panels, or
 * copies of values (weights.c, fill_layer_panels). */
static double weight_conversion_s(const model *m, const bt_params *p, const bt_rank_setup *s) {
    double elements = 0, bytes = 0;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        if (!t->linear) continue;
        if (t->tern)
            elements += (double)t->count;
        else
            bytes += (double)bt_read_bytes(bt_model_read(t, s->model.prec), t->count);
    }
    return elements * (m->r->tern_unpack_s + m->r->tern_panel_s) +
           (m->r->triad_per_s > 0 ? 2 * bytes / m->r->triad_per_s : 0);
}

static void plan_exchange(const model *m, const bt_rank_setup *s, bt_stage_work *work) {
    int n = (int)s->dp;
    if (n <= 1) return;
    double elements = (double)s->params.total;
    bt_exchange_cost cost = bt_wire_exchange(m->r, m->c, m->cfg, &m->shape, elements);
    double buckets = fmax(1, ceil(elements * sizeof(float) / (double)m->cfg->train.bucket_bytes));
    work->buckets = (int64_t)buckets;
    work->bucket_wire_s = elements * cost.wire_s / buckets;
    work->bucket_latency_s = cost.latency_s;
    work->bucket_cpu_s = elements * cost.cpu_s / buckets;
    if (s->me.pp == 0) m->out->grad_bytes = elements * cost.bytes;
}

static double linear_elements(const bt_rank_setup *s) {
    double n = 0;
    for (size_t i = 0; i < s->params.n; i++)
        n += s->params.tensors[i].linear ? (double)s->params.tensors[i].count : 0;
    return n;
}

/* Time of Muon's update directions for whole matrices, which the ranks of a stage divide (matrix_update.h). */
static double muon_s(const model *m, const bt_rank_setup *s) {
    double ops = 0;
    for (size_t i = 0; i < s->params.n; i++) {
        const bt_tensor *t = &s->params.tensors[i];
        if (t->linear) ops += bt_muon_flops(t->whole_rows, t->whole_cols);
    }
    return ops * m->r->matrix_op_s / (double)(s->dp * m->shape.tp);
}

/* Time of receiving weights that other ranks updated; this rank's update hides a part. */
static double receive_weights_s(const model *m, const bt_rank_setup *s, double hidden_by) {
    if (!s->sharded) return 0;
    bt_wire wire = bt_wire_of(m->r, m->c, m->shape.dp_shard, m->shape.tp);
    double n = m->shape.dp_shard, linear = linear_elements(s),
           bytes = (double)s->params.total * 4 - (s->model.latent_bf16 ? 2 * linear : 0);
    if (bt_run_cfg_weight_source(m->cfg) != BT_WEIGHTS_LOCAL) {
        bool gathered = bt_run_cfg_weight_source(m->cfg) == BT_WEIGHTS_GATHERED;
        bytes = ((double)s->params.total - linear) * 2 + (gathered ? sent_weight_bytes(s, -1) : 0);
    }
    double took = bt_wire_s(&wire, (double)s->shards.n_stripes, bytes * (n - 1) / n);
    return wire.copies ? took : fmax(0, took - hidden_by * m->crowd);
}

/* Time of converting latent weights to codes and panels. Under ZeRO-3 a rank converts only its own shard, through the 2
 * bits in which codes are stored and sent; if all layers are gathered once per step, their panels are added. */
static double seconds_to_quantise(const model *m, const bt_rank_setup *s) {
    double whole = m->layer.quantise_s * s->model.cfg.L, ternary = 0;
    bt_weight_source source = bt_run_cfg_weight_source(m->cfg);
    if (source == BT_WEIGHTS_LOCAL) return whole;
    for (size_t i = 0; i < s->params.n; i++)
        ternary += s->params.tensors[i].tern ? (double)s->params.tensors[i].count : 0;
    double codes = fmax(0, whole - ternary * m->r->tern_panel_s) +
                   ternary * (m->r->tern_unpack_s + m->r->tern_pack_s);
    return codes / m->shape.dp_shard +
           (source == BT_WEIGHTS_GATHERED ? weight_conversion_s(m, &s->params, s) : 0);
}

/* ZeRO-2 returns the pages of other ranks' gradients to the system after their sums are sent (exchange_rounds.c, drop),
 * so the next backward pass uses new, zeroed pages. */
static double fresh_pages_s(const model *m, const bt_rank_setup *s, double own) {
    if (m->cfg->mesh.zero < 2 || !s->sharded) return 0;
    return fmax(0, (double)s->params.total - own) * m->r->fresh_s;
}

/* Returns the time of an update with smaller states and weights, over one with fp32. */
static double small_form_update_frac(const model *m, const bt_rank_setup *s) {
    const double states = m->cfg->optim.states == BT_STATES_BF16   ? m->r->states_bf16_x
                          : m->cfg->optim.states == BT_STATES_LOG8 ? m->r->states_log8_x
                                                                   : 0,
                 weights = s->model.latent_bf16 ? m->r->weights_bf16_x : 0,
                 linear = linear_elements(s) / (double)s->params.total;
    return 1 + (states > 0 ? states - 1 : 0) + (weights > 0 ? linear * (weights - 1) : 0);
}

static void plan_update(const model *m, const bt_rank_setup *s, bt_stage_work *work) {
    const bt_optim_info *how = bt_optim_info_of((bt_optim_id)m->cfg->optim.name);
    double own = (double)bt_shards_elems(&s->shards, s->shard),
           rule = bt_rates_elem(&m->r->update[m->cfg->optim.name], own) *
                  small_form_update_frac(m, s);
    work->optim_s = own * (bt_rates_elem(&m->r->norm, own) + rule) + seconds_to_quantise(m, s);
    if (how->matrices->whole_matrix) work->optim_s += muon_s(m, s);
    work->optim_comm_s = receive_weights_s(m, s, work->optim_s);
    double zeroed = m->cfg->mesh.zero >= 2 && s->sharded ? own : (double)s->params.total;
    work->begin_s = zeroed * bt_rates_elem(&m->r->zero, zeroed) + fresh_pages_s(m, s, own);
}

/* Computes the cost of a micro-batch in one chunk of layers. */
static void plan_passes(const model *m, const bt_rank_setup *s, int chunk, bt_stage_work *work) {
    const double layers = bt_slice_chunk(&m->whole, s->model.slice, chunk).n;
    /* Forward gathers all layers; backward gathers all but the last, which is still present. */
    double back = fmax(layers - 1, 0),
           placing = (prefetches_weights(m) ? weight_conversion_s(m, &s->params, s) : 0) /
                     s->model.cfg.L;
    *work = (bt_stage_work){.fwd_s = layers * (m->layer.fwd_s + placing),
                            .bwd_s = layers * m->layer.bwd_s + back * placing};
    work->fwd_comm_s = layers * (tp_layer_s(m, false) + gather_exposed_s(m, s, m->layer.fwd_s));
    work->bwd_comm_s = layers * tp_layer_s(m, true) + back * gather_exposed_s(m, s, m->layer.bwd_s);
    if (bt_slice_is_last_stage(s->model.slice) && chunk == bt_slice_chunks(s->model.slice) - 1) {
        work->fwd_s += m->head.fwd_s;
        work->bwd_s += m->head.bwd_s;
        work->fwd_comm_s += tp_head_embedding_s(m, false);
        work->bwd_comm_s += tp_head_embedding_s(m, true);
    }
    work->fwd_s *= 1 + extra_forward_passes(m->cfg);
    work->fwd_comm_s *= 1 + (bt_tune_has_reference(m->cfg) ? 1 : 0);
    work->fwd_tp_wait_s = m->meet_frac * (work->fwd_s + work->fwd_comm_s);
    work->bwd_tp_wait_s = m->meet_frac * (work->bwd_s + work->bwd_comm_s);
}

/* works: (chunks, pp) */
static bt_code plan_stage(const model *m, int stage, bt_stage_work *works, bt_err *err) {
    bt_rank_setup s;
    const bt_mesh_coord at = {.pp = stage};
    BT_TRY(bt_rank_setup_init(&s, m->cfg, bt_mesh_rank_of(&m->shape, &at), err));
    s.model.cfg.L = bt_slice_layers(&m->whole, s.model.slice);
    for (int k = 0; k < m->chunks; k++) {
        bt_stage_work *work = &works[k * m->shape.pp + stage];
        plan_passes(m, &s, k, work);
        if (stage == 0) {
            m->out->fwd_s += work->fwd_s;
            m->out->bwd_s += work->bwd_s;
        }
    }
    plan_exchange(m, &s, &works[stage]);
    plan_update(m, &s, &works[stage]);
    bt_rank_setup_release(&s);
    return BT_OK;
}

/* Stages between the first and the last differ only in the number of layers in their chunks. */
static bool is_same_as_previous_stage(const model *m, int stage) {
    bt_model_slice slice = {.tp_size = m->shape.tp,
                            .pp_size = m->shape.pp,
                            .virtual_stages = m->chunks},
                   before = slice;
    slice.pp_stage = stage;
    before.pp_stage = stage - 1;
    if (stage <= 1 || stage >= m->shape.pp - 1) return false;
    for (int k = 0; k < m->chunks; k++)
        if (bt_slice_chunk(&m->whole, slice, k).n != bt_slice_chunk(&m->whole, before, k).n)
            return false;
    return true;
}

static void plan_messages(const model *m, bt_step_simulation *w) {
    if (m->shape.pp == 1) return;
    bt_wire wire = bt_wire_of(m->r, m->c, m->shape.pp, m->c->ranks / m->shape.pp);
    double rows = m->cfg->mesh.sequence && m->shape.tp > 1 ? m->tokens / m->shape.tp : m->tokens,
           elems = rows * (double)m->cfg->model.d_model,
           sent = m->cfg->comm.pipe == BT_PIPE_BF16 ? sizeof(uint16_t) : sizeof(float);
    /* one copy into a buffer and one out of it */
    w->copy_s = m->r->triad_per_s > 0 ? elems * (sizeof(float) + sent) / m->r->triad_per_s : 0;
    w->flight_s = bt_wire_s(&wire, 1, elems * sent);
    w->wire_s = wire.copies ? 0 : bt_wire_s(&wire, 0, elems * sent);
    bt_model_setup first = bt_run_cfg_setup(m->cfg, 0);
    const size_t tied = bt_stage_tied_elems(&first);
    const bt_tensor table = {.id = BT_P_EMBED};
    if (tied == 0) return;
    w->tied_s = bt_wire_s(&wire, 1, (double)(tied * sizeof(float)));
    w->tied_back_s = bt_wire_s(&wire, 1,
                               (double)bt_read_bytes(bt_model_read(&table, first.prec), tied));
    w->tied_wired = !wire.copies;
}

/* Time of statistics of codes and gradients: one pass over each. */
static double monitor_s(const model *m) {
    if (m->cfg->train.stats_every == 0 || m->cfg->run.no_monitor) return 0;
    const bt_model_counts n = bt_model_count(&m->whole);
    double part = (double)m->shape.pp * m->shape.tp,
           elements = (double)(n.adapters ? n.adapters : n.linear) / part;
    return elements * 2 * bt_rates_elem(&m->r->norm, elements) / (double)m->cfg->train.stats_every;
}

/* All hosts together write weights and optimizer states once, at the same time. */
static double checkpoint_s(const model *m) {
    const bt_optim_info *how = bt_optim_info_of((bt_optim_id)m->cfg->optim.name);
    size_t element = bt_moment_bytes(m->cfg->optim.weights == BT_STATES_BF16 ? BT_MOMENT_BF16
                                                                             : BT_MOMENT_F32);
    for (size_t k = 0; k < how->matrices->n_states; k++)
        element +=
            bt_moment_bytes(bt_optim_form(how->matrices, (bt_states_kind)m->cfg->optim.states, k));
    const bt_model_counts n = bt_model_count(&m->whole);
    const double bytes = (double)((n.adapters ? n.adapters : n.params) * element),
                 hosts = bt_cluster_hosts(m->c);
    return m->r->disk_per_s > 0 ? bytes / (m->r->disk_per_s * hosts) : 0;
}

/* Returns the mean time of checkpoints per step; their interval is a number of steps or a time. */
static double ckpt_share_s(const model *m, double step_s) {
    double one = m->out->ckpt_s, share = 0;
    if (m->cfg->ckpt.every > 0)
        share = one / (double)m->cfg->ckpt.every;
    else if (m->cfg->ckpt.minutes > 0)
        share = one * step_s / (60 * m->cfg->ckpt.minutes);
    return share;
}

/* Returns the slow-down factor of each rank. A tensor-parallel group is as slow as its slowest rank. */
static double *straggler_factors(const model *m, int dp) {
    if (!(m->c->straggler_frac > 0)) return NULL;
    size_t n = (size_t)dp * (size_t)m->shape.pp;
    double *slow = malloc(n * sizeof *slow);
    float x[64];
    for (size_t i = 0; slow && i < n; i++) {
        size_t tp = (size_t)m->shape.tp < 64 ? (size_t)m->shape.tp : 64;
        double worst = 0;
        bt_rng_normal(x, tp, i * tp, 1, m->c->seed, bt_hash_name("stragglers"));
        for (size_t k = 0; k < tp; k++) worst = fmax(worst, fabs((double)x[k]));
        slow[i] = 1 + m->c->straggler_frac * worst;
    }
    return slow;
}

static bt_code simulate_step(const model *m, const bt_stage_work *stages, bt_err *err) {
    bt_cluster const *c = m->c;
    int dp = c->straggler_frac > 0 ? m->shape.dp_replicate * m->shape.dp_shard : 1;
    double *slow = straggler_factors(m, dp);
    bt_step_simulation w = {.pp = m->shape.pp,
                            .dp = dp,
                            .chunks = m->chunks,
                            .micros = m->cfg->train.accum,
                            .stage = stages,
                            .overlap = m->cfg->train.overlap,
                            .agree_s = bt_wire_agree_s(m->r, c),
                            .monitor_s = monitor_s(m),
                            .slow = slow,
                            .crowd = m->crowd};
    plan_messages(m, &w);
    bt_code code = c->straggler_frac > 0 && !slow
                       ? bt_fail(err, BT_NOMEM, "cannot allocate memory for %d ranks", c->ranks)
                       : bt_simulate_step(&w, &m->out->step, err);
    w.ckpt_s = code == BT_OK ? ckpt_share_s(m, m->out->step.step_s) : 0;
    if (w.ckpt_s > 0) {
        code = bt_simulate_step(&w, &m->out->step, err);
    }
    free(slow);
    return code;
}

/* Returns the processor time of a rank between two points at which it may wait for the slowest rank. If it receives
 * weights for each layer, they are sent BT_PREFETCH_AHEAD layer visits before they are needed, so ranks may differ by
 * that many visits; a step with fewer visits has no such point. */
static double synchronisation_interval_s(const model *m) {
    const double visits = (double)m->cfg->train.accum * 2 * (m->whole.L - 1) + 1;
    if (!prefetches_weights(m) || visits <= BT_PREFETCH_AHEAD) return INFINITY;
    return BT_PREFETCH_AHEAD * (m->layer.fwd_s + m->layer.bwd_s) / 2;
}

/* Returns the threads of a host per core, times the loss of cores that cannot be divided evenly. A rank loses about the
 * same time at each synchronisation, so the loss is interpolated between two measured intervals, linearly in the
 * inverse of the interval. */
static double shared_core_slow_down(const model *m) {
    const bt_cluster *c = m->c;
    const double crowd = bt_cluster_crowd(c, m->cfg);
    const bt_link_rate *l = c->simulated || crowd <= 1 ? NULL
                                                       : bt_rates_link(m->r, c->ranks, c->ranks, 1);
    if (!l || l->world != c->ranks || l->n != c->ranks) return crowd;
    const double apart_s = fmin(BT_SHARED_S,
                                fmax(BT_SHARED_OFTEN_S, synchronisation_interval_s(m))),
                 often = (1 / apart_s - 1 / BT_SHARED_S) /
                         (1 / BT_SHARED_OFTEN_S - 1 / BT_SHARED_S);
    return crowd * fmax(1, l->shared_x + often * fmax(0, l->shared_often_x - l->shared_x));
}

static model init_time_model(const bt_run_cfg *cfg, const bt_rates *r, const bt_cluster *c,
                             bt_prediction *out) {
    model m = {.cfg = cfg,
               .r = r,
               .c = c,
               .chunks = cfg->mesh.pp > 1 && cfg->parallel.virtual_stages > 1
                             ? (int)cfg->parallel.virtual_stages
                             : 1,
               .tokens = (double)(cfg->train.micro_batch * cfg->model.seq_len),
               .out = out};
    bt_run_cfg_mesh(cfg, &m.shape);
    bt_run_cfg_model(cfg, &m.whole);
    return m;
}

bt_code bt_time_least(const bt_run_cfg *cfg, const bt_rates *r, const bt_cluster *c,
                      double *least_s, bt_err *err) {
    bt_prediction none = {0};
    model m = init_time_model(cfg, r, c, &none);
    BT_TRY(find_rates(&m, err));
    const double passes = m.whole.L * (m.layer.fwd_s + m.layer.bwd_s) + m.head.fwd_s + m.head.bwd_s;
    *least_s = (double)cfg->train.accum * passes / m.shape.pp;
    return BT_OK;
}

bt_code bt_time_predict(const bt_run_cfg *cfg, const bt_rates *r, const bt_cluster *c,
                        bt_prediction *out, bt_err *err) {
    *out = (bt_prediction){0};
    model m = init_time_model(cfg, r, c, out);
    BT_TRY(find_rates(&m, err));
    out->crowd = m.crowd = shared_core_slow_down(&m);
    m.meet_frac = tp_waiting_frac(&m);
    out->ckpt_s = checkpoint_s(&m);
    bt_stage_work *stages = calloc((size_t)(m.shape.pp * m.chunks), sizeof *stages);
    bt_code code = stages
                       ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory for %d stages", m.shape.pp);
    for (int k = 0; code == BT_OK && k < m.shape.pp; k++) {
        if (!is_same_as_previous_stage(&m, k)) {
            code = plan_stage(&m, k, stages, err);
            continue;
        }
        for (int i = k; i < m.chunks * m.shape.pp; i += m.shape.pp) stages[i] = stages[i - 1];
    }
    if (code == BT_OK) code = simulate_step(&m, stages, err);
    free(stages);
    if (code == BT_OK) out->tokens_per_s = (double)cfg->train.batch_tokens / out->step.step_s;
    return code;
}
