/* residual.c - memory of the residuals, and their form in checkpoints. */
#include "engine/update/residual.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/kernels/ops/ops.h"
#include "engine/update/tensor_slices.h"

static bool codec_has_state(const bt_rank_setup *s) {
    return s->dp > 1 && bt_rank_setup_form(s).codec->state_bytes > 0;
}

size_t bt_residual_bytes(const bt_rank_setup *s) {
    return codec_has_state(s) ? s->params.total * sizeof(float) : 0;
}

static uint64_t add_to_hash(uint64_t hash, int64_t x) { return bt_splitmix64(hash ^ (uint64_t)x); }

/* The result is the same on all ranks of the world. */
static bt_code hash_layout(bt_residual *r, bt_err *err) {
    const bt_rank_setup *s = r->setup;
    int n = (int)s->dp, world = n * s->shape.tp * s->shape.pp,
        *hosts = calloc((size_t)n, sizeof *hosts);
    if (!hosts) return bt_fail(err, BT_NOMEM, "cannot take memory for %d ranks", n);
    const int64_t numbers[] = {s->shape.pp,       s->shape.dp_replicate,
                               s->shape.dp_shard, s->shape.tp,
                               s->sharded,        s->cfg->train.bucket_bytes};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        hash = add_to_hash(hash, numbers[i]);
    if (bt_slice_chunks(s->model.slice) > 1)
        hash = add_to_hash(hash, bt_slice_chunks(s->model.slice));
    for (int rank = 0; rank < world; rank++) {
        bt_mesh_dp_hosts(&s->shape, rank, hosts);
        for (int d = 0; d < n; d++)
            hash = add_to_hash(hash, hosts[d] == hosts[0] ? 0 : hosts[d] + 1);
    }
    r->layout = (int64_t)(hash >> 2);
    free(hosts);
    return BT_OK;
}

static bt_code name_states(bt_residual *r, int n, bt_err *err) {
    char(*names)[32] = realloc(r->names, (size_t)n * sizeof *names);
    if (!names) return bt_fail(err, BT_NOMEM, "cannot take memory for %d ranks", n);
    r->names = names;
    for (int d = 0; d < n; d++) snprintf(names[d], sizeof names[d], "residual.%d", d);
    r->n_names = n;
    return BT_OK;
}

bt_code bt_residual_create(bt_residual *r, const bt_rank_setup *s, bt_err *err) {
    *r = (bt_residual){.setup = s, .scale = 1};
    BT_TRY(hash_layout(r, err));
    BT_TRY(name_states(r, (int)s->dp, err));
    if (!codec_has_state(s)) return BT_OK;
    r->plain = calloc(s->params.n + 1, sizeof *r->plain);
    if (!r->plain) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu tensors", s->params.n);
    for (size_t k = 0; k < s->params.n; k++) r->plain[k] = s->payload_tensors[k].plain;
    bt_arena_plan(&r->arena, "residual");
    size_t at = bt_arena_reserve(&r->arena, s->params.total, sizeof(float)),
           before = bt_arena_reserve(&r->arena, s->params.total, sizeof(float));
    BT_TRY(bt_arena_commit(&r->arena, err));
    r->owed = bt_arena_at(&r->arena, at);
    r->before = bt_arena_at(&r->arena, before);
    return BT_OK;
}

static void drop_carried(bt_residual *r) {
    for (int i = 0; i < r->n_carried; i++) free(r->carried[i]);
    free(r->carried);
    r->carried = NULL;
    r->n_carried = 0;
    r->given = false;
}

void bt_residual_release(bt_residual *r) {
    drop_carried(r);
    bt_arena_release(&r->arena);
    free(r->names);
    free(r->plain);
    *r = (bt_residual){0};
}

static void save_residual_keys(void *ctx, bt_json *j) {
    const bt_residual *r = ctx;
    if (!r->owed) return;
    bt_json_int(j, "ranks", r->setup->dp);
    bt_json_int(j, "layout", r->layout);
    bt_json_num(j, "scale", r->scale);
}

/* Called before slices are requested, because the content of the checkpoint determines them. If there is no memory for
 * carried residuals, they are dropped, as without error feedback. */
