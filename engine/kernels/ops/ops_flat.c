/* ops_flat.c - gates, flat arrays and their sums over whole problems. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"

typedef struct flat_job {
    float *y, *y2, *m, *v;
    const float *x, *gate, *up;
    uint16_t *kept;
    float a, lr, b1, b2, eps, decay, c1, c2;
    bt_act act;
    size_t rows, width; /* size of the matrix */
} flat_job;

enum { FLAT_GRAIN = BT_SUM_BLOCK };

static void do_glu(void *ctx, int thread, size_t a, size_t b) {
    const flat_job *j = ctx;
    (void)thread;
    bt_active_kernels()->glu(j->y + a, j->gate + a, j->up + a, j->act, b - a);
}

void bt_op_glu(float *y, const float *gate, const float *up, bt_act act, size_t n) {
    flat_job j = {.y = y, .gate = gate, .up = up, .act = act};
    bt_ops_run("glu", 12.0 * (double)n, n, FLAT_GRAIN, do_glu, &j);
}

static void glu_gradient_of_range(void *ctx, int thread, size_t a, size_t b) {
    const flat_job *j = ctx;
    (void)thread;
    bt_active_kernels()->glu_bwd(j->y + a, j->y2 + a, j->x + a, j->gate + a, j->up + a, j->act,
                                 b - a);
}

void bt_op_glu_bwd(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                   bt_act act, size_t n) {
    flat_job j = {.y = dgate, .y2 = dup, .x = dy, .gate = gate, .up = up, .act = act};
    bt_ops_run("glu_bwd", 20.0 * (double)n, n, FLAT_GRAIN, glu_gradient_of_range, &j);
}

static void do_glu_quant(void *ctx, int thread, size_t a, size_t b) {
    const bt_glu_quant *j = ctx;
    float *h = j->h + a * j->F; /* scratch for one row, which fits L1 */
    (void)thread;
    for (size_t r = a; r < b; r++) {
        size_t at = r * j->F;
        if (j->gate_saved) bt_active_kernels()->to_bf16(j->gate_saved + at, j->gate + at, j->F);
        if (j->up_saved) bt_active_kernels()->to_bf16(j->up_saved + at, j->up + at, j->F);
        bt_active_kernels()->glu(h, j->gate + at, j->up + at, j->act, j->F);
        if (j->rstd)
            bt_active_kernels()->rmsnorm_quant(j->xq + at, j->dq + r, j->rstd + r, NULL, h, j->gain,
                                               j->eps, 1, j->F);
        else
            bt_active_kernels()->quant_rows(j->xq + at, j->dq + r, h, 1, j->F);
    }
}

void bt_op_glu_quant(const bt_glu_quant *j) {
    bt_ops_run("glu_quant", (j->gate_saved ? 13.0 : 9.0) * (double)(j->rows * j->F), j->rows,
               bt_ops_row_grain(j->F), do_glu_quant, (void *)(uintptr_t)j);
}

/* processes gate and up, stored as bf16, in pieces whose floats fit L1 */
typedef struct glu_saved {
    const uint16_t *gate, *up;
    bt_act act;
} glu_saved;
enum { GLU_PIECE = 1024 };

/* n gradients from element `at` on; dy points to the first of them */
static void glu_bwd_pieces(const glu_saved *s, bt_glu_grads d, const float *dy, size_t at,
                           size_t n) {
    const bt_kernels *k = bt_active_kernels();
    float gate[GLU_PIECE], up[GLU_PIECE];
    for (size_t i = at, end = at + n, some; i < end; i += some) {
        some = bt_min_size(end - i, GLU_PIECE);
        k->from_bf16(gate, s->gate + i, some);
        k->from_bf16(up, s->up + i, some);
        float *dgate = d.gate ? d.gate + i : gate, *dup = d.gate ? d.up + i : up;
        k->glu_bwd(dgate, dup, dy + (i - at), gate, up, s->act, some);
        if (d.gate) continue;
        k->to_bf16(d.gate_bf16 + i, gate, some);
        k->to_bf16(d.up_bf16 + i, up, some);
    }
}

typedef struct glu_saved_job {
    glu_saved saved;
    bt_glu_grads d;
    const float *dy;
} glu_saved_job;

static void do_glu_bwd_saved(void *ctx, int thread, size_t a, size_t b) {
    const glu_saved_job *j = ctx;
    (void)thread;
    glu_bwd_pieces(&j->saved, j->d, j->dy + a, a, b - a);
}

