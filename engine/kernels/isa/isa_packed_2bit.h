/* isa_packed_2bit.h - ternary weights with 2 bits a code. Products unpack one panel of bytes at a time to scratch
 * (panels: isa_products.h). Included once by each set's file.
 *
 *     2-bit      [N/NR panels][K/16][NR][4] bytes; byte b of an output's four holds the codes + 1 of the inputs
 *                16 q + b, 16 q + 4 + b, 16 q + 8 + b and 16 q + 12 + b, the lowest bits first
 *     forward    a shift and a mask make four groups of a panel [K/4][NR][4] of each vector
 *     backward   a panel [N/4][NR][4] of the transposed codes: the 16 bytes of four outputs are 4 x 4 inputs for
 *                each shift; transposed once as bytes and shifted by 0, 2, 4 and 6, they are 16 inputs of the
 *                panel
 *
 * Roofline: a panel of (NR, K) codes takes K NR / 4 bytes from memory and about K NR / 60 (forward) or K NR / 30
 *           (backward) cycles; the product with one tile of MR rows K NR MR / 64 with VNNI. With the 70 rows of a
 *           block at 6912 inputs that is 2 and 4 %; panels stored as bytes stream four times as much from memory
 *           for every block. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_PACKED_2BIT_H
#define BT_ENGINE_KERNELS_ISA_ISA_PACKED_2BIT_H

#include "engine/kernels/isa/isa_tile.h"

#if defined(BT_VECTORS)
#include <string.h>

enum { K_2BIT = 16, STEP_2BIT = NR * 4 }; /* inputs and bytes of one step along K */

static size_t steps_2bit(size_t K) { return (K + K_2BIT - 1) / K_2BIT; }
static size_t panel_2bit(size_t K) { return steps_2bit(K) * STEP_2BIT; }
static size_t prod_packed_2bit_bytes(size_t N, size_t K) {
    return (N + NR - 1) / NR * panel_2bit(K);
}
/* bytes of an unpacked panel of outputs or inputs */
static size_t room_2bit(size_t depth) { return (depth + K_2BIT - 1) / K_2BIT * K_2BIT * NR; }

/* packs four codes + 1 as bytes of one dword */
static uint32_t four_codes(const int8_t *codes, size_t have) {
    uint32_t w = 0;
    memcpy(&w, codes, have < 4 ? have : 4);
    return ((w & 0x7f7f7f7fu) + 0x01010101u) ^ (w & 0x80808080u);
}

static void prod_packed_2bit_pack(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0,
                                  size_t n1) {
    const uint32_t none = 0x55555555u; /* code 0 four times in each byte */
    for (size_t n = n0; n < (n1 == N ? (N + NR - 1) / NR * NR : n1); n++) {
        uint8_t *to = (uint8_t *)packed + n / NR * panel_2bit(K) + n % NR * 4;
        for (size_t k = 0; k < K; k += K_2BIT, to += STEP_2BIT) {
            uint32_t w = n < N ? 0 : none;
            for (size_t i = 0; i < 4 && n < N; i++) {
                const size_t at = k + 4 * i;
                w |= (at < K ? four_codes(codes + (n - n0) * K + at, K - at) : 0x01010101u)
                     << 2 * i;
            }
            memcpy(to, &w, 4);
        }
    }
}

static void prod_packed_2bit_codes(int8_t *codes, const void *packed, size_t K, size_t n, size_t k0,
                                   size_t k1) {
    const uint8_t *row = (const uint8_t *)packed + n / NR * panel_2bit(K) + n % NR * 4;
    for (size_t k = k0; k < k1; k++) {
        const uint8_t four = row[k / K_2BIT * STEP_2BIT + k % 4];
        codes[k - k0] = (int8_t)((four >> k % K_2BIT / 4 * 2 & 3) - 1);
    }
}

/* Unpacks one panel of outputs with `depth` inputs: [depth/4][NR][4]. */
static void open_2bit(uint8_t *dst, const uint8_t *panel, size_t depth) {
    const vi low = vi_set(0x03030303u);
    for (size_t s = steps_2bit(depth); s > 0; s--, panel += STEP_2BIT, dst += 4 * STEP_2BIT) {
        BT_UNROLL for (size_t h = 0; h < STEP_2BIT; h += 4 * VL) {
            const vi w = vi_load(panel + h);
            BT_UNROLL for (int i = 0; i < 4; i++)
                vi_store(dst + (size_t)i * STEP_2BIT + h, vi_and(vi_srl(w, 2 * i), low));
        }
    }
}

/* Unpacks 16 inputs of four outputs: [16][4]. */
BT_INLINE void square_2bit(uint8_t *dst, const uint8_t *four) {
#if defined(BT_NEON)
    static const uint8_t turn[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const uint8x16_t low = vdupq_n_u8(3), x = vqtbl1q_u8(vld1q_u8(four), vld1q_u8(turn));
    vst1q_u8(dst, vandq_u8(x, low));
    vst1q_u8(dst + 16, vandq_u8(vshrq_n_u8(x, 2), low));
    vst1q_u8(dst + 32, vandq_u8(vshrq_n_u8(x, 4), low));
    vst1q_u8(dst + 48, vshrq_n_u8(x, 6));
#else
    const __m128i turn = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
#if defined(__AVX512F__)
    const __m512i by = _mm512_set_epi32(6, 6, 6, 6, 4, 4, 4, 4, 2, 2, 2, 2, 0, 0, 0, 0);
    const __m512i all =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)four));
    const __m512i x = _mm512_shuffle_epi8(all, _mm512_broadcast_i32x4(turn));
    _mm512_storeu_si512(dst,
                        _mm512_and_si512(_mm512_srlv_epi32(x, by), _mm512_set1_epi32(0x03030303)));
#else
    const __m256i low = _mm256_set1_epi32(0x03030303),
                  by = _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2);
    const __m256i all =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)four));
    const __m256i x = _mm256_srlv_epi32(_mm256_shuffle_epi8(all, _mm256_broadcastsi128_si256(turn)),
                                        by);
    _mm256_storeu_si256((__m256i *)(void *)dst, _mm256_and_si256(x, low));
    _mm256_storeu_si256((__m256i *)(void *)(dst + 32),
                        _mm256_and_si256(_mm256_srli_epi32(x, 4), low));
#endif
#endif
}

/* number of panels of outputs prefetched */
enum { AHEAD_2BIT = 4 };

/* Unpacks the panel of inputs k to k + NR (k a multiple of NR) for outputs n0 to n1 (n0 a multiple of 4): [(n1 -
 * n0)/4][NR][4]. Inputs from K on are undefined. */
static void across_2bit(uint8_t *dst, const uint8_t *packed_2bit, size_t K, size_t k, size_t n0,
                        size_t n1) {
    const size_t panel = panel_2bit(K), at = k / K_2BIT * STEP_2BIT;
    const size_t squares = steps_2bit(K) - k / K_2BIT;
    for (size_t n = n0; n < n1; n += 4, dst += NR * 4) {
        const uint8_t *from = packed_2bit + n / NR * panel + at + n % NR * 4;
        if (n % NR == 0)
            BT_UNROLL for (size_t h = 0; h < NR * NR / 4; h += 64)
                __builtin_prefetch(from + AHEAD_2BIT * panel + h);
        BT_UNROLL for (size_t h = 0; h < NR / K_2BIT; h++) if (h < squares)
            square_2bit(dst + h * K_2BIT * 4, from + h * STEP_2BIT);
    }
}

#endif /* BT_VECTORS */
#endif
