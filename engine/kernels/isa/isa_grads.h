/* isa_grads.h - gradients rounded to int8 (noise.h), as the products of isa_int8.h read them: rows for dx8,
 * columns of blocks of tokens, transposed, for dw8. Included by isa_int8.h alone. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_GRADS_H
#define BT_ENGINE_KERNELS_ISA_ISA_GRADS_H

#include "engine/kernels/isa/isa_products.h"

#if defined(BT_VECTORS)

enum { I8_CHUNK = 4 * CHUNK };

/* ---- noise (noise.h) ------------------------------------------------------------------------- */
/* Four vectors share one vector of noise words. In steps of 1/256 a value and its noise fit in 16 bits (|v| <= 127 *
 * 256, u <= 255), so two vectors become one before the noise is added, and four one of bytes after it:
 *     words   | u0 u1 u2 u3 of lane 0 | of lane 1 ...     a byte for each vector
 *     rint    | v0 lanes 0-3, v1 lanes 0-3 |              16 bits, in each quarter of 128 bits
 *     + u     | u0 of 0-3, u1 of 0-3 |                    one shuffle of the words
 *     >> 8    | v0 of 0-3, v1 of 0-3, v2 of 0-3, v3 of 0-3 |
 * What is not finite becomes some byte: its scale is not finite either. */
/* x: key + lane * BT_NOISE_LANE */
BT_INLINE vi noise_words(vi x) {
    x = vi_mul(vi_xor(x, vi_srl(x, 16)), vi_set(BT_NOISE_MUL1));
    x = vi_mul(vi_xor(x, vi_srl(x, 15)), vi_set(BT_NOISE_MUL2));
    return vi_xor(x, vi_srl(x, 16));
}

#if defined(BT_NEON)
/* Narrows two halves to 16 bits and adds a noise byte to each lane; `at`: index of that byte in the words, 255: none */
BT_INLINE int16x8_t noise_add(int32x4_t a, int32x4_t b, int32x4_t words, const uint8_t at[16]) {
    const uint8x16_t u = vqtbl1q_u8(vreinterpretq_u8_s32(words), vld1q_u8(at));
    return vaddq_s16(vqmovn_high_s32(vqmovn_s32(a), b), vreinterpretq_s16_u8(u));
}
BT_INLINE int32x4_t noise_half(const vi v[4], const int high, int32x4_t words) {
    static const uint8_t first[16] = {0, 255, 4, 255, 8, 255, 12, 255,
                                      1, 255, 5, 255, 9, 255, 13, 255},
                         last[16] = {2, 255, 6, 255, 10, 255, 14, 255,
                                     3, 255, 7, 255, 11, 255, 15, 255};
    const int16x8_t a = noise_add(high ? v[0].h : v[0].l, high ? v[1].h : v[1].l, words, first),
                    b = noise_add(high ? v[2].h : v[2].l, high ? v[3].h : v[3].l, words, last);
    return vreinterpretq_s32_s8(vshrn_high_n_s16(vshrn_n_s16(a, 8), b, 8));
}
BT_INLINE vi noise_round(const vf v[4], vi words) {
    const vi w[4] = {vi_round(v[0]), vi_round(v[1]), vi_round(v[2]), vi_round(v[3])};
    return (vi){noise_half(w, 0, words.l), noise_half(w, 1, words.h)};
}
BT_INLINE vi noise_fours(vi bytes) {
    static const uint8_t turn[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const uint8x16_t by = vld1q_u8(turn);
    return (vi){vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(bytes.l), by)),
                vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(bytes.h), by))};
}
BT_INLINE void noise_store(int8_t *to, vi bytes) {
    const int8x16_t a = vreinterpretq_s8_s32(vzip1q_s32(bytes.l, bytes.h)),
                    b = vreinterpretq_s8_s32(vzip2q_s32(bytes.l, bytes.h));
    vst1_s8(to, vget_low_s8(a));
    vst1_s8(to + 16, vget_high_s8(a));
    vst1_s8(to + 32, vget_low_s8(b));
    vst1_s8(to + 48, vget_high_s8(b));
}
BT_INLINE vi noise_sum(vi sum, vi bytes) {
    return (vi){vpadalq_s16(sum.l, vpaddlq_s8(vreinterpretq_s8_s32(bytes.l))),
                vpadalq_s16(sum.h, vpaddlq_s8(vreinterpretq_s8_s32(bytes.h)))};
}
#else
/* Rounds values v in steps of 1/256 with noise: byte i of the words rounds v[i]. Returns the bytes in the order shown
 * above. */
