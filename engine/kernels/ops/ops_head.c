/* ops_head.c - head with cross-entropy in chunks of rows, and the embedding. */
#include "engine/base/small.h"
#include "engine/kernels/ops/ops_internal.h"

void bt_table_read(float *out, const bt_table *t, size_t element, size_t n) {
    enum { SOME = 256 };
    uint16_t half[SOME];
    if (t->bf16) {
        bt_k()->from_bf16(out, t->bf16 + element, n);
    } else if (!t->rounded) {
        memcpy(out, t->f32 + element, n * sizeof *out);
    } else {
        for (size_t i = 0, some; i < n; i += some) {
            some = bt_min_size(SOME, n - i);
            bt_k()->to_bf16(half, t->f32 + element + i, some);
            bt_k()->from_bf16(out + i, half, some);
        }
    }
}

typedef struct head_job {
    float *loss, *logits, *dx, *dE;
    const float *x;
    bt_table E;
    const int32_t *targets;
    float dscale;
    size_t first, rows, V, C, ld;
    const bt_head8 *int8;
} head_job;

static void do_xent(void *ctx, int thread, size_t a, size_t b) {
    const head_job *j = ctx;
    (void)thread;
    for (size_t r = a; r < b; r++) {
        float *logits = j->logits + r * j->ld;
        bt_k()->softmax_xent(j->loss + r, logits, j->targets + r, j->dscale, 1, j->V);
        /* the probability alone */
        if (j->int8 && j->targets[r] >= 0) logits[j->targets[r]] += j->dscale;
    }
}

/* columns a..b, rows in ascending order */
static void do_head_targets(void *ctx, int thread, size_t a, size_t b) {
    const bt_head_targets *j = ctx;
    const float minus = -j->dscale;
    (void)thread;
    for (size_t m = 0; m < j->rows; m++) {
        if (j->index[m] < 0 || (size_t)j->index[m] < j->from || (size_t)j->index[m] >= j->to)
            continue;
        size_t word = (size_t)j->index[m] * j->C, row = m * j->C;
        for (size_t i = a, n; j->dx && i < b; i += n) {
            float values[256];
            n = bt_min_size(sizeof values / sizeof *values, b - i);
            bt_table_read(values, &j->E, word + i, n);
            bt_k()->row_axpy(j->dx + row + i, values, &minus, 1, n);
        }
        if (j->dE) bt_k()->row_axpy(j->dE + word + a, j->x + row + a, &minus, 1, b - a);
    }
}

void bt_op_head_targets(const bt_head_targets *j) {
    bt_ops_timed("head_targets", 0, (j->dx && j->dE ? 24.0 : 12.0) * product(j->rows, j->C, 1),
                 j->C, 64, do_head_targets, (void *)(uintptr_t)j);
}

void bt_op_head_dE8(float *dE, const float *p, size_t ldp, const float *x, const bt_head8 *h,
                    size_t rows, size_t V, size_t C) {
    bt_op_quant(h->xq, h->dq, x, rows, C);
    bt_op_tern_dw8(dE, p, ldp, h->xq, h->dq, rows, V, C, &h->noise);
}

static void head_grads8(const head_job *j) {
    bt_head8 h = *j->int8;
    h.noise.rows += j->first;
    bt_op_w8_dx8(j->dx, j->C, j->logits, j->ld, &h.w, j->rows, j->V, j->C, &h.noise);
    if (j->dE) bt_op_head_dE8(j->dE, j->logits, j->ld, j->x, &h, j->rows, j->V, j->C);
    bt_op_head_targets(&(bt_head_targets){j->dx, j->dE, j->x, j->E, j->targets, 0, j->V, j->dscale,
                                          j->rows, j->C});
}

double bt_op_head_loss(float *dx, float *dE, const float *x, bt_table E, const int32_t *targets,
                       float dscale, float *logits, size_t chunk, float *row_loss, size_t M,
                       size_t V, size_t C, bt_prec prec, const bt_head8 *int8) {
    size_t ld = bt_ops_logits_ld(V);
    if (int8 && dscale != 0) bt_op_w8_pack(&int8->w, &E, V, C);
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
        bt_op_gemm_table(logits, ld, x + m * C, C, E, C, 1, rows, V, C, prec, 0);
        bt_ops_timed("softmax_xent", 0, 8.0 * product(rows, V, 1), rows, 1, do_xent, &j);
        if (dscale == 0) continue;
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

typedef struct embed_job {
    float *out;
    const float *in;
    bt_table E;
    const int32_t *tokens;
    size_t M, C;
} embed_job;

static void do_embed(void *ctx, int thread, size_t a, size_t b) {
    const embed_job *j = ctx;
    (void)thread;
    for (size_t m = a; m < b; m++)
        bt_table_read(j->out + m * j->C, &j->E, (size_t)j->tokens[m] * j->C, j->C);
}

void bt_op_embed(float *x, bt_table E, const int32_t *tokens, size_t M, size_t C) {
    embed_job j = {.out = x, .E = E, .tokens = tokens, .C = C};
    bt_ops_timed("embed", 0, 8.0 * product(M, C, 1), M, 16, do_embed, &j);
}

/* columns a..b, rows in ascending order */
static void do_embed_bwd(void *ctx, int thread, size_t a, size_t b) {
    const embed_job *j = ctx;
    (void)thread;
    for (size_t m = 0; m < j->M; m++)
        bt_k()->add(j->out + (size_t)j->tokens[m] * j->C + a, j->in + m * j->C + a, b - a);
}

void bt_op_embed_bwd(float *dE, const float *dx, const int32_t *tokens, size_t M, size_t C) {
    embed_job j = {.out = dE, .in = dx, .tokens = tokens, .M = M, .C = C};
    bt_ops_timed("embed_bwd", 0, 12.0 * product(M, C, 1), C, 64, do_embed_bwd, &j);
}