void bt_op_glu_bwd_saved(bt_glu_grads d, const float *dy, const uint16_t *gate, const uint16_t *up,
                         bt_act act, size_t n) {
    glu_saved_job j = {{gate, up, act}, d, dy};
    bt_ops_run("glu_bwd", (d.gate ? 16.0 : 12.0) * (double)n, n, FLAT_GRAIN, do_glu_bwd_saved, &j);
}

static void glu_pieces(const glu_saved *s, float *h, size_t at, size_t n) {
    const bt_kernels *k = bt_active_kernels();
    float gate[GLU_PIECE], up[GLU_PIECE];
    for (size_t i = 0, some; i < n; i += some) {
        some = bt_min_size(n - i, GLU_PIECE);
        k->from_bf16(gate, s->gate + at + i, some);
        k->from_bf16(up, s->up + at + i, some);
        k->glu(h + i, gate, up, s->act, some);
    }
}

static void do_glu_norm_bwd(void *ctx, int thread, size_t a, size_t b) { /* blocks of rows */
    const bt_glu_norm_bwd *j = ctx;
    const glu_saved saved = {j->gate, j->up, j->act};
    const bt_kernels *k = bt_active_kernels();
    (void)thread;
    for (size_t block = a; block < b; block++) {
        size_t first = block * BT_GLU_BLOCK,
               end = first + BT_GLU_BLOCK < j->rows ? first + BT_GLU_BLOCK : j->rows;
        /* scratch for one row each, which fits L1 */
        float *h = j->h + first * j->F, *sums = j->sums + first * j->F;
        memset(sums, 0, j->F * sizeof *sums);
        for (size_t r = first; r < end; r++) {
            size_t at = r * j->F;
            glu_pieces(&saved, h, at, j->F);
            if (j->dgain) k->rmsnorm_dgain(sums, j->dy + at, h, j->rstd + r, 1, j->F, 0, j->F);
            k->rmsnorm_dx(h, j->dy + at, h, j->gain, j->rstd + r, 0, 1, j->F);
            glu_bwd_pieces(&saved, j->d, h, at, j->F);
        }
    }
}

static void do_block_sums(void *ctx, int thread, size_t a, size_t b) { /* columns */
    const bt_glu_norm_bwd *j = ctx;
    (void)thread;
    for (size_t r = 0; r < j->rows; r += BT_GLU_BLOCK)
        bt_active_kernels()->add(j->dgain + a, j->sums + r * j->F + a, b - a);
}

void bt_op_glu_norm_bwd(const bt_glu_norm_bwd *j) {
    void *ctx = (void *)(uintptr_t)j;
    bt_ops_run("glu_norm_bwd", (j->d.gate ? 16.0 : 12.0) * (double)(j->rows * j->F),
               (j->rows + BT_GLU_BLOCK - 1) / BT_GLU_BLOCK, 1, do_glu_norm_bwd, ctx);
    if (j->dgain) bt_ops_run("glu_norm_bwd", 0, j->F, 64, do_block_sums, ctx);
}

static void add_unit(void *ctx, int thread, size_t a, size_t b) {
    const flat_job *j = ctx;
    (void)thread;
    bt_active_kernels()->add(j->y + a, j->x + a, b - a);
}

void bt_op_add(float *y, const float *x, size_t n) {
    flat_job j = {.y = y, .x = x};
    bt_ops_run("add", 12.0 * (double)n, n, FLAT_GRAIN, add_unit, &j);
}

static void do_add_row(void *ctx, int thread, size_t a, size_t b) { /* rows */
    const flat_job *j = ctx;
    (void)thread;
    for (size_t r = a; r < b; r++) bt_active_kernels()->add(j->y + r * j->width, j->x, j->width);
}

void bt_op_add_row(float *y, const float *x, size_t M, size_t N) {
    flat_job j = {.y = y, .x = x, .width = N};
    bt_ops_run("bias", 8.0 * (double)(M * N), M, 1 + FLAT_GRAIN / N, do_add_row, &j);
}

static void do_sum_rows(void *ctx, int thread, size_t a, size_t b) { /* columns */
    const flat_job *j = ctx;
    (void)thread;
    for (size_t r = 0; r < j->rows; r++)
        bt_active_kernels()->add(j->y + a, j->x + r * j->width + a, b - a);
}

void bt_op_sum_rows(float *out, const float *y, size_t M, size_t N) {
    flat_job j = {.y = out, .x = y, .rows = M, .width = N};
    bt_ops_run("bias_bwd", 4.0 * (double)(M * N), N, 64, do_sum_rows, &j);
}

static void do_scale(void *ctx, int thread, size_t a, size_t b) {
    const flat_job *j = ctx;
    (void)thread;
    bt_active_kernels()->scale(j->y + a, j->a, b - a);
}

