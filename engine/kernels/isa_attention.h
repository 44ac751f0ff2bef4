/* isa_attention.h - causal attention of one head over a set's tiles: exact softmax forward, flash-style backward.
 * Included once by each set's file.
 *
 * Forward, TQ = 64 queries at a time (n: keys they may see; all operands packed once per head):
 *     S (TQ, n) = scale Q K^T       panels of NR keys; those above the diagonal are skipped
 *     rows of S -> exp(S - max)     in L2; converted to an A operand in place of S's bf16
 *     O (TQ, D) = P V / sum         depth n, one register tile per 14 queries and 32 columns of O
 * Backward, KB = 128 keys outside, TQ queries inside, so dK^T and dV^T of a key block stay in L1/L2 while queries stream:
 *     S = scale Q K^T, dP = dO V^T                   (TQ, KB) each, 32 KiB
 *     P = exp(S - lse), dS = scale P (dP - delta)    one pass over both
 *     dQ += dS K      dK^T += Q^T dS      dV^T += dO^T P
 * dS and P serve as B operands in the layout they are computed in (rows = depth), so nothing is transposed per tile; dK^T and
 * dV^T are transposed once at the end of a key block. 5 products of 2 TQ KB D operations against ~30 vector instructions
 * per 16 scores: products are 80 % of the time at D = 64. */
#ifndef BT_ENGINE_KERNELS_ISA_ATTENTION_H
#define BT_ENGINE_KERNELS_ISA_ATTENTION_H

#include <math.h>

#include "engine/kernels/isa_products.h"
#include "engine/kernels/isa_rows.h"

#if defined(__AVX2__)

enum { TQ = BT_ATTN_ROWS, KB = 128, PAD = 16 };

/* scratch handed out from one block, every piece 64-byte aligned */
typedef struct pool { char *at; } pool;
static void *piece(pool *p, size_t dwords_) {
    void *r = p->at;
    p->at += up(dwords_ * 4, 64);
    return r;
}

static size_t attn_dwords(size_t T, size_t D) {
    size_t keys = up(T, KB), forward = keys * D + up(D, NR) * keys + TQ * D + TQ * keys + TQ * (keys + PAD) + 8 * PAD;
    size_t backward = 2 * keys * D + 2 * D * (keys + PAD) + 2 * KB * D + up(D, NR) * KB + 2 * TQ * KB + TQ * (KB + PAD) + 2 * KB * TQ +
                      2 * D * KB + keys + 20 * PAD;
    return most(forward, backward);
}

/* keys [from, to) that query t may see */
static size_t first_key(const bt_attn_shape *s, size_t t) { return s->window && t + 1 > s->window ? t + 1 - s->window : 0; }

/* c (rows, cols) = alpha a b (+ c): a in A form, b panels of `panel` dwords; the depth is `groups` */
typedef struct small_product {
    const form *f;
    const uint32_t *a, *b;
    size_t lda, panel, rows, cols, groups;
    float *c, alpha;
    size_t ldc;
    int acc;
} small_product;

/* tiles whose first column lies beyond `diagonal` + their last row are all masked: not computed (SIZE_MAX: compute all) */
static void small(const small_product *p, size_t diagonal) {
    size_t tiles = (p->rows + MR - 1) / MR;
    for (size_t j = 0; j < p->cols; j += NR) {
        tile_out o = {.ldc = p->ldc, .cols = p->cols - j, .alpha = p->alpha, .acc = p->acc};
        for (size_t t = 0; t < tiles; t++) {
            size_t r0 = p->rows * t / tiles, r1 = p->rows * (t + 1) / tiles;
            if (diagonal != SIZE_MAX && j >= diagonal + r1) continue;
            o.c = p->c + r0 * p->ldc + j;
            p->f->tile(r1 - r0, &o, p->a + r0 * p->lda, p->lda, p->b + j / NR * p->panel, p->groups);
        }
    }
}

/* lanes of vector [i, i + VL) inside [a, b), else zero; whole vectors pass untouched */
BT_INLINE vf inside(vf v, size_t i, size_t a, size_t b) {
    if (i >= a && i + VL <= b) return v;
    if (i >= b || i + VL <= a) return v_set(0);
    if (i + VL > b) v = v_where_n(v, v_set(0), b - i);
    return i < a ? v_where_n(v_set(0), v, a - i) : v;
}

