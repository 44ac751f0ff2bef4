/* layout_search.c - enumerates legal layouts, computes their memory and times, and sorts them. */
#include "engine/plan/layout_search.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MICRO_SIZES = 6,
    RECOMPUTES = 3,
    SHOWN = 1,
    STAGES_SEEN = 8,
    TP_MOST = 64,
    VIRTUAL_MOST = 4
};

bt_layout_freedom bt_layout_freedom_of(const bt_opts *o) {
    bool mesh = bt_opts_given(o, "mesh.dp_replicate") || bt_opts_given(o, "mesh.dp_shard") ||
                bt_opts_given(o, "mesh.tp") || bt_opts_given(o, "mesh.pp");
    return (bt_layout_freedom){.mesh = !mesh,
                               .virtual_stages = !bt_opts_given(o, "parallel.virtual_stages"),
                               .zero = !bt_opts_given(o, "mesh.zero"),
                               .micro_batch = !bt_opts_given(o, "train.micro_batch") &&
                                              !bt_opts_given(o, "train.accum"),
                               .recompute = !bt_opts_given(o, "train.recompute"),
                               .gather = !bt_opts_given(o, "parallel.gather")};
}

bt_code bt_layout_settings(const bt_layout_search *s, const bt_layout *l, bt_run_cfg *out,
                           bt_err *err) {
    *out = *s->cfg;
    out->launch.ranks = s->cluster.ranks;
    out->mesh.pp = l->shape.pp;
    out->mesh.dp_replicate = l->shape.dp_replicate;
    out->mesh.dp_shard = l->shape.dp_shard;
    out->mesh.tp = l->shape.tp;
    out->parallel.virtual_stages = l->virtual_stages;
    out->mesh.zero = l->zero;
    out->train.recompute = l->recompute;
    out->parallel.gather = l->gather;
    out->parallel.codec = l->codec;
    if (s->may.micro_batch) {
        out->train.micro_batch = l->micro_batch;
        out->train.accum = 0;
    }
    return bt_run_cfg_resolve(out, s->cluster.ranks, err);
}

static double available_bytes_per_rank(const bt_cluster *c) {
    const int here = bt_cluster_fullest(c);
    return c->memory_bytes / here;
}

/* Computes the memory of the largest rank and of all ranks. The first stages have the most micro-batches in flight and
 * the last stage has the head; shards and tensor-parallel ranks of a stage hardly differ. */
static void compute_layout_memory(bt_layout *l, const bt_run_cfg *cfg, bt_plan_parts *parts) {
    int n = l->shape.pp, group = l->shape.dp_replicate * l->shape.dp_shard * l->shape.tp;
    size_t bytes = 0;
    l->rank_bytes = 0;
    l->all_bytes = 0;
    for (int k = 0; k < n; k++) {
        const bt_mesh_coord at = {.pp = k};
        if (n <= STAGES_SEEN || k <= 2 || k == n - 1)
            bytes = bt_plan_bytes(cfg, bt_mesh_rank_of(&l->shape, &at), parts);
        if (bytes > l->rank_bytes) l->rank_bytes = bytes;
        l->all_bytes += (double)bytes * group;
    }
}

typedef struct search {
    const bt_layout_search *s;
    bt_layouts *out;
    bt_run_cfg *cfg; /* scratch */
} search;

static bt_code append_layout(bt_layouts *l, const bt_layout *x, bt_err *err) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        bt_layout *more = realloc(l->at, cap * sizeof *more);
        if (!more) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu layouts", cap);
        l->at = more;
        l->cap = cap;
    }
    l->at[l->n++] = *x;
    return BT_OK;
}

static bool is_known_layout(const bt_layouts *l, const bt_layout *x) {
    for (size_t i = 0; i < l->n; i++) {
        const bt_layout *y = &l->at[i];
        if (memcmp(&y->shape, &x->shape, sizeof x->shape) == 0 && y->zero == x->zero &&
            y->gather == x->gather && y->micro_batch == x->micro_batch &&
            y->virtual_stages == x->virtual_stages)
            return true;
    }
    return false;
}

static void record_refusal(search *f, const bt_err *why) {
    if (f->out->refused++ == 0) snprintf(f->out->reason, sizeof f->out->reason, "%.230s", why->msg);
}

