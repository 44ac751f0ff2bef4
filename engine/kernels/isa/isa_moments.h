/* isa_moments.h - optimizer states of 8 or 16 bits, their stochastic rounding, and AdamW on them. Plain loops, which
 * every set compiles with its own instructions, except conversions of bytes, for which compilers generate slow code.
 * The same bits on all sets: no fused multiply-add; division and root are exact.
 *
 * Callers pass a few hundred elements at a time, which fit L1, so that each byte of the states moves through memory
 * once. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_MOMENTS_H
#define BT_ENGINE_KERNELS_ISA_ISA_MOMENTS_H

#include <math.h>

#include "engine/kernels/isa/isa_vec.h"
#include "engine/kernels/table/kernels.h"

static void moments_noise(uint32_t *restrict words, uint32_t key, uint32_t lane, size_t n) {
    const uint32_t count = (uint32_t)n;
    for (uint32_t i = 0; i < count; i++) words[i] = bt_noise_word(key, lane + i);
}

#if defined(BT_VECTORS)

/* the 8-bit number format of moment.h */
typedef struct moment_byte {
    uint32_t first;      /* exponent of the first octave */
    uint32_t size, sign; /* masks of the code and of the sign */
} moment_byte;
static const moment_byte moment_log8 = {BT_MOMENT_FIRST, 0x7f, 0x80};
static const moment_byte moment_ulog8 = {BT_MOMENT_UFIRST, 0xff, 0};

/* Decodes or encodes whole vectors (bt_moment_size, bt_moment_code) and returns the number of elements processed. */
BT_INLINE size_t moment_bytes_load(float *y, const uint8_t *x, const moment_byte b, size_t n) {
    const vi four = vi_set(4), begin = vi_set(b.first << 23), base = vi_set((b.first - 1) << 2);
    size_t i = 0;
    for (; i + VL <= n; i += VL) {
        const vi all = vi_from_u8(x + i), code = vi_and(all, vi_set(b.size)),
                 low = vi_sra(vi_add(code, vi_set(0u - 4u)), 31),
                 up = vi_add(vi_add(code, base), vi_and(low, four));
        const vf size = v_sub(v_bits(vi_sll(up, BT_MOMENT_SHIFT)), v_bits(vi_and(begin, low)));
        v_store(y + i, v_bits(vi_or(vi_bits(size), vi_sll(vi_and(all, vi_set(b.sign)), 24))));
    }
    return i;
}
BT_INLINE size_t moment_bytes_store(uint8_t *y, const float *x, const uint32_t *words, int shift,
                                    const moment_byte b, size_t n) {
    const vi begin = vi_set(b.first << 23), base = vi_set(0u - ((b.first - 1) << 2));
    size_t i = 0;
    for (; i + VL <= n; i += VL) {
        const vi bits = vi_bits(v_load(x + i)), size = vi_and(bits, vi_set(0x7fffffffu)),
                 low = vi_sra(vi_add(size, vi_set(0u - (b.first << 23))), 31),
                 u = vi_and(vi_srl(vi_load(words + i), shift), vi_set(0xffffu));
        const vf even = v_add(v_bits(size), v_bits(vi_and(begin, low)));
        const vi sum = vi_add(vi_bits(even), vi_add(vi_sll(u, 5), vi_set(16))),
                 code = vi_add(vi_srl(sum, BT_MOMENT_SHIFT),
                               vi_add(base, vi_and(low, vi_set(0u - 4u)))),
                 byte = vi_or(vi_min(code, vi_set(b.size)),
                              vi_and(vi_srl(bits, 24), vi_set(b.sign)));
        /* sign-extended, because only int8 has a store of bytes */
        vi_store_i8_n((int8_t *)y + i, vi_sra(vi_sll(byte, 24), 24), VL);
    }
    return i;
}
#define MOMENT_BYTES_LOAD(y, x, form, n) moment_bytes_load(y, x, form, n)
#define MOMENT_BYTES_STORE(y, x, words, shift, form, n) \
    moment_bytes_store(y, x, words, shift, form, n)
#else
#define MOMENT_BYTES_LOAD(y, x, form, n) 0
#define MOMENT_BYTES_STORE(y, x, words, shift, form, n) 0
#endif

static void moments_load(float *restrict y, const void *x, bt_moment_form as, size_t n) {
    const uint16_t *restrict half = x;
    const uint8_t *restrict byte = x;
    switch (as) {
    case BT_MOMENT_BF16:
        for (size_t i = 0; i < n; i++) y[i] = bt_moment_of_bf16(half[i]);
        break;
    case BT_MOMENT_LOG8:
        for (size_t i = MOMENT_BYTES_LOAD(y, byte, moment_log8, n); i < n; i++)
            y[i] = bt_moment_of_log8(byte[i]);
        break;
    case BT_MOMENT_ULOG8:
        for (size_t i = MOMENT_BYTES_LOAD(y, byte, moment_ulog8, n); i < n; i++)
            y[i] = bt_moment_of_ulog8(byte[i]);
        break;
    default: memcpy(y, x, n * sizeof *y);
    }
}

static void moments_store(void *y, const float *restrict x, bt_moment_form as,
                          const uint32_t *restrict words, int shift, size_t n) {
    uint16_t *restrict half = y;
    uint8_t *restrict byte = y;
    switch (as) {
    case BT_MOMENT_BF16:
        for (size_t i = 0; i < n; i++)
            half[i] = bt_moment_to_bf16(x[i], words[i] >> shift & 0xffffu);
        break;
    case BT_MOMENT_LOG8:
        for (size_t i = MOMENT_BYTES_STORE(byte, x, words, shift, moment_log8, n); i < n; i++)
            byte[i] = bt_moment_to_log8(x[i], words[i] >> shift & 0xffffu);
        break;
    case BT_MOMENT_ULOG8:
        for (size_t i = MOMENT_BYTES_STORE(byte, x, words, shift, moment_ulog8, n); i < n; i++)
            byte[i] = bt_moment_to_ulog8(x[i], words[i] >> shift & 0xffffu);
        break;
    default: memcpy(y, x, n * sizeof *x);
    }
}

static void moments_adamw(float *restrict w, const float *restrict g, float *restrict m,
                          float *restrict v, const bt_adamw *h, size_t n) {
    const float keep = 1.0f - h->lr * h->decay, step = h->lr / h->c1, root = 1.0f / sqrtf(h->c2),
                n1 = 1.0f - h->b1, n2 = 1.0f - h->b2, b1 = h->b1, b2 = h->b2, eps = h->eps,
                grad_scale = h->grad_scale;
    for (size_t i = 0; i < n; i++) {
        const float grad = g[i] * grad_scale, m_now = b1 * m[i] + n1 * grad,
                    v_now = b2 * v[i] + n2 * grad * grad;
        m[i] = m_now;
        v[i] = v_now;
        w[i] = w[i] * keep - step * m_now / (sqrtf(v_now) * root + eps);
    }
}

#define BT_MOMENTS_SLOTS \
    .noise_words = moments_noise, .moment_load = moments_load, .moment_store = moments_store, \
    .adamw_even = moments_adamw

#endif
