/* stats.c - ternary statistics and gradient norms per tensor, every train.stats_every steps. */
#include <math.h>
#include <stdlib.h>

#include "engine/train/parts.h"

bt_code bt_stats_plan(bt_trainer *t, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    t->layer_records = calloc(p->n, sizeof *t->layer_records);
    t->layer_values = calloc(p->n, sizeof *t->layer_values);
    t->layer_counts = calloc(p->n, sizeof *t->layer_counts);
    if (!t->layer_records || !t->layer_values || !t->layer_counts) return bt_fail(err, BT_NOMEM, "cannot take memory for the statistics of %zu tensors", p->n);
    return BT_OK;
}

/* the tensor's name without "layers.N." */
static const char *short_name(const bt_tensor *x) {
    const char *name = x->name;
    if (x->layer < 0) return name;
    for (int dots = 0; *name && dots < 2; name++) dots += *name == '.';
    return name;
}

/* codes of whole tensors: every block of a tensor counted once */
static bt_code add_counts(bt_trainer *t, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    for (size_t i = 0; i < p->n; i++) {
        bt_quant_stat q = bt_model_quant_stat(t->model, i);
        double n = p->tensors[i].counted ? (double)p->tensors[i].count : 0;
        t->layer_counts[i][0] = q.zero_frac * n;
        t->layer_counts[i][1] = q.pos_frac * n;
        t->layer_counts[i][2] = q.flip_frac * n;
    }
    return bt_all_reduce_f64(t->mesh.tp, t->layer_counts[0], 3 * p->n, BT_SUM, err);
}

bt_code bt_stats_record(bt_trainer *t, int64_t step, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    const double *squares;
    BT_TRY(bt_layout_tensor_squares(t, &squares, err));
    BT_TRY(add_counts(t, err));
    if (!t->telemetry.sink.layers) return BT_OK;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        double *v = t->layer_values[i];
        for (int m = 0; m < BT_ML_COUNT; m++) v[m] = NAN;
        if (x->tern) {
            bt_quant_stat q = bt_model_quant_stat(t->model, i);
            double n = (double)x->whole_rows * (double)x->whole_cols;
            v[BT_ML_ZERO] = t->layer_counts[i][0] / n;
            v[BT_ML_POS] = t->layer_counts[i][1] / n;
            v[BT_ML_FLIP] = t->layer_counts[i][2] / n;
            v[BT_ML_SCALE] = q.scale;
        }
        v[BT_ML_GRAD_NORM] = sqrt(squares[i]);
        t->layer_records[i] = (bt_layer_record){.step = step, .layer = x->layer, .tensor = short_name(x), .values = v};
    }
    t->telemetry.sink.layers(t->telemetry.sink.ctx, t->layer_records, p->n);
    return BT_OK;
}