/* exp(row - max) over [a, b), zero elsewhere in [0, n); returns the sum, and the maximum */
static double softmax_row(float *row, size_t a, size_t b, size_t n, float *max) {
    vf top = v_set(-INFINITY), sum = v_set(0);
    for (size_t i = a; i < b; i += VL) {
        size_t have = least(VL, b - i);
        top = v_max(top, have == VL ? v_load(row + i) : v_where_n(v_load_n(row + i, have), top, have));
    }
    vf m = v_set(*max = v_hmax(top));
    for (size_t i = 0; i < n; i += VL) {
        if (i >= b || i + VL <= a) {
            v_store(row + i, v_set(0));
            continue;
        }
        vf e = inside(v_exp(v_sub(v_load(row + i), m)), i, a, b);
        sum = v_add(sum, e);
        v_store(row + i, e);
    }
    return (double)v_hsum(sum);
}

static void attn_fwd(float *o, float *lse, const float *q, const float *k, const float *v, const bt_attn_shape *s, size_t t0, size_t t1,
                     bt_prec prec, void *scratch) {
    const form *f = form_of(prec);
    size_t keys = up(t1, NR), g = f->group, dg = (s->D + g - 1) / g, kg = keys / g, ld_p = kg + PAD;
    pool mem = {scratch};
    uint32_t *kt = piece(&mem, keys * dg), *vb = piece(&mem, up(s->D, NR) * kg), *qa = piece(&mem, TQ * dg), *pa = piece(&mem, TQ * ld_p);
    float *sc = piece(&mem, TQ * keys);
    if (t1 <= t0) return;
    size_t low = first_key(s, t0) / NR * NR;
    for (size_t j = low; j < t1; j += NR) f->b_cols(kt + j * dg, k + j * s->ldk, s->ldk, least(NR, t1 - j), s->D);
    for (size_t d = 0; d < s->D; d += NR) {
        f->b_rows(vb + d * kg + low / g * NR, v + low * s->ldv + d, s->ldv, least(NR, s->D - d), t1 - low);
        for (size_t j = (t1 + g - 1) / g; j < kg; j++) memset(vb + d * kg + j * NR, 0, NR * 4);
    }
    for (size_t t = t0; t < t1; t += TQ) {
        size_t rows = least(TQ, t1 - t), from = first_key(s, t) / NR * NR, n = up(t + rows, NR) - from;
        f->a_rows(qa, dg, q + t * s->ldq, s->ldq, rows, s->D);
        small_product qk = {f, qa, kt + from * dg, dg, dg * NR, rows, n, dg, sc, s->scale, n, 0};
        small(&qk, t - from);
        float inv[TQ];
        for (size_t i = 0; i < rows; i++) {
            float top;
            double sum = softmax_row(sc + i * n, first_key(s, t + i) - from, t + i + 1 - from, n, &top);
            inv[i] = (float)(1.0 / sum);
            lse[t + i] = (float)((double)top + log(sum));
        }
        f->a_rows(pa, ld_p, sc, n, rows, n);
        size_t tiles = (rows + MR - 1) / MR;
        for (size_t i = 0; i < tiles; i++) {                        /* a tile of queries goes only as deep as its last one */
            size_t r0 = rows * i / tiles, r1 = rows * (i + 1) / tiles, depth = up(t + r1 - from, 2) / g;
            small_product pv = {f, pa + r0 * ld_p, vb + from / g * NR, ld_p, kg * NR, r1 - r0, s->D, depth, o + (t + r0) * s->ldo, 1, s->ldo, 0};
            small(&pv, SIZE_MAX);
        }
        for (size_t i = 0; i < rows; i++) rows_scale(o + (t + i) * s->ldo, inv[i], s->D);
    }
}

/* p: S -> P; ds: dP -> dS; both (rows, KB), the first n keys, row i valid on [a, b) */
static void score_row(float *p, float *ds, float lse, float delta, float scale, size_t a, size_t b, size_t n) {
    vf l = v_set(lse), d = v_set(delta), c = v_set(scale);
    for (size_t i = 0; i < n; i += VL) {
        vf e = v_set(0), x = e;
        if (i < b && i + VL > a) {
            e = inside(v_exp(v_sub(v_load(p + i), l)), i, a, b);
            x = inside(v_mul(v_mul(e, c), v_sub(v_load(ds + i), d)), i, a, b);
        }
        v_store(p + i, e);
        v_store(ds + i, x);
    }
}

/* out[j][d] += in[d][j] for n keys; tmp holds KB * TQ floats */
static void add_transposed(float *out, size_t ldo, const float *in, size_t D, size_t n, float *tmp) {
    for (size_t d = 0; d < D; d += TQ) {
        size_t wide = least(TQ, D - d);
        form_f32.a_cols((uint32_t *)(void *)tmp, TQ, in + d * KB, KB, NULL, n, wide);
        for (size_t j = 0; j < n; j++) rows_add(out + j * ldo + d, tmp + j * TQ, wide);
    }
}

