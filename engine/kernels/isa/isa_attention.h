/* isa_attention.h - causal attention of one head over a set's tiles: exact softmax forward, flash-style backward.
 * Included once by each set's file.
 *
 * Forward, TQ = 64 queries at a time (n: their visible keys; all operands packed once per head):
 *     S (TQ, n) = scale Q K^T       panels of NR keys; those above the diagonal are skipped
 *     rows of S -> exp(S - max)     in L2; converted to an A operand in place of S's bf16
 *     O (TQ, D) = P V / sum         depth n, one register tile per 14 queries and 32 columns of O
 *
 * Backward, KB = 128 keys in the outer loop, TQ queries in the inner one, NR of the keys at a time, so that scores
 * are always in L1, and dK^T and dV^T of a key block are in L1/L2 while queries stream:
 *     S = scale Q K^T, dP = dO V^T                   (TQ, NR) each, 8 KiB
 *     P = exp(S - lse), dS = P (dP - delta)          one pass over both
 *     dK^T += scale Q^T dS      dV^T += dO^T P       (D, NR) each
 *     dQ += scale dS K                               once for all KB keys
 *
 * dS and P serve as B operands in the layout in which they are computed (rows = depth), so nothing is transposed
 * per tile; dK^T and dV^T are transposed once at the end of a key block. 5 products of 2 TQ NR D operations
 * against ~25 vector instructions per 16 scores: products run at the peak of their instruction and take 60 % of
 * the time at D = 32, T = 256, packing and transposing 15 to 20. With int8 in the shape forward, S and dP are
 * products of int8 (attention/isa_attention_int8.h). */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_ATTENTION_H
#define BT_ENGINE_KERNELS_ISA_ISA_ATTENTION_H

#include "engine/kernels/isa/attention/isa_attention_int8.h"

#if defined(BT_VECTORS)

