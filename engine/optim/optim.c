/* optim.c - holds the states of an optimizer for one range, and updates the tensors in it. */
#include "engine/optim/optim.h"

#include <stdlib.h>

#include "engine/base/arena.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/optim/short_states.h"

bt_optim_update bt_optim_update_of(const bt_optim_span *s, const bt_optim_update *u) {
    bt_optim_update own = *u;
    if (!s->decay) own.decay = 0;
    if (s->lr_factor > 0) own.lr *= s->lr_factor;
    return own;
}

struct bt_optim {
    bt_optim_cfg cfg;
    const bt_optim_span *spans;
    size_t first, n; /* spans that overlap the range */
    bt_range range;
    bt_arena arena;
    size_t (*offsets)[BT_OPTIM_STATES]; /* (n) offsets in the arena */
};

static bt_range clip_span(const bt_optim_span *s, bt_range range) {
    bt_range r = {bt_max_size(s->begin, range.begin), bt_min_size(s->end, range.end)};
    return r.begin < r.end ? r : (bt_range){range.begin, range.begin};
}

static size_t optim_range_length(bt_range r) { return r.end - r.begin; }

/* offsets NULL: computes only the size. */
static void plan_optim_memory(bt_arena *a, bt_optim_id kind, bt_states_kind states,
                              const bt_optim_span *spans, size_t n, bt_range range,
                              size_t (*offsets)[BT_OPTIM_STATES]) {
    bt_arena_plan(a, "optimizer");
    for (size_t i = 0; i < n; i++) {
        size_t elems = optim_range_length(clip_span(&spans[i], range));
        const bt_optim_rule *rule = bt_optim_rule_of(kind, &spans[i]);
        for (size_t k = 0; k < rule->n_states && elems > 0; k++) {
            size_t at = bt_arena_reserve(a, elems, bt_moment_bytes(bt_optim_form(rule, states, k)));
            if (offsets) offsets[i][k] = at;
        }
    }
}

size_t bt_optim_bytes(bt_optim_id kind, bt_states_kind states, const bt_optim_span *spans, size_t n,
                      bt_range range) {
    bt_arena a;
    plan_optim_memory(&a, kind, states, spans, n, range, NULL);
    return a.bytes;
}

static bt_code check_optim_range(const bt_optim_cfg *cfg, bt_range range, bt_err *err) {
    if (!(cfg->beta1 >= 0 && cfg->beta1 < 1 && cfg->beta2 >= 0 && cfg->beta2 < 1 && cfg->eps >= 0 &&
          cfg->momentum >= 0 && cfg->momentum < 1))
        return bt_fail(err, BT_ARG,
                       "an optimizer needs 0 <= beta1, beta2, momentum < 1 and eps >= 0, not "
                       "%g, %g, %g, %g",
                       cfg->beta1, cfg->beta2, cfg->momentum, cfg->eps);
    if (range.end < range.begin)
        return bt_fail(err, BT_ARG,
                       "an optimizer's range cannot end at %zu before it begins at %zu", range.end,
                       range.begin);
    return BT_OK;
}

bt_code bt_optim_create(bt_optim **out, const bt_optim_cfg *cfg, const bt_optim_span *spans,
                        size_t n, bt_range range, bt_err *err) {
    *out = NULL;
    BT_TRY(check_optim_range(cfg, range, err));
    bt_optim *o = calloc(1, sizeof *o);
    if (!o) return bt_fail(err, BT_NOMEM, "cannot allocate memory for an optimizer");
    *o = (bt_optim){.cfg = *cfg, .spans = spans, .range = range};
    while (o->first < n && spans[o->first].end <= range.begin) o->first++;
    while (o->first + o->n < n && spans[o->first + o->n].begin < range.end) o->n++;
    o->offsets = calloc(o->n + 1, sizeof *o->offsets);
    bt_code code = o->offsets ? BT_OK
                              : bt_fail(err, BT_NOMEM, "cannot allocate memory for an optimizer");
    if (code == BT_OK) {
        plan_optim_memory(&o->arena, cfg->kind, cfg->states, spans + o->first, o->n, range,
                          o->offsets);
        code = bt_arena_commit(&o->arena, err);
    }
    if (code != BT_OK) {
        bt_optim_destroy(o);
        return code;
    }
    *out = o;
    return BT_OK;
}

void bt_optim_destroy(bt_optim *o) {
    if (!o) return;
    bt_arena_release(&o->arena);
    free(o->offsets);
    free(o);
}

void *bt_optim_state(const bt_optim *o, size_t i, size_t k, size_t at) {
    const bt_optim_span *s = &o->spans[i];
    const bt_optim_rule *rule = bt_optim_rule_of(o->cfg.kind, s);
    bt_range r = clip_span(s, o->range);
    if (k >= rule->n_states || at < r.begin || at >= r.end) return NULL;
    return (unsigned char *)bt_arena_at(&o->arena, o->offsets[i - o->first][k]) +
           (at - r.begin) * bt_moment_bytes(bt_optim_form(rule, o->cfg.states, k));
}

bool bt_optim_read(const bt_optim *o, size_t i, size_t k, bt_range r, float *out) {
    const void *state = bt_optim_state(o, i, k, r.begin);
    if (state)
        bt_active_kernels()->moment_load(out, state,
                                         bt_optim_form(bt_optim_rule_of(o->cfg.kind, &o->spans[i]),
                                                       o->cfg.states, k),
                                         optim_range_length(r));
    return state;
}

