/* observe_tensors.c - computes statistics of ternary codes, gradients and updates of every tensor. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/observe/observer_impl.h"

static bt_code add_histogram_rows(bt_tensor_watch *w, const bt_train_settings *train, size_t all,
                                  bt_err *err) {
    w->every = train->stats_every;
    w->steps = train->steps;
    w->most = train->distributions;
    if (w->every == 0 || w->most == 0) return BT_OK;
    w->histograms = calloc(all, sizeof *w->histograms);
    if (!w->histograms)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the distributions of %zu tensors",
                       all);
    return bt_sample_init(&w->bins, BT_SCOPE_DISTRIBUTION, all * BT_HIST_BINS, err);
}

bt_code bt_tensor_watch_create(bt_tensor_watch *w, const bt_observer_cfg *cfg, bt_err *err) {
    size_t all = cfg->update->table.n, own = bt_model_params(cfg->model)->n;
    w->mesh = cfg->mesh;
    w->model = cfg->model;
    w->update = cfg->update;
    w->slices.shards = &cfg->update->shards;
    w->slices.weights = cfg->update->weights;
    w->counts = calloc(all, sizeof *w->counts);
    w->code_counts = calloc(own, sizeof *w->code_counts);
    BT_TRY(bt_sample_init(&w->rows, BT_SCOPE_LAYER, all, err));
    if (!w->counts || !w->code_counts)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the statistics of %zu tensors",
                       all);
    BT_TRY(add_histogram_rows(w, &cfg->setup->cfg->train, all, err));
    return cfg->setup->cfg->train.stats_every > 0
               ? bt_codes_create(&w->codes, w->model, &w->slices, err)
               : BT_OK;
}

void bt_tensor_watch_release(bt_tensor_watch *w) {
    bt_sample_release(&w->rows);
    bt_sample_release(&w->bins);
    free(w->histograms);
    free(w->counts);
    free(w->code_counts);
    bt_codes_destroy(w->codes);
}

/* Returns the tensor's name without "layers.N.". */
static const char *short_name(const bt_tensor *x) {
    const char *name = x->name;
    if (x->layer < 0) return name;
    for (int dots = 0; *name && dots < 2; name++) dots += *name == '.';
    return name;
}

enum { LOOK = 4096 };

/* Returns the elements of tensor x in this rank's i-th piece, relative to the tensor. */
static bt_range own_piece(const bt_update *u, const bt_tensor *x, size_t i) {
    bt_range r = u->pieces[i];
    if (r.begin < x->offset) r.begin = x->offset;
    if (r.end > x->offset + x->count) r.end = x->offset + x->count;
    return r.begin < r.end ? (bt_range){r.begin - x->offset, r.end - x->offset} : (bt_range){0, 0};
}

/* Counts the codes 0 and +1 that this rank is responsible for: all of its block, none, or all except the first ones if
 * it shares a kv head with a neighbouring rank. */
static void count_own_codes(const bt_tensor_watch *w, size_t k, double *row) {
    const bt_tensor *x = &bt_model_params(w->model)->tensors[k];
    bt_quant_stat q = bt_model_quant_stat(w->model, k);
    /* otherwise only the pieces that this rank owns */
    bool whole = bt_model_codes(w->model, k) != NULL;
    double zero = 0, pos = 0;
    int8_t spare[LOOK];
    for (size_t i = 0; x->tern && i < (whole ? 1 : w->update->n_pieces); i++) {
        bt_range r = whole ? (bt_range){0, x->count} : own_piece(w->update, x, i);
        for (size_t at = r.begin, n; at < x->first_counted && at < r.end; at += n) {
            n = (r.end < x->first_counted ? r.end : x->first_counted) - at;
            if (n > LOOK) n = LOOK;
            const int8_t *codes = bt_weights_codes(w->update->weights, k, at, n, spare);
            for (size_t e = 0; e < n; e++) {
                zero += codes[e] == 0;
                pos += codes[e] > 0;
            }
        }
    }
    row[COUNT_ZERO] = rint(q.zero_frac * q.n) - zero;
    row[COUNT_POS] = rint(q.pos_frac * q.n) - pos;
}

static void add_change(const bt_tensor_watch *w, size_t k, double *row) {
    const bt_tensor *x = &bt_model_params(w->model)->tensors[k];
    const bt_range stripes = bt_codes_stripes(&w->slices, x);
    for (size_t i = stripes.begin; i < stripes.end; i++)
        bt_update_change(w->update, k, bt_codes_slice(&w->slices, x, i), &row[COUNT_CHANGE],
                         &row[COUNT_BEFORE]);
}

static bt_code sum_over_ranks(const bt_tensor_watch *w, double *counts, size_t n, bt_err *err) {
    BT_TRY(bt_all_reduce_f64(w->mesh->dp, counts, n, BT_SUM, err));
    BT_TRY(bt_all_reduce_f64(w->mesh->tp, counts, n, BT_SUM, err));
    return bt_all_reduce_f64(w->mesh->pp, counts, n, BT_SUM, err);
}