/* Stores 2^(row - max) over [a, b), and zero elsewhere in [0, n), as a row of A. Returns the sum, and the maximum. */
BT_INLINE float softmax_row(uint32_t *dst, const float *row, size_t a, size_t b, size_t n,
                            float *max, const bt_prec prec) {
    vf sum[2] = {v_set(0), v_set(0)}, m = v_set(*max = row_most(row, a, b));
    for (size_t i = 0; i < n; i += NR) {
        vf e[2];
        row_weights(e, sum, row, m, i, a, b, prec);
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

/* scores of `rows` queries from t and n <= NR keys from j */
typedef struct scores {
    const bt_attn_shape *shape;
    size_t t, j, rows, n;
    /* (rows, NR): scores in powers of two, and dP; columns from n on are undefined */
    const float *s, *dp;
    const float *lse, *delta; /* values of query t; lse in powers of two */
    /* sa: dS as A rows of ld_a; sb, pb: dS and P as B panels */
    uint32_t *sa, *sb, *pb;
    size_t ld_a;
} scores;

/* Computes P = 2^(s - lse) and dS = P (dP - delta) of query i, and of query i + 1 if a dword has two elements. whole:
 * these queries see all NR keys; otherwise keys that they do not see give zeros */
BT_INLINE void score_rows(const scores *k, size_t i, const bt_prec prec, const int whole,
                          const int capped) {
    const size_t g = prec == BT_PREC_BF16 ? 2 : 1;
    vf p[2][2], ds[2][2];
    BT_UNROLL for (size_t r = 0; r < g; r++) {
        const vf l = v_set(k->lse[i + r]), d = v_set(k->delta[i + r]);
        BT_UNROLL for (size_t h = 0; h < 2; h++) {
            size_t at = (i + r) * NR + h * VL;
            p[r][h] = exp2_prec(v_sub(v_load(k->s + at), l), prec);
            ds[r][h] = v_mul(p[r][h], v_sub(v_load(k->dp + at), d));
            if (capped) { /* multiplies by the derivative of the tanh */
                const vf x = v_mul(v_load(k->s + at),
                                   v_set(1.0f / (k->shape->cap * (float)LOG2_E)));
                ds[r][h] = v_mul(ds[r][h], v_fnma(x, x, v_set(1.0f)));
            }
        }
        if (!whole) {
            size_t low = first_visible_key(k->shape, k->t + i + r), a = low > k->j ? low - k->j : 0,
                   seen = k->t + i + r + 1, b = i + r < k->rows && seen > k->j ? seen - k->j : 0;
            BT_UNROLL for (size_t h = 0; h < 2; h++) {
                p[r][h] = mask_lanes(p[r][h], h * VL, a, smaller_size(k->n, b));
                ds[r][h] = mask_lanes(ds[r][h], h * VL, a, smaller_size(k->n, b));
            }
        }
    }
    ab_put(k->sa + i * k->ld_a, k->ld_a, k->sb + i / g * NR, (const vf(*)[2])ds, prec);
    b_put(k->pb + i / g * NR, p[0], p[g - 1], prec);
}

BT_INLINE void score_panel(const scores *k, const bt_prec prec, const int capped) {
    const size_t g = prec == BT_PREC_BF16 ? 2 : 1, last = k->j + NR - 1, W = k->shape->window;
    /* queries [from, to) see all NR keys */
    size_t from = k->n < NR     ? k->rows
                  : last > k->t ? last - k->t
                                : 0,
           to = W == 0            ? k->rows
                : k->j + W > k->t ? smaller_size(k->rows, k->j + W - k->t)
                                  : 0;
    for (size_t i = 0; i < k->rows; i += g) {
        if (i >= from && i + g <= to)
            score_rows(k, i, prec, 1, capped);
        else
            score_rows(k, i, prec, 0, capped);
    }
}
static void score_put_plain(const scores *k, bt_prec prec) {
    if (prec == BT_PREC_BF16)
        score_panel(k, BT_PREC_BF16, 0);
    else if (prec == BT_PREC_FP16)
        score_panel(k, BT_PREC_FP16, 0);
    else
        score_panel(k, BT_PREC_FP32, 0);
}
static void score_put_capped(const scores *k, bt_prec prec) {
    if (prec == BT_PREC_BF16)
        score_panel(k, BT_PREC_BF16, 1);
    else if (prec == BT_PREC_FP16)
        score_panel(k, BT_PREC_FP16, 1);
    else
        score_panel(k, BT_PREC_FP32, 1);
}
static void score_put(const scores *k, bt_prec prec) {
    (k->shape->cap > 0 ? score_put_capped : score_put_plain)(k, prec);
}

/* ---- slots ----------------------------------------------------------------------------------- */
static void attn_fwd(float *o, float *lse, const void *q_, const void *k_, const void *v_,
                     const bt_attn_shape *s, size_t t0, size_t t1, bt_prec prec, void *scratch) {
    if (s->int8 && t1 > t0) {
        attn_fwd8(o, lse, q_, k_, v_, s, t0, t1, prec, scratch);
        return;
    }
    const form *f = form_of(prec);
    const head q = head_of(q_, s->ldq, s, f), k = head_of(k_, s->ldk, s, f),
               v = head_of(v_, s->ldv, s, f);
    size_t keys = round_up(t1, NR), g = f->group, dg = (s->D + g - 1) / g, kg = keys / g,
           ld_p = kg + PAD;
    pool mem = {scratch};
    uint32_t *kt = piece(&mem, keys * dg), *vb = piece(&mem, round_up(s->D, NR) * kg),
             *qa = piece(&mem, TQ * dg), *pa = piece(&mem, TQ * ld_p);
    float *sc = piece(&mem, TQ * keys);
    if (t1 <= t0) return;
    size_t low = first_visible_key(s, t0) / NR * NR;
    for (size_t j = low; j < t1; j += NR)
        head_b_cols(f, kt + j * dg, &k, j, smaller_size(NR, t1 - j), s->D);
    for (size_t d = 0; d < s->D; d += NR) {
        head_b_rows(f, vb + d * kg + low / g * NR, &v, low, d, smaller_size(NR, s->D - d),
                    t1 - low);
        for (size_t j = (t1 + g - 1) / g; j < kg; j++) memset(vb + d * kg + j * NR, 0, NR * 4);
    }
    for (size_t t = t0; t < t1; t += TQ) {
        size_t rows = smaller_size(TQ, t1 - t), from = first_visible_key(s, t) / NR * NR,
               n = round_up(t + rows, NR) - from;
        head_a_rows(f, qa, dg, &q, t, rows, s->D);
        small_product qk = {f,  qa, kt + from * dg,           dg, dg * NR, rows, n,
                            dg, sc, s->scale * (float)LOG2_E, n,  0};
        small(&qk, t - from);
        cap_scores(sc, rows, n, s->cap);
        float inv[TQ];
        for (size_t i = 0; i < rows; i++) {
            float top,
                sum = softmax_put(pa + i * ld_p, sc + i * n, first_visible_key(s, t + i) - from,
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

/* Adds the transpose of the first n columns of `in` (D, NR) to `out`. tmp holds NR * TQ floats */
static void add_transposed(float *out, size_t ldo, const float *in, size_t D, size_t n,
                           float *tmp) {
    for (size_t d = 0; d < D; d += TQ) {
        size_t wide = smaller_size(TQ, D - d);
        form_f32.a_cols((uint32_t *)(void *)tmp, TQ, in + d * NR, NR, NULL, n, wide);
        for (size_t j = 0; j < n; j++) rows_add(out + j * ldo + d, tmp + j * TQ, wide);
    }
}

static void attn_bwd(float *dq, float *dk, float *dv, const float *dout, const void *o_,
                     const float *lse, const void *q_, const void *k_, const void *v_,
                     const bt_attn_shape *s, bt_prec prec, void *scratch) {
    const form *f = form_of(prec);
    const head o = head_of(o_, s->ldo, s, f), q = head_of(q_, s->ldq, s, f),
               k = head_of(k_, s->ldk, s, f), v = head_of(v_, s->ldv, s, f);
    size_t T = s->T, D = s->D, g = f->group, dg = (D + g - 1) / g, ld_t = round_up(T, KB) / g + PAD,
           ld_s = KB / g + PAD;
    pool mem = {scratch};
    uint32_t *qa = piece(&mem, T * dg), *ga = piece(&mem, T * dg), *qt = piece(&mem, D * ld_t),
             *gt = piece(&mem, D * ld_t);
    uint32_t *kt = piece(&mem, KB * dg), *vt = piece(&mem, KB * dg),
             *kb = piece(&mem, round_up(D, NR) * KB / g), *sa = piece(&mem, TQ * ld_s);
    uint32_t *sb = piece(&mem, TQ / g * NR), *pb = piece(&mem, TQ / g * NR);
    float *p = piece(&mem, TQ * NR), *dp = piece(&mem, TQ * NR), *tmp = piece(&mem, TQ * NR),
          *dkt = piece(&mem, D * KB), *dvt = piece(&mem, D * KB), *delta = piece(&mem, T + PAD),
          *lse2 = piece(&mem, T + PAD);
    /* sets whose tiles store sums unscaled apply the factor afterwards */
    const float alpha = IN_TILES ? 1 : s->scale;
    const head dout_ = {dout, s->ldo, false, false};
    const left8 l8 = left8_of(s, &mem, &q, &dout_);
    if (!s->int8) {
        head_a_rows(f, qa, dg, &q, 0, T, D);
        f->a_rows(ga, dg, dout, s->ldo, T, D);
    }
    head_a_cols(f, qt, ld_t, &q, D, T);
    f->a_cols(gt, ld_t, dout, s->ldo, NULL, D, T);
    for (size_t t = 0; t < T; t++) {
        delta[t] = head_dot(dout + t * s->ldo, &o, t, D, dkt);
        lse2[t] = lse[t] * (float)LOG2_E;
    }
    for (size_t j = 0; j < T; j += KB) {
        size_t keys = smaller_size(KB, T - j),
               last = s->window ? smaller_size(T, j + keys - 1 + s->window) : T;
        for (size_t c = 0; c < keys; c += NR) {
            const size_t n = smaller_size(NR, keys - c);
            if (s->int8) {
                right8_put(&l8, c, &k, &v, j + c, n, D);
                continue;
            }
            head_b_cols(f, kt + c * dg, &k, j + c, n, D);
            head_b_cols(f, vt + c * dg, &v, j + c, n, D);
        }
        for (size_t d = 0; d < D; d += NR)
            head_b_rows(f, kb + d * (KB / g), &k, j, d, smaller_size(NR, D - d), keys);
        memset(dkt, 0, D * KB * sizeof *dkt);
        memset(dvt, 0, D * KB * sizeof *dvt);
        /* KB is a multiple of TQ: t >= j */
        for (size_t t = j / TQ * TQ; t < last; t += TQ) {
            size_t rows = smaller_size(TQ, T - t), n = smaller_size(keys, t + rows - j);
            for (size_t c = 0; c < n; c += NR) {
                /* queries before the first one that sees a key of this panel are skipped */
                size_t skip = j + c > t ? (j + c - t) / g * g : 0, u = t + skip, see = rows - skip;
                for (size_t i = 0; i < skip; i++) memset(sa + i * ld_s + c / g, 0, NR / g * 4);
                small_product qk = {f,           qa + u * dg,
                                    kt + c * dg, dg,
                                    0,           see,
                                    NR,          dg,
                                    p,           s->scale * (float)LOG2_E,
                                    NR,          0};
                small_product gv = {f, ga + u * dg, vt + c * dg, dg, 0, see, NR, dg, dp, 1, NR, 0};
                if (s->int8) {
                    scores8(&l8, s, u, see, c, p, dp);
                } else {
                    small(&qk, SIZE_MAX);
                    small(&gv, SIZE_MAX);
                }
                cap_scores(p, see, NR, s->cap);
                scores here = {.shape = s,
                               .t = u,
                               .j = j + c,
                               .rows = see,
                               .n = smaller_size(NR, n - c),
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
            /* true if an earlier block of keys has already written these rows of dq */
            int begun = j > 0 && (s->window == 0 || t < j - 1 + s->window);
            small_product sk = {
                f,     sa,     kb,   ld_s, KB / g * NR, rows, D, (n + g - 1) / g, dq + t * s->ldq,
                alpha, s->ldq, begun};
            small_deep(&sk, t - j);
        }
        if (IN_TILES) rows_scale(dkt, s->scale, D * KB);
        for (size_t c = 0; c < keys; c += NR) {
            size_t n = smaller_size(NR, keys - c);
            add_transposed(dk + (j + c) * s->ldk, s->ldk, dkt + c * D, D, n, tmp);
            add_transposed(dv + (j + c) * s->ldv, s->ldv, dvt + c * D, D, n, tmp);
        }
    }
    for (size_t t = 0; IN_TILES && t < T; t++) rows_scale(dq + t * s->ldq, s->scale, D);
}

#define BT_ATTENTION_SLOTS .attn_fwd = attn_fwd, .attn_bwd = attn_bwd

#endif /* BT_VECTORS */
#endif
