/* isa_few_rows.h - arguments shared by the products of few rows of inputs with 2-bit ternary weights (isa_gemv.h). */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_FEW_ROWS_H
#define BT_ENGINE_KERNELS_ISA_ISA_FEW_ROWS_H

#include "engine/kernels/isa/isa_products.h"

#if defined(BT_VECTORS)

/* (float)sum * s (+ y) */
BT_INLINE void gemv_put(float *y, int32_t sum, float s, int acc) {
    const float v = (float)sum * s;
    *y = acc ? *y + v : v;
}

/* a product of M rows of inputs with a range of outputs; y and w point to the first output of the range */
typedef struct few_rows {
    float *y;
    size_t ldy, M, K, N;
    const int8_t *xq;
    const float *dq;
    const uint8_t *w;
    float scale;
    int acc;
    int32_t all[BT_FEW_ROWS]; /* sum of each row of inputs */
} few_rows;

/* bytes of a row of inputs, reordered to match 64 bytes of weights */
static size_t few_stride(size_t K) { return round_up(K, 256); }

#endif /* BT_VECTORS */
#endif
