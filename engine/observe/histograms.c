/* histograms.c - counts weights and gradients into bins; all threads process chunks of a slice. */
#include "engine/observe/histograms.h"

#include <stdatomic.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"

/* CHUNK: number of elements that a thread processes at once. */
enum { CHUNK = 16384, BLOCK = 4096 };

typedef struct look {
    bool ternary;      /* weights are counted as well */
    bt_latent weights; /* weights of the tensor from element `first` on */
    size_t first;
    const float *gradients;
    size_t n;
    float mean, inv_scale, unscale;
    const float *scales; /* one scale for each `cols` weights; NULL: inv_scale */
    size_t cols;
    _Atomic uint64_t weight[BT_HIST_BINS], gradient[BT_HIST_BINS];
} look;

static void count_histogram_range(void *ctx, int thread, size_t from, size_t to) {
    look *j = ctx;
    uint32_t weight[BT_HIST_BINS] = {0}, gradient[BT_HIST_BINS] = {0};
    const size_t begin = from * CHUNK, end = to * CHUNK < j->n ? to * CHUNK : j->n;
    (void)thread;
    for (size_t i = begin; j->ternary && i < end; i += BLOCK) {
        const size_t n = end - i < BLOCK ? end - i : BLOCK;
        float spare[BLOCK];
        const float *w = bt_latent_read(j->weights, j->first + i, n, spare);
        for (size_t k = 0, some; k < n; k += some) { /* one row in each pass */
            const size_t at = j->first + i + k, row = j->scales ? at / j->cols : 0;
            const float inv_scale = j->scales ? 1 / j->scales[row] : j->inv_scale;
            some = j->scales ? bt_min_size(n - k, (row + 1) * j->cols - at) : n;
            for (size_t e = k; e < k + some; e++)
                weight[bt_hist_weight_bin((w[e] - j->mean) * inv_scale)]++;
        }
    }
    for (size_t i = begin; i < end; i++)
        gradient[bt_hist_gradient_bin(j->gradients[i] * j->unscale)]++;
    for (int b = 0; b < BT_HIST_BINS; b++) {
        if (weight[b]) atomic_fetch_add(&j->weight[b], weight[b]);
        if (gradient[b]) atomic_fetch_add(&j->gradient[b], gradient[b]);
    }
}

void bt_histogram_add(bt_model *m, const bt_codes_cfg *slices, size_t k, float unscale,
                      bt_histogram *out) {
    const bt_tensor *t = &bt_model_params(m)->tensors[k];
    const bt_quant_stat q = bt_model_quant_stat(m, k);
    const bt_range stripes = bt_codes_stripes(slices, t);
    for (size_t i = stripes.begin; i < stripes.end; i++) {
        const bt_range r = bt_codes_slice(slices, t, i);
        look j = {.ternary = t->tern,
                  .weights = bt_model_latent(m, k),
                  .first = r.begin - t->offset,
                  .gradients = bt_model_grads(m) + r.begin,
                  .n = r.end - r.begin,
                  .mean = (float)q.mean,
                  .inv_scale = t->tern ? 1 / (float)q.scale : 0,
                  .unscale = unscale,
                  .scales = bt_model_row_scales(m, k),
                  .cols = bt_scale_inputs(bt_model_config(m)->scale, t->cols)};
        if (j.n == 0) continue;
        bt_parallel_for((j.n + CHUNK - 1) / CHUNK, 1, count_histogram_range, &j);
        for (int b = 0; b < BT_HIST_BINS; b++) {
            out->weights[b] += (double)j.weight[b];
            out->gradients[b] += (double)j.gradient[b];
        }
    }
}

bool bt_histogram_due(int64_t step, int64_t every, int64_t steps, int64_t most) {
    if (most <= 0 || every <= 0 || steps <= 0) return false;
    /* index of the interval, of `most` equal intervals, that contains the step */
    const int64_t part = steps > most ? steps / most : 1;
    return step < every || step / part != (step - every) / part;
}
