/* isa_neon.c - the NEON set of aarch64, with the dot products of int8 where the processor has them. Rows: isa_rows.h.
 * Tiles and operand forms: isa_lanes8_tile.h, isa_neon_tile.h. Blocking: isa_products.h. Attention: isa_attention.h.
 * Float results have the bits of the AVX2 set. */
#include "engine/kernels/table/kernels.h"

#if defined(BT_NEON)
#include "engine/kernels/isa/isa_attention.h"
#include "engine/kernels/isa/isa_gemv.h"
#include "engine/kernels/isa/isa_int8.h"
#include "engine/kernels/isa/isa_products.h"
#include "engine/kernels/isa/isa_rows.h"
#include "engine/kernels/isa/isa_split.h"

/* 16 independent chains: x -> x + x * 0.5 becomes infinite, at the same speed */
enum { CHAINS = 16, TURNS = 64 };

#define NEON_PEAK(name, type, zero, instruction) \
    static void name(size_t rounds) { \
        type x[CHAINS]; \
        const type by = zero; \
        BT_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = zero; \
        for (size_t r = 0; r < rounds * TURNS; r++) { \
            BT_UNROLL for (int i = 0; i < CHAINS; \
                           i++) __asm__ volatile(instruction : "+w"(x[i]) : "w"(by)); \
        } \
        BT_UNROLL for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"w"(x[i])); \
    }
NEON_PEAK(peak_f32, float32x4_t, vdupq_n_f32(0), "fmla %0.4s, %1.4s, %1.4s")
NEON_PEAK(peak_base, int16x8_t, vdupq_n_s16(0), "smlal %0.8h, %1.8b, %1.8b")
NEON_PEAK(peak_sdot, int32x4_t, vdupq_n_s32(0),
          ".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %1.16b")
NEON_PEAK(peak_mmla, int32x4_t, vdupq_n_s32(0),
          ".arch armv8.2-a+dotprod+i8mm\n\tsmmla %0.4s, %1.16b, %1.16b")

static double neon_peak_ops(bt_peak kind, size_t rounds) {
    const bt_cpu *c = bt_cpu_get();
    if (kind == BT_PEAK_BF16) return 0;
    (kind == BT_PEAK_FP32 ? peak_f32
     : c->i8mm            ? peak_mmla
     : c->dotprod         ? peak_sdot
                          : peak_base)(rounds);
    const double ops = kind == BT_PEAK_FP32 ? 8 : c->i8mm ? 64 : c->dotprod ? 32 : 16;
    return ops * CHAINS * TURNS * (double)rounds;
}

static size_t neon_scratch(size_t M, size_t N, size_t K, size_t T, size_t D) {
    (void)M;
    size_t longest = most(K, N),
           products = most(product_scratch(), most(int8_scratch(longest), gemv_scratch(longest)));
    return most(attn_dwords(T, D) * 4, products);
}

const bt_kernels bt_kernels_neon = {
    .name = "neon",
    BT_ROWS_SLOTS,
    BT_SPLIT_SLOTS,
    BT_PRODUCT_SLOTS,
    BT_INT8_SLOTS,
    BT_ATTENTION_SLOTS,
    BT_GEMV_SLOTS,
    .peak_ops = neon_peak_ops,
    .scratch_bytes = neon_scratch,
};
#endif