static void attn_bwd(float *dq, float *dk, float *dv, const float *dout, const float *o, const float *lse, const float *q, const float *k,
                     const float *v, const bt_attn_shape *s, bt_prec prec, void *scratch) {
    const form *f = form_of(prec);
    size_t T = s->T, D = s->D, g = f->group, dg = (D + g - 1) / g, ld_t = up(T, KB) / g + PAD, ld_s = KB / g + PAD;
    pool mem = {scratch};
    uint32_t *qa = piece(&mem, T * dg), *ga = piece(&mem, T * dg), *qt = piece(&mem, D * ld_t), *gt = piece(&mem, D * ld_t);
    uint32_t *kt = piece(&mem, KB * dg), *vt = piece(&mem, KB * dg), *kb = piece(&mem, up(D, NR) * KB / g), *sa = piece(&mem, TQ * ld_s);
    uint32_t *sb = piece(&mem, KB * TQ / g), *pb = piece(&mem, KB * TQ / g);
    float *p = piece(&mem, TQ * KB), *ds = piece(&mem, TQ * KB), *dkt = piece(&mem, D * KB), *dvt = piece(&mem, D * KB), *delta = piece(&mem, T);
    f->a_rows(qa, dg, q, s->ldq, T, D);
    f->a_rows(ga, dg, dout, s->ldo, T, D);
    f->a_cols(qt, ld_t, q, s->ldq, NULL, D, T);
    f->a_cols(gt, ld_t, dout, s->ldo, NULL, D, T);
    for (size_t t = 0; t < T; t++) {
        delta[t] = row_dot(dout + t * s->ldo, o + t * s->ldo, D);
        memset(dq + t * s->ldq, 0, D * sizeof *dq);
    }
    for (size_t j = 0; j < T; j += KB) {
        size_t keys = least(KB, T - j), last = s->window ? least(T, j + keys - 1 + s->window) : T;
        for (size_t c = 0; c < keys; c += NR) {
            f->b_cols(kt + c * dg, k + (j + c) * s->ldk, s->ldk, least(NR, keys - c), D);
            f->b_cols(vt + c * dg, v + (j + c) * s->ldv, s->ldv, least(NR, keys - c), D);
        }
        for (size_t d = 0; d < D; d += NR) f->b_rows(kb + d * (KB / g), k + j * s->ldk + d, s->ldk, least(NR, D - d), keys);
        memset(dkt, 0, D * KB * sizeof *dkt);
        memset(dvt, 0, D * KB * sizeof *dvt);
        for (size_t t = j / TQ * TQ; t < last; t += TQ) {           /* KB is a multiple of TQ: t >= j */
            size_t rows = least(TQ, T - t), n = least(keys, t + rows - j), n_pad = up(n, NR), tg = (rows + g - 1) / g;
            small_product qk = {f, qa + t * dg, kt, dg, dg * NR, rows, n_pad, dg, p, s->scale, KB, 0};
            small_product gv = {f, ga + t * dg, vt, dg, dg * NR, rows, n_pad, dg, ds, 1, KB, 0};
            small(&qk, t - j);
            small(&gv, t - j);
            for (size_t i = 0; i < rows; i++) {
                size_t low = first_key(s, t + i), a = low > j ? low - j : 0, b = least(n, t + i + 1 - j);
                score_row(p + i * KB, ds + i * KB, lse[t + i], delta[t + i], s->scale, least(a, b), b, n_pad);
            }
            f->a_rows(sa, ld_s, ds, KB, rows, n);
            small_product sk = {f, sa, kb, ld_s, KB / g * NR, rows, D, (n + g - 1) / g, dq + t * s->ldq, 1, s->ldq, 1};
            small(&sk, SIZE_MAX);
            for (size_t c = 0; c < n; c += NR) {
                f->b_rows(sb + c * (TQ / g), ds + c, KB, least(NR, n - c), rows);
                f->b_rows(pb + c * (TQ / g), p + c, KB, least(NR, n - c), rows);
            }
            small_product qs = {f, qt + t / g, sb, ld_t, TQ / g * NR, D, n, tg, dkt, 1, KB, 1};
            small_product gp = {f, gt + t / g, pb, ld_t, TQ / g * NR, D, n, tg, dvt, 1, KB, 1};
            small(&qs, SIZE_MAX);
            small(&gp, SIZE_MAX);
        }
        add_transposed(dk + j * s->ldk, s->ldk, dkt, D, keys, p);
        add_transposed(dv + j * s->ldv, s->ldv, dvt, D, keys, p);
    }
}

#define BT_ATTENTION_SLOTS .attn_fwd = attn_fwd, .attn_bwd = attn_bwd

#endif  /* __AVX2__ */
#endif
