/* isa_attention_operands.h - parts shared by attention of floats and of int8: scratch, operand forms of a head's
 * rows, products of one head, the exponential. Included once by each set's file, by isa_attention.h. */
#ifndef BT_ENGINE_KERNELS_ISA_ATTENTION_ISA_ATTENTION_OPERANDS_H
#define BT_ENGINE_KERNELS_ISA_ATTENTION_ISA_ATTENTION_OPERANDS_H

#include <math.h>

#include "engine/kernels/isa/isa_products.h"
#include "engine/kernels/isa/isa_rows.h"

#if defined(BT_VECTORS)

enum { TQ = BT_ATTN_ROWS, KB = 128, PAD = 16 };

/* allocates scratch from one block, every piece 64-byte aligned */
typedef struct pool {
    char *at;
} pool;
static void *piece(pool *p, size_t dwords_) {
    void *r = p->at;
    p->at += round_up(dwords_ * 4, 64);
    return r;
}

static size_t attn_dwords(size_t T, size_t D) {
    size_t keys = round_up(T, KB), forward = keys * D + round_up(D, NR) * keys + TQ * D +
                                             TQ * keys + TQ * (keys + PAD) + 8 * PAD;
    size_t backward = 2 * keys * D + 2 * D * (keys + PAD) + 2 * KB * D + round_up(D, NR) * KB +
                      TQ * (KB + PAD) + 5 * TQ * NR + 2 * D * KB + 2 * keys + 24 * PAD;
    /* with int8, operands take a byte an element and rows are whole vectors */
    size_t deep = round_up(D, 4 * VL), rows = 2 * T + TQ + KB + 3 * NR;
    size_t of_int8 = rows * (deep / 4 + 2) + (2 * KB + keys) * (deep / 4 + 1) +
                     TQ * (keys / 4 + PAD) + 4 * round_up(D, NR) + deep + 40 * PAD;
    return most(forward, backward) + of_int8;
}

/* Returns the first key that query t may see. */
static size_t first_visible_key(const bt_attn_shape *s, size_t t) {
    return s->window && t + 1 > s->window ? t + 1 - s->window : 0;
}

/* the product c (rows, cols) = alpha a b (+ c) of depth `groups`: a in A form, b in panels of `panel` dwords */
typedef struct small_product {
    const form *f;
    const uint32_t *a, *b;
    size_t lda, panel, rows, cols, groups;
    float *c, alpha;
    size_t ldc;
    int acc;
} small_product;

/* Skips tiles in which all scores are masked: those whose first column is beyond `diagonal` + their last row.
 * SIZE_MAX skips none. */
static void small(const small_product *p, size_t diagonal) {
    size_t tiles = (p->rows + MR - 1) / MR;
    for (size_t j = 0; j < p->cols; j += NR) {
        tile_out o = {.ldc = p->ldc, .cols = p->cols - j, .alpha = p->alpha, .acc = p->acc};
        for (size_t t = 0; t < tiles; t++) {
            size_t r0 = p->rows * t / tiles, r1 = p->rows * (t + 1) / tiles;
            if (diagonal != SIZE_MAX && j >= diagonal + r1) continue;
            o.c = p->c + r0 * p->ldc + j;
            p->f->tile(r1 - r0, &o, p->a + r0 * p->lda, p->lda, p->b + j / NR * p->panel,
                       p->groups);
        }
    }
}

/* Row r uses only the first `diagonal` + r + 1 of the keys along the depth, so each tile ends at the depth of its
 * last row. */
static void small_deep(const small_product *p, size_t diagonal) {
    size_t tiles = (p->rows + MR - 1) / MR;
    for (size_t t = 0; t < tiles; t++) {
        size_t r0 = p->rows * t / tiles, r1 = p->rows * (t + 1) / tiles;
        small_product rows = *p;
        rows.a += r0 * p->lda;
        rows.c += r0 * p->ldc;
        rows.rows = r1 - r0;
        rows.groups = smaller_size(p->groups, (diagonal + r1 + p->f->group - 1) / p->f->group);
        small(&rows, SIZE_MAX);
    }
}

/* (rows, D) values of one head, floats or bf16, with rows `ld` elements apart */
typedef struct head {
    const void *x;
    size_t ld;
    bool bf16;
    /* int8 attention rounds floats to bf16 first, so that its bits do not depend on the storage type */
    bool rounds;
} head;

/* Returns a head of q, k or v. */
static head head_of(const void *x, size_t ld, const bt_attn_shape *s, const form *f) {
    return (head){x, ld, s->bf16, !s->bf16 && f->prec == BT_PREC_BF16};
}

