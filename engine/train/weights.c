/* weights.c - see weights.h. */
#include "engine/train/weights.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/quant/ternary.h"

/* one run of codes in the blobs: elements first .. first+n of a ternary tensor */
typedef struct code_run { size_t tensor, first, n, at; } code_run;

struct bt_weights {
    bt_model *model;
    const bt_mesh *mesh;
    const bt_shards *shards;
    bool ternary;                       /* ZeRO 3 */
    bt_pieces *pieces;                  /* NULL: one shard */
    double *sums;                       /* of |w|, by blocks; exchanged */
    code_run *runs;                     /* of all shards, shard by shard */
    size_t *run_of, *at;                /* (shards + 1) first run, first byte of each shard */
    unsigned char *blobs;
};

/* ---- plan ----------------------------------------------------------------------------------------------------------- */

static size_t most(size_t a, size_t b) { return a > b ? a : b; }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* walks the code runs of one shard in flat order; out may be NULL. Returns their number and adds their bytes to *bytes */
static size_t walk_runs(const bt_params *p, const bt_shards *s, int shard, code_run *out, size_t *bytes) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_stripes; i++) {
        bt_range r = bt_shards_piece(s, i, shard);
        for (size_t k = 0; k < p->n; k++) {
            const bt_tensor *t = &p->tensors[k];
            size_t begin = most(r.begin, t->offset), end = least(r.end, t->offset + t->count);
            if (!t->tern || begin >= end) continue;
            if (out) out[n] = (code_run){k, begin - t->offset, end - begin, *bytes};
            *bytes += bt_tern2_row_bytes(end - begin);
            n++;
        }
    }
    return n;
}

size_t bt_weights_bytes(const bt_params *p, const bt_shards *s, int zero) {
    size_t bytes = 0;
    for (int d = 0; zero >= 3 && s->n > 1 && d < s->n; d++) walk_runs(p, s, d, NULL, &bytes);
    return bytes;
}

size_t bt_weights_latent_bytes(const bt_params *p, const bt_shards *s, int zero, int shard) {
    size_t elems = 0;
    if (zero < 3 || s->n == 1) return p->total * sizeof(float);
    for (size_t k = 0; k < p->n; k++) if (!p->tensors[k].tern) elems += p->tensors[k].count;
    for (size_t i = 0; i < s->n_stripes; i++) {
        bt_range r = bt_shards_piece(s, i, shard);
        for (size_t k = 0; k < p->n; k++) {
            const bt_tensor *t = &p->tensors[k];
            size_t begin = most(r.begin, t->offset), end = least(r.end, t->offset + t->count);
            if (t->tern && begin < end) elems += end - begin;
        }
    }
    return elems * sizeof(float);
}

static bt_code plan_runs(bt_weights *w, bt_err *err) {
    const bt_params *p = bt_model_params(w->model);
    size_t n = 0, bytes = 0, shards = (size_t)w->shards->n;
    for (int d = 0; d < w->shards->n; d++) n += walk_runs(p, w->shards, d, NULL, &bytes);
    w->runs = calloc(n + 1, sizeof *w->runs);
    w->run_of = calloc(shards + 1, sizeof *w->run_of);
    w->at = calloc(shards + 1, sizeof *w->at);
    w->blobs = malloc(bytes + 1);
    w->sums = calloc(bt_model_quant_sums(w->model) + 1, sizeof *w->sums);
    if (!w->runs || !w->run_of || !w->at || !w->blobs || !w->sums) return bt_fail(err, BT_NOMEM, "cannot take %.1f MiB for the ternary codes of other ranks", (double)bytes / 1048576.0);
    n = bytes = 0;
    for (int d = 0; d < w->shards->n; d++) {
        n += walk_runs(p, w->shards, d, w->runs + n, &bytes);
        w->run_of[d + 1] = n;
        w->at[d + 1] = bytes;
    }
    return BT_OK;
}

/* what travels as fp32: everything, or all but ternary tensors */
static bt_code plan_pieces(bt_weights *w, bt_err *err) {
    const bt_params *p = bt_model_params(w->model);
    bt_range *ranges = calloc(p->n + 1, sizeof *ranges);
    if (!ranges) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu tensors", p->n);
    size_t n = 0;
    for (size_t k = 0; w->ternary && k < p->n; k++) {
        const bt_tensor *t = &p->tensors[k];
        if (!t->tern) ranges[n++] = (bt_range){t->offset, t->offset + t->count};
    }
    if (!w->ternary) ranges[n++] = (bt_range){0, p->total};
    bt_code code = bt_pieces_create(&w->pieces, w->mesh, w->shards, ranges, n, err);
    free(ranges);
    return code;
}

/* The layers' latents lie in pieces, and each layer's norms, which all ranks hold, lie between: huge pages would bring the
 * others' pieces in with them. */
