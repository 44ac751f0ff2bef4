/* isa_attention.h - causal attention of one head over a set's tiles: exact softmax forward,
 * flash-style backward. Included once by each set's file.
 *
 * Forward, TQ = 64 queries at a time (n: keys they may see; all operands packed once per head):
 *     S (TQ, n) = scale Q K^T       panels of NR keys; those above the diagonal are skipped
 *     rows of S -> exp(S - max)     in L2; converted to an A operand in place of S's bf16
 *     O (TQ, D) = P V / sum         depth n, one register tile per 14 queries and 32 columns of O
 * Backward, KB = 128 keys outside, TQ queries inside, NR keys of them at a time, so that scores never
 *     leave L1, and dK^T and dV^T of a key block stay in L1/L2 while queries stream:
 *     S = scale Q K^T, dP = dO V^T                   (TQ, NR) each, 8 KiB
 *     P = exp(S - lse), dS = P (dP - delta)          one pass over both
 *     dK^T += scale Q^T dS      dV^T += dO^T P       (D, NR) each
 *     dQ += scale dS K                               once for all KB keys
 * dS and P serve as B operands in the layout they are computed in (rows = depth), so nothing is
 * transposed per tile; dK^T and dV^T are transposed once at the end of a key block. 5 products of
 * 2 TQ NR D operations against ~25 vector instructions per 16 scores: products run at the peak of
 * their instruction and take 60 % of the time at D = 32, T = 256, packing and transposing 15 to 20. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_ATTENTION_H
#define BT_ENGINE_KERNELS_ISA_ISA_ATTENTION_H

#include <math.h>

#include "engine/kernels/isa/isa_products.h"
#include "engine/kernels/isa/isa_rows.h"

#if defined(__AVX2__)

enum { TQ = BT_ATTN_ROWS, KB = 128, PAD = 16 };

/* scratch handed out from one block, every piece 64-byte aligned */
typedef struct pool {
    char *at;
} pool;
static void *piece(pool *p, size_t dwords_) {
    void *r = p->at;
    p->at += up(dwords_ * 4, 64);
    return r;
}

static size_t attn_dwords(size_t T, size_t D) {
    size_t keys = up(T, KB),
           forward = keys * D + up(D, NR) * keys + TQ * D + TQ * keys + TQ * (keys + PAD) + 8 * PAD;
    size_t backward = 2 * keys * D + 2 * D * (keys + PAD) + 2 * KB * D + up(D, NR) * KB +
                      TQ * (KB + PAD) + 5 * TQ * NR + 2 * D * KB + 2 * keys + 24 * PAD;
    return most(forward, backward);
}

/* keys [from, to) that query t may see */
static size_t first_key(const bt_attn_shape *s, size_t t) {
    return s->window && t + 1 > s->window ? t + 1 - s->window : 0;
}

/* c (rows, cols) = alpha a b (+ c): a in A form, b panels of `panel` dwords; the depth is
 * `groups` */
typedef struct small_product {
    const form *f;
    const uint32_t *a, *b;
    size_t lda, panel, rows, cols, groups;
    float *c, alpha;
    size_t ldc;
    int acc;
} small_product;

/* tiles whose first column lies beyond `diagonal` + their last row are all masked: not computed
 * (SIZE_MAX: compute all) */
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

/* the depth are keys, of which row r sees the first `diagonal` + r + 1: a tile goes only as deep as
 * its last row */
static void small_deep(const small_product *p, size_t diagonal) {
    size_t tiles = (p->rows + MR - 1) / MR;
    for (size_t t = 0; t < tiles; t++) {
        size_t r0 = p->rows * t / tiles, r1 = p->rows * (t + 1) / tiles;
        small_product rows = *p;
        rows.a += r0 * p->lda;
        rows.c += r0 * p->ldc;
        rows.rows = r1 - r0;
        rows.groups = least(p->groups, (diagonal + r1 + p->f->group - 1) / p->f->group);
        small(&rows, SIZE_MAX);
    }
}

/* rows of a head: (rows, D) of floats, or of what lies as bf16, `ld` apart */
typedef struct head {
    const void *x;
    size_t ld;
    bool bf16;
} head;

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
/* row t with a row of floats; `some`: memory of D floats */
static float head_dot(const float *y, const head *h, size_t t, size_t D, float *some) {
    if (!h->bf16) return row_dot(y, floats_at(h, t, 0), D);
    rows_from_bf16(some, kept_at(h, t, 0), D);
    return row_dot(y, some, D);
}

/* lanes of vector [i, i + VL) inside [a, b), else zero */
BT_INLINE vf inside(vf v, size_t i, size_t a, size_t b) {
    if (i >= a && i + VL <= b) return v;
    if (i >= b || i + VL <= a) return v_set(0);
    if (i + VL > b) v = v_where_n(v, v_set(0), b - i);
    return i < a ? v_where_n(v_set(0), v, a - i) : v;
}