/* Adds the layout with the least recomputation that fits the memory; if none fits, the one with full recomputation. */
static bt_code add_layout(search *f, bt_layout x, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    double room = available_bytes_per_rank(&f->s->cluster);
    int first = f->s->may.recompute ? 0 : (int)f->s->cfg->train.recompute,
        last = f->s->may.recompute ? RECOMPUTES - 1 : first;
    for (int k = first; k <= last; k++) {
        x.recompute = k;
        if (bt_layout_settings(f->s, &x, f->cfg, &why) != BT_OK) {
            record_refusal(f, &why);
            return BT_OK;
        }
        x.micro_batch = f->cfg->train.micro_batch;
        x.accum = f->cfg->train.accum;
        bt_run_cfg_mesh(f->cfg, &x.shape);
        if (is_known_layout(f->out, &x)) return BT_OK;
        if (room > 0) compute_layout_memory(&x, f->cfg, f->s->parts);
        if (f->out->least_bytes == 0 || x.rank_bytes < f->out->least_bytes)
            f->out->least_bytes = x.rank_bytes;
        x.fits = room <= 0 || (double)x.rank_bytes <= room;
        if (x.fits) break;
    }
    f->out->fitting += x.fits;
    return append_layout(f->out, &x, err);
}

/* Tries the resolver's own choice (0) and powers of two. */
static bt_code add_micro_batches(search *f, bt_layout x, bt_err *err) {
    if (!f->s->may.micro_batch) {
        x.micro_batch = f->s->cfg->train.micro_batch;
        return add_layout(f, x, err);
    }
    x.micro_batch = 0;
    BT_TRY(add_layout(f, x, err));
    int64_t dp = (int64_t)x.shape.dp_replicate * x.shape.dp_shard, T = f->s->cfg->model.seq_len,
            mine = f->s->cfg->train.batch_tokens / T / (dp > 0 ? dp : 1), size = 1;
    for (int i = 0; i < MICRO_SIZES && size <= mine; i++, size *= 2) {
        x.micro_batch = size;
        /* Activations of more tokens exceed every cache. */
        if (mine % size == 0 && (size == 1 || size * T <= 16384)) BT_TRY(add_layout(f, x, err));
    }
    return BT_OK;
}

/* Tries one, two and four chunks of layers a stage. */
static bt_code add_virtual_stages(search *f, bt_layout x, bt_err *err) {
    const int most = f->s->may.virtual_stages && x.shape.pp > 1 ? VIRTUAL_MOST : 1;
    x.virtual_stages = f->s->may.virtual_stages ? 1 : (int)f->s->cfg->parallel.virtual_stages;
    BT_TRY(add_micro_batches(f, x, err));
    for (int v = 2; v <= most && v * x.shape.pp <= f->s->cfg->model.layers; v *= 2) {
        x.virtual_stages = v;
        BT_TRY(add_micro_batches(f, x, err));
    }
    return BT_OK;
}

static bt_code add_gathers(search *f, bt_layout x, bt_err *err) {
    bool both = f->s->may.gather && x.zero == 3 && x.shape.pp == 1;
    x.gather = f->s->cfg->parallel.gather;
    BT_TRY(add_virtual_stages(f, x, err));
    if (!both) return BT_OK;
    x.gather = x.gather == BT_GATHER_STEP ? BT_GATHER_LAYER : BT_GATHER_STEP;
    return add_virtual_stages(f, x, err);
}

/* Tries shards over all data-parallel ranks and, if there are several hosts, over the ranks of one host. */
static bt_code add_shards(search *f, bt_layout x, int dp, bt_err *err) {
    const bt_cluster *c = &f->s->cluster;
    for (int zero = 0; zero <= 3; zero++) {
        if (!f->s->may.zero && zero != f->s->cfg->mesh.zero) continue;
        if (zero > 0 && dp == 1) continue;
        x.zero = zero;
        x.shape.dp_shard = zero ? dp : 1;
        x.shape.dp_replicate = dp / x.shape.dp_shard;
        BT_TRY(add_gathers(f, x, err));
        int here = bt_cluster_together(c) / x.shape.tp;
        if (zero == 0 || here <= 1 || here >= dp || dp % here != 0) continue;
        x.shape.dp_shard = here;
        x.shape.dp_replicate = dp / here;
        BT_TRY(add_gathers(f, x, err));
    }
    return BT_OK;
}