static void use_small_pages(bt_model *m) {
    const bt_params *p = bt_model_params(m);
    size_t from = p->total, to = 0;
    for (size_t k = 0; k < p->n; k++) {
        if (!p->tensors[k].tern) continue;
        from = least(from, p->tensors[k].offset);
        to = most(to, p->tensors[k].offset + p->tensors[k].count);
    }
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), a = (uintptr_t)(bt_model_weights(m) + from) / page * page, b = (uintptr_t)(bt_model_weights(m) + to);
    if (from < to) (void)madvise((void *)a, (b - a + page - 1) / page * page, MADV_NOHUGEPAGE);
}

bt_code bt_weights_create(bt_weights **out, bt_model *m, const bt_mesh *mesh, const bt_shards *shards, int zero, bt_err *err) {
    *out = NULL;
    bt_weights *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "cannot take memory for the weights' owners");
    *w = (bt_weights){.model = m, .mesh = mesh, .shards = shards, .ternary = zero >= 3 && shards->n > 1};
    if (w->ternary) use_small_pages(m);
    bt_code code = shards->n > 1 ? plan_pieces(w, err) : BT_OK;
    if (code == BT_OK && w->ternary) code = plan_runs(w, err);
    if (code != BT_OK) {
        bt_weights_destroy(w);
        return code;
    }
    *out = w;
    return BT_OK;
}

void bt_weights_destroy(bt_weights *w) {
    if (!w) return;
    bt_pieces_destroy(w->pieces);
    free(w->runs);
    free(w->run_of);
    free(w->at);
    free(w->blobs);
    free(w->sums);
    free(w);
}

bool bt_weights_holds(const bt_weights *w, const bt_tensor *t) { return !w->ternary || !t->tern; }

/* ---- use ------------------------------------------------------------------------------------------------------------ */

bt_code bt_weights_gather(bt_weights *w, size_t stripe, bt_err *err) {
    return w->pieces ? bt_pieces_gather_start(w->pieces, bt_model_weights(w->model), stripe, err) : BT_OK;
}

static bt_code finish(bt_weights *w, int64_t *comm_ns, bt_err *err) {
    int64_t start = bt_now_ns();
    BT_TRY(bt_pieces_finish(w->pieces, err));
    *comm_ns += bt_now_ns() - start;
    return BT_OK;
}

static bt_code sum_of_all(bt_weights *w, int64_t *comm_ns, bt_err *err) {
    size_t n = bt_model_quant_sums(w->model);
    memset(w->sums, 0, n * sizeof *w->sums);
    for (size_t i = 0; i < w->shards->n_stripes; i++) {
        bt_range r = bt_shards_piece(w->shards, i, w->mesh->me.dp_shard);
        bt_model_quant_fill(w->model, w->sums, r.begin, r.end);
    }
    int64_t start = bt_now_ns();
    BT_TRY(bt_all_reduce_f64(w->mesh->shard, w->sums, n, BT_SUM, err));         /* x + 0 is x: no bit changes */
    *comm_ns += bt_now_ns() - start;
    bt_model_quant_scales(w->model, w->sums);
    return BT_OK;
}

/* Own latents to codes, codes to all, all codes to panels. */
static bt_code quantise_shards(bt_weights *w, int64_t *comm_ns, bt_err *err) {
    int me = w->mesh->me.dp_shard;
    BT_TRY(sum_of_all(w, comm_ns, err));
    for (size_t i = 0; i < w->shards->n_stripes; i++) {
        bt_range r = bt_shards_piece(w->shards, i, me);
        bt_model_quant_codes(w->model, r.begin, r.end);
    }
    for (size_t k = w->run_of[me]; k < w->run_of[me + 1]; k++) {
        const code_run *r = &w->runs[k];
        bt_model_quant_give(w->model, r->tensor, r->first, r->n, w->blobs + r->at);
    }
    BT_TRY(bt_pieces_blobs_start(w->pieces, w->blobs, w->at, err));
    BT_TRY(finish(w, comm_ns, err));
    for (size_t k = 0; k < w->run_of[w->shards->n]; k++) {
        const code_run *r = &w->runs[k];
        if (k >= w->run_of[me] && k < w->run_of[me + 1]) continue;
        BT_TRY(bt_model_quant_take(w->model, r->tensor, r->first, r->n, w->blobs + r->at, err));
    }
    bt_model_quant_pack(w->model);
    return BT_OK;
}

bt_code bt_weights_quantise(bt_weights *w, int64_t *comm_ns, bt_err *err) {
    if (w->ternary) return quantise_shards(w, comm_ns, err);
    if (w->pieces) BT_TRY(finish(w, comm_ns, err));
    bt_model_quantise(w->model);
    return BT_OK;
}