static const float *floats_at(const head *h, size_t t, size_t d) {
    return (const float *)h->x + t * h->ld + d;
}
static const uint16_t *kept_at(const head *h, size_t t, size_t d) {
    return (const uint16_t *)h->x + t * h->ld + d;
}
static void head_a_rows(const form *f, uint32_t *dst, size_t ld, const head *h, size_t t,
                        size_t rows, size_t D) {
    if (h->bf16)
        f->a_rows_kept(dst, ld, kept_at(h, t, 0), h->ld, rows, D);
    else
        f->a_rows(dst, ld, floats_at(h, t, 0), h->ld, rows, D);
}
static void head_a_cols(const form *f, uint32_t *dst, size_t ld, const head *h, size_t D,
                        size_t rows) {
    if (h->bf16)
        f->a_cols_kept(dst, ld, kept_at(h, 0, 0), h->ld, D, rows);
    else
        f->a_cols(dst, ld, floats_at(h, 0, 0), h->ld, NULL, D, rows);
}
static void head_b_rows(const form *f, uint32_t *dst, const head *h, size_t t, size_t d,
                        size_t cols, size_t rows) {
    if (h->bf16)
        f->b_rows_kept(dst, kept_at(h, t, d), h->ld, cols, rows);
    else
        f->b_rows(dst, floats_at(h, t, d), h->ld, cols, rows);
}
static void head_b_cols(const form *f, uint32_t *dst, const head *h, size_t t, size_t rows,
                        size_t D) {
    if (h->bf16)
        f->b_cols_kept(dst, kept_at(h, t, 0), h->ld, rows, D);
    else
        f->b_cols(dst, floats_at(h, t, 0), h->ld, rows, D);
}
/* Returns row t as floats; `some` is memory for D floats. */
static float head_dot(const float *y, const head *h, size_t t, size_t D, float *some) {
    if (!h->bf16) return row_dot(y, floats_at(h, t, 0), D);
    rows_from_bf16(some, kept_at(h, t, 0), D);
    return row_dot(y, some, D);
}

/* Keeps the lanes of the elements [i, i + VL) that are inside [a, b); all other lanes become zero. */
BT_INLINE vf mask_lanes(vf v, size_t i, size_t a, size_t b) {
    if (i >= a && i + VL <= b) return v;
    if (i >= b || i + VL <= a) return v_set(0);
    if (i + VL > b) v = v_where_n(v, v_set(0), b - i);
    return i < a ? v_where_n(v_set(0), v, a - i) : v;
}

/* ---- scores, in powers of two ---------------------------------------------------------------- */
#define LOG2_E 1.44269504088896340736
#define LN_2 0.69314718055994530942

/* 2^x with the accuracy that operands of this precision need */
BT_INLINE vf exp2_prec(vf x, const bt_prec prec) {
    return prec == BT_PREC_BF16 ? v_exp2_coarse(x) : v_exp2(x);
}

/* Caps scores, which are in powers of two, in place: limit tanh(x / limit) with limit = cap log2(e). */
static void cap_scores(float *x, size_t rows, size_t n, float cap) {
    const vf limit = v_set(cap * (float)LOG2_E), by = v_set(2.0f / (cap * (float)LOG2_E));
    if (!(cap > 0)) return;
    for (size_t i = 0; i < rows * n; i += VL) {
        const vf rest = v_add(v_exp(v_mul(v_load(x + i), by)), v_set(1.0f));
        v_store(x + i, v_mul(limit, v_sub(v_set(1.0f), v_div(v_set(2.0f), rest))));
    }
}

static float row_most(const float *row, size_t a, size_t b) {
    vf top = v_set(-INFINITY), top2 = top;
    size_t i = a;
    for (; i + 2 * VL <= b; i += 2 * VL) {
        top = v_max(top, v_load(row + i));
        top2 = v_max(top2, v_load(row + i + VL));
    }
    for (; i < b; i += VL)
        top = v_max(top, i + VL <= b ? v_load(row + i)
                                     : v_where_n(v_load_n(row + i, b - i), top, b - i));
    return v_hmax(v_max(top, top2));
}

/* Computes e = 2^(row - m) of NR keys from i on, zero outside [a, b), and adds e to sum. */
BT_INLINE void row_weights(vf e[2], vf sum[2], const float *row, vf m, size_t i, size_t a, size_t b,
                           const bt_prec prec) {
    BT_UNROLL for (size_t h = 0; h < 2; h++) e[h] = v_set(0);
    if (i >= b || i + NR <= a) return;
    BT_UNROLL for (size_t h = 0; h < 2; h++)
        e[h] = exp2_prec(v_sub(v_load(row + i + h * VL), m), prec);
    if (i < a || i + NR > b)
        BT_UNROLL for (size_t h = 0; h < 2; h++) e[h] = mask_lanes(e[h], i + h * VL, a, b);
    BT_UNROLL for (size_t h = 0; h < 2; h++) sum[h] = v_add(sum[h], e[h]);
}

#endif /* BT_VECTORS */
#endif
