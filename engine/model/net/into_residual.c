/* into_residual.c - what is added to the residual: the embedding with its scale, and the branches of each layer with
 * the norm that follows them (cfg.post_norm); all of them with dropout. The product of a branch with a norm or dropout
 * is added to zeros first; both are then applied to the sum. The mask is computed again in each pass and never
 * stored. */
#include <math.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

/* Sets the keys of M rows, which depend on the seed and the step of the run. */
static void set_drop(bt_drop *d, double p, uint64_t seed, uint64_t stream, uint64_t first_row,
                     size_t M) {
    d->below = (uint32_t)(p * BT_DROP_ALL + 0.5);
    d->scale = (float)(BT_DROP_ALL / (double)(BT_DROP_ALL - d->below));
    for (size_t i = 0; d->rows && d->below && i < M; i++)
        d->rows[i] = (uint32_t)bt_rng_u64(seed, stream, first_row + i);
}

static size_t pass_rows(const bt_model *m) { return (size_t)m->setup.B * (size_t)m->setup.cfg.T; }

void bt_model_dropout(bt_model *m, double p, uint64_t seed, uint64_t step, uint64_t first_row) {
    set_drop(&m->drop, p, seed, bt_rng_u64(seed, bt_hash_name("dropout"), step), first_row,
             pass_rows(m));
}

void bt_model_lora_dropout(bt_model *m, double p, uint64_t seed, uint64_t step,
                           uint64_t first_row) {
    set_drop(&m->lora_drop, p, seed, bt_rng_u64(seed, bt_hash_name("lora dropout"), step),
             first_row, pass_rows(m));
}

static bool model_drops(const bt_model *m) {
    return m->gradient_passes && m->drop.rows && m->drop.below > 0;
}

static size_t own_elems(const bt_model *m, size_t M) {
    return m->tp->own_rows(m, M).n * (size_t)m->setup.cfg.C;
}

static void drop_rows(const bt_model *m, float *y, const float *x, const bt_layer *l, bt_drop_at at,
                      size_t M, bool add) {
    const bt_rows own = m->tp->own_rows(m, M);
    const size_t layer = l ? (size_t)(m->chunk->number + (int)(l - m->layers) - m->chunk->first)
                           : 0;
    bt_drop how = m->drop;
    how.rows += own.first;
    how.site = (uint32_t)(2 * layer) + at;
    bt_op_drop(y, x, &how, add, own.n, (size_t)m->setup.cfg.C);
}

/* The norm after a branch; gain.tensor is NULL if there is none. */
typedef struct post_norm {
    const bt_gain *gain;
    float *sum, *rstd; /* own rows of its input; (M) */
} post_norm;

static post_norm post_norm_of(const bt_layer *l, bt_drop_at at) {
    const bt_acts *a = &l->a;
    return at == BT_DROP_ATTN ? (post_norm){&l->attn_post, a->attn_post, a->attn_post_rstd}
                              : (post_norm){&l->ffn_post, a->ffn_post, a->ffn_post_rstd};
}

float *bt_net_branch_begin(bt_model *m, float *x, const bt_layer *l, bt_drop_at at, size_t M) {
    const post_norm norm = post_norm_of(l, at);
    float *branch = norm.gain->tensor ? norm.sum : m->layers[0].a.branch;
    if (!norm.gain->tensor && !model_drops(m)) return x;
    bt_op_zero(branch, own_elems(m, M));
    return branch;
}

void bt_net_branch_end(bt_model *m, float *x, const bt_layer *l, bt_drop_at at, size_t M) {
    const post_norm norm = post_norm_of(l, at);
    const bt_rows own = m->tp->own_rows(m, M);
    float *branch = m->layers[0].a.branch;
    if (norm.gain->tensor)
        bt_op_rmsnorm(branch, norm.rstd + own.first, norm.sum, norm.gain->w,
                      (float)m->setup.cfg.norm_eps, own.n, (size_t)m->setup.cfg.C);
    if (!x) return;
    if (model_drops(m))
        drop_rows(m, x, branch, l, at, M, true);
    else if (norm.gain->tensor)
        bt_op_add(x, branch, own_elems(m, M));
}

const float *bt_net_branch_grad(bt_model *m, const bt_layer *l, bt_drop_at at, size_t M) {
    const post_norm norm = post_norm_of(l, at);
    const bt_acts *a = &m->layers[0].a;
    const float *dy = a->dx;
    if (model_drops(m)) {
        drop_rows(m, a->branch, a->dx, l, at, M, false);
        dy = a->branch;
    }
    if (!norm.gain->tensor) return dy;
    m->tp->norm_bwd(m, &(bt_norm_bwd){.gain = norm.gain,
                                      .dx = a->branch,
                                      .dy = dy,
                                      .x = norm.sum,
                                      .rstd = norm.rstd,
                                      .M = M});
    return a->branch;
}

void bt_net_scale_embedding(bt_model *m, float *x, size_t M) {
    if (m->setup.cfg.embed_scale) bt_op_scale(x, sqrtf((float)m->setup.cfg.C), own_elems(m, M));
    if (model_drops(m)) drop_rows(m, x, x, NULL, BT_DROP_EMBED, M, false);
}
