/* update_average.c - an exponential average of the weights, of the pieces that this rank updates. */
#include "engine/base/threads.h"
#include "engine/update/update.h"

typedef struct average_job {
    float *average, *w;
    float share;
} average_job;

enum { GRAIN = 1 << 14 };

static void average_pieces(bt_update *u, bt_range_fn fn, float share) {
    for (size_t i = 0; u->averages && i < u->n_pieces; i++) {
        const bt_range piece = u->pieces[i];
        average_job j = {u->averages[i], bt_model_weights(u->model) + piece.begin, share};
        bt_parallel_for(piece.end - piece.begin, GRAIN, fn, &j);
    }
}

/* a share of 1 copies the weights exactly */
static void move_average(void *ctx, int thread, size_t begin, size_t end) {
    const average_job *j = ctx;
    float *restrict average = j->average;
    const float *restrict w = j->w;
    const float share = j->share, keep = 1 - share;
    (void)thread;
    for (size_t i = begin; i < end; i++) average[i] = keep * average[i] + share * w[i];
}

static void exchange_average(void *ctx, int thread, size_t begin, size_t end) {
    const average_job *j = ctx;
    float *restrict average = j->average, *restrict w = j->w;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const float value = w[i];
        w[i] = average[i];
        average[i] = value;
    }
}

void bt_update_average_begin(bt_update *u) { average_pieces(u, move_average, 1); }

void bt_update_average(bt_update *u, double keep) {
    average_pieces(u, move_average, (float)(1 - keep));
}

bt_code bt_update_average_swap(bt_update *u, bt_err *err) {
    if (!u->averages) return BT_OK;
    average_pieces(u, exchange_average, 0);
    for (size_t i = u->n_pieces; i-- > 0;) BT_TRY(bt_weights_gather(u->weights, i, err));
    bt_model_quant_hold(u->model, true);
    const bt_code code = bt_update_quantise(u, err);
    bt_model_quant_hold(u->model, false);
    return code;
}
