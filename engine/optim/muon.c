/* muon.c - computes Newton-Schulz iterations on whole matrices by products on the thread pool. */
#include "engine/optim/muon.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/arena.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"

enum { STEPS = 5, CHUNK = 512, TILE = 32 };
static const float A1 = 3.4445f, A3 = -4.7750f, A5 = 2.0315f, UPDATE_RMS = 1.0f;

struct bt_muon {
    bt_arena arena;
    float *x, *y;    /* (short, long) */
    float *gram, *b; /* (short, short) */
};

static void plan_newton_schulz(bt_arena *a, size_t s, size_t l, size_t at[4]) {
    bt_arena_plan(a, "matrix directions");
    at[0] = bt_arena_reserve(a, s * l, sizeof(float));
    at[1] = bt_arena_reserve(a, s * l, sizeof(float));
    at[2] = bt_arena_reserve(a, s * s, sizeof(float));
    at[3] = bt_arena_reserve(a, s * s, sizeof(float));
}

size_t bt_muon_bytes(size_t max_short, size_t max_long) {
    bt_arena a;
    size_t at[4];
    plan_newton_schulz(&a, max_short, max_long, at);
    return a.bytes;
}

bt_code bt_muon_create(bt_muon **out, size_t s, size_t l, bt_err *err) {
    size_t at[4];
    *out = NULL;
    bt_muon *m = calloc(1, sizeof *m);
    if (!m) return bt_fail(err, BT_NOMEM, "cannot allocate memory for matrix directions");
    plan_newton_schulz(&m->arena, s, l, at);
    bt_code code = bt_arena_commit(&m->arena, err);
    /* scratch memory of the kernels for the three products */
    if (code == BT_OK) code = bt_ops_plan(s, s, l, 1, 1, NULL, err);
    if (code == BT_OK) code = bt_ops_plan(s, l, s, 1, 1, NULL, err);
    if (code != BT_OK) {
        bt_muon_destroy(m);
        return code;
    }
    m->x = bt_arena_at(&m->arena, at[0]);
    m->y = bt_arena_at(&m->arena, at[1]);
    m->gram = bt_arena_at(&m->arena, at[2]);
    m->b = bt_arena_at(&m->arena, at[3]);
    *out = m;
    return BT_OK;
}

void bt_muon_destroy(bt_muon *m) {
    if (!m) return;
    bt_arena_release(&m->arena);
    free(m);
}

float bt_muon_scale(size_t rows, size_t cols) {
    return UPDATE_RMS * sqrtf((float)bt_max_size(rows, cols));
}

double bt_muon_flops(size_t rows, size_t cols) {
    double s = (double)bt_min_size(rows, cols), l = (double)bt_max_size(rows, cols);
    return STEPS * (4 * s * s * l + 2 * s * s * s);
}

typedef struct copy_job {
    uint16_t *half;
    float *x;
    size_t rows, cols; /* size of the matrix in bf16 */
    bool transposed;   /* x is (cols, rows) */
} copy_job;

/* Copies rows a to b in tiles, so that source and destination use whole cache lines. */
static void load_matrix_rows(void *ctx, int thread, size_t a, size_t b) {
    const copy_job *j = ctx;
    float some[TILE];
    (void)thread;
    for (size_t r = a; r < b; r++) {
        const uint16_t *row = j->half + r * j->cols;
        if (!j->transposed) bt_active_kernels()->from_bf16(j->x + r * j->cols, row, j->cols);
        for (size_t c = 0; j->transposed && c < j->cols; c += TILE) {
            size_t n = bt_min_size(TILE, j->cols - c);
            bt_active_kernels()->from_bf16(some, row + c, n);
            for (size_t k = 0; k < n; k++) j->x[(c + k) * j->rows + r] = some[k];
        }
    }
}

static void save_matrix_rows(void *ctx, int thread, size_t a, size_t b) {
    const copy_job *j = ctx;
    float some[TILE];
    (void)thread;
    for (size_t r = a; r < b; r++) {
        uint16_t *row = j->half + r * j->cols;
        if (!j->transposed) bt_active_kernels()->to_bf16(row, j->x + r * j->cols, j->cols);
        for (size_t c = 0; j->transposed && c < j->cols; c += TILE) {
            size_t n = bt_min_size(TILE, j->cols - c);
            for (size_t k = 0; k < n; k++) some[k] = j->x[(c + k) * j->rows + r];
            bt_active_kernels()->to_bf16(row + c, some, n);
        }
    }
}

typedef struct scale_job {
    float *y;
    const float *x;
    float a;
} scale_job;

static void scaled_copy_part(void *ctx, int thread, size_t a, size_t b) {
    const scale_job *j = ctx;
    (void)thread;
    for (size_t i = a; i < b; i++) j->y[i] = j->a * j->x[i];
}

static void scaled_copy(float *y, const float *x, float a, size_t n) {
    scale_job j = {y, x, a};
    bt_parallel_for(n, 16384, scaled_copy_part, &j);
}

/* y = a X + (b A + c A A) X, where X is (s, l) */
static void newton_schulz_step(bt_muon *m, float *y, const float *x, size_t s, size_t l) {
    bt_op_gemm(m->gram, s, x, l, 0, x, l, 1, 1.0f, s, s, l, BT_PREC_BF16, 0);
    scaled_copy(m->b, m->gram, A3, s * s);
    bt_op_gemm(m->b, s, m->gram, s, 0, m->gram, s, 0, A5, s, s, s, BT_PREC_BF16, BT_ACC);
    scaled_copy(y, x, A1, s * l);
    bt_op_gemm(y, l, m->b, s, 0, x, l, 0, 1.0f, s, l, s, BT_PREC_BF16, BT_ACC);
}

void bt_muon_direction(bt_muon *m, uint16_t *half, size_t rows, size_t cols) {
    size_t s = bt_min_size(rows, cols), l = bt_max_size(rows, cols);
    copy_job j = {half, m->x, rows, cols, rows > cols};
    bt_parallel_for(rows, TILE, load_matrix_rows, &j);
    double norm = sqrt(bt_op_sum_squares(m->x, s * l));
    if (!(norm > 0) || !isfinite(norm)) return;
    scaled_copy(m->x, m->x, (float)(1 / (norm + 1e-7)), s * l);
    float *x = m->x, *y = m->y;
    for (int i = 0; i < STEPS; i++) {
        newton_schulz_step(m, y, x, s, l);
        float *t = x;
        x = y;
        y = t;
    }
    j.x = x;
    bt_parallel_for(rows, TILE, save_matrix_rows, &j);
}

void bt_muon_momentum(uint16_t *out, const float *g, const float *m, float grad_scale, float mu,
                      size_t n) {
    const float grad = (1.0f - mu) * grad_scale;
    float some[CHUNK];
    for (size_t i = 0, few; i < n; i += few) {
        few = bt_min_size(CHUNK, n - i);
        for (size_t k = 0; k < few; k++) some[k] = grad * g[i + k] + mu * m[i + k];
        bt_active_kernels()->to_bf16(out + i, some, few);
    }
}
