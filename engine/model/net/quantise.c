/* quantise.c - converts latent weights to codes, scales and packed weights, in steps that ranks can share (ZeRO-3).
 *
 * The scale of a tensor is the mean of |w|. Its sum is computed over blocks that begin at multiples of BT_SUM_BLOCK of
 * the flat array, and the blocks are added in order. Pieces of the flat array also begin at such multiples, so the bits
 * do not depend on the ranks that hold them.
 *
 * In a slice of a model, elements that another rank counts add nothing. In a model with leaves the sums are exact (of
 * |w| in a unit that suits means up to 4), since other slices have other blocks. With a scale for each row or group
 * (cfg.scale) there is an exact sum for each of them instead of each block (row_scale.c).
 *
 *     sums     block 0 | 1 | 2 | ... of every ternary tensor in turn; for b1 the sums of w itself follow
 *              in a second row */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/exact.h"
#include "engine/kernels/table/ternary.h"
#include "engine/model/net/net.h"

static const float SCALE_LEAST = 1e-5f;
static const double MEAN_MOST = 4;
/* codes that are unpacked at a time; a multiple of the 128 codes of a packed block */
enum { WIRE_CHUNK = 8192 };

static size_t first_block(const bt_tensor *t) { return t->offset / BT_SUM_BLOCK; }
static size_t sum_blocks_of(const bt_tensor *t) {
    return (t->offset + t->count - 1) / BT_SUM_BLOCK - first_block(t) + 1;
}

static bool scales_rows(const bt_model *m) { return m->setup.cfg.scale != BT_SCALE_TENSOR; }
static size_t scaled_inputs(const bt_model *m, size_t cols) {
    return bt_scale_inputs(m->setup.cfg.scale, cols);
}
static size_t count_sums(const bt_model *m, const bt_tensor *t) {
    return scales_rows(m) ? t->count / scaled_inputs(m, t->cols) : sum_blocks_of(t);
}

static bt_linear *quantised_linear(bt_model *m, const bt_tensor *t) {
    if (!t->linear) return NULL;
    bt_layer *l = &m->layers[bt_net_layer(m, t->layer)];
    bt_linear *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->tensor == t) return all[i];
    return NULL;
}

static size_t floats_per_row(const bt_model *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->params.n; i++)
        if (m->params.tensors[i].tern) n += count_sums(m, &m->params.tensors[i]);
    return n;
}

static bool subtracts_mean(const bt_model *m) { return m->setup.cfg.linear == BT_LIN_BITNET1; }

size_t bt_model_quant_sums(const bt_model *m) {
    return floats_per_row(m) * (subtracts_mean(m) ? 2 : 1);
}

typedef struct sum_job {
    bt_latent w;
    const bt_tensor *t;
    double *abs, *plain;
    size_t first;
    bool exact;
    bt_exact units;
} sum_job;

static double exact_sum_abs(const sum_job *j, const float *w, size_t n, bt_exact_of of) {
    double sum[2] = {0, 0};
    bt_exact_add(sum, w, n, of, &j->units);
    return sum[0];
}

static void sum_range(void *ctx, int thread, size_t from, size_t to) {
    (void)thread;
    const sum_job *j = ctx;
    for (size_t k = from; k < to; k++) {
        size_t b = j->first + k, begin = b * BT_SUM_BLOCK, end = begin + BT_SUM_BLOCK;
        if (begin < j->t->offset + j->t->first_counted) begin = j->t->offset + j->t->first_counted;
        if (end > j->t->offset + j->t->count) end = j->t->offset + j->t->count;
        const size_t n = end - begin;
        float spare[BT_SUM_BLOCK];
        const float *w = bt_latent_read(j->w, begin - j->t->offset, n, spare);
        if (j->exact) {
            j->abs[b - first_block(j->t)] = exact_sum_abs(j, w, n, BT_EXACT_ABS);
            if (j->plain) j->plain[b - first_block(j->t)] = exact_sum_abs(j, w, n, BT_EXACT_VALUE);
            continue;
        }
        j->abs[b - first_block(j->t)] = bt_active_kernels()->sum_abs(w, n);
        if (j->plain) j->plain[b - first_block(j->t)] = bt_active_kernels()->sum(w, n);
    }
}

