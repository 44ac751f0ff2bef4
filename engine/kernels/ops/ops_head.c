/* ops_head.c - head with cross-entropy in chunks of rows. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/kernels/ops/ops_internal.h"

typedef struct head_job {
    float *loss, *logits, *dx, *dE;
    const float *x;
    bt_table E;
    const int32_t *targets;
    float dscale;
    size_t first, rows, V, C, ld;
    const bt_head8 *int8;
    bt_head_form form;
} head_job;

static void soft_cap(float *l, float cap, size_t V) {
    for (size_t i = 0; i < V; i++) l[i] = cap * tanhf(l[i] / cap);
}

static float slope_at(float capped, float cap) {
    const float t = capped / cap;
    return 1.0f - t * t;
}

/* computes one row of bt_op_row_softmax_capped in parts small enough to keep their capped logits */
static float capped_softmax(float *l, float top, float k, int32_t target, float dscale, float cap,
                            size_t V) {
    enum { SOME = 256 };
    float kept[SOME], slope = 0;
    for (size_t i = 0, n; i < V; i += n) {
        n = bt_min_size(SOME, V - i);
        const int32_t here = target >= 0 && (size_t)target - i < n ? target - (int32_t)i : -1;
        memcpy(kept, l + i, n * sizeof *kept);
        bt_active_kernels()->row_softmax(l + i, &top, &k, &here, dscale, 1, n);
        for (size_t e = 0; e < n; e++) l[i + e] *= slope_at(kept[e], cap);
        if (here >= 0) slope = slope_at(kept[here], cap);
    }
    return slope;
}

static void do_capped_softmax(void *ctx, int thread, size_t a, size_t b) {
    const bt_capped_rows *j = ctx;
    (void)thread;
    for (size_t r = a; r < b; r++)
        j->slopes[r] = capped_softmax(j->logits + r * j->ld, j->top[r], j->k[r], j->targets[r],
                                      j->dscale, j->cap, j->V);
}

void bt_op_row_softmax_capped(const bt_capped_rows *j) {
    bt_ops_timed("row_softmax", 0, 8.0 * product(j->rows, j->V, 1), j->rows, 1, do_capped_softmax,
                 (void *)(uintptr_t)j);
}

static void do_soft_cap(void *ctx, int thread, size_t a, size_t b) {
    const head_job *j = ctx;
    (void)thread;
    for (size_t r = a; r < b; r++) soft_cap(j->logits + r * j->ld, j->form.cap, j->V);
}

void bt_op_soft_cap(float *logits, size_t ld, float cap, size_t rows, size_t V) {
    head_job j = {.logits = logits, .ld = ld, .form = {.cap = cap}, .V = V};
    bt_ops_timed("soft_cap", 0, 8.0 * product(rows, V, 1), rows, 1, do_soft_cap, &j);
}

static void subtract_follower_share(const bt_head_follower_targets *j, size_t r, int32_t token,
                                    float share) {
    const size_t at = (size_t)token - j->first;
    if (at < j->V) j->logits[r * j->ld + at] -= j->dscale * share;
}

static void do_shares(void *ctx, int thread, size_t a, size_t b) {
    const bt_head_follower_targets *j = ctx;
    const bt_followers *f = j->followers;
    (void)thread;
    for (size_t r = a; r < b; r++) {
        if (j->targets[r] < 0) continue;
        const size_t from = f->at[j->inputs[r]], to = f->at[j->inputs[r] + 1];
        const float weight = from == to ? 0 : j->weight;
        if (weight < 1) subtract_follower_share(j, r, j->targets[r], 1 - weight);
        for (size_t i = from; i < to; i++)
            subtract_follower_share(j, r, f->token[i], weight * f->share[i]);
    }
}

void bt_op_head_follower_targets(const bt_head_follower_targets *j) {
    bt_ops_timed("head_shares", 0, 8.0 * product(j->rows, j->V, 1), j->rows, 1, do_shares,
                 (void *)(uintptr_t)j);
}

static bool mixes_follower_targets(const head_job *j) {
    return j->form.followers && !j->form.row_weights && j->dscale != 0;
}

/* The kernel takes a factor of 0 for a loss without gradients. */
static float row_factor(const head_job *j, size_t r) {
    const float factor = j->form.row_weights ? j->dscale * j->form.row_weights[j->first + r]
                                             : j->dscale;
    return factor != 0 || j->dscale == 0 ? factor : FLT_MIN;
}

static void do_capped_xent(void *ctx, int thread, size_t a, size_t b) {
    const head_job *j = ctx;
    const float cap = j->form.cap;
    (void)thread;
    for (size_t r = a; r < b; r++) {
        float *l = j->logits + r * j->ld;
        const float factor = row_factor(j, r),
                    at_target = j->int8 || mixes_follower_targets(j) ? 0 : factor;
        const int32_t target = j->targets[r];
        bt_row_stat s;
        soft_cap(l, cap, j->V);
        bt_active_kernels()->row_lse(&s, l, &target, 1, j->V);
        const double lse = log(s.sum) + (double)s.a;
        j->loss[r] = target < 0 ? 0.0f : (float)(lse - (double)s.b);
        if (j->dscale == 0) continue;
        const float k = target < 0 ? 0.0f : (float)((double)factor / s.sum);
        j->form.slopes[r] = capped_softmax(l, s.a, k, target, at_target, cap, j->V);
    }
}

