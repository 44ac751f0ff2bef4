/* isa_avx2.c - the AVX2 and FMA set. Rows: isa_rows.h. Tiles and operand forms: isa_avx2_tile.h.
 * Blocking: isa_products.h.
 * Attention: isa_attention.h. */
#include "engine/kernels/table/kernels.h"

#if defined(__AVX2__)
#include "engine/kernels/isa/isa_attention.h"
#include "engine/kernels/isa/isa_gemv.h"
#include "engine/kernels/isa/isa_int8.h"
#include "engine/kernels/isa/isa_products.h"
#include "engine/kernels/isa/isa_rows.h"
#include "engine/kernels/isa/isa_split.h"

/* 12 independent chains: x -> 0.5 x + 0.5 is always finite, and integer overflow is harmless */
enum { CHAINS = 12, TURNS = 64 };

static void peak_f32(size_t rounds) {
    vf x[CHAINS], half = v_set(0.5f);
    BT_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = v_set(0);
    for (size_t r = 0; r < rounds * TURNS; r++) {
        BT_UNROLL for (int i = 0; i < CHAINS;
                       i++) __asm__("vfmadd213ps %1, %1, %0" : "+x"(x[i]) : "x"(half));
    }
    BT_UNROLL for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"x"(x[i]));
}

static void peak_vnni(size_t rounds) {
    __m256i x[CHAINS], one = _mm256_set1_epi8(1);
    BT_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = _mm256_setzero_si256();
    for (size_t r = 0; r < rounds * TURNS; r++) {
        BT_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = y_dpbusd(x[i], one, one);
    }
    BT_UNROLL for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"x"(x[i]));
}

/* the two instructions that replace one VNNI instruction */
static void peak_maddubs(size_t rounds) {
    __m256i x[CHAINS], one = _mm256_set1_epi8(1);
    BT_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = _mm256_setzero_si256();
    for (size_t r = 0; r < rounds * TURNS; r++) {
        BT_UNROLL for (int i = 0; i < CHAINS; i++) {
            __m256i t;
            __asm__("vpmaddubsw %2, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(x[i]), "=&x"(t) : "x"(one));
        }
    }
    BT_UNROLL for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"x"(x[i]));
}

static double avx2_peak_ops(bt_peak kind, size_t rounds) {
    if (kind == BT_PEAK_BF16) return 0;
    (kind == BT_PEAK_FP32 ? peak_f32 : bt_cpu_get()->avx_vnni ? peak_vnni : peak_maddubs)(rounds);
    return (kind == BT_PEAK_FP32 ? 16.0 : 64.0) * CHAINS * TURNS * (double)rounds;
}

static size_t avx2_scratch(size_t M, size_t N, size_t K, size_t T, size_t D) {
    (void)M;
    size_t longest = most(K, N),
           products = most(product_scratch(), most(int8_scratch(longest), gemv_scratch(longest)));
    return most(attn_dwords(T, D) * 4, products);
}

const bt_kernels bt_kernels_avx2 = {
    .name = "avx2",
    BT_ROWS_SLOTS,
    BT_SPLIT_SLOTS,
    BT_PRODUCT_SLOTS,
    BT_INT8_SLOTS,
    BT_ATTENTION_SLOTS,
    BT_GEMV_SLOTS,
    .peak_ops = avx2_peak_ops,
    .scratch_bytes = avx2_scratch,
};
#endif
