/* isa_attention_int8.h - int8 products of attention (bt_attn_shape.int8): both products of the forward pass, and the
 * two products of the backward pass whose depth is D. Included once by each set's file, by isa_attention.h.
 *
 *     q, k, dout, v   rounded by rows; rows as A, panels of NR rows as B (+ BYTE_BIAS)
 *     v               in the forward pass by columns over all keys, in panels whose depth is the keys
 *     P               exp(S - max) in steps of 1/126, rounded so that sums are preserved; divided by a row's own
 *                     sum
 *
 * Sums are exact; S of forward and backward has the same bits. Keys and values are packed once per head. */
#ifndef BT_ENGINE_KERNELS_ISA_ATTENTION_ISA_ATTENTION_INT8_H
#define BT_ENGINE_KERNELS_ISA_ATTENTION_ISA_ATTENTION_INT8_H

#include "engine/kernels/isa/attention/isa_attention_operands.h"

#if defined(BT_VECTORS)

/* rows rounded to int8, as left operand of a product */
typedef struct rows8 {
    int8_t *x;
    size_t ld; /* bytes */
    float *scale;
    int32_t *sums;
} rows8;

/* the product y (rows, cols) = scale a_scale[row] by[col] (a b) */
typedef struct small8 {
    const rows8 *a;
    size_t row; /* first row in a */
    const uint8_t *b;
    size_t panel, rows, cols, groups;
    float *y, scale;
    size_t ldy;
    const float *by;
} small8;

static void small_i8(const small8 *p, size_t diagonal) {
    const tile_i8_fn tile = tile_u8();
    const size_t tiles = (p->rows + MR - 1) / MR;
    for (size_t j = 0; j < p->cols; j += NR) {
        tile_i8_out o = {.ldy = p->ldy, .cols = p->cols - j, .scale = p->scale, .by = p->by + j};
        for (size_t t = 0; t < tiles; t++) {
            const size_t r0 = p->rows * t / tiles, r1 = p->rows * (t + 1) / tiles, r = p->row + r0;
            if (diagonal != SIZE_MAX && j >= diagonal + r1) continue;
            o.y = p->y + r0 * p->ldy + j;
            o.dq = p->a->scale + r;
            o.sums = p->a->sums + r;
            tile(r1 - r0, &o, p->a->x + r * p->a->ld, p->a->ld, p->b + j / NR * p->panel,
                 p->groups);
        }
    }
}

/* like small_deep */
static void small_deep_i8(const small8 *p, size_t diagonal) {
    const size_t tiles = (p->rows + MR - 1) / MR;
    for (size_t t = 0; t < tiles; t++) {
        const size_t r0 = p->rows * t / tiles, r1 = p->rows * (t + 1) / tiles;
        small8 rows = *p;
        rows.row += r0;
        rows.y += r0 * p->ldy;
        rows.rows = r1 - r0;
        rows.groups = smaller_size(p->groups, (diagonal + r1 + 3) / 4);
        small_i8(&rows, SIZE_MAX);
    }
}

/* returns the bytes of a row of D int8 elements, rounded up to whole vectors */
static size_t row8(size_t D) { return round_up(D, 4 * VL); }

/* Allocates rows of zeros; later writes change only the first D elements of a row. */
static rows8 rows8_of(pool *mem, size_t rows, size_t ld) {
    const rows8 r = {piece(mem, rows * ld / 4), ld, piece(mem, round_up(rows, VL)),
                     piece(mem, round_up(rows, VL))};
    memset(r.x, 0, rows * ld);
    return r;
}

/* Returns elements [d, d + n) of row t, n <= VL, followed by zeros. */
BT_INLINE vf head_vector(const head *h, size_t t, size_t d, size_t n) {
    if (!h->bf16) {
        const vf v = n == VL ? v_load(floats_at(h, t, d)) : v_load_n(floats_at(h, t, d), n);
        return h->rounds ? v_bits(vi_sll(bf16_of(v), 16)) : v;
    }
    uint16_t some[VL] = {0};
    const uint16_t *x = kept_at(h, t, d);
    if (n < VL) x = memcpy(some, x, n * sizeof *x);
    return v_bits(vi_sll(vi_from_u16(x), 16));
}

