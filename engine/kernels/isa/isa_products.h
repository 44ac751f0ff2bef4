/* isa_products.h - the dense and ternary products over a set's tiles and operand forms: blocking and edges.
 * Included once by each set's file.
 *
 * Blocking of the float products (BLIS order), sizes in groups of one dword along K:
 *     for each NC columns                         C columns in L3 for the whole of K
 *       for each KC groups                        pack B block (KC, NC): in L2
 *         for each MC rows                        pack A block (MC, KC): in L2
 *           for each panel of NR columns          (KC, NR): 32 KiB, in L1
 *             for each tile of MR rows            registers
 *
 * Rows are cut evenly into tiles of at most MR. The sum of an element runs over K in ascending order in blocks of
 * KC for any tile, so results do not depend on the division of rows among threads. Products of int8: isa_int8.h. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_PRODUCTS_H
#define BT_ENGINE_KERNELS_ISA_ISA_PRODUCTS_H

#include "engine/kernels/isa/isa_avx512_tile.h"
#include "engine/kernels/isa/isa_packed_2bit.h"
#include "engine/kernels/isa/lanes8/isa_avx2_tile.h"
#include "engine/kernels/isa/lanes8/isa_neon_tile.h"

#if defined(BT_VECTORS)
#include <string.h>

/* KC: groups, MC: rows, NC: columns of a block; A_LD: padded row of the A block */
enum {
    KC = IN_TILES ? 1024 : 256,
    MC = IN_TILES   ? 4 * MR
         : NR == 32 ? 8 * MR
                    : 16 * MR,
    NC = IN_TILES ? 8 * NR : 64 * NR
};
enum {
    A_LD = IN_TILES ? CHUNK : KC + 16,
    A_STEP = IN_TILES ? MC * CHUNK : 0,
    A_DWORDS = IN_TILES ? MC * KC : MC * A_LD
};

typedef struct product {
    const form *f;
    float *c;
    size_t ldc, M, N, K;
    float alpha;
    int acc;
    /* a_scale: factors of the rows of a, applied when they become columns of the product */
    const float *a, *a_scale;
    size_t lda;
    int a_by_cols; /* a is (K, M) */
    enum { B_ROWS, B_COLS, B_ROWS16, B_COLS16, B_I8, B_CODES, B_2BIT } b_kind;
    /* one of: (K, N) floats, (N, K) floats, either of them as bf16, (K, N) int8, codes + 1 in panels, (K, N) 2-bit
     * codes */
    const void *b;
    size_t ldb; /* B_CODES: bytes of one panel */
} product;

static void pack_a(const product *p, uint32_t *dst, size_t m, size_t rows, size_t k, size_t depth) {
    size_t step = IN_TILES ? CHUNK * p->f->group : KC * p->f->group;
    for (size_t end = k + depth; k < end; k += step, dst += A_STEP) {
        size_t n = end - k < step ? end - k : step;
        if (p->a_by_cols)
            p->f->a_cols(dst, A_LD, p->a + k * p->lda + m, p->lda,
                         p->a_scale ? p->a_scale + k : NULL, rows, n);
        else
            p->f->a_rows(dst, A_LD, p->a + m * p->lda + k, p->lda, rows, n);
    }
}

static void widen(float *restrict out, const uint16_t *restrict x, size_t n) {
    uint32_t *bits = (uint32_t *)(void *)out;
    for (size_t i = 0; i < n; i++) bits[i] = (uint32_t)x[i] << 16;
}

/* Packs bf16 values by way of floats in L1, with the bits that floats give. */
static void pack_b16(const product *p, uint32_t *dst, size_t n, size_t cols, size_t k,
                     size_t depth) {
    enum { SOME = 64 }; /* a multiple of the elements of a group */
    _Alignas(64) float some[NR * SOME];
    const uint16_t *b = p->b;
    if (p->f->b_rows_kept) {
        if (p->b_kind == B_ROWS16)
            p->f->b_rows_kept(dst, b + k * p->ldb + n, p->ldb, cols, depth);
        else
            p->f->b_cols_kept(dst, b + n * p->ldb + k, p->ldb, cols, depth);
        return;
    }
    for (size_t end = k + depth; k < end; k += SOME, dst += SOME / p->f->group * NR) {
        size_t now = end - k < SOME ? end - k : SOME;
        if (p->b_kind == B_ROWS16) {
            for (size_t i = 0; i < now; i++) widen(some + i * NR, b + (k + i) * p->ldb + n, cols);
            p->f->b_rows(dst, some, NR, cols, now);
        } else {
            for (size_t j = 0; j < cols; j++) widen(some + j * SOME, b + (n + j) * p->ldb + k, now);
            p->f->b_cols(dst, some, SOME, cols, now);
        }
    }
}