void bt_op_scale(float *y, float a, size_t n) {
    flat_job j = {.y = y, .a = a};
    bt_ops_run("scale", 8.0 * (double)n, n, FLAT_GRAIN, do_scale, &j);
}

/* ---- dropout ------------------------------------------------------------------------------------- */

typedef struct drop_job {
    float *y;
    const float *x;
    bt_drop how;
    bool add;
    size_t C;
} drop_job;
enum { DROP_PIECE = 512 };

/* Factors 0 or scale, from the halves of words from bit `shift` on. They are selected by their bits, for which
 * compilers need no branch. */
static void drop_factors(float *restrict factors, const uint32_t *restrict words, int shift,
                         const bt_drop *how, size_t n) {
    const int32_t below = (int32_t)how->below;
    uint32_t scale;
    memcpy(&scale, &how->scale, sizeof scale);
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = (int32_t)(words[i] >> shift & 0xffff) < below ? 0 : scale;
        memcpy(&factors[i], &bits, sizeof bits);
    }
}

static void add_products(float *restrict y, const float *restrict x, const float *restrict a,
                         size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += a[i] * x[i];
}

/* y may be x */
static void write_products(float *y, const float *x, const float *restrict a, size_t n) {
    if (y == x)
        for (size_t i = 0; i < n; i++) y[i] *= a[i];
    else
        for (size_t i = 0; i < n; i++) y[i] = a[i] * x[i];
}

static void drop_piece(float *y, const float *x, const uint32_t *words, int shift,
                       const drop_job *j, size_t n) {
    float factors[DROP_PIECE];
    drop_factors(factors, words, shift, &j->how, n);
    if (j->add)
        add_products(y, x, factors, n);
    else
        write_products(y, x, factors, n);
}

/* Applies dropout to those of columns c0 to c0 + n of whole rows that the arrays contain. */
static void drop_columns(const drop_job *j, float *y, const float *x, const uint32_t *words,
                         int shift, size_t c0, size_t n) {
    const size_t from = bt_max_size(c0, j->how.col0), to = bt_min_size(c0 + n, j->how.col0 + j->C);
    if (from < to)
        drop_piece(y + from - j->how.col0, x + from - j->how.col0, words + from - c0, shift, j,
                   to - from);
}

static void drop_unit(void *ctx, int thread, size_t a, size_t b) {
    const drop_job *j = ctx;
    const size_t half = ((j->how.whole ? j->how.whole : j->C) + 1) / 2;
    uint32_t words[DROP_PIECE];
    (void)thread;
    for (size_t r = a; r < b; r++) {
        float *y = j->y + r * j->C;
        const float *x = j->x + r * j->C;
        for (size_t i = 0, n; i < half; i += n) {
            n = bt_min_size(DROP_PIECE, half - i);
            bt_active_kernels()->noise_words(words, j->how.rows[r],
                                             (uint32_t)(j->how.first + j->how.site * half + i), n);
            drop_columns(j, y, x, words, 0, i, n);
            drop_columns(j, y, x, words, 16, half + i, n);
        }
    }
}

void bt_op_drop(float *y, const float *x, const bt_drop *how, bool add, size_t rows, size_t C) {
    drop_job j = {y, x, *how, add, C};
    bt_ops_run("dropout", (add ? 12.0 : 8.0) * (double)(rows * C), rows, bt_ops_row_grain(C),
               drop_unit, &j);
}

static void zero_unit(void *ctx, int thread, size_t a, size_t b) {
    const flat_job *j = ctx;
    (void)thread;
    memset(j->y + a, 0, (b - a) * sizeof(float));
}

void bt_op_zero(float *y, size_t n) {
    flat_job j = {.y = y};
    bt_ops_run("zero", 4.0 * (double)n, n, FLAT_GRAIN, zero_unit, &j);
}

static void do_save_bf16(void *ctx, int thread, size_t a, size_t b) {
    const flat_job *j = ctx;
    (void)thread;
    bt_active_kernels()->to_bf16(j->kept + a, j->x + a, b - a);
}

void bt_op_save_bf16(uint16_t *y, const float *x, size_t n) {
    flat_job j = {.kept = y, .x = x};
    bt_ops_run("keep", 6.0 * (double)n, n, FLAT_GRAIN, do_save_bf16, &j);
}

static void do_load_bf16(void *ctx, int thread, size_t a, size_t b) {
    const flat_job *j = ctx;
    (void)thread;
    bt_active_kernels()->from_bf16(j->y + a, j->kept + a, b - a);
}