/* Sums counts over whole tensors so that each block counts once. One data-parallel rank counts replicated codes; owners
 * count the codes of their pieces. Ranks with the optimizer's states count changes. */
static bt_code add_counts(bt_tensor_watch *w, bool applied, bt_err *err) {
    const bt_params *p = bt_model_params(w->model);
    size_t n = w->update->table.n;
    bt_codes_sample(w->codes, w->code_counts);
    memset(w->counts, 0, n * sizeof *w->counts);
    for (size_t i = 0; i < p->n; i++) {
        const bt_code_counts *c = &w->code_counts[i];
        double *row = w->counts[p->tensors[i].number];
        if (bt_weights_counts(w->update->weights)) count_own_codes(w, i, row);
        row[COUNT_FLIP] = c->flips;
        row[COUNT_SIGN_FLIP] = c->sign_flips;
        row[COUNT_BACK] = c->back;
        row[COUNT_NEAR] = c->near;
        if (w->mesh->me.dp == 0 && w->mesh->me.tp == 0)
            row[COUNT_SCALE] = bt_model_quant_stat(w->model, i).scale;
        if (applied) add_change(w, i, row);
    }
    return sum_over_ranks(w, w->counts[0], COUNTS * n, err);
}

static void send_bins(bt_tensor_watch *w, const bt_telemetry *t, int64_t step) {
    const bt_params *p = &w->update->table;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        const bt_histogram *h = &w->histograms[i];
        for (int b = 0; b < BT_HIST_BINS; b++) {
            if (!(h->weights[b] > 0 || h->gradients[b] > 0)) continue;
            const bt_key keys[] = {{.i = x->layer}, {.s = short_name(x)}, {.i = b}};
            double *v = bt_sample_add(&w->bins, keys);
            if (x->tern) v[BT_MD_WEIGHTS] = h->weights[b];
            v[BT_MD_GRADIENTS] = h->gradients[b];
        }
    }
    bt_sample_send(&w->bins, &t->sink, step);
}

static bt_code sample_histograms(bt_tensor_watch *w, const bt_telemetry *t, const bt_sample_step *s,
                                 bt_err *err) {
    const bt_params *p = bt_model_params(w->model);
    const size_t n = w->update->table.n;
    if (!w->histograms || !bt_histogram_due(s->step, w->every, w->steps, w->most)) return BT_OK;
    memset(w->histograms, 0, n * sizeof *w->histograms);
    for (size_t i = 0; i < p->n; i++)
        bt_histogram_add(w->model, &w->slices, i, (float)s->unscale,
                         &w->histograms[p->tensors[i].number]);
    BT_TRY(sum_over_ranks(w, (double *)w->histograms, 2 * BT_HIST_BINS * n, err));
    if (t->sink.rows) send_bins(w, t, s->step);
    return BT_OK;
}

static void fill_ternary(const bt_tensor_watch *w, const bt_tensor *x, const double *counted,
                         double *v) {
    double n = (double)x->whole_rows * (double)x->whole_cols;
    v[BT_ML_ZERO] = counted[COUNT_ZERO] / n;
    v[BT_ML_POS] = counted[COUNT_POS] / n;
    if (bt_codes_samples(w->codes) > 1) v[BT_ML_FLIP] = counted[COUNT_FLIP] / n;
    if (bt_codes_samples(w->codes) > 1) v[BT_ML_SIGN_FLIP] = counted[COUNT_SIGN_FLIP] / n;
    if (bt_codes_samples(w->codes) > 2) v[BT_ML_OSCILLATION] = counted[COUNT_BACK] / n;
    v[BT_ML_BOUNDARY] = counted[COUNT_NEAR] / n;
    v[BT_ML_SCALE] = counted[COUNT_SCALE];
}

bt_code bt_tensor_watch_sample(bt_tensor_watch *w, const bt_telemetry *t, const bt_sample_step *s,
                               bt_err *err) {
    const bt_params *p = &w->update->table;
    const double *squares;
    BT_TRY(bt_update_tensor_squares(w->update, s->unscale, &squares, err));
    BT_TRY(add_counts(w, s->applied, err));
    BT_TRY(sample_histograms(w, t, s, err));
    if (!t->sink.rows) return BT_OK;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        const double *counted = w->counts[i];
        const bt_key keys[] = {{.i = x->layer}, {.s = short_name(x)}};
        double *v = bt_sample_add(&w->rows, keys);
        if (x->tern) fill_ternary(w, x, counted, v);
        v[BT_ML_GRAD_NORM] = sqrt(squares[i]);
        if (s->residual_ratio) v[BT_ML_RESIDUAL] = s->residual_ratio[i];
        if (s->grad_bits) v[BT_ML_GRAD_BITS] = s->grad_bits[i];
        if (!s->applied)
            v[BT_ML_UPDATE] = 0;
        else if (counted[COUNT_BEFORE] > 0)
            v[BT_ML_UPDATE] = sqrt(counted[COUNT_CHANGE] / counted[COUNT_BEFORE]);
    }
    bt_sample_send(&w->rows, &t->sink, s->step);
    return BT_OK;
}