/* Packs 2-bit weights by way of bytes in L1. */
static void pack_2bit(const product *p, uint32_t *dst, size_t n, size_t k, size_t depth) {
    enum { SOME = 64 };
    _Alignas(64) uint8_t some[NR * SOME];
    for (size_t end = k + depth; k < end; k += SOME, dst += SOME / p->f->group * NR) {
        size_t now = end - k < SOME ? end - k : SOME;
        across_2bit(some, p->b, p->N, n, k, k + now);
        p->f->b_codes(dst, some, now);
    }
}

static void pack_b(const product *p, uint32_t *dst, size_t n, size_t cols, size_t k, size_t depth) {
    switch (p->b_kind) {
    case B_ROWS:
        p->f->b_rows(dst, (const float *)p->b + k * p->ldb + n, p->ldb, cols, depth);
        break;
    case B_COLS:
        p->f->b_cols(dst, (const float *)p->b + n * p->ldb + k, p->ldb, cols, depth);
        break;
    case B_ROWS16:
    case B_COLS16: pack_b16(p, dst, n, cols, k, depth); break;
    case B_I8: p->f->b_i8(dst, (const int8_t *)p->b + k * p->ldb + n, p->ldb, cols, depth); break;
    case B_CODES:
        p->f->b_codes(dst, (const uint8_t *)p->b + n / NR * p->ldb + k * NR, depth);
        break;
    case B_2BIT: pack_2bit(p, dst, n, k, depth); break;
    }
}

/* Returns the bits of |x|, whose order as integers is the order of the magnitudes. */
BT_INLINE vi magnitude(vf x) { return vi_and(vi_bits(x), vi_set(0x7fffffffu)); }

static size_t smaller_size(size_t a, size_t b) { return a < b ? a : b; }
static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* Multiplies all panels and tiles of a packed (rows, depth) block and a packed (depth, cols) block. */
static void tile_panel_block(const product *p, const uint32_t *a, const uint32_t *b, size_t m,
                             size_t rows, size_t n, size_t cols, size_t groups, int acc) {
    size_t tiles = (rows + MR - 1) / MR;
    for (size_t j = 0; j < cols; j += NR) {
        tile_out o = {
            .ldc = p->ldc, .cols = cols - j, .alpha = p->alpha, .acc = acc, .a_step = A_STEP};
        for (size_t t = 0; t < tiles; t++) {
            size_t r0 = rows * t / tiles, r1 = rows * (t + 1) / tiles;
            o.c = p->c + (m + r0) * p->ldc + n + j;
            p->f->tile(r1 - r0, &o, a + r0 * A_LD, A_LD, b + j * KC, groups);
        }
    }
}

static void run_product(const product *p, void *scratch) {
    uint32_t *a = scratch, *b = a + A_DWORDS;
    size_t g = p->f->group, depth_max = KC * g;
    for (size_t n = 0; n < p->N; n += NC) {
        size_t cols = smaller_size(NC, p->N - n);
        for (size_t k = 0; k < p->K || k == 0; k += depth_max) {
            size_t depth = smaller_size(depth_max, p->K - k), groups = (depth + g - 1) / g;
            for (size_t j = 0; j < cols; j += NR)
                pack_b(p, b + j * KC, n + j, smaller_size(NR, cols - j), k, depth);
            for (size_t m = 0; m < p->M; m += MC) {
                size_t rows = smaller_size(MC, p->M - m);
                pack_a(p, a, m, rows, k, depth);
                tile_panel_block(p, a, b, m, rows, n, cols, groups, k > 0 || p->acc);
            }
        }
    }
}

static size_t product_scratch(void) { return ((size_t)A_DWORDS + NC * KC) * 4; }

/* ---- slots ----------------------------------------------------------------------------------- */
static void prod_gemm(float *c, size_t ldc, const float *a, size_t lda, int ta, const void *b,
                      size_t ldb, int tb, float alpha, size_t M, size_t N, size_t K, bt_prec prec,
                      int flags, void *scratch) {
    product p = {.f = form_of(prec),
                 .c = c,
                 .ldc = ldc,
                 .M = M,
                 .N = N,
                 .K = K,
                 .alpha = alpha,
                 .acc = flags & BT_ACC,
                 .a = a,
                 .lda = lda,
                 .a_by_cols = ta,
                 .b_kind = flags & BT_B_BF16 ? (tb ? B_COLS16 : B_ROWS16)
                           : tb              ? B_COLS
                                             : B_ROWS,
                 .b = b,
                 .ldb = ldb};
    run_product(&p, scratch);
}

