/* weights_for_use.c - exchanges the weights of the training with those that all uses of the model read. */
#include "engine/base/threads.h"
#include "engine/update/update.h"

typedef struct swap_job {
    float *for_use, *w;
} swap_job;

enum { GRAIN = 1 << 14 };

static void swap_weights(void *ctx, int thread, size_t begin, size_t end) {
    const swap_job *j = ctx;
    float *restrict for_use = j->for_use, *restrict w = j->w;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const float value = w[i];
        w[i] = for_use[i];
        for_use[i] = value;
    }
}

bt_code bt_update_swap_for_use(bt_update *u, bt_err *err) {
    for (size_t i = 0; i < u->n_pieces; i++) {
        const bt_range piece = u->pieces[i];
        swap_job j = {u->for_use[i], bt_model_weights(u->model) + piece.begin};
        bt_parallel_for(piece.end - piece.begin, GRAIN, swap_weights, &j);
    }
    for (size_t i = u->n_pieces; i-- > 0;) BT_TRY(bt_weights_gather(u->weights, i, err));
    bt_model_quant_hold(u->model, true);
    const bt_code code = bt_update_quantise(u, err);
    bt_model_quant_hold(u->model, false);
    return code;
}
