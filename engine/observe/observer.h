/* observer.h - takes a sample every train.stats_every steps: ternary codes, gradients and updates per tensor; exchanges
 * per rank and kind; messages per pair of ranks; speed of the links.
 *
 * Order:    create -> links | set_links -> begin -> sample* -> release.
 * Ranks:    links and sample are collective over the world; rank 0 passes records to the sink.
 * Threads:  the training thread. No allocation after create. Cost of a sample: about 2 ns for each ternary weight
 *           that this rank examines, on all threads, and a few small collectives. */
#ifndef BT_ENGINE_OBSERVE_OBSERVER_H
#define BT_ENGINE_OBSERVE_OBSERVER_H

#include "engine/config/rank_setup.h"
#include "engine/observe/telemetry.h"
#include "engine/parallel/mpi/link.h"
#include "engine/update/update.h"

typedef struct bt_observer bt_observer;

typedef struct bt_observer_cfg {
    const bt_rank_setup *setup; /* used only by create; all other members are borrowed */
    const bt_mesh *mesh;
    bt_model *model;
    bt_update *update;
    bt_telemetry *telemetry;
} bt_observer_cfg;

typedef struct bt_sample_step { /* the step that is sampled */
    int64_t step;
    bool applied;
    double unscale; /* 1 / (loss scale of the current gradients) */
    /* Values of the tensors of all stages, NaN: unknown; NULL: all unknown. Borrowed for the call. */
    const double *residual_ratio, *grad_bits;
} bt_sample_step;

bt_code bt_observer_create(bt_observer **out, const bt_observer_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_observer_destroy(bt_observer *o);         /* accepts NULL */
size_t bt_observer_bytes(const bt_rank_setup *s); /* memory of create that grows with the model */
/* Measures the links along which ranks exchange directly; without effect if statistics are disabled. */
bt_code bt_observer_links(bt_observer *o, bt_err *err) BT_MUST_CHECK;
/* Sets links that an earlier attempt in the same layout measured, instead of measuring. */
void bt_observer_set_links(bt_observer *o, const bt_link links[BT_AXIS_COUNT]);
/* rates are zero if not measured */
const bt_link *bt_observer_link(const bt_observer *o, bt_axis axis);
/* Samples cover the steps after `step`. */
void bt_observer_begin(bt_observer *o, int64_t step);
bt_code bt_observer_sample(bt_observer *o, const bt_sample_step *s, bt_err *err) BT_MUST_CHECK;

#endif
