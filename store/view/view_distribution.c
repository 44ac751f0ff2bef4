/* view_distribution.c - loads the histograms of one tensor's weights and gradients for several
 * samples. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/system/json_fields.h"
#include "store/view/view_impl.h"

double bt_view_share(const double bins[BT_HIST_BINS], int from, int to) {
    double all = 0, part = 0;
    for (int i = 0; i < BT_HIST_BINS; i++) {
        all += bins[i];
        if (i >= from && i < to) part += bins[i];
    }
    return all > 0 ? part / all : NAN;
}

typedef struct reading {
    bt_view *v;
    bt_code code;
    bt_err *err;
    int slot;
} reading;

static bool append_tensor_row(void *ctx, const bt_row *row) {
    reading *r = ctx;
    bt_view_distribution *d = &r->v->distribution;
    r->code = BT_GROW(d->tensor, r->v->impl->cap_tensors, d->n + 1, r->err);
    if (r->code != BT_OK) return false;
    bt_view_tensor *t = &d->tensor[d->n++];
    *t = (bt_view_tensor){.layer = (int)bt_whole(row->nums[0], -1),
                          .ternary = !isnan(row->nums[2])};
    bt_text_plain(t->tensor, sizeof t->tensor, row->cells[1] ? row->cells[1] : "");
    return true;
}

static bt_code list_tensors(bt_view *v, int64_t newest, bt_err *err) {
    reading r = {.v = v, .err = err};
    const double at = (double)newest;
    v->distribution.n = 0;
    BT_TRY(bt_vq_rows(v->impl,
                      "SELECT layer, tensor, max(weights) FROM distributions WHERE run = ?1 AND "
                      "step = ?2 GROUP BY layer, tensor ORDER BY layer, tensor",
                      v->impl->run, &at, 1, append_tensor_row, &r, err));
    return r.code;
}

/* Selects the requested tensor, or else the first ternary one, or else the first. */
static size_t choose_tensor(const bt_view_distribution *d, int layer, const char *tensor) {
    size_t first = d->n;
    for (size_t i = 0; i < d->n; i++) {
        const bt_view_tensor *t = &d->tensor[i];
        if (tensor && t->layer == layer && strcmp(t->tensor, tensor) == 0) return i;
        if (t->ternary && first == d->n) first = i;
    }
    return first == d->n ? 0 : first;
}

static bool store_bin_row(void *ctx, const bt_row *row) {
    const reading *r = ctx;
    bt_view_distribution *d = &r->v->distribution;
    char tensor[32];
    const int64_t bin = bt_whole(row->nums[1], -1);
    bt_text_plain(tensor, sizeof tensor, row->cells[0] ? row->cells[0] : "");
    if (bin < 0 || bin >= BT_HIST_BINS || strcmp(tensor, d->tensor[d->at].tensor) != 0) return true;
    d->weights[r->slot][bin] = isnan(row->nums[2]) ? 0 : row->nums[2];
    d->gradients[r->slot][bin] = isnan(row->nums[3]) ? 0 : row->nums[3];
    return true;
}

bt_code bt_view_load_distribution(bt_view *v, const bt_view_request *ask, bt_err *err) {
    int64_t from, to, newest;
    bt_view_impl *m = v->impl;
    bt_view_distribution *d = &v->distribution;
    BT_TRY(bt_view_range(v, ask, &from, &to, err));
    BT_TRY(bt_view_sample_before(v, BT_SCOPE_DISTRIBUTION, to, &newest, err));
    const bt_requested_range range = bt_view_requested_range(ask);
    const bool same = m->distribution_newest == newest &&
                      bt_view_range_same(&m->distribution_range, &range);
    if (same && d->n > 0 && choose_tensor(d, ask->layer, ask->tensor) == d->at) return BT_OK;
    m->distribution_newest = -2; /* incomplete sample: read again later */
    d->n = d->at = 0;
    d->samples = 0;
    if (to < from || newest < 0) return BT_OK;
    BT_TRY(list_tensors(v, newest, err));
    if (d->n == 0) return BT_OK;
    d->at = choose_tensor(d, ask->layer, ask->tensor);
    bt_sample_steps sample = {.max = BT_VIEW_SAMPLES};
    BT_TRY(bt_view_samples(v, BT_SCOPE_DISTRIBUTION, from, newest, &sample, err));
    memset(d->weights, 0, sizeof d->weights);
    memset(d->gradients, 0, sizeof d->gradients);
    reading r = {.v = v, .err = err};
    for (r.slot = 0; r.slot < sample.n; r.slot++) {
        const double args[] = {(double)sample.step[r.slot], d->tensor[d->at].layer};
        BT_TRY(bt_vq_rows(m,
                          "SELECT tensor, bin, weights, gradients FROM distributions WHERE run = "
                          "?1 AND step = ?2 AND layer = ?3",
                          m->run, args, 2, store_bin_row, &r, err));
        d->sampled[r.slot] = sample.step[r.slot];
    }
    d->samples = sample.n;
    m->distribution_newest = newest;
    m->distribution_range = range;
    return BT_OK;
}

static void put_bins_json(bt_json *j, const char *key, const bt_view_distribution *d,
                          const double (*bins)[BT_HIST_BINS]) {
    bt_json_array(j, key);
    for (int i = 0; i < d->samples; i++) {
        bt_json_array(j, NULL);
        for (int b = 0; b < BT_HIST_BINS; b++) bt_json_int(j, NULL, (int64_t)bins[i][b]);
        bt_json_end(j, ']');
    }
    bt_json_end(j, ']');
}

static void put_bin_edges_json(bt_json *j, const char *key, double from, double width) {
    bt_json_object(j, key);
    bt_json_num(j, "from", from);
    bt_json_num(j, "width", width);
    bt_json_end(j, '}');
}

void bt_view_distribution_json(const bt_view_distribution *d, bt_json *j) {
    bt_json_object(j, "distribution");
    const bt_view_tensor *t = d->at < d->n ? &d->tensor[d->at] : NULL;
    bt_json_int(j, "layer", t ? t->layer : -1);
    bt_json_str(j, "tensor", t ? t->tensor : "");
    BT_JSON_ROWS(j, "tensors", d->tensor, d->n, F(layer), F(tensor), F(ternary));
    bt_json_ints(j, "sampled", d->sampled, (size_t)d->samples);
    /* Units of the bins: scaled weights, or powers of two. */
    put_bin_edges_json(j, "weights_bins", -(double)BT_HIST_MIDDLE / BT_HIST_PER_SCALE,
                       1.0 / BT_HIST_PER_SCALE);
    put_bin_edges_json(j, "gradients_bins", BT_HIST_OCTAVE, 1);
    put_bins_json(j, "weights", d, d->weights);
    put_bins_json(j, "gradients", d, d->gradients);
    bt_json_end(j, '}');
}
