/* hub_model.h - the hub's model: the outer weights, the optimizer states, and the weights published to the
 * islands.
 *
 * All arrays are flat, in the layout of one rank that holds the whole model (model/shape/params.h).
 *     theta       the outer weights
 *     published   the weights of the islands: theta, or with a codec the sum of all published updates. An update
 *                 encodes theta - published, so it includes the encoding error of the previous update (error
 *                 feedback without another state)
 * Order:    create -> set_weights | load -> { mean -> gradient_step | outer_step -> publish }* -> destroy.
 * Threads:  one, which has the thread pool. */
#ifndef BT_ENGINE_ISLANDS_HUB_HUB_MODEL_H
#define BT_ENGINE_ISLANDS_HUB_HUB_MODEL_H

#include "engine/ckpt/state.h"
#include "engine/config/rank_setup.h"
#include "engine/islands/rules/vector_code.h"
#include "engine/islands/wire/island_message.h"
#include "engine/optim/norm.h"

typedef struct bt_hub_model {
    bt_run_cfg cfg;
    bt_rank_setup setup;
    bt_mesh mesh;
    bt_norm *norm;
    bt_optim *optim;
    bt_optim_span *spans;
    bt_range all, *counted; /* elements of all arrays; elements of each tensor */
    bt_lr_schedule lr;
    size_t n; /* elements of each array */
    float *theta, *published, *mean, *momentum, *work;
    bool has_weights;
    int64_t version;         /* number of updates applied to theta */
    int64_t updates;         /* number of optimizer steps */
    bt_vector_code up, down; /* code of the selected fragment, towards the hub and from the hub */
    int64_t fragments;       /* number of fragments of a delta */
    size_t begin, part;      /* the selected fragment: first element and number of elements */
    /* (update_bytes) encoded change that led to `version`; update_version -1: none */
    unsigned char *update;
    size_t update_bytes;
    int64_t update_version;
    int encoded; /* what `work` contains for fetches (bt_fetch_kind), its version and length; -1: nothing */
    int64_t encoded_version;
    size_t encoded_bytes;
} bt_hub_model;

/* cfg: see job_settings.h; copied. BT_UNSUPPORTED: the hub would run an optimizer that needs whole matrices. */
bt_code bt_hub_model_create(bt_hub_model **out, const bt_run_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_hub_model_destroy(bt_hub_model *m);        /* accepts NULL */
size_t bt_hub_model_memory(const bt_hub_model *m); /* bytes of its arrays */

/* bytes: fp32 values in the form of vector_code. Returns false if their number is wrong or a value is not finite. */
bool bt_hub_model_set_weights(bt_hub_model *m, const void *bytes, size_t n);

/* Selects the fragment for the following calls; -1: all tensors. Gradients cover all tensors. */
void bt_hub_model_use(bt_hub_model *m, int64_t fragment);
/* Returns the fragment of the next round. */
int64_t bt_hub_model_fragment(const bt_hub_model *m);

typedef struct bt_hub_part { /* an update that is averaged */
    const void *bytes;
    size_t n;
    double weight; /* its number of tokens */
} bt_hub_part;
/* Sets `mean` to the weighted mean of the parts, a binary tree in the order of the parts, so that 2^k equal islands
 * compute the bits of a training without a hub. Returns false if a part is not an encoded array. */
bool bt_hub_model_mean(bt_hub_model *m, const bt_hub_part *parts, size_t n, bt_err *err);

typedef struct bt_hub_step {
    double lr, decay, grad_norm;
    bool applied; /* false: the norm is not finite, and nothing was changed */
} bt_hub_step;
/* Makes one optimizer step by the clipped mean gradient. position: step of the schedule; factor: of the learning
 * rate. */
bt_code bt_hub_model_gradient_step(bt_hub_model *m, int64_t position, double factor,
                                   bt_hub_step *out, bt_err *err) BT_MUST_CHECK;
/* Makes one outer step by the mean delta of `islands` islands, with the job's settings (rules/outer_step.h). */
void bt_hub_model_outer_step(bt_hub_model *m, double islands);
/* Subtracts eta times the mean, which is the delta of a single island, without momentum. */
void bt_hub_model_average(bt_hub_model *m, double eta);
/* Publishes the change since the last call as `update`. Without a codec, published is theta. */
void bt_hub_model_publish(bt_hub_model *m);

/* Returns the bytes for a fetch of this kind (bt_fetch_kind); NULL: none. fp32 values are in a buffer of the model that
 * is valid until the next call. */
const void *bt_hub_model_bytes(bt_hub_model *m, int kind, size_t *n);

/* Returns true if islands run the optimizer and send deltas: DiLoCo after its warm-up. */
bool bt_hub_model_local_steps(const bt_hub_model *m);
bt_push_kind bt_hub_model_push_kind(const bt_hub_model *m);
/* Returns true if the updates of all islands are combined into one; false: each is applied when it arrives. */
bool bt_hub_model_together(const bt_hub_model *m);

/* Appends the slices that checkpoints contain. */
void bt_hub_model_slices(bt_hub_model *m, bt_slices *out);

#endif
