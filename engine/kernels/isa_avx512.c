/* isa_avx512.c - the AVX-512 set (F, BW, VL, DQ); VNNI and bf16 instructions are used where CPUID shows them.
 *
 *                      with the extension       without it
 *   int8 x ternary     vpdpbusd                 vpmaddubsw + vpaddw, widened every 32 groups
 *   bf16 products      vdpbf16ps                fp32 vfmadd231ps (bt_prec is a permission)
 *
 * Rows: isa_rows.h. Tiles and operand forms: isa_avx512_tile.h. Blocking: isa_products.h. */
#include "engine/kernels/cpu.h"
#include "engine/kernels/kernels.h"

#if defined(__AVX512F__)
#include "engine/kernels/isa_avx512_tile.h"
#include "engine/kernels/isa_rows.h"

typedef void (*tile_i8_fn)(size_t rows, const tile_i8_out *o, const uint32_t *a, size_t lda, const uint32_t *b, size_t groups);
static tile_i8_fn tile_i8(void) { return bt_cpu_get()->avx512_vnni ? run_vnni : run_maddubs; }

static int32_t sum_i8(const int8_t *x, size_t n) {
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512i s = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 64) {                /* bytes beyond n become 0x80: 128 each, as every byte is off by 128 */
        __mmask64 m = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        s = _mm512_add_epi64(s, _mm512_sad_epu8(_mm512_xor_si512(_mm512_maskz_loadu_epi8(m, x + i), flip), _mm512_setzero_si512()));
    }
    return (int32_t)(_mm512_reduce_add_epi64(s) - (int64_t)((n + 63) / 64 * 64 * 128));
}

static const struct form *form_of(bt_prec prec);
#include "engine/kernels/isa_products.h"

static const form form_f32 = {1, a_rows_f32, a_cols_f32, b_rows_f32, b_cols_f32, b_i8_f32, b_codes_f32, run_f32};
static const form form_bf16 = {2, a_rows_bf16, a_cols_bf16, b_rows_bf16, b_cols_bf16, b_i8_bf16, b_codes_bf16, run_bf16};
static const form *form_of(bt_prec prec) { return prec == BT_PREC_BF16 && bt_cpu_get()->avx512_bf16 ? &form_bf16 : &form_f32; }

/* 16 independent chains; x -> 0.5 x + 0.5 stays finite, integer sums wrap harmlessly */
enum { CHAINS = 16, TURNS = 64 };
#define PEAK_LOOP(name, vec, zero, term)                                                            \
    static void name(size_t rounds) {                                                               \
        vec x[CHAINS];                                                                              \
        const __m512 half = v_set(0.5f);                                                            \
        const __m512i one = _mm512_set1_epi8(1), bf = _mm512_set1_epi32(0x3f003f00);                \
        (void)half, (void)one, (void)bf;                                                            \
        BT_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = zero;                                     \
        for (size_t r = 0; r < rounds * TURNS; r++) {                                               \
            BT_UNROLL for (int i = 0; i < CHAINS; i++) term;                                        \
        }                                                                                           \
        BT_UNROLL for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"v"(x[i]));                \
    }
PEAK_LOOP(peak_f32, __m512, v_set(0), __asm__("vfmadd213ps %1, %1, %0" : "+v"(x[i]) : "v"(half)))
PEAK_LOOP(peak_bf16, __m512, v_set(0), x[i] = x_dpbf16(x[i], bf, bf))
PEAK_LOOP(peak_i8, __m512i, _mm512_setzero_si512(), x[i] = x_dpbusd(x[i], one, one))

static double peak_ops(bt_peak kind, size_t rounds) {
    const bt_cpu *c = bt_cpu_get();
    double per = kind == BT_PEAK_FP32 ? 32 : kind == BT_PEAK_BF16 ? 64 : 128;
    if ((kind == BT_PEAK_BF16 && !c->avx512_bf16) || (kind == BT_PEAK_INT8 && !c->avx512_vnni)) return 0;
    (kind == BT_PEAK_FP32 ? peak_f32 : kind == BT_PEAK_BF16 ? peak_bf16 : peak_i8)(rounds);
    return per * CHAINS * TURNS * (double)rounds;
}

static size_t avx512_scratch(size_t M, size_t N, size_t K, size_t T, size_t D) {
    size_t a = product_scratch(), b = fwd_scratch(K > N ? K : N);
    (void)M;
    (void)T;
    (void)D;
    return a > b ? a : b;
}

const bt_kernels bt_kernels_avx512 = {
    .name = "avx512", BT_ROWS_SLOTS, BT_PRODUCT_SLOTS, .peak_ops = peak_ops, .scratch_bytes = avx512_scratch,
};
#endif
