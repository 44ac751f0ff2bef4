/* ops_table.c - reads tables of weights in the forms in which they are kept. */
#include <math.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/kernels/ops/ops_internal.h"
#include "engine/kernels/table/half.h"

BT_WIDEST static void widen_scaled(float *out, const int8_t *x, float scale, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = (float)x[i] * scale;
}

BT_WIDEST static void widen_blocks(float *out, const int8_t *x, const uint16_t *scales, size_t n) {
    for (size_t b = 0; b < n; b++) {
        const float scale = bt_half_to_float(scales[b]);
        for (size_t i = b * BT_Q8_BLOCK; i < (b + 1) * BT_Q8_BLOCK; i++)
            out[i] = (float)x[i] * scale;
    }
}

/* Expands n values of one row from `element` on; they are whole blocks. */
static void widen_table_row(float *out, const bt_table *t, size_t element, size_t n) {
    if (t->half_scale)
        widen_blocks(out, t->i8 + element, t->half_scale + element / BT_Q8_BLOCK, n / BT_Q8_BLOCK);
    else
        widen_scaled(out, t->i8 + element, t->scale[element / t->width], n);
}

typedef struct put_job {
    int8_t *codes;
    uint16_t *scales;
    const float *x;
} put_job;

BT_WIDEST static void put_block(int8_t *codes, uint16_t *scale, const float *x) {
    float most = 0;
    for (size_t i = 0; i < BT_Q8_BLOCK; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    *scale = bt_float_to_half(most / 127.0f);
    const float step = bt_half_to_float(*scale), inverse = step > 0 ? 1.0f / step : 0;
    for (size_t i = 0; i < BT_Q8_BLOCK; i++) {
        const float code = rintf(x[i] * inverse);
        codes[i] = (int8_t)(code > 127 ? 127 : code < -127 ? -127 : code);
    }
}

static void do_q8_put(void *ctx, int thread, size_t a, size_t b) {
    const put_job *j = ctx;
    (void)thread;
    for (size_t k = a; k < b; k++)
        put_block(j->codes + k * BT_Q8_BLOCK, j->scales + k, j->x + k * BT_Q8_BLOCK);
}

void bt_op_q8_put(int8_t *codes, uint16_t *scales, const float *x, size_t n) {
    put_job j = {codes, scales, x};
    bt_ops_timed("q8_put", 0, 5.0 * (double)n, n / BT_Q8_BLOCK, 64, do_q8_put, &j);
}

void bt_table_read(float *out, const bt_table *t, size_t element, size_t n) {
    enum { SOME = 256 };
    uint16_t half[SOME];
    if (t->i8) {
        widen_table_row(out, t, element, n);
    } else if (t->bf16) {
        bt_active_kernels()->from_bf16(out, t->bf16 + element, n);
    } else if (!t->rounded) {
        memcpy(out, t->f32 + element, n * sizeof *out);
    } else {
        for (size_t i = 0, some; i < n; i += some) {
            some = bt_min_size(SOME, n - i);
            bt_active_kernels()->to_bf16(half, t->f32 + element + i, some);
            bt_active_kernels()->from_bf16(out + i, half, some);
        }
    }
}

typedef struct widen_job {
    const bt_table *t;
    size_t cols; /* columns of each row, from the table's first element on */
    bool half;
} widen_job;

static void do_widen(void *ctx, int thread, size_t a, size_t b) {
    const widen_job *j = ctx;
    const bt_table *t = j->t;
    float some[1024];
    (void)thread;
    for (size_t r = a; r < b; r++)
        for (size_t i = 0, n; i < j->cols; i += n) {
            const size_t at = r * j->cols + i;
            n = bt_min_size(sizeof some / sizeof *some, j->cols - i);
            float *out = j->half ? some : (float *)t->wide + at;
            widen_table_row(out, t, r * t->width + i, n);
            if (j->half) bt_active_kernels()->to_bf16((uint16_t *)t->wide + at, out, n);
        }
}

void bt_ops_widen(const bt_table *t, size_t rows, size_t cols, bool half) {
    widen_job j = {t, cols, half};
    bt_ops_timed("widen", 0, 3.0 * product(rows, cols, 1), rows, 16, do_widen, &j);
}