static void *own_weights(const bt_optim_span *s, size_t at) {
    return (unsigned char *)s->weights + (at - s->begin) * bt_moment_bytes(s->form);
}

void bt_optim_raise(bt_optim *o, size_t i, size_t k, bt_range r, double share) {
    enum { BLOCK = 256 };
    static const uint32_t no_noise[BLOCK];
    float some[BLOCK];
    double sum = 0;
    if (r.begin >= r.end || !bt_optim_state(o, i, k, r.begin)) return;
    const bt_moment_form form = bt_optim_form(bt_optim_rule_of(o->cfg.kind, &o->spans[i]),
                                              o->cfg.states, k);
    for (size_t at = r.begin, n; at < r.end; at += n) {
        n = bt_min_size(BLOCK, r.end - at);
        (void)bt_optim_read(o, i, k, (bt_range){at, at + n}, some);
        for (size_t e = 0; e < n; e++) sum += (double)some[e];
    }
    const float least = (float)(share * sum / (double)optim_range_length(r));
    for (size_t at = r.begin, n; at < r.end; at += n) {
        n = bt_min_size(BLOCK, r.end - at);
        (void)bt_optim_read(o, i, k, (bt_range){at, at + n}, some);
        for (size_t e = 0; e < n; e++) some[e] = some[e] < least ? least : some[e];
        bt_active_kernels()->moment_store(bt_optim_state(o, i, k, at), some, form, no_noise, 0, n);
    }
}

static bt_short_states describe_span_states(const bt_optim *o, size_t i, bt_range r, float *w,
                                            const float *g) {
    const bt_optim_span *span = &o->spans[i];
    const bt_optim_rule *rule = bt_optim_rule_of(o->cfg.kind, span);
    bt_short_states s = {.rule = rule,
                         .cfg = &o->cfg,
                         .span = span,
                         .begin = r.begin,
                         .n = optim_range_length(r),
                         .w = span->weights ? own_weights(span, r.begin) : w + r.begin,
                         .form = span->weights ? span->form : BT_MOMENT_F32,
                         .g = g + r.begin};
    for (size_t k = 0; k < rule->n_states; k++) s.state[k] = bt_optim_state(o, i, k, r.begin);
    return s;
}

void bt_optim_round_weights(const bt_optim *o, size_t i, bt_range r, const float *values,
                            int64_t t) {
    const bt_short_states s = {.cfg = &o->cfg,
                               .span = &o->spans[i],
                               .begin = r.begin,
                               .n = optim_range_length(r),
                               .w = own_weights(&o->spans[i], r.begin),
                               .form = o->spans[i].form};
    bt_short_weights_store(&s, values, t);
}

void bt_optim_step(bt_optim *o, float *w, const float *g, const bt_optim_update *u) {
    for (size_t i = o->first; i < o->first + o->n; i++) {
        bt_range r = clip_span(&o->spans[i], o->range);
        if (r.begin == r.end) continue;
        const bt_short_states s = describe_span_states(o, i, r, w, g);
        const bt_optim_update own = bt_optim_update_of(&o->spans[i], u);
        if (o->cfg.states == BT_STATES_FP32 && s.form == BT_MOMENT_F32)
            s.rule->step(&(bt_optim_elems){s.w, s.g, {s.state[0], s.state[1]}, s.n}, &o->cfg, &own);
        else
            bt_short_states_step(&s, &own);
    }
}

enum { PARTS = 64 }; /* fixed, so that the sums do not depend on the number of threads */

typedef struct change_job {
    bt_optim_update u;
    bt_short_states s;
    double change[PARTS], before[PARTS];
} change_job;

static void sum_change_of_parts(void *ctx, int thread, size_t from, size_t to) {
    change_job *j = ctx;
    float d[BT_OPTIM_UNDO], old[BT_OPTIM_UNDO], some[BT_OPTIM_STATES][BT_OPTIM_UNDO],
        w[BT_OPTIM_UNDO];
    (void)thread;
    for (size_t s = from; s < to; s++) {
        double change = 0, before = 0;
        for (size_t i = j->s.n * s / PARTS, end = j->s.n * (s + 1) / PARTS, n; i < end; i += n) {
            n = bt_min_size(end - i, BT_OPTIM_UNDO);
            bt_optim_elems e = {
                .w = bt_short_weights_load(&j->s, i, n, w), .g = j->s.g + i, .n = n};
            bt_short_states_load(&j->s, i, n, some[0], BT_OPTIM_UNDO);
            for (size_t k = 0; k < j->s.rule->n_states; k++) e.state[k] = some[k];
            j->s.rule->undo(d, old, &e, j->s.cfg, &j->u);
            change += bt_active_kernels()->sum_squares(d, n);
            before += bt_active_kernels()->sum_squares(old, n);
        }
        j->change[s] = change;
        j->before[s] = before;
    }
}

void bt_optim_change(const bt_optim *o, size_t i, bt_range r, float *w, const float *g,
                     const bt_optim_update *u, double *change, double *before) {
    const bt_optim_rule *rule = bt_optim_rule_of(o->cfg.kind, &o->spans[i]);
    if (!rule->undo || r.begin >= r.end) return;
    change_job j = {.u = bt_optim_update_of(&o->spans[i], u),
                    .s = describe_span_states(o, i, r, w, g)};
    bt_parallel_for(PARTS, j.s.n < PARTS * BT_OPTIM_UNDO ? PARTS : 1, sum_change_of_parts, &j);
    for (size_t s = 0; s < PARTS; s++) {
        *change += j.change[s];
        *before += j.before[s];
    }
}