static bool prod_bf16(void) { return form_of(BT_PREC_BF16)->prec == BT_PREC_BF16; }

/* Packed ternary matrix: [N/NR panels][K/4][NR][4] bytes of code + 1 for fwd, then [K/NR
 *                        panels][N/4][NR][4] of the transposed
 * codes + 1 for dx and dx8. Padding is code 0. */
static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
static size_t fwd_bytes(size_t N, size_t K) { return round_up(N, NR) * round_up(K, 4); }
static size_t prod_tern_bytes(size_t N, size_t K) {
    return fwd_bytes(N, K) + round_up(K, NR) * round_up(N, 4);
}

/* Interleaves up to four rows of bytes to dst [NR][4] and adds `bias`; missing rows and columns become zero plus
 * bias. */
static void interleave4(uint8_t *dst, const int8_t *src, size_t ld, size_t rows, size_t cols,
                        int bias) {
    int8_t edge[4][NR];
    const int8_t *r[4] = {src, src + ld, src + 2 * ld, src + 3 * ld};
    if (rows < 4 || cols < NR) {
        memset(edge, 0, sizeof edge);
        for (size_t i = 0; i < 4; i++) {
            if (i < rows) memcpy(edge[i], src + i * ld, cols < NR ? cols : NR);
            r[i] = edge[i];
        }
    }
#if defined( \
    __AVX512F__) /* quarters of 8 columns in the order 0 2 1 3, which unpacking within 128-bit lanes restores */
    const __m256i add = _mm256_set1_epi8((char)bias);
    __m256i v[4];
    BT_UNROLL for (int i = 0; i < 4; i++)
        v[i] = _mm256_add_epi8(_mm256_permute4x64_epi64(bytes32(r[i]), 0xd8), add);
    BT_UNROLL for (int h = 0; h < 2; h++, dst += 64) {
        __m256i a = h ? _mm256_unpackhi_epi8(v[0], v[1]) : _mm256_unpacklo_epi8(v[0], v[1]);
        __m256i b = h ? _mm256_unpackhi_epi8(v[2], v[3]) : _mm256_unpacklo_epi8(v[2], v[3]);
        __m256i lo = _mm256_unpacklo_epi16(a, b), hi = _mm256_unpackhi_epi16(a, b);
        _mm256_storeu_si256((__m256i *)(void *)dst, _mm256_permute2x128_si256(lo, hi, 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(dst + 32), _mm256_permute2x128_si256(lo, hi, 0x31));
    }
#elif defined(BT_NEON)
    const uint8x16_t add = vdupq_n_u8((uint8_t)bias);
    uint8x16_t v[4];
    BT_UNROLL for (int i = 0; i < 4; i++) v[i] = vaddq_u8(vld1q_u8((const uint8_t *)r[i]), add);
    const uint16x8_t a = vreinterpretq_u16_u8(vzip1q_u8(v[0], v[1])),
                     b = vreinterpretq_u16_u8(vzip2q_u8(v[0], v[1])),
                     c = vreinterpretq_u16_u8(vzip1q_u8(v[2], v[3])),
                     d = vreinterpretq_u16_u8(vzip2q_u8(v[2], v[3]));
    vst1q_u8(dst, vreinterpretq_u8_u16(vzip1q_u16(a, c)));
    vst1q_u8(dst + 16, vreinterpretq_u8_u16(vzip2q_u16(a, c)));
    vst1q_u8(dst + 32, vreinterpretq_u8_u16(vzip1q_u16(b, d)));
    vst1q_u8(dst + 48, vreinterpretq_u8_u16(vzip2q_u16(b, d)));
#else
    const __m128i add = _mm_set1_epi8((char)bias);
    __m128i v[4];
    BT_UNROLL for (int i = 0; i < 4; i++)
        v[i] = _mm_add_epi8(_mm_loadu_si128((const __m128i *)(const void *)r[i]), add);
    __m128i a = _mm_unpacklo_epi8(v[0], v[1]), b = _mm_unpackhi_epi8(v[0], v[1]),
            c = _mm_unpacklo_epi8(v[2], v[3]), d = _mm_unpackhi_epi8(v[2], v[3]);
    _mm_storeu_si128((__m128i *)(void *)dst, _mm_unpacklo_epi16(a, c));
    _mm_storeu_si128((__m128i *)(void *)(dst + 16), _mm_unpackhi_epi16(a, c));
    _mm_storeu_si128((__m128i *)(void *)(dst + 32), _mm_unpacklo_epi16(b, d));
    _mm_storeu_si128((__m128i *)(void *)(dst + 48), _mm_unpackhi_epi16(b, d));
#endif
}