void bt_op_load_bf16(float *y, const uint16_t *x, size_t n) {
    flat_job j = {.y = y, .kept = (uint16_t *)(uintptr_t)x};
    bt_ops_run("fetch", 6.0 * (double)n, n, FLAT_GRAIN, do_load_bf16, &j);
}

static void do_round_bf16(void *ctx, int thread, size_t a, size_t b) {
    const flat_job *j = ctx;
    uint16_t some[256];
    (void)thread;
    for (size_t i = a, n; i < b; i += n) {
        n = b - i < 256 ? b - i : 256;
        bt_active_kernels()->to_bf16(some, j->y + i, n);
        bt_active_kernels()->from_bf16(j->y + i, some, n);
    }
}

void bt_op_round_bf16(float *x, size_t n) {
    flat_job j = {.y = x};
    bt_ops_run("round", 8.0 * (double)n, n, FLAT_GRAIN, do_round_bf16, &j);
}

static void do_adamw(void *ctx, int thread, size_t a, size_t b) {
    const flat_job *j = ctx;
    (void)thread;
    bt_active_kernels()->adamw(j->y + a, j->x + a, j->m + a, j->v + a, j->a, j->lr, j->b1, j->b2,
                               j->eps, j->decay, j->c1, j->c2, b - a);
}

void bt_op_adamw(float *w, const float *g, float *m, float *v, float grad_scale, float lr, float b1,
                 float b2, float eps, float decay, float c1, float c2, size_t n) {
    flat_job j = {.y = w,
                  .x = g,
                  .m = m,
                  .v = v,
                  .a = grad_scale,
                  .lr = lr,
                  .b1 = b1,
                  .b2 = b2,
                  .eps = eps,
                  .decay = decay,
                  .c1 = c1,
                  .c2 = c2};
    bt_ops_run("adamw", 28.0 * (double)n, n, FLAT_GRAIN, do_adamw, &j);
}

typedef struct lion_job {
    float *w, *m;
    const float *g;
    const bt_lion *h;
} lion_job;

static void do_lion(void *ctx, int thread, size_t a, size_t b) {
    const lion_job *j = ctx;
    (void)thread;
    bt_active_kernels()->lion(j->w + a, j->g + a, j->m + a, j->h, b - a);
}

void bt_op_lion(float *w, const float *g, float *m, const bt_lion *h, size_t n) {
    lion_job j = {w, m, g, h};
    bt_ops_run("lion", 20.0 * (double)n, n, FLAT_GRAIN, do_lion, &j);
}

/* Sums: the array is cut into at most SPANS spans of whole BT_SUM_BLOCKs (a cut that depends on n
 *       alone); a span is summed
 * block by block by one thread, the spans are added in order. */
enum { SPANS = 512 };

typedef struct sum_job {
    double (*slot)(const float *x, size_t n);
    const float *x;
    size_t n, span;
    double part[SPANS];
} sum_job;

static void do_sum(void *ctx, int thread, size_t a, size_t b) {
    sum_job *j = ctx;
    (void)thread;
    for (size_t i = a; i < b; i++) {
        size_t end = (i + 1) * j->span < j->n ? (i + 1) * j->span : j->n;
        double s = 0;
        for (size_t k = i * j->span; k < end; k += BT_SUM_BLOCK)
            s += j->slot(j->x + k, end - k < BT_SUM_BLOCK ? end - k : BT_SUM_BLOCK);
        j->part[i] = s;
    }
}

static double sum_flat_blocks(double (*slot)(const float *x, size_t n), const float *x, size_t n) {
    sum_job j = {.slot = slot, .x = x, .n = n};
    size_t blocks = (n + BT_SUM_BLOCK - 1) / BT_SUM_BLOCK;
    if (n == 0) return 0;
    j.span = (blocks + SPANS - 1) / SPANS * BT_SUM_BLOCK;
    size_t spans = (n + j.span - 1) / j.span;
    bt_ops_run("sums", 4.0 * (double)n, spans, 1, do_sum, &j);
    double s = 0;
    for (size_t i = 0; i < spans; i++) s += j.part[i];
    return s;
}

double bt_op_sum_squares(const float *x, size_t n) {
    return sum_flat_blocks(bt_active_kernels()->sum_squares, x, n);
}
double bt_op_sum_abs(const float *x, size_t n) {
    return sum_flat_blocks(bt_active_kernels()->sum_abs, x, n);
}
double bt_op_sum(const float *x, size_t n) {
    return sum_flat_blocks(bt_active_kernels()->sum, x, n);
}
