/* rates.c - computes the shapes of parts, and finds and scales measured rates. */
#include "engine/plan/rates.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/config/rank_setup.h"
#include "engine/config/tune_cfg.h"
#include "engine/model/shape/params.h"

static bt_part_shape part_shape(const bt_run_cfg *cfg, bt_part_kind kind, int tp) {
    const bt_lora lora = bt_tune_lora(cfg);
    const bool head = kind == BT_PART_HEAD, frozen = lora.rank > 0;
    return (bt_part_shape){
        .kind = kind,
        .C = (int32_t)cfg->model.d_model,
        .T = (int32_t)cfg->model.seq_len,
        .B = (int32_t)cfg->train.micro_batch,
        .norm = cfg->model.norm,
        .act = cfg->model.act,
        .linear = cfg->model.linear,
        .qk_norm = cfg->model.qk_norm,
        .precision = cfg->train.precision,
        .grad_int8 = (cfg->train.grad == BT_GRAD_INT8) +
                     (head ? 0 : 2 * (cfg->train.attention == BT_ATTENTION_INT8)),
        .recompute = cfg->train.recompute,
        .tp = tp,
        .sequence = tp > 1 && cfg->mesh.sequence,
        .lora = frozen && head ? 1 : lora.rank,
        .targets = frozen && head ? BT_LORA_Q
                                  : (int32_t)lora.targets | (lora.dora ? BT_PART_DORA : 0),
        .lean = frozen && cfg->tune.lean,
        .base8 = frozen && cfg->tune.base_type == BT_BASE_Q8};
}

bt_part_shape bt_part_layer(const bt_run_cfg *cfg, int tp) {
    bt_part_shape s = part_shape(cfg, BT_PART_LAYER, tp);
    bt_model_cfg m;
    bt_run_cfg_model(cfg, &m);
    s.H = m.H;
    s.KV = m.KV;
    s.D = m.D;
    s.F = m.F;
    return s;
}

bt_part_shape bt_part_head(const bt_run_cfg *cfg, int tp) {
    bt_part_shape s = part_shape(cfg, BT_PART_HEAD, tp);
    s.V = (int32_t)cfg->model.vocab;
    s.recompute = 0;
    return s;
}

/* Returns the key-value heads of a rank: at least one, which several ranks may share. */
static double kv_heads_per_rank(const bt_part_shape *s) {
    return s->KV > s->tp ? (double)s->KV / s->tp : 1;
}

static double weights_per_rank(const bt_part_shape *s) {
    if (s->kind == BT_PART_HEAD) return (double)s->C * s->V / s->tp;
    return (double)s->C * s->D * (2.0 * s->H / s->tp + 2.0 * kv_heads_per_rank(s)) +
           3.0 * s->C * s->F / s->tp;
}

static double adapter_weights_per_rank(const bt_part_shape *s) {
    const bt_model_cfg m = {.L = 1,
                            .C = s->C,
                            .H = s->H,
                            .KV = s->KV,
                            .D = s->D,
                            .F = s->F,
                            .lora = {.rank = s->lora,
                                     .targets = (unsigned)s->targets & BT_LORA_ALL,
                                     .dora = (s->targets & BT_PART_DORA) != 0}};
    return s->kind == BT_PART_HEAD ? 0 : (double)bt_model_count(&m).adapters / s->tp;
}

double bt_part_ops(const bt_part_shape *s) {
    const double each = s->lora ? 4 : 6;
    return (each * weights_per_rank(s) + 6 * adapter_weights_per_rank(s)) * ((double)s->T * s->B);
}

double bt_part_attention_ops(const bt_part_shape *s) {
    return s->kind == BT_PART_HEAD ? 0 : 6.0 * s->T * s->H / s->tp * s->D * ((double)s->T * s->B);
}

