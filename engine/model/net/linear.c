/* linear.c - the linear layers, ternary and dense: the forward pass, the backward pass on the quantised operands
 * (straight-through: round, clamp and scale pass the gradient unchanged), and the inputs of the layers. */
#include <string.h>

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

static int with_pack_format(const bt_linear *l, int flags) {
    return l->packed_2bit ? flags | BT_COMPACT : flags;
}

static void tern_fwd(const bt_linear *l, float *y, const bt_linear_input *in, const float *src,
                     size_t r0, size_t rows, int flags) {
    (void)src;
    size_t n = l->N / l->ranges;
    for (size_t k = 0; k < l->ranges; k++) {
        bt_op_tern_fwd(y + k * n, l->N, in->xq + r0 * l->K, in->dq + r0,
                       l->packed + k * l->packed_bytes, l->scale, rows, n, l->K,
                       with_pack_format(l, flags));
    }
}

static void tern_dx(const bt_linear *l, size_t range, float *dx, bt_grads dy, size_t r0,
                    size_t rows, int flags) {
    (void)r0;
    size_t n = l->N / l->ranges;
    bt_op_tern_dx(dx, l->dx_ld, dy.f32 + range * n, l->N, l->packed + range * l->packed_bytes,
                  l->scale, rows, n, l->K, l->prec, with_pack_format(l, flags));
}

static void tern_dw(const bt_linear *l, bt_grads dy, const bt_linear_input *in, const float *src,
                    size_t r0, size_t rows) {
    (void)src;
    bt_op_tern_dw(l->dw, dy.f32, l->N, in->xq + r0 * l->K, in->dq + r0, rows, l->N, l->K, l->prec);
}

static const bt_linear_ops ternary = {tern_fwd, tern_dx, tern_dw};

/* Few tokens are limited by the time to read weights: 2 bits each are a quarter of the bytes, with equal results. */
static void decode_fwd(const bt_linear *l, float *y, const bt_linear_input *in, const float *src,
                       size_t r0, size_t rows, int flags) {
    if (rows > BT_FEW_ROWS) {
        tern_fwd(l, y, in, src, r0, rows, flags);
        return;
    }
    const bt_tern2 w = {l->packed2, l->scale, l->N, l->K};
    bt_op_tern_gemv(y, l->N, in->xq + r0 * l->K, in->dq + r0, &w, rows, flags);
}

static const bt_linear_ops decoding = {.fwd = decode_fwd};

/* Every range of a tensor's outputs rounds its rows of dy with its own noise, so that ranges are independent. */
static void int8_dx(const bt_linear *l, size_t range, float *dx, bt_grads dy, size_t r0,
                    size_t rows, int flags) {
    size_t n = l->N / l->ranges;
    bt_noise noise = {l->noise.rows + r0,
                      l->noise.salt ^ (uint32_t)(l->first_row + range * n) * BT_NOISE_LANE, 0};
    bt_op_tern_dx8(dx, l->dx_ld, bt_grads_from(dy, 0, range * n),
                   l->packed + range * l->packed_bytes, l->scale, rows, n, l->K, &noise,
                   with_pack_format(l, flags));
}

static void int8_dw(const bt_linear *l, bt_grads dy, const bt_linear_input *in, const float *src,
                    size_t r0, size_t rows) {
    (void)src;
    bt_noise noise = {l->noise.rows + r0, l->noise.salt, (uint32_t)l->first_row};
    bt_op_tern_dw8(l->dw, dy, in->xq + r0 * l->K, in->dq + r0, rows, l->N, l->K, &noise);
}

static const bt_linear_ops ternary_int8 = {tern_fwd, int8_dx, int8_dw};

static void dense_fwd(const bt_linear *l, float *y, const bt_linear_input *in, const float *src,
                      size_t r0, size_t rows, int flags) {
    bt_op_gemm_table(y, l->N, bt_input_floats(in, src) + r0 * l->K, l->K, l->values, l->K, 1, rows,
                     l->N, l->K, l->prec, flags);
}

static void dense_dx(const bt_linear *l, size_t range, float *dx, bt_grads dy, size_t r0,
                     size_t rows, int flags) {
    (void)r0;
    size_t n = l->N / l->ranges;
    bt_op_gemm_table(dx, l->K, dy.f32 + range * n, l->N, bt_table_from(l->values, range * n * l->K),
                     l->K, 0, rows, l->K, n, l->prec, flags);
}

static void dense_dw(const bt_linear *l, bt_grads dy, const bt_linear_input *in, const float *src,
                     size_t r0, size_t rows) {
    bt_op_gemm(l->dw, l->K, dy.f32, l->N, 1, bt_input_floats(in, src) + r0 * l->K, l->K, 0, 1.0f,
               l->N, l->K, rows, l->prec, BT_ACC);
}

static const bt_linear_ops dense = {dense_fwd, dense_dx, dense_dw};

static const bt_linear_ops *codes_ops_of(const bt_linear *l) {
    if (l->packed2) return &decoding;
    return l->noise.rows ? &ternary_int8 : &ternary;
}

static void row_scaled_fwd(const bt_linear *l, float *y, const bt_linear_input *in,
                           const float *src, size_t r0, size_t rows, int flags) {
    bt_row_scale_fwd(codes_ops_of(l), l, y, in, src, r0, rows, flags);
}

