/* acts.c - plans the memory of the activations. */
#include "engine/model/net/acts.h"

#include <string.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/noise.h"
#include "engine/model/net/net.h"

enum { SAVED, LIGHT, HEAVY, SHARED, ATTN, FFN };
enum {
    BLOCK_BYTES = 4 << 20,
    BLOCK_BYTES_INT8 = 1 << 20,
    BLOCK_LEAST = 128,
    BLOCK_THIN = 256, /* Each block unpacks its panels once for every thread. */
    AGAIN_ROWS = 512, /* minimum number of rows; a multiple of a block */
    WIDE_ROWS = 2 * BT_GRAD_BLOCK
};

/* Int8 products read codes as they are, so the floats of a block should fit the L2 cache of its thread. Float products
 * unpack the weights for every block. */
size_t bt_acts_block(const bt_model_setup *s, size_t M) {
    bool unpacks = s->cfg.linear == BT_LIN_DENSE || (s->train && !s->grad_int8);
    size_t threads = (size_t)(s->n_threads > 0 ? s->n_threads : bt_threads_count());
    size_t bytes = unpacks ? BLOCK_BYTES : BLOCK_BYTES_INT8 * threads,
           rows = bytes / ((size_t)s->cfg.F * sizeof(float)) / 64 * 64;
    if (rows < BLOCK_LEAST) rows = BLOCK_LEAST;
    if (bt_net_keeps_base(s) && s->cfg.linear != BT_LIN_DENSE) rows = BLOCK_THIN;
    if (bt_net_layers8(s)) rows = AGAIN_ROWS; /* every block unpacks all weights to floats */
    return rows < M ? rows : M;
}

size_t bt_slice_rows(const bt_model_setup *s, size_t M) {
    if (s->slice.tp_size <= 1 || !s->sequence) return M;
    return bt_tp_first_row(M, s->slice.tp_rank + 1, s->slice.tp_size) -
           bt_tp_first_row(M, s->slice.tp_rank, s->slice.tp_size);
}

bool bt_acts_half(const bt_model_setup *s) { return s->train && s->prec == BT_PREC_BF16; }

bool bt_acts_lean(const bt_model_setup *s) {
    return s->lean && bt_acts_half(s) && s->recompute == BT_RECOMPUTE_FULL;
}

static bool is_saved(int keep, const bt_model_setup *s) {
    if (!s->train || keep >= SHARED) return false;
    if (keep == SAVED) return true;
    return keep == LIGHT ? s->recompute != BT_RECOMPUTE_FULL : s->recompute == BT_RECOMPUTE_NONE;
}

size_t bt_acts_slots(const bt_model_setup *s) {
    return s->train && s->in_flight > 1 ? (size_t)s->in_flight : 1;
}

/* With a frozen base there are no gradients of weights, whose products would need many rows at once. */
bool bt_acts_again(const bt_model_setup *s) {
    return bt_net_keeps_base(s) && s->recompute == BT_RECOMPUTE_FULL && s->slice.tp_size <= 1 &&
           s->leaves <= 1;
}

static bool int8_of_half(const bt_model_setup *s) {
    return s->grad_int8 && s->cfg.linear != BT_LIN_DENSE && bt_acts_half(s);
}

/* Products of adapters read floats. */
bool bt_acts_rounds_dy(const bt_model_setup *s) { return int8_of_half(s) && !s->cfg.lora.rank; }

/* dx and dW read the same int8 gradients, which should fit the L3 cache. Products of floats need many rows at once. */
size_t bt_acts_wide(const bt_model_setup *s, size_t M) {
    bool some = int8_of_half(s) && is_saved(HEAVY, s) && s->slice.tp_size <= 1 && s->leaves <= 1;
    if (bt_acts_again(s)) {
        const size_t block = bt_acts_block(s, M);
        return bt_min_size(M, (AGAIN_ROWS + block - 1) / block * block);
    }
    return some && M > WIDE_ROWS ? WIDE_ROWS : M;
}

void bt_acts_reserve(bt_acts_plan *p, bt_arena *arena, const bt_model_setup *s) {
    memset(p, 0, sizeof *p);
    const bt_model_cfg *c = &s->cfg;
    size_t M = (size_t)s->B * (size_t)c->T, R = bt_acts_block(s, M), i = 0, W = bt_acts_wide(s, M);
    size_t S = bt_slice_rows(s, M), G = M * bt_leaves_kv_runs(c, s->slice, s->leaves);
    bool split = s->slice.tp_size > 1 || s->leaves > 1;
    bool tern = c->linear != BT_LIN_DENSE, qk = c->qk_norm, normed = c->norm != BT_NORM_PRE,
         train = s->train;
    bool light = bt_acts_half(s) && is_saved(LIGHT, s),
         heavy = bt_acts_half(s) && is_saved(HEAVY, s), fades = s->fades, again = bt_acts_again(s),
         resid = light && tern && !fades, lean = bt_acts_lean(s),
         dy_bf16 = heavy && bt_acts_rounds_dy(s) && !split && !fades;
    bt_arena halves[2]; /* The two halves of a layer begin at the same offset. */
    int half_of[BT_ACTS_FIELDS];
    bt_arena_plan(&halves[0], "attention");
    bt_arena_plan(&halves[1], "feed-forward");
#define BT_ACTV(field, type, rows, cols, when, keep, what) \
    half_of[i] = -1; \
    if (when) { \
        int how = keep; \
        size_t n_layers = is_saved(how, s) ? (size_t)c->chunk_L * bt_acts_slots(s) : 1; \
        p->present[i] = true; \
        if (how >= ATTN) half_of[i] = how - ATTN; \
        for (size_t l = 0; l < n_layers; l++) { \
            size_t at = bt_arena_reserve(how >= ATTN ? &halves[how - ATTN] : arena, \
                                         (rows) * (size_t)(cols), sizeof(type)); \
            if (l == 0) p->first[i] = at; \
            if (l == 1) p->stride[i] = at - p->first[i]; \
        } \
    } \
    i++;
#include "engine/model/net/acts.def"
#undef BT_ACTV
    size_t larger = halves[0].bytes > halves[1].bytes ? halves[0].bytes : halves[1].bytes,
           at = bt_arena_reserve(arena, larger, 1);
    if (halves[0].overflow || halves[1].overflow) arena->overflow = true;
    for (i = 0; i < BT_ACTS_FIELDS; i++) {
        if (half_of[i] >= 0) p->first[i] += at;
    }
}

void bt_acts_point(bt_acts *a, const bt_acts_plan *p, const bt_arena *arena, size_t layer) {
    size_t i = 0;
#define BT_ACTV(field, type, rows, cols, when, keep, what) \
    a->field = p->present[i] ? bt_arena_at(arena, p->first[i] + layer * p->stride[i]) : NULL; \
    i++;
#include "engine/model/net/acts.def"
#undef BT_ACTV
    if (!a->x_mid) a->x_mid = a->x;
    if (!a->dq) a->dq = a->d_on; /* reuses a buffer whose value is no longer needed */
}

void bt_acts_save(uint16_t *saved, const float *x, size_t n) {
    if (saved) bt_op_save_bf16(saved, x, n);
}

void bt_acts_load(const bt_model_setup *s, float *x, const uint16_t *saved, size_t n) {
    if (saved)
        bt_op_load_bf16(x, saved, n);
    else if (bt_acts_half(s))
        bt_op_round_bf16(x, n);
}