/* Returns the factor 127 / top, or 0 if top is 0. The scale top / 127 is not finite if top is not finite. */
BT_INLINE vf int8_steps(vf top) {
    return v_where_eq(top, v_set(0), v_set(0), v_div(v_set(127), top));
}

/* A batch of at most VL rows from t on, whose per-row numbers share one vector. even: there are VL rows of whole
 * vectors */
BT_INLINE void head_batch8(const rows8 *to, size_t at, const head *h, size_t t, size_t some,
                           size_t D, const bool even) {
    const size_t rows = even ? VL : some;
    vi all[VL];
    float by[VL];
    BT_UNROLL for (size_t i = 0; i < VL; i++) all[i] = vi_set(0);
    BT_UNROLL for (size_t i = 0; i < VL; i++) for (size_t d = 0; d < D && i < rows; d += VL)
        all[i] = vi_max(all[i],
                        magnitude(head_vector(h, t + i, d, even ? VL : smaller_size(VL, D - d))));
    transpose(all);
    vi top = all[0];
    BT_UNROLL for (size_t i = 1; i < VL; i++) top = vi_max(top, all[i]);
    v_store(by, int8_steps(v_bits(top)));
    v_store(to->scale + at, v_mul(v_bits(top), v_set(1.0f / 127.0f)));
    BT_UNROLL for (size_t i = 0; i < VL; i++) all[i] = vi_set(0);
    BT_UNROLL for (size_t i = 0; i < VL; i++) for (size_t d = 0; d < D && i < rows; d += VL) {
        const size_t n = even ? VL : smaller_size(VL, D - d);
        const vi x = vi_round(v_mul(head_vector(h, t + i, d, n), v_set(by[i])));
        vi_store_i8_n(to->x + (at + i) * to->ld + d, x, n);
        all[i] = vi_add(all[i], x);
    }
    transpose(all);
    vi sum = all[0];
    BT_UNROLL for (size_t i = 1; i < VL; i++) sum = vi_add(sum, all[i]);
    vi_store(to->sums + at, biased(sum));
}

/* Rounds rows [t, t + rows) of the head and stores them from row `at` on. */
static void head_rows8(const rows8 *to, size_t at, const head *h, size_t t, size_t rows, size_t D) {
    const head floats = {h->x, h->ld, false, false}, rounded = {h->x, h->ld, false, true},
               kept = {h->x, h->ld, true, false};
    for (size_t r = 0; r < rows; r += VL) {
        const size_t some = smaller_size(VL, rows - r);
        if (some < VL || D % VL)
            head_batch8(to, at + r, h, t + r, some, D, false);
        else if (h->bf16)
            head_batch8(to, at + r, &kept, t + r, VL, D, true);
        else if (h->rounds)
            head_batch8(to, at + r, &rounded, t + r, VL, D, true);
        else
            head_batch8(to, at + r, &floats, t + r, VL, D, true);
    }
}

/* Rounds n <= NR rows to a panel of columns, and stores their scales; `room` has space for NR rows. */
static void head_panel8(uint8_t *panel, float *by, const rows8 *room, const head *h, size_t t,
                        size_t n, size_t D) {
    head_rows8(room, 0, h, t, n, D);
    memcpy(by, room->scale, n * sizeof *by);
    pack_fwd_panel(panel, room->x, room->ld, n, BYTE_BIAS);
}

/* Rounds each column of rows [low, T) and stores panels of NR columns whose depth is `keys` rows. by receives the
 * scales; four is scratch of 4 up(D, NR) bytes */
