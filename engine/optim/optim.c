/* optim.c - AdamW with decoupled decay on slices of the flat parameter array. */
#include "engine/optim/optim.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/arena.h"
#include "engine/kernels/ops/ops.h"

struct bt_optim {
    bt_optim_cfg cfg;
    size_t begin, end;
    bt_arena arena;
    float *exp_avg, *exp_avg_sq; /* (end - begin) each */
};

static void plan(bt_arena *a, size_t n, size_t offsets[2]) {
    bt_arena_plan(a, "optimizer");
    offsets[0] = bt_arena_reserve(a, n, sizeof(float));
    offsets[1] = bt_arena_reserve(a, n, sizeof(float));
}

bt_code bt_optim_create(bt_optim **out, const bt_optim_cfg *cfg, size_t begin, size_t end,
                        bt_err *err) {
    *out = NULL;
    if (!(cfg->beta1 >= 0 && cfg->beta1 < 1 && cfg->beta2 >= 0 && cfg->beta2 < 1 &&
          cfg->eps >= 0)) {
        return bt_fail(err, BT_ARG,
                       "AdamW needs 0 <= beta1, beta2 < 1 and eps >= 0, not %g, %g, %g", cfg->beta1,
                       cfg->beta2, cfg->eps);
    }
    if (end < begin)
        return bt_fail(err, BT_ARG, "an optimizer slice cannot end at %zu before it begins at %zu",
                       end, begin);
    bt_optim *o = calloc(1, sizeof *o);
    if (!o) return bt_fail(err, BT_NOMEM, "cannot take memory for an optimizer");
    o->cfg = *cfg;
    o->begin = begin;
    o->end = end;
    size_t offsets[2];
    plan(&o->arena, end - begin, offsets);
    bt_code code = bt_arena_commit(&o->arena, err);
    if (code != BT_OK) {
        free(o);
        return code;
    }
    o->exp_avg = bt_arena_at(&o->arena, offsets[0]);
    o->exp_avg_sq = bt_arena_at(&o->arena, offsets[1]);
    *out = o;
    return BT_OK;
}

void bt_optim_destroy(bt_optim *o) {
    if (!o) return;
    bt_arena_release(&o->arena);
    free(o);
}

size_t bt_optim_bytes(size_t begin, size_t end) {
    bt_arena a;
    size_t offsets[2];
    plan(&a, end > begin ? end - begin : 0, offsets);
    return a.bytes;
}

void bt_optim_step(bt_optim *o, float *w, const float *g, const bt_optim_span *spans, size_t n,
                   int64_t t, float grad_scale, float lr, float decay) {
    float b1 = (float)o->cfg.beta1, b2 = (float)o->cfg.beta2, eps = (float)o->cfg.eps;
    float c1 = (float)(1.0 - pow(o->cfg.beta1, (double)t)),
          c2 = (float)(1.0 - pow(o->cfg.beta2, (double)t));
    for (size_t i = 0; i < n; i++) {
        size_t from = spans[i].begin > o->begin ? spans[i].begin : o->begin;
        size_t to = spans[i].end < o->end ? spans[i].end : o->end;
        if (from >= to) continue;
        bt_op_adamw(w + from, g + from, o->exp_avg + (from - o->begin),
                    o->exp_avg_sq + (from - o->begin), grad_scale, lr, b1, b2, eps,
                    spans[i].decay ? decay : 0.0f, c1, c2, to - from);
    }
}

/* ---- what an update did ---------------------------------------------------------------------- */

/* spans: fixed, so that the sums do not depend on the threads */
enum { SPANS = 64, LANE = 256 };

typedef struct change_job {
    const float *w, *m, *v;
    size_t n;
    float keep, step, root, eps;
    double change[SPANS], before[SPANS];
} change_job;

static void change_of_spans(void *ctx, int thread, size_t from, size_t to) {
    change_job *j = ctx;
    float d[LANE], old[LANE];
    (void)thread;
    for (size_t s = from; s < to; s++) {
        double change = 0, before = 0;
        for (size_t i = j->n * s / SPANS, end = j->n * (s + 1) / SPANS; i < end; i += LANE) {
            size_t n = end - i < LANE ? end - i : LANE;
            bt_k()->adamw_undo(d, old, j->w + i, j->m + i, j->v + i, n, j->keep, j->step, j->root,
                               j->eps);
            change += bt_k()->sum_squares(d, n);
            before += bt_k()->sum_squares(old, n);
        }
        j->change[s] = change;
        j->before[s] = before;
    }
}

void bt_optim_change(const bt_optim *o, const float *w, size_t begin, size_t end, int64_t t,
                     float lr, float decay, double *change, double *before) {
    float c1 = (float)(1.0 - pow(o->cfg.beta1, (double)t)),
          c2 = (float)(1.0 - pow(o->cfg.beta2, (double)t));
    change_job j = {.w = w + begin,
                    .m = o->exp_avg + (begin - o->begin),
                    .v = o->exp_avg_sq + (begin - o->begin),
                    .n = end - begin,
                    .keep = 1.0f - lr * decay,
                    .step = lr / c1,
                    .root = 1.0f / sqrtf(c2),
                    .eps = (float)o->cfg.eps};
    bt_parallel_for(SPANS, j.n < SPANS * LANE ? SPANS : 1, change_of_spans, &j);
    for (size_t s = 0; s < SPANS; s++) {
        *change += j.change[s];
        *before += j.before[s];
    }
}

/* ---- state ----------------------------------------------------------------------------------- */

size_t bt_optim_states(const bt_optim *o) {
    (void)o;
    return 2;
}

const char *bt_optim_state_name(const bt_optim *o, size_t i) {
    (void)o;
    return i == 0 ? "exp_avg" : "exp_avg_sq";
}

float *bt_optim_state(bt_optim *o, size_t i) { return i == 0 ? o->exp_avg : o->exp_avg_sq; }
