/* isa_neon_tile.h - register tiles of the NEON products of int8; floats: isa_lanes8_tile.h. Bytes of both operands are
 * signed (BYTE_BIAS is 0); code + 1 fits. Which tile runs is chosen by the processor, as VNNI is under AVX2:
 *
 *     i8mm       smmla: two rows by two columns by eight bytes. A group is four bytes, so two groups of four columns
 *                are zipped to four columns of eight; 24 smmla and 8 zips for 6 x 16 x 8
 *     dotprod    sdot: four columns by one group of a row; 24 for 6 x 16 x 4
 *     otherwise  code + 1 is 0..2: smlal adds up to 127 products in 16 bits, two instructions for one sdot. Any byte:
 *                smull and additions, six, because two products of -128 by -128 do not fit in 16 bits
 *
 * Instructions beyond the base set are in assembly, which needs no flags for this file. */
#ifndef BT_ENGINE_KERNELS_ISA_LANES8_ISA_NEON_TILE_H
#define BT_ENGINE_KERNELS_ISA_LANES8_ISA_NEON_TILE_H

#include "engine/kernels/isa/lanes8/isa_lanes8_tile.h"
#include "engine/kernels/table/cpu.h"

#if defined(BT_NEON)
#include <string.h>

typedef enum { DOT_BASE, DOT_SDOT } dot_form;

/* adds the four products of the bytes of each dword to that dword of acc */
BT_INLINE int32x4_t q_dot(int32x4_t acc, int8x16_t a, int8x16_t b, const dot_form how) {
    if (how == DOT_SDOT) {
        __asm__(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.16b"
                : "+w"(acc)
                : "w"(a), "w"(b));
        return acc;
    }
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b))),
                    high = vpaddlq_s16(vmull_high_s8(a, b));
    return vaddq_s32(acc, vpaddq_s32(low, high));
}
/* Multiplies b by the four bytes of `a` and adds to acc. */
BT_INLINE int32x4_t q_dot_by(int32x4_t acc, int8x16_t b, float a, const dot_form how) {
    if (how == DOT_SDOT) {
        __asm__(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.4b[0]"
                : "+w"(acc)
                : "w"(b), "w"(a));
        return acc;
    }
    return q_dot(acc, b, vreinterpretq_s8_f32(vdupq_n_f32(a)), how);
}
BT_INLINE int32x4_t q_mmla(int32x4_t acc, int8x16_t a, int8x16_t b) {
    __asm__(".arch armv8.2-a+dotprod+i8mm\n\tsmmla %0.4s, %1.16b, %2.16b"
            : "+w"(acc)
            : "w"(a), "w"(b));
    return acc;
}

/* one instruction loads a float register, which then serves as an element operand */
BT_INLINE float four_of(const int8_t *p) {
    float w;
    memcpy(&w, p, 4);
    return w;
}

BT_INLINE void tile_dot(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                        const uint8_t *b, size_t groups, const dot_form how) {
    int32x4_t acc[MR][4];
    prefetch_c(o->y, o->ldy, (size_t)rows);
    BT_UNROLL for (int i = 0; i < rows; i++) BT_UNROLL for (int j = 0; j < 4; j++)
        acc[i][j] = vdupq_n_s32(0);
    for (size_t g = 0; g < groups; g++, b += 4 * NR, a += 4) {
        int8x16_t v[4];
        BT_UNROLL for (int j = 0; j < 4; j++) v[j] = vld1q_s8((const int8_t *)b + 16 * j);
        BT_UNROLL for (int i = 0; i < rows; i++) {
            const float w = four_of(a + (size_t)i * lda);
            BT_UNROLL for (int j = 0; j < 4; j++) acc[i][j] = q_dot_by(acc[i][j], v[j], w, how);
        }
    }
    BT_UNROLL for (int i = 0; i < rows; i++) BT_UNROLL for (int j = 0; j < 2; j++)
        tile_store_i8(o, i, j, (vi){acc[i][2 * j], acc[i][2 * j + 1]});
}
BT_INLINE void tile_base(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                         const uint8_t *b, size_t groups) {
    tile_dot(rows, o, a, lda, b, groups, DOT_BASE);
}
BT_INLINE void tile_sdot(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                         const uint8_t *b, size_t groups) {
    tile_dot(rows, o, a, lda, b, groups, DOT_SDOT);
}

/* b holds code + 1; three rows at a time, because their 16-bit sums take 24 registers */
BT_INLINE void tile_codes(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                          const uint8_t *b, size_t groups) {
    enum { BLOCK = 127 }; /* number of groups, each of which adds at most 2 * 128 to a lane */
    prefetch_c(o->y, o->ldy, (size_t)rows);
    for (int r0 = 0; r0 < rows; r0 += 3, a += 3 * lda) {
        const int have = rows - r0 < 3 ? rows - r0 : 3;
        const int8_t *row[3] = {a, a + (have > 1 ? lda : 0), a + (have > 2 ? 2 * lda : 0)};
        int32x4_t total[3][4];
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++) total[i][j] = vdupq_n_s32(0);
        for (size_t g0 = 0; g0 < groups; g0 += BLOCK) {
            const size_t g1 = groups - g0 < BLOCK ? groups : g0 + BLOCK;
            int16x8_t acc[3][8];
            BT_UNROLL for (int i = 0; i < 3; i++) BT_UNROLL for (int j = 0; j < 8; j++)
                acc[i][j] = vdupq_n_s16(0);
            for (size_t g = g0; g < g1; g++) {
                const int8_t *v = (const int8_t *)b + g * 4 * NR;
                int8x16_t x[3];
                BT_UNROLL for (int i = 0; i < 3; i++)
                    x[i] = vreinterpretq_s8_f32(vdupq_n_f32(four_of(row[i] + 4 * g)));
                BT_UNROLL for (int j = 0; j < 4; j++) {
                    const int8x16_t w = vld1q_s8(v + 16 * j);
                    BT_UNROLL for (int i = 0; i < 3; i++) {
                        acc[i][2 * j] = vmlal_s8(acc[i][2 * j], vget_low_s8(w), vget_low_s8(x[i]));
                        acc[i][2 * j + 1] = vmlal_high_s8(acc[i][2 * j + 1], w, x[i]);
                    }
                }
            }
            BT_UNROLL for (int i = 0; i < 3; i++) BT_UNROLL for (int j = 0; j < 4; j++)
                total[i][j] = vaddq_s32(total[i][j], vpaddq_s32(vpaddlq_s16(acc[i][2 * j]),
                                                                vpaddlq_s16(acc[i][2 * j + 1])));
        }
        for (int i = 0; i < have; i++)
            for (int j = 0; j < 2; j++)
                tile_store_i8(o, r0 + i, j, (vi){total[i][2 * j], total[i][2 * j + 1]});
    }
}

