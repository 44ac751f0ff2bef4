/* stats.c - ternary statistics, gradient norms and updates per tensor, exchanges per rank and kind,
 * every train.stats_every steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/parts.h"

enum { PAIRS_EVERY = 5, LINK_BYTES = 4 << 20 };

bt_code bt_stats_plan(bt_trainer *t, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    t->layer_records = calloc(t->table.n, sizeof *t->layer_records);
    t->layer_values = calloc(t->table.n, sizeof *t->layer_values);
    t->layer_counts = calloc(t->table.n, sizeof *t->layer_counts);
    bool sharded = t->shards.n > 1;
    t->slices = (bt_codes_cfg){.shards = &t->shards,
                               .shard = sharded ? t->mesh.me.dp_shard : 0,
                               .part = sharded ? t->mesh.me.dp_replicate : t->mesh.me.dp,
                               .parts = sharded ? t->mesh.shape.dp_replicate
                                                : bt_comm_size(t->mesh.dp),
                               .weights = t->weights};
    t->code_counts = calloc(p->n, sizeof *t->code_counts);
    if (t->cfg.stats_every > 0) BT_TRY(bt_codes_create(&t->codes, t->model, &t->slices, err));
    size_t pairs = t->n_ranks > 1 && t->n_ranks <= BT_PAIRS_MAX ? (size_t)t->n_ranks : 0,
           at_root = t->rank == 0 ? pairs * pairs : 1;
    if (pairs > 0) {
        t->pair_mine = calloc(pairs, sizeof *t->pair_mine);
        t->pair_all = calloc(at_root, sizeof *t->pair_all);
        t->pair_records = calloc(at_root, sizeof *t->pair_records);
        if (!t->pair_mine || !t->pair_all || !t->pair_records)
            return bt_fail(err, BT_NOMEM, "cannot take memory for the pairs of %d ranks",
                           t->n_ranks);
    }
    size_t kinds = BT_COLL_COUNT * BT_AXIS_COUNT,
           all = t->rank == 0 ? kinds * (size_t)t->n_ranks : 1;
    t->comm_mine = calloc(kinds, sizeof *t->comm_mine);
    t->comm_all = calloc(all, sizeof *t->comm_all);
    t->comm_records = calloc(all, sizeof *t->comm_records);
    if (!t->comm_mine || !t->comm_all || !t->comm_records)
        return bt_fail(err, BT_NOMEM, "cannot take memory for the exchanges of %d ranks",
                       t->n_ranks);
    if (!t->layer_records || !t->layer_values || !t->layer_counts || !t->code_counts)
        return bt_fail(err, BT_NOMEM, "cannot take memory for the statistics of %zu tensors", p->n);
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
    free(t->pair_mine);
    free(t->pair_all);
    free(t->pair_records);
}

bt_code bt_stats_links(bt_trainer *t, bt_err *err) {
    size_t bytes = t->cfg.bucket_bytes < LINK_BYTES ? (size_t)t->cfg.bucket_bytes : LINK_BYTES;
    if (t->cfg.stats_every == 0) return BT_OK;
    BT_TRY(bt_link_measure(&t->links[BT_AXIS_DP], t->mesh.dp, bytes, err));
    return t->shards.n > 1 ? bt_link_measure(&t->links[BT_AXIS_SHARD], t->mesh.shard, bytes, err)
                           : BT_OK;
}

void bt_stats_begin(bt_trainer *t) {
    bt_traffic_reset();
    bt_pairs_reset();
    t->comm_step = t->pair_step = t->at.step - 1;
    t->samples = 0;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static void take_traffic(double v[BT_MC_COUNT], const bt_traffic *x, const bt_link *link,
                         double steps) {
    v[BT_MC_STEPS] = steps;
    v[BT_MC_CALLS] = (double)x->calls;
    v[BT_MC_BYTES_LOGICAL] = (double)x->bytes_logical;
    v[BT_MC_BYTES_WIRE] = (double)x->bytes_wire;
    v[BT_MC_BUSY] = (double)x->busy_ns / 1e6;
    v[BT_MC_EXPOSED] = (double)x->exposed_ns / 1e6;
    v[BT_MC_WAIT] = (double)x->wait_ns / 1e6;
    v[BT_MC_MODEL] = x->rounds > 0 ? 1e3 * bt_link_s(link, (double)x->rounds, (double)x->bytes_wire)
                                   : NAN;
}

/* Every rank's counters to rank 0 and into the sink; kinds that a rank did not use are left out. */
static bt_code record_traffic(bt_trainer *t, int64_t step, bt_err *err) {
    enum { KINDS = BT_COLL_COUNT * BT_AXIS_COUNT };
    double steps = (double)(step - t->comm_step);
    size_t n = 0;
    if (t->n_ranks == 1) return BT_OK;
    for (int k = 0; k < KINDS; k++) {
        const bt_traffic *x = bt_traffic_get((bt_coll)(k / BT_AXIS_COUNT),
                                             (bt_axis)(k % BT_AXIS_COUNT));
        take_traffic(t->comm_mine[k], x, &t->links[k % BT_AXIS_COUNT], steps);
    }
    bt_traffic_reset();
    t->comm_step = step;
    BT_TRY(bt_gather(t->telemetry.comm, t->comm_mine, KINDS * sizeof *t->comm_mine, t->comm_all, 0,
                     err));
    for (int r = 0; r < t->n_ranks && t->telemetry.sink.comm; r++) {
        for (int k = 0; k < KINDS; k++) {
            const double *v = t->comm_all[r * KINDS + k];
            if (!(v[BT_MC_CALLS] + v[BT_MC_BYTES_WIRE] + v[BT_MC_WAIT] > 0)) continue;
            t->comm_records[n++] =
                (bt_comm_record){.step = step,
                                 .rank = r,
                                 .op = bt_coll_name((bt_coll)(k / BT_AXIS_COUNT)),
                                 .axis = bt_axis_name((bt_axis)(k % BT_AXIS_COUNT)),
                                 .values = v};
        }
    }
    if (n > 0) t->telemetry.sink.comm(t->telemetry.sink.ctx, t->comm_records, n);
    return BT_OK;
}

