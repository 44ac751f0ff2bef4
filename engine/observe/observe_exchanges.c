/* observe_exchanges.c - collects the counters of traffic.h from all ranks on rank 0 and passes them to the sink. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/observe/observer_impl.h"

enum { KINDS = BT_COLL_COUNT * BT_AXIS_COUNT, PAIRS_EVERY = 5 };

bt_code bt_exchange_watch_create(bt_exchange_watch *w, const bt_telemetry *t, bt_err *err) {
    size_t ranks = (size_t)bt_comm_size(t->comm), root = bt_comm_rank(t->comm) == 0,
           all = root ? KINDS * ranks : 1, pairs = ranks > 1 && ranks <= BT_PAIRS_MAX ? ranks : 0,
           all_pairs = root ? pairs * pairs : 1;
    w->comm_mine = calloc(KINDS, sizeof *w->comm_mine);
    w->comm_all = calloc(all, sizeof *w->comm_all);
    BT_TRY(bt_sample_init(&w->comm_rows, BT_SCOPE_COMM, all, err));
    if (!w->comm_mine || !w->comm_all)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the exchanges of %zu ranks",
                       ranks);
    if (pairs == 0) return BT_OK;
    w->pair_mine = calloc(pairs, sizeof *w->pair_mine);
    w->pair_all = calloc(all_pairs, sizeof *w->pair_all);
    BT_TRY(bt_sample_init(&w->pair_rows, BT_SCOPE_PAIR, all_pairs, err));
    return w->pair_mine && w->pair_all
               ? BT_OK
               : bt_fail(err, BT_NOMEM, "cannot allocate memory for the pairs of %zu ranks", ranks);
}

void bt_exchange_watch_release(bt_exchange_watch *w) {
    free(w->comm_mine);
    free(w->comm_all);
    bt_sample_release(&w->comm_rows);
    free(w->pair_mine);
    free(w->pair_all);
    bt_sample_release(&w->pair_rows);
}

void bt_exchange_watch_begin(bt_exchange_watch *w, int64_t step) {
    bt_traffic_reset();
    bt_pairs_reset();
    w->comm_step = w->pair_step = step;
    w->samples = 0;
}

static void count_traffic(double v[BT_MC_COUNT], const bt_traffic *x, const bt_link *link,
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

/* Records one row per rank and kind of exchange that the rank has used. */
static void record_traffic(bt_exchange_watch *w, const bt_telemetry *t, int64_t step) {
    for (int r = 0; r < bt_comm_size(t->comm) && t->sink.rows; r++) {
        for (int k = 0; k < KINDS; k++) {
            const double *v = w->comm_all[r * KINDS + k];
            if (!(v[BT_MC_CALLS] + v[BT_MC_BYTES_WIRE] + v[BT_MC_WAIT] > 0)) continue;
            const bt_key keys[] = {{.i = r},
                                   {.s = bt_coll_name((bt_coll)(k / BT_AXIS_COUNT))},
                                   {.s = bt_axis_name((bt_axis)(k % BT_AXIS_COUNT))}};
            memcpy(bt_sample_add(&w->comm_rows, keys), v, sizeof w->comm_all[0]);
        }
    }
    bt_sample_send(&w->comm_rows, &t->sink, step);
}

static bt_code sample_traffic(bt_exchange_watch *w, const bt_telemetry *t, int64_t step,
                              bt_err *err) {
    if (bt_comm_size(t->comm) == 1) return BT_OK;
    for (int k = 0; k < KINDS; k++) {
        const bt_traffic *x = bt_traffic_get((bt_coll)(k / BT_AXIS_COUNT),
                                             (bt_axis)(k % BT_AXIS_COUNT));
        count_traffic(w->comm_mine[k], x, &w->links[k % BT_AXIS_COUNT],
                      (double)(step - w->comm_step));
    }
    bt_traffic_reset();
    w->comm_step = step;
    BT_TRY(bt_gather(t->comm, w->comm_mine, KINDS * sizeof *w->comm_mine, w->comm_all, 0, err));
    record_traffic(w, t, step);
    return BT_OK;
}

/* The first sample is not recorded, because it includes the start of the run. Of the following samples one in
 * PAIRS_EVERY is recorded, because each has n^2 rows. */
static bt_code sample_pairs(bt_exchange_watch *w, const bt_telemetry *t, int64_t step,
                            bt_err *err) {
    size_t n = (size_t)bt_comm_size(t->comm);
    if (!w->pair_mine || (w->samples > 1 && w->samples % PAIRS_EVERY != 0)) return BT_OK;
    for (size_t p = 0; p < n; p++) {
        const bt_pair *x = bt_pair_get((int)p);
        const double v[BT_MP_COUNT] = {[BT_MP_STEPS] = (double)(step - w->pair_step),
                                       [BT_MP_MESSAGES] = (double)x->messages,
                                       [BT_MP_BYTES] = (double)x->bytes,
                                       [BT_MP_TIMED] = (double)x->timed,
                                       [BT_MP_FLIGHT] = x->timed > 0 ? (double)x->flight_ns / 1e6
                                                                     : NAN};
        memcpy(w->pair_mine[p], v, sizeof v);
    }
    bt_pairs_reset();
    w->pair_step = step;
    if (w->samples == 0) return BT_OK;
    BT_TRY(bt_gather(t->comm, w->pair_mine, n * sizeof *w->pair_mine, w->pair_all, 0, err));
    for (size_t i = 0; i < n * n && t->sink.rows; i++) {
        if (!(w->pair_all[i][BT_MP_MESSAGES] > 0)) continue;
        const bt_key keys[] = {{.i = (int64_t)(i / n)}, {.i = (int64_t)(i % n)}};
        memcpy(bt_sample_add(&w->pair_rows, keys), w->pair_all[i], sizeof w->pair_all[0]);
    }
    bt_sample_send(&w->pair_rows, &t->sink, step);
    return BT_OK;
}

bt_code bt_exchange_watch_sample(bt_exchange_watch *w, const bt_telemetry *t, int64_t step,
                                 bt_err *err) {
    BT_TRY(sample_traffic(w, t, step, err));
    BT_TRY(sample_pairs(w, t, step, err));
    w->samples++;
    return BT_OK;
}