static bt_code add_meshes(search *f, bt_err *err) {
    const bt_run_cfg *cfg = f->s->cfg;
    int ranks = f->s->cluster.ranks;
    bt_layout x = {.codec = cfg->parallel.codec};
    if (!f->s->may.mesh) {
        bt_run_cfg_mesh(cfg, &x.shape);
        if (x.shape.dp_replicate == 0 && !f->s->may.zero) {
            x.zero = (int)cfg->mesh.zero;
            return add_gathers(f, x, err);
        }
        int inner = x.shape.pp * x.shape.tp;
        if (ranks % inner == 0 && x.shape.dp_replicate <= 1 && x.shape.dp_shard == 1)
            return add_shards(f, x, ranks / inner, err);
        x.zero = (int)cfg->mesh.zero;
        return add_gathers(f, x, err);
    }
    for (int tp = 1; tp <= ranks && tp <= TP_MOST; tp++) {
        if (ranks % tp != 0 || tp > bt_cluster_together(&f->s->cluster)) continue;
        if (f->s->cluster.hosts > 0 && f->s->cluster.ranks_together % tp != 0) continue;
        for (int pp = 1; pp <= ranks / tp && pp <= cfg->model.layers; pp++) {
            if (ranks / tp % pp != 0) continue;
            x.shape = (bt_mesh_shape){.pp = pp, .tp = tp};
            BT_TRY(add_shards(f, x, ranks / tp / pp, err));
        }
    }
    return BT_OK;
}

bt_code bt_layouts_find(bt_layouts *out, const bt_layout_search *s, bt_err *err) {
    *out = (bt_layouts){0};
    search f = {.s = s, .out = out, .cfg = malloc(sizeof *f.cfg)};
    bt_code code = f.cfg ? add_meshes(&f, err)
                         : bt_fail(err, BT_NOMEM, "cannot allocate memory for the settings");
    free(f.cfg);
    if (code == BT_OK && out->n == 0)
        code = bt_fail(err, BT_ARG, "no layout of %d rank%s is possible: %s", s->cluster.ranks,
                       s->cluster.ranks == 1 ? "" : "s", out->reason);
    return code;
}

void bt_layouts_release(bt_layouts *l) {
    free(l->at);
    *l = (bt_layouts){0};
}

typedef struct wanted { /* shapes of one micro-batch size and one tensor-parallel size */
    bt_part_shape layer, head;
    int turn; /* number of earlier entries with the same tensor-parallel size */
} wanted;

static int compare_wanted_shapes(const void *a, const void *b) {
    const wanted *x = a, *y = b;
    if (x->turn != y->turn) return x->turn < y->turn ? -1 : 1;
    return x->layer.tp < y->layer.tp ? -1 : x->layer.tp > y->layer.tp;
}

static size_t add_wanted_parts(wanted *all, size_t n, const bt_run_cfg *cfg, int tp) {
    wanted x = {.layer = bt_part_layer(cfg, tp), .head = bt_part_head(cfg, tp)};
    for (size_t i = 0; i < n; i++) {
        if (bt_part_same(&all[i].layer, &x.layer)) return n;
        x.turn += all[i].layer.tp == tp;
    }
    all[n] = x;
    return n + 1;
}

size_t bt_layouts_shapes(const bt_layouts *l, const bt_layout_search *s, bt_part_shape *out,
                         size_t most) {
    size_t n = 0, n_out = 0;
    bt_run_cfg *cfg = malloc(sizeof *cfg);
    wanted *all = calloc(l->n, sizeof *all);
    for (size_t i = 0; cfg && all && i < l->n; i++) {
        if (s->one_micro_batch && l->at[i].micro_batch != l->at[0].micro_batch) continue;
        if (bt_layout_settings(s, &l->at[i], cfg, NULL) == BT_OK)
            n = add_wanted_parts(all, n, cfg, l->at[i].shape.tp);
    }
    if (n > 0) qsort(all, n, sizeof *all, compare_wanted_shapes);
    for (size_t i = 0; i < n && n_out + 1 < most; i++) {
        bool known = false; /* layers with and without recomputation share a head */
        for (size_t k = 0; k < n_out; k++) known = known || bt_part_same(&out[k], &all[i].head);
        out[n_out++] = all[i].layer;
        if (!known) out[n_out++] = all[i].head;
    }
    free(all);
    free(cfg);
    return n_out;
}

