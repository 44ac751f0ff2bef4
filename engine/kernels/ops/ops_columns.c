/* ops_columns.c - factors for the columns of a matrix: the scales of a weight's output rows. */
#include "engine/base/small.h"
#include "engine/kernels/ops/ops_internal.h"

typedef struct columns_job {
    float *y;
    size_t ldy, C;
    bt_grads x;
    const float *a, *b; /* factors of rows, of columns */
} columns_job;

BT_WIDEST static void multiply_columns(float *y, const float *x, const float *restrict b,
                                       size_t n) {
    if (y == x)
        for (size_t i = 0; i < n; i++) y[i] *= b[i];
    else
        for (size_t i = 0; i < n; i++) y[i] = x[i] * b[i];
}

BT_WIDEST static void add_scaled_columns(float *restrict y, const float *restrict x, float a,
                                         const float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += x[i] * a * b[i];
}

static size_t columns_grain(size_t C) { return 1 + 16384 / C; }

static void do_scale_columns(void *ctx, int thread, size_t begin, size_t end) {
    const columns_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const bt_grads x = bt_grads_from(j->x, r, 0);
        float *y = j->y + r * j->ldy;
        if (x.bf16) bt_active_kernels()->from_bf16(y, x.bf16, j->C);
        multiply_columns(y, x.bf16 ? y : x.f32, j->b, j->C);
    }
}

void bt_op_scale_columns(float *y, size_t ldy, bt_grads x, const float *b, size_t rows, size_t C) {
    columns_job j = {.y = y, .ldy = ldy, .C = C, .x = x, .b = b};
    bt_ops_timed("scale_columns", 0, 8.0 * product(rows, C, 1), rows, columns_grain(C),
                 do_scale_columns, &j);
}

static void do_add_columns(void *ctx, int thread, size_t begin, size_t end) {
    const columns_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++)
        add_scaled_columns(j->y + r * j->C, j->x.f32 + r * j->C, j->a ? j->a[r] : 1.0f, j->b, j->C);
}

void bt_op_add_columns(float *y, const float *x, const float *a, const float *b, size_t rows,
                       size_t C) {
    columns_job j = {.y = y, .C = C, .x = bt_grads_f32(x, C), .a = a, .b = b};
    bt_ops_timed("add_columns", 0, 12.0 * product(rows, C, 1), rows, columns_grain(C),
                 do_add_columns, &j);
}
