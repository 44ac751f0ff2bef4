/* stats.c - ternary statistics and gradient norms per tensor, exchanges per rank and kind, every train.stats_every steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/parts.h"

bt_code bt_stats_plan(bt_trainer *t, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    t->layer_records = calloc(p->n, sizeof *t->layer_records);
    t->layer_values = calloc(p->n, sizeof *t->layer_values);
    t->layer_counts = calloc(p->n, sizeof *t->layer_counts);
    bool sharded = t->shards.n > 1;
    const bt_codes_cfg codes = {.shards = &t->shards, .shard = sharded ? t->mesh.me.dp_shard : 0, .part = sharded ? t->mesh.me.dp_replicate : t->mesh.me.dp,
                                .parts = sharded ? t->mesh.shape.dp_replicate : bt_comm_size(t->mesh.dp)};
    t->code_counts = calloc(p->n, sizeof *t->code_counts);
    if (t->cfg.stats_every > 0) BT_TRY(bt_codes_create(&t->codes, t->model, &codes, err));
    size_t kinds = BT_COLL_COUNT * BT_AXIS_COUNT, all = t->rank == 0 ? kinds * (size_t)t->n_ranks : 1;
    t->comm_mine = calloc(kinds, sizeof *t->comm_mine);
    t->comm_all = calloc(all, sizeof *t->comm_all);
    t->comm_records = calloc(all, sizeof *t->comm_records);
    if (!t->comm_mine || !t->comm_all || !t->comm_records) return bt_fail(err, BT_NOMEM, "cannot take memory for the exchanges of %d ranks", t->n_ranks);
    if (!t->layer_records || !t->layer_values || !t->layer_counts || !t->code_counts) return bt_fail(err, BT_NOMEM, "cannot take memory for the statistics of %zu tensors", p->n);
    return BT_OK;
}

void bt_stats_release(bt_trainer *t) {
    free(t->layer_records);
    free(t->layer_values);
    free(t->layer_counts);
    free(t->code_counts);
    bt_codes_destroy(t->codes);
    free(t->comm_mine);
    free(t->comm_all);
    free(t->comm_records);
}

void bt_stats_begin(bt_trainer *t) {
    bt_traffic_reset();
    t->comm_step = t->at.step - 1;
}

/* ---- exchanges ------------------------------------------------------------------------------------------------------ */

static void take_traffic(double v[BT_MC_COUNT], const bt_traffic *x, double steps) {
    v[BT_MC_STEPS] = steps;
    v[BT_MC_CALLS] = (double)x->calls;
    v[BT_MC_BYTES_LOGICAL] = (double)x->bytes_logical;
    v[BT_MC_BYTES_WIRE] = (double)x->bytes_wire;
    v[BT_MC_BUSY] = (double)x->busy_ns / 1e6;
    v[BT_MC_EXPOSED] = (double)x->exposed_ns / 1e6;
    v[BT_MC_WAIT] = (double)x->wait_ns / 1e6;
}

/* Every rank's counters to rank 0 and into the sink; kinds that a rank did not use are left out. */
static bt_code record_traffic(bt_trainer *t, int64_t step, bt_err *err) {
    enum { KINDS = BT_COLL_COUNT * BT_AXIS_COUNT };
    double steps = (double)(step - t->comm_step);
    size_t n = 0;
    if (t->n_ranks == 1) return BT_OK;
    for (int k = 0; k < KINDS; k++) take_traffic(t->comm_mine[k], bt_traffic_get((bt_coll)(k / BT_AXIS_COUNT), (bt_axis)(k % BT_AXIS_COUNT)), steps);
    bt_traffic_reset();
    t->comm_step = step;
    BT_TRY(bt_gather(t->telemetry.comm, t->comm_mine, KINDS * sizeof *t->comm_mine, t->comm_all, 0, err));
    for (int r = 0; r < t->n_ranks && t->telemetry.sink.comm; r++) {
        for (int k = 0; k < KINDS; k++) {
            const double *v = t->comm_all[r * KINDS + k];
            if (!(v[BT_MC_CALLS] + v[BT_MC_BYTES_WIRE] + v[BT_MC_WAIT] > 0)) continue;
            t->comm_records[n++] = (bt_comm_record){.step = step, .rank = r, .op = bt_coll_name((bt_coll)(k / BT_AXIS_COUNT)),
                                                    .axis = bt_axis_name((bt_axis)(k % BT_AXIS_COUNT)), .values = v};
        }
    }
    if (n > 0) t->telemetry.sink.comm(t->telemetry.sink.ctx, t->comm_records, n);
    return BT_OK;
}

/* ---- tensors -------------------------------------------------------------------------------------------------------- */

/* the tensor's name without "layers.N." */
static const char *short_name(const bt_tensor *x) {
    const char *name = x->name;
    if (x->layer < 0) return name;
    for (int dots = 0; *name && dots < 2; name++) dots += *name == '.';
    return name;
}

/* Codes of whole tensors: every block of a tensor counted once. All data-parallel ranks have all codes, so one counts them; the
 * changes are counted by each rank where it remembers. */
static bt_code add_counts(bt_trainer *t, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    bt_codes_sample(t->codes, t->code_counts);
    for (size_t i = 0; i < p->n; i++) {
        bt_quant_stat q = bt_model_quant_stat(t->model, i);
        const bt_code_counts *c = &t->code_counts[i];
        double n = p->tensors[i].counted && t->mesh.me.dp == 0 ? (double)p->tensors[i].count : 0;
        const double row[6] = {q.zero_frac * n, q.pos_frac * n, c->flips, c->sign_flips, c->back, c->near};
        memcpy(t->layer_counts[i], row, sizeof row);
    }
    BT_TRY(bt_all_reduce_f64(t->mesh.dp, t->layer_counts[0], 6 * p->n, BT_SUM, err));
    return bt_all_reduce_f64(t->mesh.tp, t->layer_counts[0], 6 * p->n, BT_SUM, err);
}

bt_code bt_stats_record(bt_trainer *t, int64_t step, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    const double *squares;
    BT_TRY(record_traffic(t, step, err));
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
            if (bt_codes_samples(t->codes) > 1) v[BT_ML_FLIP] = t->layer_counts[i][2] / n;
            if (bt_codes_samples(t->codes) > 1) v[BT_ML_SIGN_FLIP] = t->layer_counts[i][3] / n;
            if (bt_codes_samples(t->codes) > 2) v[BT_ML_OSCILLATION] = t->layer_counts[i][4] / n;
            v[BT_ML_BOUNDARY] = t->layer_counts[i][5] / n;
            v[BT_ML_SCALE] = q.scale;
        }
        v[BT_ML_GRAD_NORM] = sqrt(squares[i]);
        t->layer_records[i] = (bt_layer_record){.step = step, .layer = x->layer, .tensor = short_name(x), .values = v};
    }
    t->telemetry.sink.layers(t->telemetry.sink.ctx, t->layer_records, p->n);
    return BT_OK;
}
