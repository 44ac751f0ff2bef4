/* matrix_map.c - computes shards and tensor-parallel blocks of one stage's matrices. */
#include "engine/update/matrix_map.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/optim/muon.h"

typedef struct ranked {
    double flops;
    size_t k;
} ranked;

static int by_work(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->flops != y->flops) return x->flops < y->flops ? 1 : -1;
    return x->k < y->k ? -1 : 1;
}

static bt_code rank_matrices(bt_matrix_map *m, bt_err *err) {
    const bt_params *p = &m->params[0];
    ranked *list = calloc(p->n + 1, sizeof *list);
    m->order = calloc(p->n + 1, sizeof *m->order);
    if (!list || !m->order) {
        free(list);
        return bt_fail(err, BT_NOMEM, "cannot take memory for the list of %zu matrices", p->n);
    }
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *x = &p->tensors[k];
        if (!x->linear) continue;
        list[m->n++] = (ranked){bt_muon_flops(x->whole_rows, x->whole_cols), k};
        m->max_short = bt_max_size(m->max_short, bt_min_size(x->whole_rows, x->whole_cols));
        m->max_long = bt_max_size(m->max_long, bt_max_size(x->whole_rows, x->whole_cols));
    }
    qsort(list, m->n, sizeof *list, by_work);
    for (size_t i = 0; i < m->n; i++) m->order[i] = list[i].k;
    free(list);
    return BT_OK;
}

bt_code bt_matrix_map_init(bt_matrix_map *m, const bt_rank_setup *s, bt_err *err) {
    int dp = s->shape.dp_replicate * s->shape.dp_shard, tp = s->shape.tp;
    *m = (bt_matrix_map){.replicas = s->replicas, .shards = s->shards.n, .ranks = dp * tp};
    m->params = calloc((size_t)tp, sizeof *m->params);
    m->cuts = calloc((size_t)tp, sizeof *m->cuts);
    if (!m->params || !m->cuts)
        return bt_fail(err, BT_NOMEM, "cannot take memory for the tensors of %d ranks", tp);
    for (m->tp = 0; m->tp < tp; m->tp++) {
        bt_model_slice slice = s->model.slice;
        if (tp > 1) slice.tp_rank = m->tp;
        BT_TRY(bt_params_init(&m->params[m->tp], &s->model.cfg, slice, err));
        bt_shards_init(&m->cuts[m->tp], m->params[m->tp].total, (size_t)s->cfg->train.bucket_bytes,
                       s->shape.dp_replicate, s->sharded ? s->shape.dp_shard : 1);
    }
    return rank_matrices(m, err);
}

void bt_matrix_map_release(bt_matrix_map *m) {
    for (int t = 0; t < m->tp; t++) bt_params_release(&m->params[t]);
    free(m->params);
    free(m->cuts);
    free(m->order);
    memset(m, 0, sizeof *m);
}

/* Returns the next contiguous range of the stream, in elements of the block; *stripe is 0 before the first call. */
static bool next_stretch(const bt_matrix_map *m, bt_matrix_share who, size_t *stripe,
                         bt_range *out) {
    const bt_tensor *x = &m->params[who.tp_rank].tensors[who.k];
    const bt_shards *cuts = &m->cuts[who.tp_rank];
    size_t first = x->offset + (who.counted ? x->first_counted : 0), end = x->offset + x->count;
    *stripe = bt_max_size(*stripe, first / cuts->stripe);
    while (*stripe < cuts->n_stripes && *stripe * cuts->stripe < end) {
        bt_range piece = bt_shards_piece(cuts, (*stripe)++, who.shard);
        bt_range r = {bt_max_size(piece.begin, first), bt_min_size(piece.end, end)};
        if (r.begin >= r.end) continue;
        *out = (bt_range){r.begin - x->offset, r.end - x->offset};
        return true;
    }
    return false;
}

size_t bt_matrix_map_elems(const bt_matrix_map *m, bt_matrix_share who) {
    size_t sum = 0, stripe = 0;
    bt_range r;
    while (next_stretch(m, who, &stripe, &r)) sum += r.end - r.begin;
    return sum;
}

/* Copies between the stream and the whole matrix, one row of the block at a time. */
static void copy_matrix_rows(const bt_matrix_map *m, bt_matrix_share who, uint16_t *stream,
                             uint16_t *whole, bool pack) {
    const bt_tensor *x = &m->params[who.tp_rank].tensors[who.k];
    size_t stripe = 0;
    bt_range r;
    while (next_stretch(m, who, &stripe, &r)) {
        for (size_t i = r.begin, n; i < r.end; i += n, stream += n) {
            uint16_t *at = whole + bt_tensor_place(x, i);
            n = bt_min_size(x->cols - i % x->cols, r.end - i);
            memcpy(pack ? stream : at, pack ? at : stream, n * sizeof *stream);
        }
    }
}

void bt_matrix_map_unpack(const bt_matrix_map *m, bt_matrix_share who, const uint16_t *stream,
                          uint16_t *whole) {
    copy_matrix_rows(m, who, (uint16_t *)stream, whole, false);
}

void bt_matrix_map_pack(const bt_matrix_map *m, bt_matrix_share who, uint16_t *stream,
                        const uint16_t *whole) {
    copy_matrix_rows(m, who, stream, (uint16_t *)whole, true);
}

size_t bt_matrix_map_most(const bt_matrix_map *m) {
    size_t most = 0;
    for (size_t i = 0; i < m->n; i++) {
        size_t sum = 0;
        for (int t = 0; t < m->tp; t++) sum += m->params[t].tensors[m->order[i]].count;
        most = bt_max_size(most, sum);
    }
    return most;
}