/* ---- scores, in powers of two ---------------------------------------------------------------- */
#define LOG2_E 1.44269504088896340736
#define LN_2 0.69314718055994530942

/* 2^x, as precise as operands of this form need it */
BT_INLINE vf power(vf x, const bt_prec prec) {
    return prec == BT_PREC_BF16 ? v_exp2_coarse(x) : v_exp2(x);
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

/* 2^(row - max) over [a, b), zero elsewhere in [0, n), as an A row; returns the sum, and the
 * maximum */
BT_INLINE float softmax_row(uint32_t *dst, const float *row, size_t a, size_t b, size_t n,
                            float *max, const bt_prec prec) {
    vf sum[2] = {v_set(0), v_set(0)}, m = v_set(*max = row_most(row, a, b));
    for (size_t i = 0; i < n; i += NR) {
        vf e[2] = {v_set(0), v_set(0)};
        if (i < b && i + NR > a) {
            BT_UNROLL for (size_t h = 0; h < 2; h++)
                e[h] = power(v_sub(v_load(row + i + h * VL), m), prec);
            if (i < a || i + NR > b)
                BT_UNROLL for (size_t h = 0; h < 2; h++) e[h] = inside(e[h], i + h * VL, a, b);
            BT_UNROLL for (size_t h = 0; h < 2; h++) sum[h] = v_add(sum[h], e[h]);
        }
        a_put(dst, i, e, prec);
    }
    return v_hsum(v_add(sum[0], sum[1]));
}
static float softmax_put(uint32_t *dst, const float *row, size_t a, size_t b, size_t n, float *max,
                         bt_prec prec) {
    if (prec == BT_PREC_BF16) return softmax_row(dst, row, a, b, n, max, BT_PREC_BF16);
    if (prec == BT_PREC_FP16) return softmax_row(dst, row, a, b, n, max, BT_PREC_FP16);
    return softmax_row(dst, row, a, b, n, max, BT_PREC_FP32);
}

/* `rows` queries from t by n <= NR keys from j */
typedef struct scores {
    const bt_attn_shape *shape;
    size_t t, j, rows, n;
    /* (rows, NR): scores in powers of two, dP; columns beyond n hold anything */
    const float *s, *dp;
    const float *lse, *delta; /* of query t; lse in powers of two */
    /* dS as A rows of ld_a; dS and P as B panels */
    uint32_t *sa, *sb, *pb;
    size_t ld_a;
} scores;

/* queries i and, of a form with two elements in a dword, i + 1: P = 2^(s - lse), dS = P (dP - delta).
 * whole: they see all NR keys; else zeros where they do not */
BT_INLINE void score_rows(const scores *k, size_t i, const bt_prec prec, const int whole) {
    const size_t g = prec == BT_PREC_BF16 ? 2 : 1;
    vf p[2][2], ds[2][2];
    BT_UNROLL for (size_t r = 0; r < g; r++) {
        const vf l = v_set(k->lse[i + r]), d = v_set(k->delta[i + r]);
        BT_UNROLL for (size_t h = 0; h < 2; h++) {
            size_t at = (i + r) * NR + h * VL;
            p[r][h] = power(v_sub(v_load(k->s + at), l), prec);
            ds[r][h] = v_mul(p[r][h], v_sub(v_load(k->dp + at), d));
        }
        if (!whole) {
            size_t low = first_key(k->shape, k->t + i + r), a = low > k->j ? low - k->j : 0,
                   seen = k->t + i + r + 1, b = i + r < k->rows && seen > k->j ? seen - k->j : 0;
            BT_UNROLL for (size_t h = 0; h < 2; h++) {
                p[r][h] = inside(p[r][h], h * VL, a, least(k->n, b));
                ds[r][h] = inside(ds[r][h], h * VL, a, least(k->n, b));
            }
        }
    }
    ab_put(k->sa + i * k->ld_a, k->ld_a, k->sb + i / g * NR, (const vf(*)[2])ds, prec);
    b_put(k->pb + i / g * NR, p[0], p[g - 1], prec);
}

BT_INLINE void score_panel(const scores *k, const bt_prec prec) {
    const size_t g = prec == BT_PREC_BF16 ? 2 : 1, last = k->j + NR - 1, W = k->shape->window;
    /* queries [from, to) see all NR keys */
    size_t from = k->n < NR     ? k->rows
                  : last > k->t ? last - k->t
                                : 0,
           to = W == 0            ? k->rows
                : k->j + W > k->t ? least(k->rows, k->j + W - k->t)
                                  : 0;
    for (size_t i = 0; i < k->rows; i += g) {
        if (i >= from && i + g <= to)
            score_rows(k, i, prec, 1);
        else
            score_rows(k, i, prec, 0);
    }
}
static void score_put(const scores *k, bt_prec prec) {
    if (prec == BT_PREC_BF16)
        score_panel(k, BT_PREC_BF16);
    else if (prec == BT_PREC_FP16)
        score_panel(k, BT_PREC_FP16);
    else
        score_panel(k, BT_PREC_FP32);
}

/* ---- slots ----------------------------------------------------------------------------------- */
static void attn_fwd(float *o, float *lse, const void *q_, const void *k_, const void *v_,
                     const bt_attn_shape *s, size_t t0, size_t t1, bt_prec prec, void *scratch) {
    const form *f = form_of(prec);
    const head q = {q_, s->ldq, s->bf16}, k = {k_, s->ldk, s->bf16}, v = {v_, s->ldv, s->bf16};
    size_t keys = up(t1, NR), g = f->group, dg = (s->D + g - 1) / g, kg = keys / g, ld_p = kg + PAD;
    pool mem = {scratch};
    uint32_t *kt = piece(&mem, keys * dg), *vb = piece(&mem, up(s->D, NR) * kg),
             *qa = piece(&mem, TQ * dg), *pa = piece(&mem, TQ * ld_p);
    float *sc = piece(&mem, TQ * keys);
    if (t1 <= t0) return;
    size_t low = first_key(s, t0) / NR * NR;
    for (size_t j = low; j < t1; j += NR)
        head_b_cols(f, kt + j * dg, &k, j, least(NR, t1 - j), s->D);
    for (size_t d = 0; d < s->D; d += NR) {
        head_b_rows(f, vb + d * kg + low / g * NR, &v, low, d, least(NR, s->D - d), t1 - low);
        for (size_t j = (t1 + g - 1) / g; j < kg; j++) memset(vb + d * kg + j * NR, 0, NR * 4);
    }
    for (size_t t = t0; t < t1; t += TQ) {
        size_t rows = least(TQ, t1 - t), from = first_key(s, t) / NR * NR,
               n = up(t + rows, NR) - from;
        head_a_rows(f, qa, dg, &q, t, rows, s->D);
        small_product qk = {f,  qa, kt + from * dg,           dg, dg * NR, rows, n,
                            dg, sc, s->scale * (float)LOG2_E, n,  0};
        small(&qk, t - from);
        float inv[TQ];
        for (size_t i = 0; i < rows; i++) {
            float top, sum = softmax_put(pa + i * ld_p, sc + i * n, first_key(s, t + i) - from,
                                         t + i + 1 - from, n, &top, f->prec);
            inv[i] = 1.0f / sum;
            lse[t + i] = (float)((double)top * LN_2) + logf(sum);
        }
        small_product pv = {f,    pa,    vb + from / g * NR, ld_p, kg * NR, rows,
                            s->D, n / g, o + t * s->ldo,     1,    s->ldo,  0};
        small_deep(&pv, t - from);
        for (size_t i = 0; i < rows; i++) rows_scale(o + (t + i) * s->ldo, inv[i], s->D);
    }
}

/* out[j][d] += in[d][j], in (D, NR), for n keys; tmp holds NR * TQ floats */
static void add_transposed(float *out, size_t ldo, const float *in, size_t D, size_t n,
                           float *tmp) {
    for (size_t d = 0; d < D; d += TQ) {
        size_t wide = least(TQ, D - d);
        form_f32.a_cols((uint32_t *)(void *)tmp, TQ, in + d * NR, NR, NULL, n, wide);
        for (size_t j = 0; j < n; j++) rows_add(out + j * ldo + d, tmp + j * TQ, wide);
    }
}

static void attn_bwd(float *dq, float *dk, float *dv, const float *dout, const void *o_,
                     const float *lse, const void *q_, const void *k_, const void *v_,
                     const bt_attn_shape *s, bt_prec prec, void *scratch) {
    const form *f = form_of(prec);
    const head o = {o_, s->ldo, s->bf16}, q = {q_, s->ldq, s->bf16}, k = {k_, s->ldk, s->bf16},
               v = {v_, s->ldv, s->bf16};
    size_t T = s->T, D = s->D, g = f->group, dg = (D + g - 1) / g, ld_t = up(T, KB) / g + PAD,
           ld_s = KB / g + PAD;
    pool mem = {scratch};
    uint32_t *qa = piece(&mem, T * dg), *ga = piece(&mem, T * dg), *qt = piece(&mem, D * ld_t),
             *gt = piece(&mem, D * ld_t);
    uint32_t *kt = piece(&mem, KB * dg), *vt = piece(&mem, KB * dg),
             *kb = piece(&mem, up(D, NR) * KB / g), *sa = piece(&mem, TQ * ld_s);
    uint32_t *sb = piece(&mem, TQ / g * NR), *pb = piece(&mem, TQ / g * NR);
    float *p = piece(&mem, TQ * NR), *dp = piece(&mem, TQ * NR), *tmp = piece(&mem, TQ * NR),
          *dkt = piece(&mem, D * KB), *dvt = piece(&mem, D * KB), *delta = piece(&mem, T + PAD),
          *lse2 = piece(&mem, T + PAD);
    /* tiles that store what they summed have it done afterwards */
    const float alpha = IN_TILES ? 1 : s->scale;
    head_a_rows(f, qa, dg, &q, 0, T, D);
    f->a_rows(ga, dg, dout, s->ldo, T, D);
    head_a_cols(f, qt, ld_t, &q, D, T);
    f->a_cols(gt, ld_t, dout, s->ldo, NULL, D, T);
    for (size_t t = 0; t < T; t++) {
        delta[t] = head_dot(dout + t * s->ldo, &o, t, D, dkt);
        lse2[t] = lse[t] * (float)LOG2_E;
    }
    for (size_t j = 0; j < T; j += KB) {
        size_t keys = least(KB, T - j), last = s->window ? least(T, j + keys - 1 + s->window) : T;
        for (size_t c = 0; c < keys; c += NR) {
            head_b_cols(f, kt + c * dg, &k, j + c, least(NR, keys - c), D);
            head_b_cols(f, vt + c * dg, &v, j + c, least(NR, keys - c), D);
        }
        for (size_t d = 0; d < D; d += NR)
            head_b_rows(f, kb + d * (KB / g), &k, j, d, least(NR, D - d), keys);
        memset(dkt, 0, D * KB * sizeof *dkt);
        memset(dvt, 0, D * KB * sizeof *dvt);
        /* KB is a multiple of TQ: t >= j */
        for (size_t t = j / TQ * TQ; t < last; t += TQ) {
            size_t rows = least(TQ, T - t), n = least(keys, t + rows - j);
            for (size_t c = 0; c < n; c += NR) {
                /* a panel of keys is seen from its own first query on */
                size_t skip = j + c > t ? (j + c - t) / g * g : 0, u = t + skip, see = rows - skip;
                for (size_t i = 0; i < skip; i++) memset(sa + i * ld_s + c / g, 0, NR / g * 4);
                small_product qk = {f,           qa + u * dg,
                                    kt + c * dg, dg,
                                    0,           see,
                                    NR,          dg,
                                    p,           s->scale * (float)LOG2_E,
                                    NR,          0};
                small_product gv = {f, ga + u * dg, vt + c * dg, dg, 0, see, NR, dg, dp, 1, NR, 0};
                small(&qk, SIZE_MAX);
                small(&gv, SIZE_MAX);
                scores here = {.shape = s,
                               .t = u,
                               .j = j + c,
                               .rows = see,
                               .n = least(NR, n - c),
                               .s = p,
                               .dp = dp,
                               .lse = lse2 + u,
                               .delta = delta + u,
                               .sa = sa + skip * ld_s + c / g,
                               .sb = sb,
                               .pb = pb,
                               .ld_a = ld_s};
                score_put(&here, f->prec);
                size_t deep = (see + g - 1) / g;
                small_product qs = {f,  qt + u / g, sb,          ld_t,  0,  D,
                                    NR, deep,       dkt + c * D, alpha, NR, 1};
                small_product gp = {f, gt + u / g, pb, ld_t, 0, D, NR, deep, dvt + c * D, 1, NR, 1};
                small(&qs, SIZE_MAX);
                small(&gp, SIZE_MAX);
            }
            /* an earlier block of keys has begun these rows */
            int begun = j > 0 && (s->window == 0 || t < j - 1 + s->window);
            small_product sk = {
                f,     sa,     kb,   ld_s, KB / g * NR, rows, D, (n + g - 1) / g, dq + t * s->ldq,
                alpha, s->ldq, begun};
            small_deep(&sk, t - j);
        }
        if (IN_TILES) rows_scale(dkt, s->scale, D * KB);
        for (size_t c = 0; c < keys; c += NR) {
            size_t n = least(NR, keys - c);
            add_transposed(dk + (j + c) * s->ldk, s->ldk, dkt + c * D, D, n, tmp);
            add_transposed(dv + (j + c) * s->ldv, s->ldv, dvt + c * D, D, n, tmp);
        }
    }
    for (size_t t = 0; IN_TILES && t < T; t++) rows_scale(dq + t * s->ldq, s->scale, D);
}

#define BT_ATTENTION_SLOTS .attn_fwd = attn_fwd, .attn_bwd = attn_bwd

#endif /* __AVX2__ */
#endif
