/* linear_input.c - inputs of linear layers whose whole rows are on this rank: normed or not, as int8 per token
 * (ternary) or as floats (dense). */
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

static void input_norm_bwd(const bt_linear_input *in, float *dx, const float *dy, const float *x,
                           size_t r0, size_t rows) {
    bt_op_rmsnorm_bwd(dx, in->gain.dw, dy, x, in->gain.w, in->rstd + r0, 0, rows, in->K);
}

static void nothing(const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
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

/* int8 is kept for backward: nothing to restore */
static const bt_input_ops normed_int8 = {normed_int8_fwd, nothing, input_norm_bwd,
                                         normed_int8_fwd_saving, norm_bwd_saved},
                          plain_int8 = {.fwd = int8_fwd, .restore = nothing},
                          normed_floats = {normed_floats_fwd, normed_floats_restore, input_norm_bwd,
                                           NULL, NULL},
                          copied_floats = {.fwd = copy_input_rows, .restore = copy_input_rows},
                          borrowed_floats = {.fwd = nothing, .restore = nothing};

const bt_input_ops *bt_input_ops_of(const bt_linear_input *in) {
    if (in->tern) return in->normed ? &normed_int8 : &plain_int8;
    if (in->normed) return &normed_floats;
    return in->xn ? &copied_floats : &borrowed_floats;
}