static void row_scaled_dx(const bt_linear *l, size_t range, float *dx, bt_grads dy, size_t r0,
                          size_t rows, int flags) {
    bt_row_scale_dx(codes_ops_of(l), l, range, dx, dy, r0, rows, flags);
}

static void row_scaled_dw(const bt_linear *l, bt_grads dy, const bt_linear_input *in,
                          const float *src, size_t r0, size_t rows) {
    codes_ops_of(l)->dw(l, dy, in, src, r0, rows);
}

static const bt_linear_ops row_scaled = {row_scaled_fwd, row_scaled_dx, row_scaled_dw};

static void group_scaled_fwd(const bt_linear *l, float *y, const bt_linear_input *in,
                             const float *src, size_t r0, size_t rows, int flags) {
    (void)src;
    bt_group_scale_fwd(codes_ops_of(l), l, y, in, r0, rows, flags);
}

static void group_scaled_dx(const bt_linear *l, size_t range, float *dx, bt_grads dy, size_t r0,
                            size_t rows, int flags) {
    bt_group_scale_dx(codes_ops_of(l), l, range, dx, dy, r0, rows, flags);
}

static const bt_linear_ops group_scaled = {group_scaled_fwd, group_scaled_dx, row_scaled_dw};

const bt_linear_ops *bt_linear_ops_of(const bt_linear *l) {
    if (!l->tern) return &dense;
    if (!l->scales) return codes_ops_of(l);
    return l->by_group ? &group_scaled : &row_scaled;
}

typedef struct copy_job {
    float *y;
    const float *x;
} copy_job;

static void copy_codes_range(void *ctx, int thread, size_t begin, size_t end) {
    (void)thread;
    const copy_job *j = ctx;
    memcpy(j->y + begin, j->x + begin, (end - begin) * sizeof(float));
}

void bt_net_copy(float *y, const float *x, size_t n) {
    copy_job j = {y, x};
    if (y != x) bt_parallel_for(n, 4096, copy_codes_range, &j);
}

static void input_norm_bwd(const bt_linear_input *in, float *dx, const float *dy, const float *x,
                           size_t r0, size_t rows) {
    bt_op_rmsnorm_bwd(dx, in->gain.dw, dy, x, in->gain.w, in->rstd + r0, 0, rows, in->K);
}

static void restore_nothing(const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
    (void)in, (void)x, (void)r0, (void)rows;
}

static void normed_int8_fwd(const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
    bt_op_rmsnorm_quant(in->xq + r0 * in->K, in->dq + r0, in->rstd + r0, NULL, x, in->gain.w,
                        in->eps, rows, in->K);
}

static void normed_int8_fwd_saving(const bt_linear_input *in, uint16_t *saved, const float *x,
                                   size_t r0, size_t rows) {
    bt_op_rmsnorm_quant_save(saved, in->xq + r0 * in->K, in->dq + r0, in->rstd + r0, x, in->gain.w,
                             in->eps, rows, in->K);
}

static void norm_bwd_saved(const bt_linear_input *in, float *dx, const float *dy, const uint16_t *x,
                           float *sums, size_t r0, size_t rows) {
    bt_op_rmsnorm_bwd_saved(&(bt_rmsnorm_bwd_saved){.dx = dx,
                                                    .dgain = in->gain.dw,
                                                    .sums = sums,
                                                    .dy = dy,
                                                    .gain = in->gain.w,
                                                    .rstd = in->rstd + r0,
                                                    .x = x,
                                                    .rows = rows,
                                                    .C = in->K});
}

static void int8_fwd(const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
    bt_op_quant(in->xq + r0 * in->K, in->dq + r0, x, rows, in->K);
}

static void normed_floats_fwd(const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
    bt_op_rmsnorm(in->xn + r0 * in->K, in->rstd + r0, x, in->gain.w, in->eps, rows, in->K);
}

static void normed_floats_restore(const bt_linear_input *in, const float *x, size_t r0,
                                  size_t rows) {
    bt_op_rmsnorm(in->xn + r0 * in->K, NULL, x, in->gain.w, in->eps, rows, in->K);
}

static void copy_input_rows(const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
    bt_net_copy(in->xn + r0 * in->K, x, rows * in->K);
}

/* The int8 values are kept for backward, so nothing is restored. */
static const bt_input_ops normed_int8 = {normed_int8_fwd, restore_nothing, input_norm_bwd,
                                         normed_int8_fwd_saving, norm_bwd_saved},
                          plain_int8 = {.fwd = int8_fwd, .restore = restore_nothing},
                          normed_floats = {normed_floats_fwd, normed_floats_restore, input_norm_bwd,
                                           NULL, NULL},
                          copied_floats = {.fwd = copy_input_rows, .restore = copy_input_rows},
                          borrowed_floats = {.fwd = restore_nothing, .restore = restore_nothing};

const bt_input_ops *bt_input_ops_of(const bt_linear_input *in) {
    if (in->tern) return in->normed ? &normed_int8 : &plain_int8;
    if (in->normed) return &normed_floats;
    return in->xn ? &copied_floats : &borrowed_floats;
}
