/* observer_impl.h - private to engine/observe: the samples of exchanges and of tensors. */
#ifndef BT_ENGINE_OBSERVE_OBSERVER_IMPL_H
#define BT_ENGINE_OBSERVE_OBSERVER_IMPL_H

#include "engine/observe/histograms.h"
#include "engine/observe/observer.h"
#include "engine/observe/sample.h"

typedef struct bt_exchange_watch {
    bt_sample comm_rows, pair_rows;                             /* on rank 0: rows to be sent */
    double (*comm_mine)[BT_MC_COUNT], (*comm_all)[BT_MC_COUNT]; /* (kinds); (ranks, kinds) */
    /* (ranks); (ranks, ranks). NULL: the world is too large. */
    double (*pair_mine)[BT_MP_COUNT], (*pair_all)[BT_MP_COUNT];
    /* steps of the newest such records; the next records begin after these steps */
    int64_t comm_step, pair_step;
    int64_t samples; /* number of samples in this attempt */
    bt_link links[BT_AXIS_COUNT];
} bt_exchange_watch;

bt_code bt_exchange_watch_create(bt_exchange_watch *w, const bt_telemetry *t, bt_err *err)
    BT_MUST_CHECK;
void bt_exchange_watch_release(bt_exchange_watch *w);
void bt_exchange_watch_begin(bt_exchange_watch *w, int64_t step);
bt_code bt_exchange_watch_sample(bt_exchange_watch *w, const bt_telemetry *t, int64_t step,
                                 bt_err *err) BT_MUST_CHECK;

/* Statistics of a tensor: numbers of codes by value, sums of squares of the step's change and of the weights before it,
 * and the scale, which only one rank adds. */
enum {
    COUNT_ZERO,
    COUNT_POS,
    COUNT_FLIP,
    COUNT_SIGN_FLIP,
    COUNT_BACK,
    COUNT_NEAR,
    COUNT_CHANGE,
    COUNT_BEFORE,
    COUNT_SCALE,
    COUNTS
};

typedef struct bt_tensor_watch {
    const bt_mesh *mesh;
    bt_model *model;
    bt_update *update;
    bt_sample rows;              /* (tensors of all stages), like the next member */
    double (*counts)[COUNTS];    /* sums over all ranks */
    bt_codes_cfg slices;         /* parts of the tensors that this rank examines */
    bt_codes *codes;             /* NULL: no statistics */
    bt_code_counts *code_counts; /* (tensors of this rank) */
    /* Distributions, when bt_histogram_due: rows of all tensors and bins, counts of all tensors. */
    int64_t every, steps, most;
    bt_sample bins;
    bt_histogram *histograms;
} bt_tensor_watch;

bt_code bt_tensor_watch_create(bt_tensor_watch *w, const bt_observer_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_tensor_watch_release(bt_tensor_watch *w);
bt_code bt_tensor_watch_sample(bt_tensor_watch *w, const bt_telemetry *t, const bt_sample_step *s,
                               bt_err *err) BT_MUST_CHECK;

#endif
