/* codes.c - counts changes of ternary codes, with the last two codes of each weight (kernel slot code_history). */
#include "engine/observe/codes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"

/* CHUNK, even: number of weights that a thread processes at once. */
enum { CHUNK = 16384, BLOCK = 4096 };

struct bt_codes {
    bt_model *model;
    bt_codes_cfg cfg;
    uint8_t *history; /* Two weights per byte; each slice and chunk begins at a byte. */
    int samples;
};

bt_range bt_codes_slice(const bt_codes_cfg *c, const bt_tensor *t, size_t i) {
    bt_range r = bt_shards_piece(c->shards, i, c->shard);
    if (r.begin < t->offset + t->first_counted) r.begin = t->offset + t->first_counted;
    if (r.end > t->offset + t->count) r.end = t->offset + t->count;
    if (r.begin >= r.end) return (bt_range){0, 0};
    size_t n = r.end - r.begin, part = (size_t)c->part, parts = (size_t)c->parts;
    return (bt_range){r.begin + n * part / parts, r.begin + n * (part + 1) / parts};
}

bt_range bt_codes_stripes(const bt_codes_cfg *c, const bt_tensor *t) {
    return bt_shards_stripes(c->shards, (bt_range){t->offset, t->offset + t->count});
}

size_t bt_codes_bytes(const bt_params *p, const bt_codes_cfg *c) {
    size_t bytes = 0;
    for (size_t k = 0; k < p->n; k++) {
        const bt_range stripes = bt_codes_stripes(c, &p->tensors[k]);
        for (size_t i = stripes.begin; p->tensors[k].tern && i < stripes.end; i++) {
            bt_range r = bt_codes_slice(c, &p->tensors[k], i);
            bytes += (r.end - r.begin + 1) / 2;
        }
    }
    return bytes;
}

bt_code bt_codes_create(bt_codes **out, bt_model *m, const bt_codes_cfg *cfg, bt_err *err) {
    size_t bytes = bt_codes_bytes(bt_model_params(m), cfg);
    bt_codes *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c) *c = (bt_codes){.model = m, .cfg = *cfg, .history = calloc(bytes + 1, 1)};
    if (!c || !c->history) {
        bt_codes_destroy(c);
        return bt_fail(err, BT_NOMEM, "cannot allocate %.1f MiB for the history of ternary codes",
                       (double)bytes / 1048576.0);
    }
    *out = c;
    return BT_OK;
}

void bt_codes_destroy(bt_codes *c) {
    if (!c) return;
    free(c->history);
    free(c);
}

int bt_codes_samples(const bt_codes *c) { return c->samples; }

typedef struct look {
    const bt_codes *c;
    size_t tensor, first; /* tensor, and its first element in this slice */
    bt_latent w;
    uint8_t *history;
    size_t n;
    float mean, inv_scale, threshold;
    const float *scales; /* one scale for each `cols` weights; NULL: inv_scale */
    size_t cols;
    _Atomic uint64_t flips, sign_flips, back, near;
} look;

static const int8_t *codes_to_count(const look *j, size_t first, size_t n, int8_t *spare) {
    if (j->c->cfg.weights) return bt_weights_codes(j->c->cfg.weights, j->tensor, first, n, spare);
    return bt_model_codes(j->c->model, j->tensor) + first;
}

/* Counts, row by row, the weights first .. first+n of the tensor, at w, that are close to a threshold. */
static uint64_t count_near_in_rows(const look *j, const float *w, size_t first, size_t n) {
    uint64_t near = 0;
    for (size_t at = 0, some; at < n; at += some) {
        const size_t row = (first + at) / j->cols;
        some = bt_min_size(n - at, (row + 1) * j->cols - (first + at));
        near += bt_active_kernels()->code_near(w + at, some, j->mean, 1 / j->scales[row],
                                               j->threshold, BT_CODES_BAND);
    }
    return near;
}

static void count_code_range(void *ctx, int thread, size_t from, size_t to) {
    look *j = ctx;
    bt_code_seen seen = {0, 0, 0};
    int8_t spare[CHUNK];
    float weights[BLOCK];
    uint64_t near = 0;
    (void)thread;
    for (size_t c = from; c < to; c++) {
        size_t at = c * CHUNK, n = j->n - at < CHUNK ? j->n - at : CHUNK;
        bt_active_kernels()->code_history(j->history + at / 2,
                                          codes_to_count(j, j->first + at, n, spare), n, &seen);
        for (size_t i = 0; i < n; i += BLOCK) {
            const size_t some = n - i < BLOCK ? n - i : BLOCK;
            const float *w = bt_latent_read(j->w, j->first + at + i, some, weights);
            near += j->scales ? count_near_in_rows(j, w, j->first + at + i, some)
                              : bt_active_kernels()->code_near(w, some, j->mean, j->inv_scale,
                                                               j->threshold, BT_CODES_BAND);
        }
    }
    atomic_fetch_add(&j->flips, seen.flips);
    atomic_fetch_add(&j->sign_flips, seen.sign_flips);
    atomic_fetch_add(&j->back, seen.back);
    atomic_fetch_add(&j->near, near);
}

void bt_codes_sample(bt_codes *c, bt_code_counts *counts) {
    const bt_params *p = bt_model_params(c->model);
    bool binary = bt_model_config(c->model)->linear == BT_LIN_BITNET1;
    uint8_t *history = c->history;
    memset(counts, 0, p->n * sizeof *counts);
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *t = &p->tensors[k];
        bt_quant_stat q = bt_model_quant_stat(c->model, k);
        const bt_range stripes = bt_codes_stripes(&c->cfg, t);
        for (size_t i = stripes.begin; t->tern && i < stripes.end; i++) {
            bt_range r = bt_codes_slice(&c->cfg, t, i);
            look j = {.c = c,
                      .tensor = k,
                      .first = r.begin - t->offset,
                      .w = bt_model_latent(c->model, k),
                      .history = history,
                      .n = r.end - r.begin,
                      .mean = (float)q.mean,
                      .inv_scale = 1 / (float)q.scale,
                      .threshold = binary ? 0.0f : 0.5f,
                      .scales = bt_model_row_scales(c->model, k),
                      .cols = bt_scale_inputs(bt_model_config(c->model)->scale, t->cols)};
            if (j.n == 0) continue;
            bt_parallel_for((j.n + CHUNK - 1) / CHUNK, 1, count_code_range, &j);
            history += (j.n + 1) / 2;
            counts[k].flips += (double)j.flips;
            counts[k].sign_flips += (double)j.sign_flips;
            counts[k].back += (double)j.back;
            counts[k].near += (double)j.near;
        }
    }
    if (c->samples < 3) c->samples++;
}