static int compare_predicted_layouts(const void *a, const void *b) {
    const bt_layout *x = a, *y = b;
    if (x->fits != y->fits) return x->fits ? -1 : 1;
    double dx = x->time.step.step_s, dy = y->time.step.step_s;
    if ((dx > 0) != (dy > 0)) return dx > 0 ? -1 : 1; /* 0: not predicted */
    if (dx < dy || dx > dy) return dx < dy ? -1 : 1;
    return x->rank_bytes < y->rank_bytes ? -1 : x->rank_bytes > y->rank_bytes;
}

double bt_layout_step_s(const bt_layout *l) {
    return l->trial_s > 0 ? l->trial_s : l->time.step.step_s;
}

/* A number that grows with stages, groups, shards and recomputation. */
static int layout_complexity(const bt_layout *l) {
    return 8 * (l->shape.pp > 1) + (l->virtual_stages > 1) + 8 * (l->shape.tp > 1) + 2 * l->zero +
           2 * l->recompute + (l->gather != BT_GATHER_LAYER);
}

/* Moves the simplest layout among those nearly as fast as the first one to the front; of equals the fastest. */
static void prefer_simple(bt_layouts *l) {
    size_t best = 0;
    for (size_t i = 1; i < l->n; i++) {
        const bt_layout *x = &l->at[i], *first = &l->at[0];
        if (x->fits != first->fits || (x->trial_s > 0) != (first->trial_s > 0)) continue;
        if (!(bt_layout_step_s(x) > 0) ||
            bt_layout_step_s(x) > (1 + BT_LAYOUT_NEAR) * bt_layout_step_s(first))
            continue;
        if (layout_complexity(x) < layout_complexity(&l->at[best])) best = i;
    }
    const bt_layout chosen = l->at[best];
    memmove(&l->at[1], &l->at[0], best * sizeof *l->at);
    l->at[0] = chosen;
}

static int compare_tried_layouts(const void *a, const void *b) {
    const bt_layout *x = a, *y = b;
    if ((x->trial_s > 0) != (y->trial_s > 0)) return x->trial_s > 0 ? -1 : 1;
    if (!(x->trial_s > 0)) return compare_predicted_layouts(a, b);
    return x->trial_s < y->trial_s ? -1 : x->trial_s > y->trial_s;
}

void bt_layouts_prefer_tried(bt_layouts *l) {
    qsort(l->at, l->n, sizeof *l->at, compare_tried_layouts);
    prefer_simple(l);
}

typedef struct predictor {
    bt_layouts *l;
    const bt_layout_search *s;
    const bt_rates *r;
    bt_run_cfg *cfg; /* scratch */
} predictor;

static bt_code predict_layout(const predictor *p, bt_layout *x, bt_err *err) {
    BT_TRY(bt_layout_settings(p->s, x, p->cfg, err));
    return bt_time_predict(p->cfg, p->r, &p->s->cluster, &x->time, err);
}

typedef struct bounded {
    bt_layout *layout;
    double least_s;
} bounded;

static int compare_lower_bounds(const void *a, const void *b) {
    const bounded *x = a, *y = b;
    if (x->least_s < y->least_s || x->least_s > y->least_s) return x->least_s < y->least_s ? -1 : 1;
    return x->layout < y->layout ? -1 : x->layout > y->layout;
}

bool bt_layout_same_mesh(const bt_layout *a, const bt_layout *b) {
    return memcmp(&a->shape, &b->shape, sizeof a->shape) == 0 && a->zero == b->zero;
}

