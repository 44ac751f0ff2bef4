/* isa_avx512.c - the AVX-512 set (F, BW, VL, DQ); VNNI and bf16 instructions are used where CPUID
 * shows them.
 *
 *                      with the extension       without it
 *   int8 x ternary     vpdpbusd                 vpmaddubsw + vpaddw, widened every 32 groups
 *   bf16 products      vdpbf16ps                fp32 vfmadd231ps (bt_prec is a permission)
 *
 * Rows: isa_rows.h. Tiles and operand forms: isa_avx512_tile.h. Blocking: isa_products.h.
 *       Attention: isa_attention.h. */
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"

#if defined(__AVX512F__)
#include "engine/kernels/isa/isa_attention.h"
#include "engine/kernels/isa/isa_gemv.h"
#include "engine/kernels/isa/isa_int8.h"
#include "engine/kernels/isa/isa_products.h"
#include "engine/kernels/isa/isa_rows.h"
#include "engine/kernels/isa/isa_split.h"

/* 16 independent chains hide latency; x -> 0.5 x + 0.5 stays finite, and integer overflow is harmless */
enum { CHAINS = 16, TURNS = 64 };
#define PEAK_LOOP(name, vec, zero, term) \
    static void name(size_t rounds) { \
        vec x[CHAINS]; \
        const __m512 half = v_set(0.5f); \
        const __m512i one = _mm512_set1_epi8(1), bf = _mm512_set1_epi32(0x3f003f00); \
        (void)half, (void)one, (void)bf; \
        BT_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = zero; \
        for (size_t r = 0; r < rounds * TURNS; r++) { \
            BT_UNROLL for (int i = 0; i < CHAINS; i++) term; \
        } \
        BT_UNROLL for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"v"(x[i])); \
    }
PEAK_LOOP(peak_f32, __m512, v_set(0), __asm__("vfmadd213ps %1, %1, %0" : "+v"(x[i]) : "v"(half)))
PEAK_LOOP(peak_bf16, __m512, v_set(0), x[i] = x_dpbf16(x[i], bf, bf))
PEAK_LOOP(peak_i8, __m512i, _mm512_setzero_si512(), x[i] = x_dpbusd(x[i], one, one))
/* the two instructions that replace one VNNI instruction */
PEAK_LOOP(peak_maddubs, __m512i, _mm512_setzero_si512(), x[i] = x_maddubs(x[i], one, one))

static double avx512_peak_ops(bt_peak kind, size_t rounds) {
    const bt_cpu *c = bt_cpu_get();
    double per = kind == BT_PEAK_FP32 ? 32 : kind == BT_PEAK_BF16 ? 64 : 128;
    if (kind == BT_PEAK_BF16 && !c->avx512_bf16) return 0;
    (kind == BT_PEAK_FP32   ? peak_f32
     : kind == BT_PEAK_BF16 ? peak_bf16
     : c->avx512_vnni       ? peak_i8
                            : peak_maddubs)(rounds);
    return per * CHAINS * TURNS * (double)rounds;
}

static size_t avx512_scratch(size_t M, size_t N, size_t K, size_t T, size_t D) {
    (void)M;
    size_t longest = most(K, N),
           products = most(product_scratch(), most(int8_scratch(longest), gemv_scratch(longest)));
    return most(attn_dwords(T, D) * 4, products);
}

const bt_kernels bt_kernels_avx512 = {
    .name = "avx512",
    BT_ROWS_SLOTS,
    BT_SPLIT_SLOTS,
    BT_PRODUCT_SLOTS,
    BT_INT8_SLOTS,
    BT_ATTENTION_SLOTS,
    BT_GEMV_SLOTS,
    .peak_ops = avx512_peak_ops,
    .scratch_bytes = avx512_scratch,
};
#endif