void bt_model_quant_fill(bt_model *m, double *sums, size_t begin, size_t end) {
    double *abs = sums, *plain = subtracts_mean(m) ? sums + floats_per_row(m) : NULL;
    for (size_t i = 0; i < m->params.n; i++) {
        const bt_tensor *t = &m->params.tensors[i];
        if (!t->tern) continue;
        size_t first = t->offset + (scales_rows(m) ? 0 : t->first_counted),
               from = first > begin ? first : begin,
               to = t->offset + t->count < end ? t->offset + t->count : end;
        if (from < to && scales_rows(m)) {
            bt_row_sums_add(abs, t, m->setup.cfg.scale, m->latents[i], from - t->offset, to - from);
        } else if (from < to) {
            sum_job j = {m->latents[i],
                         t,
                         abs,
                         plain,
                         from / BT_SUM_BLOCK,
                         m->setup.leaves > 1,
                         bt_exact_units(MEAN_MOST, (double)t->whole_rows * (double)t->whole_cols)};
            bt_parallel_for((to - 1) / BT_SUM_BLOCK - j.first + 1, 8, sum_range, &j);
        }
        abs += count_sums(m, t);
        if (plain) plain += count_sums(m, t);
    }
}

static double add_block_sums(const double *blocks, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += blocks[i];
    return sum;
}

static void reset_counts(bt_linear *l) {
    l->counts = (bt_tern_stats){0, 0, 0};
    l->counted = 0;
}

/* The rows of attn_o and ffn_down are divided over the ranks of a tensor-parallel group; all other rows are whole. */
static void total_rows(bt_model *m, const double *sums) {
    double *divided = m->totals[m->params.n];
    memset(m->totals, 0, m->n_totals * sizeof *m->totals);
    for (size_t i = 0; i < m->params.n; i++) {
        const bt_tensor *t = &m->params.tensors[i];
        if (!t->tern) continue;
        const size_t n = count_sums(m, t);
        for (size_t r = t->first_counted / scaled_inputs(m, t->cols); r < n; r++)
            m->totals[i][0] += sums[r];
        if (t->shard == BT_SHARD_COL) {
            memcpy(divided, sums, n * sizeof *sums);
            divided += n;
        }
        sums += n;
    }
    m->tp->total_sums(m, m->totals);
}

static void scale_rows(bt_model *m, const double *sums) {
    const double *divided = m->totals[m->params.n];
    total_rows(m, sums);
    for (size_t i = 0; i < m->params.n; i++) {
        const bt_tensor *t = &m->params.tensors[i];
        if (!t->tern) continue;
        bt_linear *l = quantised_linear(m, t);
        const double *whole = t->shard == BT_SHARD_COL ? divided : sums;
        const size_t n = count_sums(m, t);
        for (size_t r = 0; l && r < n; r++)
            l->scales[r] = bt_row_scale(whole[r], scaled_inputs(m, t->whole_cols));
        if (l) {
            if (l->by_group) bt_group_scales_done(l);
            l->mean_abs = (float)(m->totals[i][0] / (double)t->whole_rows / (double)t->whole_cols);
            reset_counts(l);
        }
        if (t->shard == BT_SHARD_COL) divided += n;
        sums += n;
    }
}