BT_INLINE vi noise_round(const vf v[4], vi words) {
    const vi first = VI_QUARTERS(
                 _mm_setr_epi8(0, -1, 4, -1, 8, -1, 12, -1, 1, -1, 5, -1, 9, -1, 13, -1)),
             last = VI_QUARTERS(
                 _mm_setr_epi8(2, -1, 6, -1, 10, -1, 14, -1, 3, -1, 7, -1, 11, -1, 15, -1));
    vi a = VI_OP(packs_epi32)(vi_round(v[0]), vi_round(v[1])),
       b = VI_OP(packs_epi32)(vi_round(v[2]), vi_round(v[3]));
    a = VI_OP(add_epi16)(a, VI_OP(shuffle_epi8)(words, first));
    b = VI_OP(add_epi16)(b, VI_OP(shuffle_epi8)(words, last));
    return VI_OP(packs_epi16)(VI_OP(srai_epi16)(a, 8), VI_OP(srai_epi16)(b, 8));
}

/* dword i: byte i of v[0], v[1], v[2], v[3] */
BT_INLINE vi noise_fours(vi bytes) {
    return VI_OP(shuffle_epi8)(
        bytes, VI_QUARTERS(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
}

/* Stores the bytes of v[i] at `to` + 16 i. */
BT_INLINE void noise_store(int8_t *to, vi bytes) {
#if defined(__AVX512F__)
    const vi order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    vi_store(to, _mm512_permutexvar_epi32(order, bytes));
#else
    const vi order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    int8_t all[4 * VL];
    vi_store(all, _mm256_permutevar8x32_epi32(bytes, order));
    BT_UNROLL for (size_t i = 0; i < 4; i++) memcpy(to + 16 * i, all + i * VL, VL);
#endif
}

/* adds the bytes of each dword */
BT_INLINE vi noise_sum(vi sum, vi bytes) {
    const vi pairs = VI_OP(maddubs_epi16)(VI_OP(set1_epi8)(1), bytes);
    return vi_add(sum, VI_OP(madd_epi16)(pairs, VI_OP(set1_epi16)(1)));
}
#endif /* BT_NEON */

BT_INLINE vf load_bf16(const uint16_t *p) { return v_bits(vi_sll(vi_from_u16(p), 16)); }
BT_INLINE vf load_bf16_tail(const uint16_t *p, size_t have) {
    uint16_t some[VL] = {0};
    if (have >= VL) return load_bf16(p);
    memcpy(some, p, have * sizeof *some);
    return load_bf16(some);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* storage type of gradients, and whether each is multiplied by its own factor */
typedef enum { GRADS_F32, GRADS_BF16, GRADS_SCALED } grads_form;

/* Rounds n gradients to q with zeros up to a whole group, stores the scale and returns the sum. `step`: bytes between
 * chunks of q */
BT_INLINE int32_t quantise_row(int8_t *q, size_t step, float *scale, bt_grads dy, const float *by,
                               size_t n, uint32_t key, const grads_form as) {
#define GRAD(at) \
    (as == GRADS_BF16     ? load_bf16(dy.bf16 + (at)) \
     : as == GRADS_SCALED ? v_mul(v_load(dy.f32 + (at)), v_load(by + (at))) \
                          : v_load(dy.f32 + (at)))
#define GRAD_TAIL(at) \
    (as == GRADS_BF16 ? load_bf16_tail(dy.bf16 + (at), n - (at)) \
     : as == GRADS_SCALED \
         ? v_mul(load_tail(dy.f32 + (at), n - (at)), load_tail(by + (at), n - (at))) \
         : load_tail(dy.f32 + (at), n - (at)))
    vi top = vi_set(BT_NOISE_LEAST), top2 = top, sum = vi_set(0);
    size_t c = 0;
    for (; c + 2 * VL <= n; c += 2 * VL) {
        top = vi_max(top, magnitude(GRAD(c)));
        top2 = vi_max(top2, magnitude(GRAD(c + VL)));
    }
    for (; c < n; c += VL) top = vi_max(top, magnitude(GRAD_TAIL(c)));
    float most_ = bt_noise_bits((uint32_t)vi_hmax(vi_max(top, top2)));
    vf inv = v_set(127.0f / most_ * 256.0f);
    vi lane = vi_mul(vi_lanes(), vi_set(BT_NOISE_LANE));
    *scale = most_ / 127.0f;
    for (c = 0; c < n; c += I8_CHUNK, q += step) {
        _Alignas(64) int8_t end[I8_CHUNK];
        int8_t *to = c + I8_CHUNK <= n ? q : end;
        for (size_t h = 0; h < 16; h += VL) {
            vi words =
                noise_words(vi_add(lane, vi_set(key + (uint32_t)(c / 4 + h) * BT_NOISE_LANE)));
            vf v[4];
            BT_UNROLL for (size_t i = 0; i < 4; i++) {
                const size_t at = c + 16 * i + h;
                v[i] = v_mul(c + I8_CHUNK <= n ? GRAD(at) : at < n ? GRAD_TAIL(at) : v_set(0), inv);
            }
            const vi bytes = noise_round(v, words);
            sum = noise_sum(sum, bytes);
            noise_store(to + h, bytes);
        }
        if (to == end) memcpy(q, end, round_up(n - c, 4));
    }
    return vi_hsum(sum);
#undef GRAD
#undef GRAD_TAIL
}

static int32_t f32_row(int8_t *q, size_t step, float *scale, bt_grads dy, const float *by, size_t n,
                       uint32_t key) {
    return quantise_row(q, step, scale, dy, by, n, key, GRADS_F32);
}
static int32_t bf16_row(int8_t *q, size_t step, float *scale, bt_grads dy, const float *by,
                        size_t n, uint32_t key) {
    return quantise_row(q, step, scale, dy, by, n, key, GRADS_BF16);
}
static int32_t scaled_row(int8_t *q, size_t step, float *scale, bt_grads dy, const float *by,
                          size_t n, uint32_t key) {
    return quantise_row(q, step, scale, dy, by, n, key, GRADS_SCALED);
}

/* ---- columns --------------------------------------------------------------------------------- */
enum {
    G_ROWS = 32 * MR,
    G_DEPTH = 2,
    G_LD = IN_TILES ? I8_CHUNK : BT_GRAD_BLOCK + 64,
    G_STEP = IN_TILES ? G_ROWS * I8_CHUNK : 0
};
enum { G_BYTES = IN_TILES ? G_ROWS * BT_GRAD_BLOCK : G_ROWS * G_LD };

typedef struct grad_block { /* scratch for G_ROWS outputs of one block of tokens */
    int8_t *q;              /* (G_ROWS, tokens) */
    float *scale, *inv;     /* (G_ROWS) scales and their inverses; inverses are in steps of 1/256 */
    int32_t *sums;          /* sum of each row times BYTE_BIAS */
    /* dy dq of the outputs in use for all tokens; copied, because rows of dy may share a cache set */
    float *strip;
} grad_block;
/* number of outputs whose scales are in registers */
enum { G_STRIP = 4 * VL };
enum {
    G_PANEL = BT_GRAD_BLOCK * NR,
    G_COPY = G_STRIP * BT_GRAD_BLOCK * 4,
    G_LANES = (G_ROWS + 15) / 16 * 16,
    G_ALL = G_BYTES + 3 * G_LANES * 4
};
enum { G_TILE = MR * NR * 4, G_FRONT = G_TILE + G_COPY + G_DEPTH * G_PANEL };
/* bytes of a tile of C, a strip of gradients, panels of xq and the blocks */
static size_t grad_bytes(void) { return G_FRONT + G_DEPTH * G_ALL; }
static grad_block grad_block_of(void *scratch, size_t i) {
    int8_t *q = (int8_t *)scratch + G_FRONT + i * G_ALL;
    float *f = (float *)(void *)(q + G_BYTES);
    return (grad_block){q, f, f + G_LANES, (int32_t *)(void *)(f + 2 * G_LANES),
                        (float *)(void *)((int8_t *)scratch + G_TILE)};
}
static uint8_t *grad_panels(void *scratch) { return (uint8_t *)scratch + G_TILE + G_COPY; }

typedef struct grad_source {
    bt_grads dy; /* gradients from the first token and output of the block on */
    size_t tokens, rows;
    const float *dq; /* its tokens' */
    const uint32_t *keys;
    uint32_t salt, first; /* salt of the noise; number of the first output in its tensor */
} grad_source;

/* AHEAD: number of tokens prefetched */
enum { AHEAD = 8, G_PLANE = BT_GRAD_BLOCK * VL };

/* Copies outputs j to j + cols (at most a strip) and their scales from memory. */
BT_INLINE void scales_of(const grad_block *b, const grad_source *s, size_t j, size_t cols,
                         const int bf16) {
    vi top[4];
    BT_UNROLL for (int h = 0; h < 4; h++) top[h] = vi_set(BT_NOISE_LEAST);
    for (size_t m = 0; m < s->tokens; m++) {
        const size_t at = m * s->dy.ld + j;
        float *to = b->strip + m * VL;
        vf d = v_set(s->dq[m]);
        BT_UNROLL for (size_t h = 0; h < G_STRIP; h += bf16 ? 32 : 16) {
            const size_t ahead = at + AHEAD * s->dy.ld + h;
            __builtin_prefetch(bf16 ? (const void *)(s->dy.bf16 + ahead)
                                    : (const void *)(s->dy.f32 + ahead));
        }
        BT_UNROLL for (size_t h = 0; h < 4; h++) {
            const size_t have = cols == G_STRIP ? VL : h * VL < cols ? cols - h * VL : 0;
            vf g = v_mul(bf16 ? load_bf16_tail(s->dy.bf16 + at + h * VL, have)
                              : load_tail(s->dy.f32 + at + h * VL, have),
                         d);
            v_store(to + h * G_PLANE, g);
            top[h] = vi_max(top[h], magnitude(g));
        }
    }
    BT_UNROLL for (size_t h = 0; h < 4; h++) {
        if (h * VL >= cols) break;
        v_store(b->scale + j + h * VL, v_div(v_bits(top[h]), v_set(127.0f)));
        v_store(b->inv + j + h * VL, v_mul(v_div(v_set(127.0f), v_bits(top[h])), v_set(256.0f)));
    }
}

static void grad_scales(const grad_block *b, const grad_source *s, size_t j, size_t cols) {
    if (s->dy.bf16)
        scales_of(b, s, j, cols, 1);
    else
        scales_of(b, s, j, cols, 0);
}

/* Rounds 4 VL tokens from m of the VL outputs from j, whose gradients are in g; whole: all these tokens exist */
BT_INLINE void grad_square(const grad_block *b, const grad_source *s, const float *g, size_t j,
                           size_t m, vi *sum, const int whole) {
    size_t have = smaller_size(VL, s->rows - j);
    vf inv = v_load(b->inv + j);
    vi t[VL],
        lane = vi_mul(vi_add(vi_lanes(), vi_set(s->first + (uint32_t)j)), vi_set(BT_NOISE_LANE));
    BT_UNROLL for (size_t i = 0; i < VL; i++) {
        size_t token = m + 4 * i;
        vi words = noise_words(
            vi_add(lane, vi_set((whole || token < s->tokens ? s->keys[token] : 0) ^ s->salt)));
        vf v[4];
        BT_UNROLL for (size_t r = 0; r < 4; r++) v[r] =
            whole || token + r < s->tokens ? v_mul(v_load(g + (token + r) * VL), inv) : v_set(0);
        t[i] = noise_fours(noise_round(v, words));
        *sum = noise_sum(*sum, t[i]);
    }
    transpose(t);
    for (size_t i = 0; i < have; i++)
        vi_store(b->q + (j + i) * G_LD + (IN_TILES ? m / I8_CHUNK * G_STEP + m % I8_CHUNK : m),
                 t[i]);
}

static void grad_columns(const grad_block *b, const grad_source *s) {
    for (size_t j = 0; j < s->rows; j += G_STRIP) {
        size_t cols = smaller_size(G_STRIP, s->rows - j);
        grad_scales(b, s, j, cols);
        for (size_t at = 0; at < cols; at += VL) {
            const float *g = b->strip + at / VL * G_PLANE;
            vi sum = vi_set(0);
            for (size_t m = 0; m < s->tokens; m += 4 * VL) {
                if (m + 4 * VL <= s->tokens)
                    grad_square(b, s, g, j + at, m, &sum, 1);
                else
                    grad_square(b, s, g, j + at, m, &sum, 0);
            }
            vi_store(b->sums + j + at, biased(sum));
        }
    }
}

#endif /* BT_VECTORS */
#endif