bool bt_part_same(const bt_part_shape *a, const bt_part_shape *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* Differences in caches and kernels between shapes explain ratios up to this one. */
static const double DOUBTFUL = 1.25;

const bt_part_rate *bt_rates_part(const bt_rates *r, const bt_part_shape *s) {
    for (size_t i = r->n_parts; i-- > 0;)
        if (bt_part_same(&r->parts[i].shape, s)) return &r->parts[i];
    return NULL;
}

/* Settings that select other kernels increase the distance more than any difference in size. */
static double shape_distance(const bt_part_shape *a, const bt_part_shape *b) {
    double far = 0;
    far += 64.0 * (a->linear != b->linear) + 32.0 * (a->precision != b->precision) +
           16.0 * (a->grad_int8 != b->grad_int8) + 8.0 * (a->norm != b->norm) +
           8.0 * (a->recompute != b->recompute) + 2.0 * (a->act != b->act) +
           2.0 * (a->qk_norm != b->qk_norm) + 1.0 * ((a->tp > 1) != (b->tp > 1)) +
           0.5 * (a->sequence != b->sequence) + 4.0 * (a->lean != b->lean) +
           8.0 * (a->base8 != b->base8) +
           4.0 * ((a->targets & BT_PART_DORA) != (b->targets & BT_PART_DORA));
    far += fabs(log(bt_part_ops(a) / bt_part_ops(b))) + 2 * fabs(log((double)a->C / b->C)) +
           2 * fabs(log((double)a->T / b->T));
    if (a->kind == BT_PART_LAYER)
        far += 2 * fabs(log((double)a->F / b->F)) +
               2 * fabs(log((double)a->H * a->D / ((double)b->H * b->D)));
    far += fabs(log((double)a->tp / b->tp));
    return far;
}

/* Returns the time that recomputation adds to backward: a forward pass, or the gate and up products if selective. */
static double recompute_seconds(const bt_part_shape *s, double fwd_s, double attn_s) {
    double gate_up = 2.0 * s->C * s->F / s->tp / weights_per_rank(s);
    return s->recompute == BT_RECOMPUTE_FULL        ? fwd_s
           : s->recompute == BT_RECOMPUTE_SELECTIVE ? gate_up * (fwd_s - attn_s)
                                                    : 0;
}

bt_part_rate bt_part_scaled(const bt_part_rate *from, const bt_part_shape *to) {
    const bt_part_shape *s = &from->shape;
    double work = bt_part_ops(to) / bt_part_ops(s),
           attention = s->kind == BT_PART_HEAD
                           ? 1
                           : bt_part_attention_ops(to) / bt_part_attention_ops(s);
    bt_part_rate out = {.shape = *to,
                        .attn_fwd_s = from->attn_fwd_s * attention,
                        .attn_bwd_s = from->attn_bwd_s * attention,
                        .quantise_s = from->quantise_s * weights_per_rank(to) /
                                      weights_per_rank(s)};
    double again = recompute_seconds(s, from->fwd_s, from->attn_fwd_s);
    out.fwd_s = (from->fwd_s - from->attn_fwd_s) * work + out.attn_fwd_s;
    out.bwd_s = fmax(0, from->bwd_s - again - from->attn_bwd_s) * work + out.attn_bwd_s;
    out.bwd_s += recompute_seconds(to, out.fwd_s, out.attn_fwd_s);
    return out;
}

bool bt_rates_part_near(const bt_rates *r, const bt_part_shape *s, bt_part_rate *out) {
    const bt_part_rate *best = bt_rates_part(r, s);
    double far = INFINITY;
    if (best) {
        *out = *best;
        return true;
    }
    for (size_t i = 0; i < r->n_parts; i++) {
        const bt_part_rate *p = &r->parts[i];
        bool alike = p->shape.kind == s->kind && (p->shape.lora > 0) == (s->lora > 0);
        double d = alike ? shape_distance(&p->shape, s) : INFINITY;
        if (d < far) far = d, best = p;
    }
    if (best) *out = bt_part_scaled(best, s);
    return best != NULL;
}

bool bt_rates_part_doubtful(const bt_rates *r, const bt_part_rate *p) {
    for (size_t i = 0; i < r->n_parts; i++) {
        bt_part_shape s = r->parts[i].shape;
        s.B = p->shape.B;
        if (!bt_part_same(&s, &p->shape)) continue;
        const bt_part_rate expected = bt_part_scaled(&r->parts[i], &s);
        if (p->fwd_s + p->bwd_s > DOUBTFUL * (expected.fwd_s + expected.bwd_s)) return true;
    }
    return false;
}

void bt_rates_put_part(bt_rates *r, const bt_part_rate *p) {
    for (size_t i = 0; i < r->n_parts; i++) {
        if (!bt_part_same(&r->parts[i].shape, &p->shape)) continue;
        r->parts[i] = *p;
        return;
    }
    if (r->n_parts == BT_RATES_MAX) {
        memmove(r->parts, r->parts + 1, (BT_RATES_MAX - 1) * sizeof *r->parts);
        r->n_parts--;
    }
    r->parts[r->n_parts++] = *p;
}

bool bt_rates_group_like(const bt_group_rate *g, int world, const bt_part_shape *s) {
    bt_part_shape a = g->shape, b = *s;
    a.T = a.B = b.T = b.B = 0;
    return g->world == world && bt_part_same(&a, &b);
}

const bt_group_rate *bt_rates_group(const bt_rates *r, int world, const bt_part_shape *s) {
    const bt_group_rate *best = NULL;
    double far = INFINITY;
    for (size_t i = 0; i < r->n_groups; i++) {
        const bt_group_rate *g = &r->groups[i];
        /* Sharing of cores depends more on the sizes of world and group than on the layer. */
        double d = shape_distance(&g->shape, s) + 100 * fabs(log((double)g->world / world)) +
                   10 * fabs(log((double)g->shape.tp / s->tp));
        if (d < far) far = d, best = g;
    }
    return best;
}

void bt_rates_put_group(bt_rates *r, const bt_group_rate *g) {
    for (size_t i = 0; i < r->n_groups; i++) {
        if (!bt_rates_group_like(&r->groups[i], g->world, &g->shape)) continue;
        r->groups[i] = *g;
        return;
    }
    if (r->n_groups == BT_RATES_GROUPS) {
        memmove(r->groups, r->groups + 1, (BT_RATES_GROUPS - 1) * sizeof *r->groups);
        r->n_groups--;
    }
    r->groups[r->n_groups++] = *g;
}

const bt_trial_rate *bt_rates_trial(const bt_rates *r, const char *key) {
    for (size_t i = 0; i < r->n_trials; i++)
        if (strcmp(r->trials[i].key, key) == 0) return &r->trials[i];
    return NULL;
}

void bt_rates_put_trial(bt_rates *r, const bt_trial_rate *t) {
    for (size_t i = 0; i < r->n_trials; i++) {
        if (strcmp(r->trials[i].key, t->key) != 0) continue;
        r->trials[i] = *t;
        return;
    }
    if (r->n_trials == BT_RATES_TRIALS) {
        memmove(r->trials, r->trials + 1, (BT_RATES_TRIALS - 1) * sizeof *r->trials);
        r->n_trials--;
    }
    r->trials[r->n_trials++] = *t;
}

double bt_rates_elem(const bt_elem_rate *e, double n) {
    double at = log(fmax(n, 1) / BT_ELEMS_SMALL) / log((double)BT_ELEMS_LARGE / BT_ELEMS_SMALL);
    at = fmin(1, fmax(0, at));
    return e->small_s + at * (e->large_s - e->small_s);
}

bool bt_rates_has_links(const bt_rates *r, int world) {
    for (size_t i = 0; i < r->n_links; i++)
        if (r->links[i].world == world) return true;
    return world < 2;
}

void bt_rates_put_links(bt_rates *r, const bt_link_rate *links, size_t n) {
    size_t kept = 0;
    if (n == 0 || n > BT_RATES_LINKS) return;
    for (size_t i = 0; i < r->n_links; i++)
        if (r->links[i].world != links[0].world) r->links[kept++] = r->links[i];
    if (kept + n > BT_RATES_LINKS) { /* drop the oldest */
        size_t gone = kept + n - BT_RATES_LINKS;
        memmove(r->links, r->links + gone, (kept - gone) * sizeof *r->links);
        kept -= gone;
    }
    memcpy(r->links + kept, links, n * sizeof *links);
    r->n_links = kept + n;
}

const bt_link_rate *bt_rates_link(const bt_rates *r, int world, int n, int stride) {
    const bt_link_rate *best = NULL;
    double far = INFINITY;
    for (size_t i = 0; i < r->n_links; i++) {
        const bt_link_rate *l = &r->links[i];
        if (!(l->bytes_per_s > 0)) continue;
        double d = fabs(log((double)l->n / n)) + 0.1 * (l->stride != stride) +
                   0.2 * fabs(log((double)l->world / world));
        if (d < far) far = d, best = l;
    }
    return best;
}

static const char *const kinds[] = {"layer", "head"};

void bt_part_put(bt_text *out, const bt_part_shape *s) {
    bt_text_printf(out, "%s:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d",
                   kinds[s->kind], s->C, s->H, s->KV, s->D, s->F, s->V, s->T, s->B, s->norm, s->act,
                   s->linear, s->qk_norm, s->precision, s->grad_int8, s->recompute, s->tp,
                   s->sequence, s->lora, s->targets, s->lean, s->base8);
}

bool bt_part_parse(const char *text, bt_part_shape *s) {
    char kind[8];
    memset(s, 0, sizeof *s);
    if (sscanf(text, "%7[a-z]:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d:%d", kind,
               &s->C, &s->H, &s->KV, &s->D, &s->F, &s->V, &s->T, &s->B, &s->norm, &s->act,
               &s->linear, &s->qk_norm, &s->precision, &s->grad_int8, &s->recompute, &s->tp,
               &s->sequence, &s->lora, &s->targets, &s->lean, &s->base8) != 22 ||
        s->tp < 1 || s->lora < 0)
        return false;
    bool layer = strcmp(kind, kinds[BT_PART_LAYER]) == 0,
         head = strcmp(kind, kinds[BT_PART_HEAD]) == 0;
    s->kind = head ? BT_PART_HEAD : BT_PART_LAYER;
    return (head && s->C > 0 && s->V > 0 && s->T > 0 && s->B > 0) ||
           (layer && s->C > 0 && s->H > 0 && s->KV > 0 && s->D > 0 && s->F > 0 && s->T > 0 &&
            s->B > 0);
}
