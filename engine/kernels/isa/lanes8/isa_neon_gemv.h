/* isa_neon_gemv.h - decoding with 2-bit ternary weights under NEON (isa_gemv.h): 16 bytes of four rows of weights at a
 * time, by up to four rows of inputs.
 *
 * One row of inputs: bits are not shifted; position i has the factor 4^i, in an accumulator of its own that is
 * shifted down at the end. The highest position does not fit a signed byte and is shifted. */
#ifndef BT_ENGINE_KERNELS_ISA_LANES8_ISA_NEON_GEMV_H
#define BT_ENGINE_KERNELS_ISA_LANES8_ISA_NEON_GEMV_H

#include "engine/kernels/isa/isa_few_rows.h"

#if defined(BT_NEON)

BT_INLINE int8x16_t weights_at(uint8x16_t w, const int place) {
    return vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8((uint8_t)(3 << 2 * place))));
}

/* sum[r]; inputs (stride * 4) */
BT_INLINE void gemv_one(const int rows, int32_t *sum, const int8_t *xs, const uint8_t *w,
                        size_t stride, const dot_form how) {
    int32x4_t acc[4][3];
    BT_UNROLL for (int r = 0; r < rows; r++) BT_UNROLL for (int i = 0; i < 3; i++)
        acc[r][i] = vdupq_n_s32(0);
    for (size_t at = 0; at < stride; at += 16) {
        /* a block is 32 bytes of weights and 128 inputs */
        const int8_t *x = xs + at / 32 * 128 + at % 32;
        int8x16_t v[4];
        BT_UNROLL for (int i = 0; i < 4; i++) v[i] = vld1q_s8(x + 32 * i);
        BT_UNROLL for (int r = 0; r < rows; r++) {
            const uint8x16_t u = vld1q_u8(w + (size_t)r * stride + at);
            BT_UNROLL for (int i = 0; i < 3; i++)
                acc[r][i] = q_dot(acc[r][i], weights_at(u, i), v[i], how);
            acc[r][0] = q_dot(acc[r][0], vreinterpretq_s8_u8(vshrq_n_u8(u, 6)), v[3], how);
        }
    }
    BT_UNROLL for (int r = 0; r < rows; r++)
        sum[r] = vaddvq_s32(vsraq_n_s32(vsraq_n_s32(acc[r][0], acc[r][1], 2), acc[r][2], 4));
}

/* Unpacks weights once for `few` rows of inputs, ldx apart; sum[m * 4 + r] belongs to input row m and weight row r. */
BT_INLINE void gemv_few(const int rows, const int few, int32_t *sum, const int8_t *xs, size_t ldx,
                        const uint8_t *w, size_t stride, const dot_form how) {
    int32x4_t acc[4][4];
    BT_UNROLL for (int r = 0; r < rows; r++) BT_UNROLL for (int m = 0; m < few; m++)
        acc[r][m] = vdupq_n_s32(0);
    for (size_t at = 0; at < stride; at += 16) {
        const int8_t *x = xs + at / 32 * 128 + at % 32;
        uint8x16_t v[4];
        BT_UNROLL for (int r = 0; r < rows; r++) v[r] = vld1q_u8(w + (size_t)r * stride + at);
        BT_UNROLL for (int i = 0; i < 4; i++) {
            int8x16_t u[4];
            BT_UNROLL for (int r = 0; r < rows; r++) {
                u[r] = weights_at(v[r], 0);
                v[r] = vshrq_n_u8(v[r], 2);
            }
            BT_UNROLL for (int m = 0; m < few; m++) {
                const int8x16_t in = vld1q_s8(x + (size_t)m * ldx + 32 * i);
                BT_UNROLL for (int r = 0; r < rows; r++)
                    acc[r][m] = q_dot(acc[r][m], u[r], in, how);
            }
        }
    }
    BT_UNROLL for (int m = 0; m < few; m++) BT_UNROLL for (int r = 0; r < rows; r++)
        sum[m * 4 + r] = vaddvq_s32(acc[r][m]);
}

BT_INLINE void gemv_some(const int rows, size_t few, int32_t *sum, const int8_t *xs, size_t ldx,
                         const uint8_t *w, size_t stride, const dot_form how) {
    switch (few) {
    case 1: gemv_one(rows, sum, xs, w, stride, how); break;
    case 2: gemv_few(rows, 2, sum, xs, ldx, w, stride, how); break;
    case 3: gemv_few(rows, 3, sum, xs, ldx, w, stride, how); break;
    default: gemv_few(rows, 4, sum, xs, ldx, w, stride, how); break;
    }
}

BT_INLINE void gemv_rows(const few_rows *p, int8_t *xs, const dot_form how) {
    enum { GEMV_AHEAD = 4096 };
    const size_t stride = round_up(p->K, 128) / 4, ldx = few_stride(p->K);
    for (size_t m = 0; m < p->M; m++) {
        memcpy(xs + m * ldx, p->xq + m * p->K, p->K);
        memset(xs + m * ldx + p->K, 0, ldx - p->K);
    }
    for (size_t n = 0; n < p->N; n += 4) {
        const size_t rows = smaller_size(4, p->N - n);
        const uint8_t *w = p->w + n * stride;
        int32_t sum[16];
        /* the address may be beyond the end, which a prefetch permits */
        for (size_t o = 0; o < 4 * stride; o += 64) __builtin_prefetch(w + o + GEMV_AHEAD);
        for (size_t m = 0; m < p->M; m += 4) {
            const size_t few = smaller_size(4, p->M - m);
            if (rows == 4)
                gemv_some(4, few, sum, xs + m * ldx, ldx, w, stride, how);
            else
                for (size_t r = 0; r < rows; r++)
                    gemv_some(1, few, sum + r, xs + m * ldx, ldx, w + r * stride, stride, how);
            for (size_t i = 0; i < few; i++)
                for (size_t r = 0; r < rows; r++)
                    gemv_put(p->y + (m + i) * p->ldy + n + r, sum[i * 4 + r] - p->all[m + i],
                             p->dq[m + i] * p->scale, p->acc);
        }
    }
}

static void gemv_neon(const few_rows *p, int8_t *xs) {
    if (bt_cpu_get()->dotprod)
        gemv_rows(p, xs, DOT_SDOT);
    else
        gemv_rows(p, xs, DOT_BASE);
}

#endif /* BT_NEON */
#endif
