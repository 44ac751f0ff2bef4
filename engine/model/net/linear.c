/* linear.c - BitLinear and its dense twin: forward, and backward on the quantised operands
 * (straight-through: round, clamp and scale pass the gradient unchanged). */
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

const float *bt_input_floats(const bt_linear_input *s, const float *src) {
    return s->xn ? s->xn : src;
}

void bt_linear_fwd(const bt_linear *l, float *y, const bt_linear_input *s, const float *src,
                   size_t r0, size_t rows, bt_prec prec, int flags) {
    /* decoding is bound by reading weights: a quarter of the bytes */
    if (rows == 1 && l->packed2) {
        float *out = flags & BT_ACC ? l->row : y;
        bt_op_tern_gemv(out, s->xq + r0 * l->K, s->dq[r0], l->packed2, l->scale, l->N, l->K);
        if (flags & BT_ACC) bt_op_add(y, out, l->N);
    } else if (l->tern) {
        size_t n = l->N / l->leaves;
        for (size_t p = 0; p < l->leaves; p++) {
            bt_op_tern_fwd(y + p * n, l->N, s->xq + r0 * l->K, s->dq + r0,
                           l->packed + p * l->packed_bytes, l->scale, rows, n, l->K, flags);
        }
    } else {
        bt_op_gemm(y, l->N, bt_input_floats(s, src) + r0 * l->K, l->K, 0, l->w, l->K, 1, 1.0f, rows,
                   l->N, l->K, prec, flags);
    }
}

/* Rows of dy are rounded by a noise of their own in every part of a tensor: a part knows nothing of
 * the others' outputs. */
static bt_noise noise_of(const bt_linear *l, size_t part, size_t r0) {
    return (bt_noise){
        l->noise.rows + r0,
        l->noise.salt ^ (uint32_t)(l->first_row + part * (l->N / l->leaves)) * BT_NOISE_LANE, 0};
}

void bt_linear_dx(const bt_linear *l, size_t part, float *dx, const float *dy, size_t r0,
                  size_t rows, bt_prec prec, int flags) {
    size_t n = l->N / l->leaves;
    const float *d = dy + part * n;
    const void *packed = l->tern ? l->packed + part * l->packed_bytes : NULL;
    if (l->tern && l->noise.rows) {
        bt_noise noise = noise_of(l, part, r0);
        bt_op_tern_dx8(dx, l->K, d, l->N, packed, l->scale, rows, n, l->K, &noise, flags);
    } else if (l->tern) {
        bt_op_tern_dx(dx, l->K, d, l->N, packed, l->scale, rows, n, l->K, prec, flags);
    } else {
        bt_op_gemm(dx, l->K, d, l->N, 0, l->w + part * n * l->K, l->K, 0, 1.0f, rows, l->K, n, prec,
                   flags);
    }
}

void bt_linear_dw(const bt_linear *l, const float *dy, const bt_linear_input *s, const float *src,
                  size_t r0, size_t rows, bt_prec prec) {
    if (l->tern && l->noise.rows) {
        bt_noise noise = {l->noise.rows + r0, l->noise.salt, (uint32_t)l->first_row};
        bt_op_tern_dw8(l->dw, dy, l->N, s->xq + r0 * l->K, s->dq + r0, rows, l->N, l->K, &noise);
        return;
    }
    if (l->tern)
        bt_op_tern_dw(l->dw, dy, l->N, s->xq + r0 * l->K, s->dq + r0, rows, l->N, l->K, prec);
    else
        bt_op_gemm(l->dw, l->K, dy, l->N, 1, bt_input_floats(s, src) + r0 * l->K, l->K, 0, 1.0f,
                   l->N, l->K, rows, prec, BT_ACC);
}

void bt_input_fwd(const bt_linear_input *s, const float *x, size_t r0, size_t rows) {
    if (s->tp) {
        bt_tp_input_fwd(s, x, r0, rows);
    } else if (s->tern && s->normed) {
        bt_op_rmsnorm_quant(s->xq + r0 * s->K, s->dq + r0, s->rstd + r0, NULL, x, s->gain.w, s->eps,
                            rows, s->K);
    } else if (s->tern) {
        bt_op_quant(s->xq + r0 * s->K, s->dq + r0, x, rows, s->K);
    } else if (s->normed) {
        bt_op_rmsnorm(s->xn + r0 * s->K, s->rstd + r0, x, s->gain.w, s->eps, rows, s->K);
    } else if (s->xn) {
        bt_net_copy(s->xn + r0 * s->K, x, rows * s->K);
    }
}

void bt_input_restore(const bt_linear_input *s, const float *x, size_t r0, size_t rows) {
    if (s->tern) return;
    if (s->normed && s->tp)
        bt_op_row_apply(NULL, NULL, s->xn + r0 * s->K, x, s->gain.w, s->rstd + r0, rows, s->K);
    else if (s->normed)
        bt_op_rmsnorm(s->xn + r0 * s->K, NULL, x, s->gain.w, s->eps, rows, s->K);
    else if (s->xn)
        bt_net_copy(s->xn + r0 * s->K, x, rows * s->K);
}

void bt_input_bwd(const bt_linear_input *s, float *dx, const float *dy, const float *x, size_t r0,
                  size_t rows, int acc) {
    if (s->tp)
        bt_tp_input_bwd(s, dx, dy, x, r0, rows);
    else
        bt_op_rmsnorm_bwd(dx, s->gain.dw, dy, x, s->gain.w, s->rstd + r0, acc, rows, s->K);
}
