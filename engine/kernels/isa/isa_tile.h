/* isa_tile.h - the interface between a set's tiles and operand forms and the blocking in isa_products.h.
 *
 * A "group" is one dword along K: one float, two bf16 or four int8. fp16 operands are floats rounded to fp16 as
 * they are packed: no instruction here multiplies fp16 into fp32 sums. An A operand is rows of groups [rows][ld
 * dwords], a B operand panels of NR columns [groups][NR]. Tails along K are zero in A, so B may hold any finite
 * value there. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_TILE_H
#define BT_ENGINE_KERNELS_ISA_ISA_TILE_H

#include "engine/kernels/isa/isa_vec.h"
#include "engine/kernels/table/kernels.h"

#if defined(BT_AMX_TILES)
/* 2 x 2 of eight tiles */
enum { MR = 32, NR = 32, IN_TILES = 1 };
#elif defined(__AVX512F__)
/* 28 accumulators of 32 registers */
enum { MR = 14, NR = 32, IN_TILES = 0 };
#else
/* AVX2: 12 accumulators of 16 registers; NEON: 24 of 32 */
enum { MR = 6, NR = 16, IN_TILES = 0 };
#endif
/* IN_TILES: packed A blocks are [K / CHUNK][rows][CHUNK] groups, so that 16 rows of a chunk are 1 KiB of contiguous
 * memory */
enum { CHUNK = 16 };

/* The destination of a finished tile of floats: `cols` columns of c = alpha * sum (+ c). */
typedef struct tile_out {
    float *c;
    size_t ldc, cols;
    float alpha;
    int acc;
    /* dwords between CHUNKs of A; 0: CHUNK. Tiles of vectors require 0 */
    size_t a_step;
} tile_out;

/* Number added to int8 bytes of a B operand: x86 multiplies unsigned by signed bytes, ARM signed by signed bytes */
#if defined(BT_NEON)
enum { BYTE_BIAS = 0 };
#else
enum { BYTE_BIAS = 128 };
#endif

/* int8 products: b holds code + 1 or xq + BYTE_BIAS, so sum b x - sums[row] = sum (b - 1) x with sums = sum x, and
 * likewise for BYTE_BIAS. y = (float)sum * (dq[row] * scale) (+ y) */
typedef struct tile_i8_out {
    float *y;
    size_t ldy, cols;
    const float *dq;
    const int32_t *sums;
    float scale;
    int acc;
    size_t a_step;   /* bytes, likewise */
    const float *by; /* (cols) factors of the new results; NULL: 1 */
} tile_i8_out;

/* rows: 1 .. MR. lda: in dwords for floats and bf16, in bytes for int8 */
typedef void (*tile_fn)(size_t rows, const tile_out *o, const uint32_t *a, size_t lda,
                        const uint32_t *b, size_t groups);
typedef void (*tile_i8_fn)(size_t rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                           const uint8_t *b, size_t groups);

typedef struct form { /* one operand type */
    size_t group;     /* elements of K in a dword */
    bt_prec prec;     /* precision to which operands are rounded */
    /* converts A from (rows, k), or from (k, rows) with row j multiplied by scale[j] unless scale is NULL */
    void (*a_rows)(uint32_t *dst, size_t ld, const float *src, size_t lds, size_t rows, size_t k);
    void (*a_cols)(uint32_t *dst, size_t ld, const float *src, size_t lds, const float *scale,
                   size_t rows, size_t k);
    /* one B panel of at most NR columns, missing columns zero, from: (k, cols); (cols, k); int8 (k, cols); codes + 1
     * as [k/4][NR][4] */
    void (*b_rows)(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k);
    void (*b_cols)(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k);
    void (*b_i8)(uint32_t *dst, const int8_t *src, size_t lds, size_t cols, size_t k);
    void (*b_codes)(uint32_t *dst, const uint8_t *fours, size_t k);
    tile_fn tile;
    /* In the bf16 form, the first four conversions for values that are stored as bf16, without scale. NULL in other
     * forms. */
    void (*a_rows_kept)(uint32_t *dst, size_t ld, const uint16_t *src, size_t lds, size_t rows,
                        size_t k);
    void (*a_cols_kept)(uint32_t *dst, size_t ld, const uint16_t *src, size_t lds, size_t rows,
                        size_t k);
    void (*b_rows_kept)(uint32_t *dst, const uint16_t *src, size_t lds, size_t cols, size_t k);
    void (*b_cols_kept)(uint32_t *dst, const uint16_t *src, size_t lds, size_t cols, size_t k);
} form;

#if defined(BT_VECTORS)
/* Prefetches the lines of C at the beginning of a tile, because they usually miss the caches. prefetchw has no effect
 * on processors without it. */
BT_INLINE void prefetch_c(const float *c, size_t ldc, const size_t rows) {
    BT_UNROLL for (size_t i = 0; i < rows; i++) BT_UNROLL for (size_t j = 0; j < NR; j += 16) {
#if defined(BT_NEON)
        __builtin_prefetch(c + i * ldc + j, 1);
#else
        __asm__ volatile("prefetchw %0" ::"m"(c[i * ldc + j]));
#endif
    }
}

_Static_assert(NR == 2 * (int)VL, "a panel is two vectors wide");

/* Returns what BYTE_BIAS adds to a product, from the sums of A. */
BT_INLINE vi biased(vi sum) { return BYTE_BIAS ? vi_sll(sum, 7) : vi_set(0); }

BT_INLINE vf rounded(vf v, const bt_prec prec) { return prec == BT_PREC_FP16 ? v_half(v) : v; }
static inline void round_row(float *out, const float *in, size_t n) {
    size_t i = 0;
    for (; i + VL <= n; i += VL) v_store(out + i, v_half(v_load(in + i)));
    if (i < n) v_store_n(out + i, v_half(v_load_n(in + i, n - i)), n - i);
}
#endif

#define TILE_CASE(body, n) \
    case n: \
        body(n, o, a, lda, b, groups); \
        break;
#define TILE_CASES_6(body) \
    TILE_CASE(body, 1) \
    TILE_CASE(body, 2) TILE_CASE(body, 3) TILE_CASE(body, 4) TILE_CASE(body, 5) TILE_CASE(body, 6)

#endif