/* b1.58: absmean, codes round to {-1, 0, 1} (arXiv:2402.17764); b1: sign of the centred weight (arXiv:2310.11453). */
void bt_model_quant_scales(bt_model *m, const double *sums) {
    const double *abs = sums, *plain = subtracts_mean(m) ? sums + floats_per_row(m) : NULL;
    double(*totals)[2] = m->totals;
    if (scales_rows(m)) {
        scale_rows(m, sums);
        return;
    }
    for (size_t i = 0; i < m->params.n; i++) {
        const bt_tensor *t = &m->params.tensors[i];
        totals[i][0] = totals[i][1] = 0;
        if (!t->tern) continue;
        totals[i][0] = add_block_sums(abs, sum_blocks_of(t));
        abs += sum_blocks_of(t);
        if (!plain) continue;
        totals[i][1] = add_block_sums(plain, sum_blocks_of(t));
        plain += sum_blocks_of(t);
    }
    m->tp->total_sums(m, totals);
    for (size_t i = 0; i < m->params.n; i++) {
        const bt_tensor *t = &m->params.tensors[i];
        bt_linear *l = t->tern ? quantised_linear(m, t) : NULL;
        if (!l) continue;
        double n = (double)t->whole_rows * (double)t->whole_cols;
        l->scale = fmaxf((float)(totals[i][0] / n), SCALE_LEAST);
        l->mean = subtracts_mean(m) ? (float)(totals[i][1] / n) : 0.0f;
        reset_counts(l);
    }
}

static void count_code_stats(bt_linear *l, bt_tern_stats s, size_t n) {
    l->counts.zero += s.zero;
    l->counts.pos += s.pos;
    l->counts.flips += s.flips;
    l->counted += n;
}

typedef struct wire_job {
    int8_t *codes;      /* take: the destination */
    uint8_t *packed;    /* own: converts old codes to new ones, in place */
    const bt_linear *l; /* the layer, if it has a scale for each row; NULL: one scale */
    bt_latent w;
    size_t first; /* index of its first element */
    float mean, inv_scale;
    int sign;
    size_t n;
    _Atomic uint64_t zero, pos, flips;
    _Atomic int bad;
} wire_job;

static size_t chunk_elems(const wire_job *j, size_t k) {
    return j->n - k * WIRE_CHUNK < WIRE_CHUNK ? j->n - k * WIRE_CHUNK : WIRE_CHUNK;
}
static uint8_t *chunk_at(const wire_job *j, size_t k) {
    return j->packed + bt_tern2_row_bytes(k * WIRE_CHUNK);
}

static void quantise_own_range(void *ctx, int thread, size_t from, size_t to) {
    (void)thread;
    wire_job *j = ctx;
    int8_t codes[WIRE_CHUNK];
    float spare[WIRE_CHUNK];
    for (size_t k = from; k < to; k++) {
        size_t n = chunk_elems(j, k);
        const float *w = bt_latent_read(j->w, j->first + k * WIRE_CHUNK, n, spare);
        if (bt_tern2_unpack(codes, chunk_at(j, k), 1, n, NULL) != BT_OK) atomic_store(&j->bad, 1);
        bt_tern_stats s = j->l ? bt_row_codes(j->l, codes, w, j->first + k * WIRE_CHUNK, n)
                               : bt_active_kernels()->tern_codes(codes, w, j->mean, j->inv_scale,
                                                                 j->sign, n);
        bt_tern2_pack(chunk_at(j, k), codes, 1, n);
        atomic_fetch_add(&j->zero, s.zero);
        atomic_fetch_add(&j->pos, s.pos);
        atomic_fetch_add(&j->flips, s.flips);
    }
}

static void quantise_range(void *ctx, int thread, size_t from, size_t to) {
    (void)thread;
    wire_job *j = ctx;
    for (size_t k = from; k < to; k++) {
        if (bt_tern2_unpack(j->codes + k * WIRE_CHUNK, chunk_at(j, k), 1, chunk_elems(j, k),
                            NULL) != BT_OK)
            atomic_store(&j->bad, 1);
    }
}

typedef struct bytes_job {
    uint8_t *to;
    const uint8_t *from;
} bytes_job;