/* Returns the longest relevant step time: slower layouts are neither near the choice nor the fastest of a mesh. */
static double longest_useful_step(const bounded *all, size_t n) {
    const bt_layout *best = NULL, *other = NULL;
    for (size_t i = 0; i < n; i++) {
        const bt_layout *x = all[i].layout;
        if (!best || x->time.step.step_s < best->time.step.step_s) best = x;
    }
    for (size_t i = 0; i < n; i++) {
        const bt_layout *x = all[i].layout;
        if (!bt_layout_same_mesh(x, best) &&
            (!other || x->time.step.step_s < other->time.step.step_s))
            other = x;
    }
    return other ? fmax((1 + BT_LAYOUT_NEAR) * best->time.step.step_s, other->time.step.step_s)
                 : INFINITY;
}

/* Predicts layouts that fit in the order of their lower bounds, until one exceeds the longest relevant time. */
static bt_code predict_choice(const predictor *p, bt_err *err) {
    bt_code code = BT_OK;
    size_t n = 0;
    double longest = INFINITY;
    bounded *all = calloc(p->l->n, sizeof *all);
    if (!all) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu layouts", p->l->n);
    for (size_t i = 0; code == BT_OK && i < p->l->n; i++) {
        bt_layout *x = &p->l->at[i];
        if (!x->fits) continue;
        all[n].layout = x;
        code = bt_layout_settings(p->s, x, p->cfg, err);
        if (code == BT_OK)
            code = bt_time_least(p->cfg, p->r, &p->s->cluster, &all[n++].least_s, err);
    }
    if (code == BT_OK && n > 0) qsort(all, n, sizeof *all, compare_lower_bounds);
    for (size_t i = 0; code == BT_OK && i < n && all[i].least_s <= longest; i++) {
        code = predict_layout(p, all[i].layout, err);
        longest = longest_useful_step(all, i + 1);
    }
    free(all);
    return code;
}

bt_code bt_layouts_predict(bt_layouts *l, const bt_layout_search *s, const bt_rates *r,
                           bt_err *err) {
    const predictor p = {l, s, r, malloc(sizeof *p.cfg)};
    bt_code code = p.cfg ? BT_OK
                         : bt_fail(err, BT_NOMEM, "cannot allocate memory for the settings");
    if (code == BT_OK && s->choice_only) code = predict_choice(&p, err);
    for (size_t i = 0; code == BT_OK && !s->choice_only && i < l->n; i++)
        code = predict_layout(&p, &l->at[i], err);
    if (code == BT_OK) {
        qsort(l->at, l->n, sizeof *l->at, compare_predicted_layouts);
        prefer_simple(l);
    }
    /* The search skips memory that does not affect the choice, so it is computed here. */
    for (size_t i = 0; code == BT_OK && i < l->n && i < SHOWN; i++) {
        if (l->at[i].rank_bytes > 0) continue;
        code = bt_layout_settings(s, &l->at[i], p.cfg, err);
        if (code == BT_OK) compute_layout_memory(&l->at[i], p.cfg, s->parts);
    }
    free(p.cfg);
    return code;
}

const char *bt_layout_words(const bt_layout *l, char *buf, size_t size) {
    static const char *const recompute[] = {"", ", recompute selective", ", recompute full"};
    char zero[64] = "", chunks[32] = "";
    if (l->virtual_stages > 1) snprintf(chunks, sizeof chunks, " (%d virtual)", l->virtual_stages);
    if (l->zero && l->shape.dp_replicate > 1)
        snprintf(zero, sizeof zero, " (ZeRO-%d over %d)", l->zero, l->shape.dp_shard);
    else if (l->zero)
        snprintf(zero, sizeof zero, " (ZeRO-%d%s)", l->zero,
                 l->gather == BT_GATHER_FLIPS && l->zero > 0   ? ", changed codes gathered"
                 : l->zero == 3 && l->gather == BT_GATHER_STEP ? ", gathered once a step"
                                                               : "");
    snprintf(buf, size, "pp %d%s x dp %d%s x tp %d, %" PRId64 " micro-batch%s of %" PRId64 "%s",
             l->shape.pp, chunks, l->shape.dp_replicate * l->shape.dp_shard, zero, l->shape.tp,
             l->accum, l->accum == 1 ? "" : "es", l->micro_batch, recompute[l->recompute]);
    return buf;
}