static void do_xent(void *ctx, int thread, size_t a, size_t b) {
    const head_job *j = ctx;
    (void)thread;
    for (size_t r = a; r < b; r++) {
        float *logits = j->logits + r * j->ld;
        bt_active_kernels()->softmax_xent(j->loss + r, logits, j->targets + r, row_factor(j, r), 1,
                                          j->V);
        /* leaves the probability, because the target's term is added separately */
        if ((j->int8 || mixes_follower_targets(j)) && j->targets[r] >= 0)
            logits[j->targets[r]] += j->dscale;
    }
}

/* columns a to b of all rows, in ascending order of rows */
static void do_head_targets(void *ctx, int thread, size_t a, size_t b) {
    const bt_head_targets *j = ctx;
    (void)thread;
    for (size_t m = 0; m < j->rows; m++) {
        const float minus = j->slopes ? -j->dscale * j->slopes[m] : -j->dscale;
        if (j->index[m] < 0 || (size_t)j->index[m] < j->from || (size_t)j->index[m] >= j->to)
            continue;
        size_t word = (size_t)j->index[m] * j->C, row = m * j->C;
        for (size_t i = a, n; j->dx && i < b; i += n) {
            float values[256];
            n = bt_min_size(sizeof values / sizeof *values, b - i);
            bt_table_read(values, &j->E, word + i, n);
            bt_active_kernels()->row_axpy(j->dx + row + i, values, &minus, 1, n);
        }
        if (j->dE)
            bt_active_kernels()->row_axpy(j->dE + word + a, j->x + row + a, &minus, 1, b - a);
    }
}

void bt_op_head_targets(const bt_head_targets *j) {
    bt_ops_timed("head_targets", 0, (j->dx && j->dE ? 24.0 : 12.0) * product(j->rows, j->C, 1),
                 j->C, 64, do_head_targets, (void *)(uintptr_t)j);
}

void bt_op_head_dE8(float *dE, const float *p, size_t ldp, const float *x, const bt_head8 *h,
                    size_t rows, size_t V, size_t C) {
    bt_op_quant(h->xq, h->dq, x, rows, C);
    bt_op_tern_dw8(dE, bt_grads_f32(p, ldp), h->xq, h->dq, rows, V, C, &h->noise);
}

static void head_grads8(const head_job *j) {
    bt_head8 h = *j->int8;
    h.noise.rows += j->first;
    bt_op_w8_dx8(j->dx, j->C, j->logits, j->ld, &h.w, j->rows, j->V, j->C, &h.noise);
    if (j->dE) bt_op_head_dE8(j->dE, j->logits, j->ld, j->x, &h, j->rows, j->V, j->C);
    if (mixes_follower_targets(j)) return;
    bt_op_head_targets(&(bt_head_targets){.dx = j->dx,
                                          .dE = j->dE,
                                          .x = j->x,
                                          .E = j->E,
                                          .index = j->targets,
                                          .to = j->V,
                                          .dscale = j->dscale,
                                          .slopes = j->form.cap > 0 ? j->form.slopes : NULL,
                                          .rows = j->rows,
                                          .C = j->C});
}

double bt_op_head_loss(float *dx, float *dE, const float *x, bt_table E, const int32_t *targets,
                       float dscale, float *logits, size_t chunk, float *row_loss, size_t M,
                       size_t V, size_t C, bt_prec prec, const bt_head8 *int8,
                       const bt_head_form *form) {
    const bool capped = form && form->cap > 0;
    size_t ld = bt_ops_logits_ld(V);
    const bool rows8 = int8 && int8->w.rows;
    if (form && form->row_weights && !rows8) int8 = NULL;
    if (int8 && dscale != 0 && !rows8) bt_op_w8_pack(&int8->w, &E, V, C);
    for (size_t m = 0; m < M; m += chunk) {
        size_t rows = M - m < chunk ? M - m : chunk;
        head_job j = {.loss = row_loss + m,
                      .logits = logits,
                      .targets = targets + m,
                      .dscale = dscale,
                      .V = V,
                      .ld = ld,
                      .first = m,
                      .rows = rows,
                      .C = C,
                      .x = x + m * C,
                      .E = E,
                      .dx = dx + m * C,
                      .dE = dE,
                      .int8 = int8};
        if (form) j.form = *form;
        if (j.form.slopes) j.form.slopes += m;
        if (rows8) {
            bt_op_quant(int8->xq, int8->dq, x + m * C, rows, C);
            bt_op_w8_fwd(logits, ld, int8->xq, int8->dq, &int8->w, rows, V, C);
        } else {
            bt_op_gemm_table(logits, ld, x + m * C, C, E, C, 1, rows, V, C, prec, 0);
        }
        bt_ops_timed("softmax_xent", 0, 8.0 * product(rows, V, 1), rows, 1,
                     capped ? do_capped_xent : do_xent, &j);
        if (dscale == 0) continue;
        if (mixes_follower_targets(&j))
            bt_op_head_follower_targets(&(bt_head_follower_targets){.logits = logits,
                                                                    .followers = form->followers,
                                                                    .inputs = form->inputs + m,
                                                                    .targets = targets + m,
                                                                    .dscale = dscale,
                                                                    .weight = form->weight,
                                                                    .rows = rows,
                                                                    .V = V,
                                                                    .ld = ld});
        if (int8) {
            head_grads8(&j);
            continue;
        }
        bt_op_gemm_table(dx + m * C, C, logits, ld, E, C, 0, rows, C, V, prec, 0);
        if (dE) bt_op_gemm(dE, C, logits, ld, 1, x + m * C, C, 0, 1.0f, V, C, rows, prec, BT_ACC);
    }
    double loss = 0;
    for (size_t m = 0; m < M; m++) loss += (double)row_loss[m];
    return loss;
}