static void copy_bytes(void *ctx, int thread, size_t begin, size_t end) {
    (void)thread;
    const bytes_job *j = ctx;
    memcpy(j->to + begin, j->from + begin, end - begin);
}

static void copy_values(bt_linear *l, bt_read as, size_t first, size_t n, const uint8_t *values) {
    bytes_job j = {(uint8_t *)l->panel + bt_read_bytes(as, first), values};
    bt_parallel_for(bt_read_bytes(as, n), 65536, copy_bytes, &j);
}

static void own_values(const bt_linear *l, bt_read as, size_t first, size_t n, uint8_t *out) {
    const float *w = bt_latent_at(l->w, first); /* fp32 values of dense layers */
    if (as == BT_READ_BF16)
        bt_op_save_bf16((uint16_t *)(void *)out, w, n);
    else
        bt_net_copy((float *)(void *)out, w, n);
}

bt_code bt_model_quant_own(bt_model *m, size_t tensor, size_t first, size_t n, uint8_t *packed,
                           bt_err *err) {
    const bt_tensor *t = &m->params.tensors[tensor];
    bt_linear *l = quantised_linear(m, t);
    if (!t->tern) {
        own_values(l, bt_model_read(t, m->setup.prec), first, n, packed);
        return BT_OK;
    }
    wire_job j = {.packed = packed,
                  .l = l->scales ? l : NULL,
                  .w = l->w,
                  .first = first,
                  .mean = l->mean,
                  .inv_scale = 1.0f / l->scale,
                  .sign = subtracts_mean(m),
                  .n = n};
    bt_parallel_for((n + WIRE_CHUNK - 1) / WIRE_CHUNK, 1, quantise_own_range, &j);
    if (j.bad)
        return bt_fail(err, BT_DAMAGED,
                       "the stored codes of '%s' are not codes of a ternary weight; memory or "
                       "hardware may be faulty",
                       t->name);
    count_code_stats(l, (bt_tern_stats){j.zero, j.pos, j.flips}, n);
    return BT_OK;
}

bt_code bt_model_quant_take(bt_model *m, size_t tensor, size_t first, size_t n,
                            const uint8_t *packed, bt_err *err) {
    const bt_tensor *t = &m->params.tensors[tensor];
    if (!t->tern) {
        copy_values(quantised_linear(m, t), bt_model_read(t, m->setup.prec), first, n, packed);
        return BT_OK;
    }
    wire_job j = {.codes = m->taken + first, .packed = (uint8_t *)(uintptr_t)packed, .n = n};
    bt_parallel_for((n + WIRE_CHUNK - 1) / WIRE_CHUNK, 1, quantise_range, &j);
    return j.bad ? bt_fail(err, BT_FORMAT,
                           "the codes of '%s' from another rank are not codes of a ternary weight; "
                           "the connection or its memory may be faulty",
                           t->name)
                 : BT_OK;
}

static void pack_codes(bt_linear *l, const int8_t *codes) {
    size_t rows = l->N / l->ranges;
    if (l->by_group) {
        bt_group_pack(l, codes);
        return;
    }
    for (size_t k = 0; k < l->ranges; k++)
        bt_op_tern_pack(l->packed + k * l->packed_bytes, codes + k * rows * l->K, rows, l->K);
}

void bt_model_quant_place(bt_model *m, size_t tensor) {
    const bt_tensor *t = &m->params.tensors[tensor];
    if (t->tern) pack_codes(quantised_linear(m, t), m->taken);
}

static void pack2_rows(void *ctx, int thread, size_t from, size_t to) {
    (void)thread;
    const bt_linear *l = ctx;
    if (!l->by_group) {
        bt_tern2_pack(l->packed2 + from * bt_tern2_row_bytes(l->K), l->codes + from * l->K,
                      to - from, l->K);
        return;
    }
    for (size_t g = 0; g < bt_linear_groups(l); g++) {
        const bt_linear part = bt_group_part(l, g);
        for (size_t r = from; r < to; r++)
            bt_tern2_pack(part.packed2 + r * bt_tern2_row_bytes(part.K),
                          l->codes + r * l->K + g * part.K, 1, part.K);
    }
}