static void head_depth8(uint8_t *panels, float *by, const head *h, size_t low, size_t T,
                        size_t keys, size_t D, float *steps, int8_t *four) {
    const size_t wide = round_up(D, NR);
    for (size_t d = 0; d < wide; d += VL) {
        vi top = vi_set(0);
        for (size_t t = low; t < T && d < D; t++)
            top = vi_max(top, magnitude(head_vector(h, t, d, smaller_size(VL, D - d))));
        v_store(by + d, v_mul(v_bits(top), v_set(1.0f / 127.0f)));
        v_store(steps + d, int8_steps(v_bits(top)));
    }
    memset(four, 0, 4 * wide);
    for (size_t t = low; t < keys; t += 4) {
        for (size_t r = 0; r < 4; r++) {
            int8_t *y = four + r * wide;
            if (t + r >= T) {
                memset(y, 0, wide);
                continue;
            }
            for (size_t d = 0; d < D; d += VL) {
                const size_t n = smaller_size(VL, D - d);
                v_store_i8_n(y + d, v_mul(head_vector(h, t + r, d, n), v_load(steps + d)), n);
            }
        }
        for (size_t d = 0; d < wide; d += NR)
            interleave4(panels + d * keys + t * NR, four + d, wide, 4, NR, BYTE_BIAS);
    }
}

/* ---- the forward pass ------------------------------------------------------------------------ */

/* Stores the weights 2^(row - max) as int8 multiples of 1/126, their sum as integers, and returns their sum as
 * floats. The rounding error is carried to a later key of the same lane, so that many small weights keep their sum.
 * `from`: key of row[0] */
BT_INLINE float softmax_row8(int8_t *dst, const float *row, size_t from, size_t a, size_t b,
                             size_t n, float *max, int32_t *weight, const bt_prec prec) {
    enum { LANES = BT_ATTN_LANES };
    vi whole = vi_set(0);
    vf sum[2] = {v_set(0), v_set(0)}, m = v_set(*max = row_most(row, a, b)), left[LANES / VL];
    for (size_t i = 0; i < LANES / VL; i++) left[i] = v_set(0);
    for (size_t i = 0; i < n; i += NR) {
        vf e[2], *over = (int)NR == (int)LANES ? left : left + (from + i) % LANES / VL;
        row_weights(e, sum, row, m, i, a, b, prec);
        BT_UNROLL for (size_t h = 0; h < 2; h++) {
            const vf x = v_fma(v_min(e[h], v_set(1)), v_set(BT_ATTN_STEPS), over[h]),
                     steps = v_rint(x);
            over[h] = v_sub(x, steps);
            vi_store_i8_n(dst + i + h * VL, vi_round(steps), VL);
            whole = vi_add(whole, vi_round(steps));
        }
    }
    *weight = vi_hsum(whole);
    return v_hsum(v_add(sum[0], sum[1]));
}

static float softmax_put8(int8_t *dst, const float *row, size_t from, size_t a, size_t b, size_t n,
                          float *max, int32_t *weight, bt_prec prec) {
    if (prec == BT_PREC_BF16)
        return softmax_row8(dst, row, from, a, b, n, max, weight, BT_PREC_BF16);
    return softmax_row8(dst, row, from, a, b, n, max, weight, BT_PREC_FP32);
}