/* Who got how much from whom. The second sample is the first to tell, of the steps after the first,
 * which has the start in it; then one in PAIRS_EVERY: n^2 rows are many. */
static bt_code record_pairs(bt_trainer *t, int64_t step, bt_err *err) {
    size_t n = (size_t)t->n_ranks, rows = 0;
    if (!t->pair_mine || (t->samples > 1 && t->samples % PAIRS_EVERY != 0)) return BT_OK;
    for (size_t p = 0; p < n; p++) {
        const bt_pair *x = bt_pair_get((int)p);
        const double v[BT_MP_COUNT] = {[BT_MP_STEPS] = (double)(step - t->pair_step),
                                       [BT_MP_MESSAGES] = (double)x->messages,
                                       [BT_MP_BYTES] = (double)x->bytes,
                                       [BT_MP_TIMED] = (double)x->timed,
                                       [BT_MP_FLIGHT] = x->timed > 0 ? (double)x->flight_ns / 1e6
                                                                     : NAN};
        memcpy(t->pair_mine[p], v, sizeof v);
    }
    bt_pairs_reset();
    t->pair_step = step;
    if (t->samples == 0) return BT_OK;
    BT_TRY(
        bt_gather(t->telemetry.comm, t->pair_mine, n * sizeof *t->pair_mine, t->pair_all, 0, err));
    for (size_t i = 0; i < n * n && t->telemetry.sink.pairs; i++) {
        if (!(t->pair_all[i][BT_MP_MESSAGES] > 0)) continue;
        t->pair_records[rows++] = (bt_pair_record){
            .step = step, .rank = (int)(i / n), .peer = (int)(i % n), .values = t->pair_all[i]};
    }
    if (rows > 0) t->telemetry.sink.pairs(t->telemetry.sink.ctx, t->pair_records, rows);
    return BT_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* the tensor's name without "layers.N." */
static const char *short_name(const bt_tensor *x) {
    const char *name = x->name;
    if (x->layer < 0) return name;
    for (int dots = 0; *name && dots < 2; name++) dots += *name == '.';
    return name;
}

/* what the step did to this rank's slice of tensor x; nothing when it was not applied */
static void add_change(const bt_trainer *t, const bt_tensor *x, const bt_step_outcome *o,
                       double *row) {
    for (size_t i = 0; o->applied && i < t->n_pieces; i++) {
        bt_range r = bt_codes_slice(&t->slices, x, i);
        if (r.begin == r.end) continue;
        bt_optim_change(t->optims[i], bt_model_weights(t->model), r.begin, r.end, t->at.updates,
                        (float)o->lr, x->decay ? (float)o->weight_decay : 0.0f, &row[COUNT_CHANGE],
                        &row[COUNT_BEFORE]);
    }
}

enum { LOOK = 4096 };

/* of tensor x, in its elements, what lies in this rank's i-th piece */
static bt_range own_piece(const bt_trainer *t, const bt_tensor *x, size_t i) {
    bt_range r = t->pieces[i];
    if (r.begin < x->offset) r.begin = x->offset;
    if (r.end > x->offset + x->count) r.end = x->offset + x->count;
    return r.begin < r.end ? (bt_range){r.begin - x->offset, r.end - x->offset} : (bt_range){0, 0};
}

/* zeros and +1s of the codes that this part counts: all of a block, none, or (a kv head is shared
 * with a neighbour) all but the first ones */
static void count_codes(const bt_trainer *t, size_t k, double *row) {
    const bt_tensor *x = &bt_model_params(t->model)->tensors[k];
    bt_quant_stat q = bt_model_quant_stat(t->model, k);
    /* else the pieces that this rank owns */
    bool whole = bt_model_codes(t->model, k) != NULL;
    double zero = 0, pos = 0;
    int8_t spare[LOOK];
    for (size_t i = 0; x->tern && i < (whole ? 1 : t->n_pieces); i++) {
        bt_range r = whole ? (bt_range){0, x->count} : own_piece(t, x, i);
        for (size_t at = r.begin, n; at < x->first_counted && at < r.end; at += n) {
            n = (r.end < x->first_counted ? r.end : x->first_counted) - at;
            if (n > LOOK) n = LOOK;
            const int8_t *codes = bt_weights_codes(t->weights, k, at, n, spare);
            for (size_t e = 0; e < n; e++) {
                zero += codes[e] == 0;
                pos += codes[e] > 0;
            }
        }
    }
    row[COUNT_ZERO] = rint(q.zero_frac * q.n) - zero;
    row[COUNT_POS] = rint(q.pos_frac * q.n) - pos;
}

/* Counts of whole tensors: every block of a tensor counted once. Codes that all data-parallel ranks
 * have are counted by one of them, codes of pieces by their owners; the changes by each rank where
 * it remembers, or holds the moments. */
static bt_code add_counts(bt_trainer *t, const bt_step_outcome *o, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    bt_codes_sample(t->codes, t->code_counts);
    memset(t->layer_counts, 0, t->table.n * sizeof *t->layer_counts);
    for (size_t i = 0; i < p->n; i++) {
        const bt_code_counts *c = &t->code_counts[i];
        double *row = t->layer_counts[p->before + i];
        if (bt_weights_counts(t->weights)) count_codes(t, i, row);
        row[COUNT_FLIP] = c->flips;
        row[COUNT_SIGN_FLIP] = c->sign_flips;
        row[COUNT_BACK] = c->back;
        row[COUNT_NEAR] = c->near;
        row[COUNT_SCALE] = t->mesh.me.dp == 0 && t->mesh.me.tp == 0
                               ? bt_model_quant_stat(t->model, i).scale
                               : 0;
        add_change(t, &p->tensors[i], o, row);
    }
    BT_TRY(bt_all_reduce_f64(t->mesh.dp, t->layer_counts[0], COUNTS * t->table.n, BT_SUM, err));
    BT_TRY(bt_all_reduce_f64(t->mesh.tp, t->layer_counts[0], COUNTS * t->table.n, BT_SUM, err));
    return bt_all_reduce_f64(t->mesh.pp, t->layer_counts[0], COUNTS * t->table.n, BT_SUM, err);
}

bt_code bt_stats_record(bt_trainer *t, int64_t step, const bt_step_outcome *o, bt_err *err) {
    const bt_params *p = &t->table;
    const double *squares;
    BT_TRY(record_traffic(t, step, err));
    BT_TRY(record_pairs(t, step, err));
    t->samples++;
    BT_TRY(bt_layout_tensor_squares(t, &squares, err));
    BT_TRY(add_counts(t, o, err));
    if (!t->telemetry.sink.layers) return BT_OK;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        const double *counted = t->layer_counts[i];
        double *v = t->layer_values[i];
        for (int m = 0; m < BT_ML_COUNT; m++) v[m] = NAN;
        if (x->tern) {
            double n = (double)x->whole_rows * (double)x->whole_cols;
            v[BT_ML_ZERO] = counted[COUNT_ZERO] / n;
            v[BT_ML_POS] = counted[COUNT_POS] / n;
            if (bt_codes_samples(t->codes) > 1) v[BT_ML_FLIP] = counted[COUNT_FLIP] / n;
            if (bt_codes_samples(t->codes) > 1) v[BT_ML_SIGN_FLIP] = counted[COUNT_SIGN_FLIP] / n;
            if (bt_codes_samples(t->codes) > 2) v[BT_ML_OSCILLATION] = counted[COUNT_BACK] / n;
            v[BT_ML_BOUNDARY] = counted[COUNT_NEAR] / n;
            v[BT_ML_SCALE] = counted[COUNT_SCALE];
        }
        v[BT_ML_GRAD_NORM] = sqrt(squares[i]);
        if (!o->applied)
            v[BT_ML_UPDATE] = 0;
        else if (counted[COUNT_BEFORE] > 0)
            v[BT_ML_UPDATE] = sqrt(counted[COUNT_CHANGE] / counted[COUNT_BEFORE]);
        t->layer_records[i] = (bt_layer_record){
            .step = step, .layer = x->layer, .tensor = short_name(x), .values = v};
    }
    t->telemetry.sink.layers(t->telemetry.sink.ctx, t->layer_records, p->n);
    return BT_OK;
}