/* acc[i][2 j]: rows 2 i and 2 i + 1 by columns 4 j and 4 j + 1; [2 j + 1]: by the next two */
BT_INLINE void mmla_pairs(const int pairs, int32x4_t acc[(MR + 1) / 2][8], const int8x16_t *rows,
                          const int8_t *b, const int one) {
    BT_UNROLL for (int j = 0; j < 4; j++) {
        const int32x4_t low = vreinterpretq_s32_s8(vld1q_s8(b + 16 * j)),
                        high = one ? vdupq_n_s32(0)
                                   : vreinterpretq_s32_s8(vld1q_s8(b + 4 * NR + 16 * j));
        const int8x16_t first = vreinterpretq_s8_s32(vzip1q_s32(low, high)),
                        next = vreinterpretq_s8_s32(vzip2q_s32(low, high));
        BT_UNROLL for (int i = 0; i < pairs; i++) {
            acc[i][2 * j] = q_mmla(acc[i][2 * j], rows[i], first);
            acc[i][2 * j + 1] = q_mmla(acc[i][2 * j + 1], rows[i], next);
        }
    }
}

BT_INLINE void tile_mmla(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                         const uint8_t *b, size_t groups) {
    enum { PAIRS = (MR + 1) / 2 };
    const int pairs = (rows + 1) / 2;
    int32x4_t acc[PAIRS][8];
    int8x16_t x[PAIRS];
    prefetch_c(o->y, o->ldy, (size_t)rows);
    BT_UNROLL for (int i = 0; i < pairs; i++) BT_UNROLL for (int j = 0; j < 8; j++)
        acc[i][j] = vdupq_n_s32(0);
    size_t g = 0;
    for (; g + 2 <= groups; g += 2, b += 8 * NR, a += 8) {
        BT_UNROLL for (int i = 0; i < pairs; i++) {
            const int8_t *p = a + (size_t)(2 * i) * lda, *q = 2 * i + 1 < rows ? p + lda : p;
            const int64x2_t first = vcombine_s64(vreinterpret_s64_s8(vld1_s8(p)), vdup_n_s64(0));
            x[i] = vreinterpretq_s8_s64(vld1q_lane_s64((const int64_t *)(const void *)q, first, 1));
        }
        mmla_pairs(pairs, acc, x, (const int8_t *)b, 0);
    }
    if (g < groups) {
        BT_UNROLL for (int i = 0; i < pairs; i++) {
            const int8_t *p = a + (size_t)(2 * i) * lda, *q = 2 * i + 1 < rows ? p + lda : p;
            const float32x4_t two = {four_of(p), 0, four_of(q), 0};
            x[i] = vreinterpretq_s8_f32(two);
        }
        mmla_pairs(pairs, acc, x, (const int8_t *)b, 1);
    }
    BT_UNROLL for (int i = 0; i < pairs; i++) BT_UNROLL for (int j = 0; j < 2; j++) {
        int64x2_t s[4];
        BT_UNROLL for (int k = 0; k < 4; k++) s[k] = vreinterpretq_s64_s32(acc[i][4 * j + k]);
        tile_store_i8(o, 2 * i, j,
                      (vi){vreinterpretq_s32_s64(vzip1q_s64(s[0], s[1])),
                           vreinterpretq_s32_s64(vzip1q_s64(s[2], s[3]))});
        if (2 * i + 1 < rows)
            tile_store_i8(o, 2 * i + 1, j,
                          (vi){vreinterpretq_s32_s64(vzip2q_s64(s[0], s[1])),
                               vreinterpretq_s32_s64(vzip2q_s64(s[2], s[3]))});
    }
}

TILE_SWITCH(run_base, tile_base, tile_i8_out, int8_t, uint8_t)
TILE_SWITCH(run_codes, tile_codes, tile_i8_out, int8_t, uint8_t)
TILE_SWITCH(run_sdot, tile_sdot, tile_i8_out, int8_t, uint8_t)
TILE_SWITCH(run_mmla, tile_mmla, tile_i8_out, int8_t, uint8_t)

static tile_i8_fn tile_u8(void) {
    const bt_cpu *c = bt_cpu_get();
    return c->i8mm ? run_mmla : c->dotprod ? run_sdot : run_base;
}
/* b is code + 1 */
static tile_i8_fn tile_i8(void) { return bt_cpu_get()->dotprod ? tile_u8() : run_codes; }

static int32_t sum_i8(const int8_t *x, size_t n) {
    int32x4_t s = vdupq_n_s32(0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) s = vpadalq_s16(s, vpaddlq_s8(vld1q_s8(x + i)));
    int32_t sum = vaddvq_s32(s);
    for (; i < n; i++) sum += x[i];
    return sum;
}

#endif
#endif