static void attn_fwd8(float *o, float *lse, const void *q_, const void *k_, const void *v_,
                      const bt_attn_shape *s, size_t t0, size_t t1, bt_prec prec, void *scratch) {
    const form *f = form_of(prec);
    const head q = head_of(q_, s->ldq, s, f), k = head_of(k_, s->ldk, s, f),
               v = head_of(v_, s->ldv, s, f);
    const size_t D = s->D, deep = row8(D), wide = round_up(D, NR), keys = round_up(t1, NR),
                 low = first_visible_key(s, t0) / NR * NR;
    pool mem = {scratch};
    uint8_t *kt = piece(&mem, keys * deep / 4), *vb = piece(&mem, wide * keys / 4);
    float *by = piece(&mem, keys), *by_v = piece(&mem, wide), *steps = piece(&mem, wide),
          *sc = piece(&mem, TQ * keys);
    const rows8 room = rows8_of(&mem, NR, deep), qa = rows8_of(&mem, TQ, deep),
                pa = rows8_of(&mem, TQ, keys + 4 * PAD);
    for (size_t j = low; j < t1; j += NR)
        head_panel8(kt + j * deep, by + j, &room, &k, j, smaller_size(NR, t1 - j), D);
    head_depth8(vb, by_v, &v, low, t1, keys, D, steps, piece(&mem, wide));
    for (size_t t = t0; t < t1; t += TQ) {
        const size_t rows = smaller_size(TQ, t1 - t), from = first_visible_key(s, t) / NR * NR,
                     n = round_up(t + rows, NR) - from;
        head_rows8(&qa, 0, &q, t, rows, D);
        const small8 qk = {.a = &qa,
                           .b = kt + from * deep,
                           .panel = deep * NR,
                           .rows = rows,
                           .cols = n,
                           .groups = (D + 3) / 4,
                           .y = sc,
                           .scale = s->scale * (float)LOG2_E,
                           .ldy = n,
                           .by = by + from};
        small_i8(&qk, t - from);
        cap_scores(sc, rows, n, s->cap);
        for (size_t i = 0; i < rows; i++) {
            int8_t *p = pa.x + i * pa.ld;
            int32_t whole;
            float top, sum = softmax_put8(p, sc + i * n, from, first_visible_key(s, t + i) - from,
                                          t + i + 1 - from, n, &top, &whole, f->prec);
            pa.sums[i] = BYTE_BIAS * whole;
            /* the largest weight is about 126, so the sum is never 0. The added term makes the scale NaN where the
             * sum is NaN */
            pa.scale[i] = 1.0f / (float)whole + 0.0f * sum;
            lse[t + i] = (float)((double)top * LN_2) + logf(sum);
        }
        const small8 pv = {.a = &pa,
                           .b = vb + from * NR,
                           .panel = keys * NR,
                           .rows = rows,
                           .cols = D,
                           .groups = n / 4,
                           .y = o + t * s->ldo,
                           .scale = 1,
                           .ldy = s->ldo,
                           .by = by_v};
        small_deep_i8(&pv, t - from);
    }
}

/* ---- the backward pass ----------------------------------------------------------------------- */

/* operands of the backward pass: rounded queries and dout of the whole head; keys and values of one block as panels */
typedef struct left8 {
    rows8 q, g, room;
    uint8_t *k, *v;
    float *by_k, *by_v;
} left8;

static left8 left8_of(const bt_attn_shape *s, pool *mem, const head *q, const head *g) {
    if (!s->int8) return (left8){0};
    const size_t deep = row8(s->D);
    const left8 l = {.q = rows8_of(mem, s->T, deep),
                     .g = rows8_of(mem, s->T, deep),
                     .room = rows8_of(mem, NR, deep),
                     .k = piece(mem, KB * deep / 4),
                     .v = piece(mem, KB * deep / 4),
                     .by_k = piece(mem, KB),
                     .by_v = piece(mem, KB)};
    head_rows8(&l.q, 0, q, 0, s->T, s->D);
    head_rows8(&l.g, 0, g, 0, s->T, s->D);
    return l;
}

/* Stores n <= NR keys and values, from row t on, as columns [c, c + n) of the block. */
static void right8_put(const left8 *l, size_t c, const head *k, const head *v, size_t t, size_t n,
                       size_t D) {
    const size_t deep = row8(D);
    head_panel8(l->k + c * deep, l->by_k + c, &l->room, k, t, n, D);
    head_panel8(l->v + c * deep, l->by_v + c, &l->room, v, t, n, D);
}

/* Computes s and dp (rows, NR) of the queries from u on and the panel at column c. */
static void scores8(const left8 *l, const bt_attn_shape *s, size_t u, size_t rows, size_t c,
                    float *scores_, float *dp) {
    const size_t deep = row8(s->D);
    small8 p = {.a = &l->q,
                .row = u,
                .b = l->k + c * deep,
                .rows = rows,
                .cols = NR,
                .groups = (s->D + 3) / 4,
                .y = scores_,
                .scale = s->scale * (float)LOG2_E,
                .ldy = NR,
                .by = l->by_k + c};
    small_i8(&p, SIZE_MAX);
    p.a = &l->g;
    p.b = l->v + c * deep;
    p.y = dp;
    p.scale = 1;
    p.by = l->by_v + c;
    small_i8(&p, SIZE_MAX);
}

#endif /* BT_VECTORS */
#endif
