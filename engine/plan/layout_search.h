/* layout_search.h - lists all layouts that a job could have, with the memory of their largest rank and the predicted
 * time of a step, in the order of preference. The resolver of `train` decides which layouts are legal.
 *
 * Order:    find (legal meshes, micro-batches, ZeRO stages) -> shapes (to be measured) -> predict; then entry 0 is the
 *           choice. If two times differ by less than BT_LAYOUT_NEAR, the model cannot decide which is shorter, and the
 *           simpler layout is first. Layouts that fit the memory are first; recomputation is used only if nothing else
 *           fits. Settings of the user never change.
 * Threads: no shared state. Owns: its list. */
#ifndef BT_ENGINE_PLAN_LAYOUT_SEARCH_H
#define BT_ENGINE_PLAN_LAYOUT_SEARCH_H

#include "engine/plan/plan.h"
#include "engine/plan/time_model.h"

typedef struct bt_layout {
    bt_mesh_shape shape;
    int virtual_stages;
    int zero, recompute, gather, codec;
    int64_t micro_batch, accum;
    size_t rank_bytes; /* memory of the largest rank */
    double all_bytes;  /* memory of all ranks */
    bool fits;
    bt_prediction time;
    double trial_s;    /* seconds of a trial step (cli/layout/layout_trial.h); 0: not tried */
    double trial_load; /* tasks of other programs per processor before the trial; NaN if unknown */
} bt_layout;

/* Which settings the planner may change because the user has not set them. */
typedef struct bt_layout_freedom {
    bool mesh, virtual_stages, zero, micro_batch, recompute, gather;
} bt_layout_freedom;
/* Finds the settings that the user has set by flags, files and environment. */
bt_layout_freedom bt_layout_freedom_of(const bt_opts *o);

typedef struct bt_layout_search {
    const bt_run_cfg *cfg; /* borrowed; read from files and flags, but not resolved */
    bt_layout_freedom may;
    bt_cluster cluster;
    bt_plan_parts *parts; /* memory of optional features; NULL: none */
    /* List only shapes with the micro-batch of the first layout; rates of other shapes are scaled. */
    bool one_micro_batch;
    /* Predict only layouts that may be the choice or the fastest of another mesh; other times are 0. */
    bool choice_only;
} bt_layout_search;

typedef struct bt_layouts {
    bt_layout *at;
    size_t n, cap, fitting;
    size_t refused;     /* number of combinations that are illegal */
    char reason[240];   /* the resolver's message about the first of them */
    size_t least_bytes; /* smallest rank_bytes of all layouts */
} bt_layouts;

/* BT_ARG: no layout is legal; the error contains the resolver's message. */
bt_code bt_layouts_find(bt_layouts *out, const bt_layout_search *s, bt_err *err) BT_MUST_CHECK;
void bt_layouts_release(bt_layouts *l); /* accepts an all-zero struct */
bt_code bt_layout_settings(const bt_layout_search *s, const bt_layout *l, bt_run_cfg *out,
                           bt_err *err) BT_MUST_CHECK;
/* Writes at most `most` distinct shapes of layers and heads in all layouts, and returns their number; 0: out of memory.
 * The shapes of one micro-batch size for every tensor-parallel size are first, so that even a probe with little time
 * measures every slice. */
size_t bt_layouts_shapes(const bt_layouts *l, const bt_layout_search *s, bt_part_shape *out,
                         size_t most);
#define BT_LAYOUT_NEAR 0.02 /* relative to the time of a step */
/* Predicts all times and sorts: layouts that fit are first, then by time. The simplest layout among those nearly as
 * fast as the first one is then moved to the front. */
bt_code bt_layouts_predict(bt_layouts *l, const bt_layout_search *s, const bt_rates *r, bt_err *err)
    BT_MUST_CHECK;
/* Sorts again after trials: tried layouts are first, by their measured times. */
void bt_layouts_prefer_tried(bt_layouts *l);
/* Returns the seconds of a step: measured by a trial, if there was one, else predicted. */
double bt_layout_step_s(const bt_layout *l);
/* Compares mesh axes and ZeRO stage, but not micro-batches, chunks and recomputation. */
bool bt_layout_same_mesh(const bt_layout *a, const bt_layout *b);
/* Returns, for example, "pp 2, dp 2 (ZeRO-1), tp 1, micro-batch 4 x 2". */
const char *bt_layout_words(const bt_layout *l, char *buf, size_t size);

#endif