void bt_model_quant_done(bt_model *m) {
    for (size_t i = 0; i < m->params.n && !m->holds_stats; i++) {
        bt_linear *l = m->params.tensors[i].tern ? quantised_linear(m, &m->params.tensors[i])
                                                 : NULL;
        if (!l) continue;
        double n = l->counted > 0 ? (double)l->counted : 1;
        l->stat = (bt_quant_stat){.n = (double)l->counted,
                                  .zero_frac = (double)l->counts.zero / n,
                                  .pos_frac = (double)l->counts.pos / n,
                                  .flip_frac = m->quantised ? (double)l->counts.flips / n : 0.0,
                                  .scale = (double)(l->scales ? l->mean_abs : l->scale),
                                  .mean = (double)l->mean};
    }
    m->quantised = true;
}

void bt_model_quant_hold(bt_model *m, bool on) { m->holds_stats = on; }

/* Replaces the last codes by those of the latent weights. */
static bt_tern_stats refresh_codes(const bt_linear *l, int sign) {
    if (l->scales) return bt_row_codes_all(l);
    const float inv_scale = 1.0f / l->scale;
    const size_t n = l->N * l->K;
    return l->w.form == BT_MOMENT_F32
               ? bt_op_tern_codes(l->codes, l->w.at, l->mean, inv_scale, sign, n)
               : bt_op_tern_codes_bf16(l->codes, l->w.at, l->mean, inv_scale, sign, n);
}

static void quantise_weights(bt_model *m) {
    assert(m->setup.weight_source == BT_WEIGHTS_LOCAL);
    memset(m->quant_sums, 0, bt_model_quant_sums(m) * sizeof *m->quant_sums);
    bt_model_quant_fill(m, m->quant_sums, 0, m->params.total);
    bt_model_quant_scales(m, m->quant_sums);
    for (size_t i = 0; i < m->params.n; i++) {
        const bt_tensor *t = &m->params.tensors[i];
        bt_linear *l = t->tern ? quantised_linear(m, t) : NULL;
        if (!l) continue;
        count_code_stats(l, refresh_codes(l, subtracts_mean(m)), t->count);
        pack_codes(l, l->codes);
        if (l->packed2) bt_parallel_for(l->N, 64, pack2_rows, l);
    }
    m->fade.layer = -1;
    bt_model_quant_done(m);
}

void bt_model_quantise(bt_model *m) {
    if (!m->adapters.n || !m->quantised) quantise_weights(m); /* a frozen base is quantised once */
    bt_dora_refresh(m);
}

bt_quant_stat bt_model_quant_stat(const bt_model *m, size_t tensor) {
    if (m->adapters.n || tensor >= m->params.n) return (bt_quant_stat){0};
    const bt_linear *l = quantised_linear((bt_model *)(uintptr_t)m, &m->params.tensors[tensor]);
    return l ? l->stat : (bt_quant_stat){0};
}

const float *bt_model_row_scales(const bt_model *m, size_t tensor) {
    const bt_linear *l = !m->adapters.n && tensor < m->params.n
                             ? quantised_linear((bt_model *)(uintptr_t)m,
                                                &m->params.tensors[tensor])
                             : NULL;
    return l ? l->scales : NULL;
}

const int8_t *bt_model_codes(const bt_model *m, size_t tensor) {
    const bt_linear *l = !m->adapters.n && tensor < m->params.n
                             ? quantised_linear((bt_model *)(uintptr_t)m,
                                                &m->params.tensors[tensor])
                             : NULL;
    return l ? l->codes : NULL;
}