static void load_residual_keys(void *ctx, const bt_state_values *v) {
    bt_residual *r = ctx;
    const bt_rank_setup *s = r->setup;
    int saved = (int)bt_state_int(v, "ranks", 0), me = s->me.dp, dp = (int)s->dp;
    drop_carried(r);
    r->scale = bt_state_real(v, "scale", 1);
    bool same = bt_state_int(v, "layout", 0) == r->layout;
    if (saved <= 0 || s->cfg->train.reproducible || (same && r->owed)) return;
    int n = saved > me ? (saved - me + dp - 1) / dp : 0;
    int names = saved > r->n_names ? saved : r->n_names;
    if (n == 0 || name_states(r, names, NULL) != BT_OK) return;
    r->carried = calloc((size_t)n, sizeof *r->carried);
    for (int i = 0; r->carried && i < n; i++) {
        r->carried[i] = calloc(s->params.total + 1, sizeof **r->carried);
        if (!r->carried[i]) return;
        r->n_carried = i + 1;
    }
}

/* Appends slices of the residuals. own: those of this layout; plain tensors have none. Otherwise the carried residuals
 * of a checkpoint's layout, for any tensor. Only one tensor-parallel rank receives those of a replicated tensor,
 * because the gradients of these ranks are added later. */
static void add_slices(const bt_residual *r, int d, float *values, bool own, bool optional,
                       bt_slices *out) {
    const bt_rank_setup *s = r->setup;
    for (size_t k = 0; k < s->params.n; k++) {
        const bt_tensor *x = &s->params.tensors[k];
        size_t from = out->n, first = own ? 0 : x->first_counted;
        if (own && r->plain[k]) continue;
        bt_tensor_slices(x, r->names[d], values + x->offset + first, (bt_range){first, x->count},
                         out);
        for (size_t i = from; i < out->n; i++) out->at[i].optional = optional;
    }
}

static void residual_slices(void *ctx, bt_state_use use, bt_slices *out) {
    const bt_residual *r = ctx;
    int me = r->setup->me.dp;
    if (bt_state_saves(use) && r->owed) add_slices(r, me, r->owed, true, false, out);
    if (use != BT_STATE_RESUME) return;
    if (r->owed && r->n_carried == 0) add_slices(r, me, r->owed, true, true, out);
    for (int i = 0; i < r->n_carried; i++)
        add_slices(r, me + i * (int)r->setup->dp, r->carried[i], false, true, out);
}

void bt_residual_add_state(bt_residual *r, bt_state *s) {
    bt_state_add(s, &(bt_state_row){.name = "residual",
                                    .ctx = r,
                                    .slices = residual_slices,
                                    .save = save_residual_keys,
                                    .load = load_residual_keys});
}

/* Loss scales are powers of two, so only exponents change. */
static void rescale_residual(bt_residual *r, double loss_scale) {
    float by = (float)(loss_scale / r->scale);
    size_t n = r->setup->params.total;
    r->scale = loss_scale;
    if (by == 1.0f) return;
    for (size_t i = 0; r->owed && i < n; i++) r->owed[i] *= by;
    for (int c = 0; c < r->n_carried; c++)
        for (size_t i = 0; i < n; i++) r->carried[c][i] *= by;
}

void bt_residual_begin(bt_residual *r, float *grads, double loss_scale, bool feedback) {
    const size_t n = r->setup->params.total;
    if (r->given) drop_carried(r);
    rescale_residual(r, loss_scale);
    for (int c = 0; c < r->n_carried; c++) bt_op_add(grads, r->carried[c], n);
    r->given = r->n_carried > 0;
    r->kept = r->owed && !(r->paid && !feedback);
    if (!r->kept) return;
    memcpy(r->before, r->owed, n * sizeof *r->owed);
    r->paid = !feedback;
    if (feedback) return;
    bt_op_add(grads, r->owed, n);
    memset(r->owed, 0, n * sizeof *r->owed);
}

void bt_residual_undo(bt_residual *r) {
    r->given = false;
    if (!r->kept) return;
    r->paid = false;
    memcpy(r->owed, r->before, r->setup->params.total * sizeof *r->owed);
}

void bt_residual_squares(const bt_residual *r, double *squares) {
    const bt_params *p = &r->setup->params;
    for (size_t k = 0; r->owed && k < p->n; k++)
        squares[p->tensors[k].number] += bt_op_sum_squares(r->owed + p->tensors[k].offset,
                                                           p->tensors[k].count) /
                                         (r->scale * r->scale);
}