/* Packs four codes plus `bias` to each dword: VL rows by VL dwords at a time, then the remaining dwords singly. */
static void pack_fwd_panel(uint8_t *dst, const int8_t *codes, size_t K, size_t rows, int bias) {
    size_t whole = K / (4 * VL) * VL;
    const uint32_t four = 0x01010101u * (uint32_t)bias;
    const vi ones = vi_set(four);
    for (size_t j = 0; j < NR; j += VL) {
        for (size_t g = 0; g < whole; g += VL) {
            vi t[VL];
            BT_UNROLL for (size_t i = 0; i < VL; i++) t[i] =
                vi_add8(j + i < rows ? vi_load(codes + (j + i) * K + 4 * g) : vi_set(0), ones);
            transpose(t);
            BT_UNROLL for (size_t i = 0; i < VL; i++) vi_store(dst + ((g + i) * NR + j) * 4, t[i]);
        }
    }
    for (size_t g = whole; g < K / 4; g++) {
        for (size_t j = 0; j < NR; j++) {
            uint32_t w = 0;
            if (j < rows) memcpy(&w, codes + j * K + 4 * g, 4);
            w = ((w & 0x7f7f7f7fu) + (four & 0x7f7f7f7fu)) ^ ((w ^ four) & 0x80808080u);
            memcpy(dst + (g * NR + j) * 4, &w, 4);
        }
    }
    for (size_t k = K / 4 * 4; k < round_up(K, 4); k++) {
        for (size_t j = 0; j < NR; j++)
            dst[(k / 4 * NR + j) * 4 + k % 4] =
                (uint8_t)((j < rows && k < K ? codes[j * K + k] : 0) + bias);
    }
}

static void prod_tern_pack(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0,
                           size_t n1) {
    uint8_t *fwd = packed, *dx = fwd + fwd_bytes(N, K);
    for (size_t n = n0; n < n1; n += NR)
        pack_fwd_panel(fwd + n * round_up(K, 4), codes + n * K, K, smaller_size(NR, n1 - n), 1);
    /* panels are far apart in memory, so several rows of one panel are written before the next panel */
    for (size_t r = n0, end; r < n1; r = end) {
        end = smaller_size(r + BT_TERN_ROWS, n1);
        for (size_t k = 0; k < K; k += NR) {
            for (size_t n = r; n < end; n += 4)
                interleave4(dx + k * round_up(N, 4) + n * NR, codes + n * K + k, K,
                            smaller_size(4, N - n), K - k, 1);
        }
    }
}

static void prod_tern_dx(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                         float scale, size_t m0, size_t m1, size_t N, size_t K, bt_prec prec,
                         int flags, void *scratch) {
    const bool packed_2bit = flags & BT_COMPACT;
    product p = {.f = form_of(prec),
                 .c = dx + m0 * lddx,
                 .ldc = lddx,
                 .M = m1 - m0,
                 .N = K,
                 .K = N,
                 .alpha = scale,
                 .acc = flags & BT_ACC,
                 .a = dy + m0 * lddy,
                 .lda = lddy,
                 .b_kind = packed_2bit ? B_2BIT : B_CODES,
                 .b = (const char *)packed + (packed_2bit ? 0 : fwd_bytes(N, K)),
                 .ldb = round_up(N, 4) * NR};
    run_product(&p, scratch);
}

static void prod_tern_dw(float *dw, const float *dy, size_t lddy, const int8_t *xq, const float *dq,
                         size_t M, size_t N, size_t K, size_t n0, size_t n1, bt_prec prec,
                         void *scratch) {
    (void)N;
    product p = {.f = form_of(prec),
                 .c = dw + n0 * K,
                 .ldc = K,
                 .M = n1 - n0,
                 .N = K,
                 .K = M,
                 .alpha = 1,
                 .acc = 1,
                 .a = dy + n0,
                 .a_scale = dq,
                 .lda = lddy,
                 .a_by_cols = 1,
                 .b_kind = B_I8,
                 .b = xq,
                 .ldb = K};
    run_product(&p, scratch);
}

#define BT_PRODUCT_SLOTS \
    .gemm = prod_gemm, .multiplies_bf16 = prod_bf16, .tern_bytes = prod_tern_bytes, \
    .tern_pack = prod_tern_pack, .packed_2bit_bytes = prod_packed_2bit_bytes, \
    .packed_2bit_pack = prod_packed_2bit_pack, .packed_2bit_codes = prod_packed_2bit_codes, \
    .tern_dx = prod_tern_dx, .tern_dw = prod_tern_dw

#endif /* BT_VECTORS */
#endif
