/* hub_model.h - what a hub holds of the model: the outer weights, the optimizer's states, and what of
 * them the islands have been told.
 *
 * All arrays are flat, as one rank that holds the whole model lays them out (model/shape/params.h). In a hub of
 * several processes (the ranks of bt_comm_world) each has a run of whole tensors, `own`, and touches nothing else
 * of its arrays, so that only that takes memory.
 *     theta       the outer weights
 *     published   what the islands hold: theta, or with a codec theta as far as the published updates have
 *                 brought it. An update is the codec's encoding of theta - published, so that what one
 *                 encoding loses is in the next one: error feedback without a state of its own
 * Order:    create -> set_weights | load -> { mean -> gradient_step | outer_step -> publish }* -> destroy.
 * Ranks:    create and gradient_step are collective; the others are each process's own.
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
    bt_range own, *counted; /* elements; of its tensors */
    size_t first, end;      /* its tensors */
    bt_lr_schedule lr;
    size_t n; /* elements of each array */
    float *theta, *published, *mean, *momentum, *work;
    bool has_weights;
    int64_t version;         /* updates of theta so far */
    int64_t updates;         /* of them by the optimizer: its clock */
    bt_vector_code up, down; /* what of the fragment in use is its own */
    bt_vector_code all;      /* the fragment in use, of all processes */
    int64_t fragments;       /* that deltas are cut into */
    size_t begin, part;      /* elements of the one in use that are its own; part 0: none are */
    size_t all_part;         /* elements of the one in use, of all processes */
    unsigned char *update;   /* (update_bytes) that led to `version`; update_version -1: none */
    size_t update_bytes;
    int64_t update_version;
    int encoded; /* what `work` holds for fetches (bt_fetch_kind), of which version and length; -1: nothing */
    int64_t encoded_version;
    size_t encoded_bytes;
} bt_hub_model;

/* cfg: job_settings.h; copied. BT_UNSUPPORTED: an optimizer that needs whole matrices, in a mode whose
 * steps are the hub's */
bt_code bt_hub_model_create(bt_hub_model **out, const bt_run_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_hub_model_destroy(bt_hub_model *m);        /* accepts NULL */
size_t bt_hub_model_memory(const bt_hub_model *m); /* bytes of its arrays */

/* fp32 values as vector_code has them; false: not that many, or one is not finite */
bool bt_hub_model_set_weights(bt_hub_model *m, const void *bytes, size_t n);

/* What follows is of one fragment; -1: of all that is its own. Gradients are of all, deltas of the fragment of
 * their round */
void bt_hub_model_use(bt_hub_model *m, int64_t fragment);
/* of the round that begins */
int64_t bt_hub_model_fragment(const bt_hub_model *m);

typedef struct bt_hub_part { /* of a mean */
    const void *bytes;
    size_t n;
    double weight; /* the tokens it is of */
} bt_hub_part;
/* The parts' weighted mean becomes `mean`: added pairwise as a tree over the parts' order, so that 2^k
 * equal islands add up to the bits of one job. false: a part is no encoded array */
bool bt_hub_model_mean(bt_hub_model *m, const bt_hub_part *parts, size_t n, bt_err *err);

typedef struct bt_hub_step {
    double lr, decay, grad_norm;
    bool applied; /* false: the norm is not finite, nothing was changed */
} bt_hub_step;
/* one optimizer step by the mean gradient, clipped by the norm of the mean. position: of the schedule;
 * factor: on the learning rate */
bt_code bt_hub_model_gradient_step(bt_hub_model *m, int64_t position, double factor,
                                   bt_hub_step *out, bt_err *err) BT_MUST_CHECK;
/* one outer step by the mean delta of so many islands, by the job's settings (rules/outer_step.h) */
void bt_hub_model_outer_step(bt_hub_model *m, double islands);
/* the mean, which is one island's delta, without momentum */
void bt_hub_model_average(bt_hub_model *m, double eta);
/* what changed becomes `update`, and known to the islands; without a codec published is theta */
void bt_hub_model_publish(bt_hub_model *m);

/* The bytes that a fetch of this kind is about (bt_fetch_kind); NULL: there are none. fp32 arrays lie in
 * a buffer of the model's that is valid until the next call */
const void *bt_hub_model_bytes(bt_hub_model *m, int kind, size_t *n);

/* islands make own steps and send deltas: DiLoCo after its warm-up */
bool bt_hub_model_local_steps(const bt_hub_model *m);
/* the next updates are gradients, or deltas */
bt_push_kind bt_hub_model_push_kind(const bt_hub_model *m);
/* one update is made of those of all islands, instead of one at each arrival */
bool bt_hub_model_together(const bt_hub_model *m);

/* slices for a checkpoint, of save and load alike */
void bt_hub_model_slices(bt_hub_model *m, bt_slices *out);

#endif
