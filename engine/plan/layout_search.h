/* layout_search.h - all layouts that a job could have, found with the resolver of `train`, with the memory of their
 * largest rank and the predicted time of a step, in order of preference.
 *
 * Order:    find (legal meshes, micro-batches, ZeRO stages) -> shapes (to be measured) -> predict -> [0] is the choice.
 * Two times whose order the model cannot decide (BT_LAYOUT_NEAR) count as equal; then the simpler layout is first.
 * Layouts that fit the memory are preferred; recomputation is used only if nothing else fits. Settings of the user are
 * never changed.
 * Threads: no shared state. Owns: its list. */
#ifndef BT_ENGINE_PLAN_LAYOUT_SEARCH_H
#define BT_ENGINE_PLAN_LAYOUT_SEARCH_H

#include "engine/plan/plan.h"
#include "engine/plan/time_model.h"

typedef struct bt_layout {
    bt_mesh_shape shape;
    int virtual_stages; /* virtual stages of each pipeline stage */
    int zero, recompute, gather, codec;
    int64_t micro_batch, accum;
    size_t rank_bytes; /* memory of the largest rank */
    double all_bytes;  /* memory of all ranks */
    bool fits;
    bt_prediction time;
    double trial_s; /* seconds of a tried step (cli/layout/layout_trial.h); 0 if only predicted */
    double trial_load; /* tasks of other programs per processor before the trial; NaN if unknown */
} bt_layout;

/* settings that the planner may change, because the user has not set them */
typedef struct bt_layout_freedom {
    bool mesh, virtual_stages, zero, micro_batch, recompute, gather;
} bt_layout_freedom;
/* Derives the freedom from the settings of flags, files and environment. */
bt_layout_freedom bt_layout_freedom_of(const bt_opts *o);

typedef struct bt_layout_search {
    const bt_run_cfg *cfg; /* borrowed; read but not resolved */
    bt_layout_freedom may;
    bt_cluster cluster;
    bt_plan_parts *parts; /* memory of optional features; NULL: none */
    /* list only shapes of the first layout's micro-batch; rates of other shapes are scaled */
    bool one_micro_batch;
    /* predict only layouts that may be the choice or the first of another mesh; other times are 0 */
    bool choice_only;
} bt_layout_search;

typedef struct bt_layouts {
    bt_layout *at;
    size_t n, cap, fitting;
    size_t refused;     /* number of combinations that the resolver refuses */
    char reason[240];   /* first refusal */
    size_t least_bytes; /* smallest rank_bytes of all layouts */
} bt_layouts;

/* Fails with BT_ARG and the resolver's message if nothing is legal. */
bt_code bt_layouts_find(bt_layouts *out, const bt_layout_search *s, bt_err *err) BT_MUST_CHECK;
void bt_layouts_release(bt_layouts *l); /* accepts an all-zero struct */
/* Writes the resolved settings of a layout. */
bt_code bt_layout_settings(const bt_layout_search *s, const bt_layout *l, bt_run_cfg *out,
                           bt_err *err) BT_MUST_CHECK;
/* Writes at most `most` distinct shapes of layers and heads of all layouts and returns their number; 0 if out of
 * memory. The shapes of one micro-batch of every tensor-parallel size come first, so that a probe that runs out of time
 * has measured every slice. */
size_t bt_layouts_shapes(const bt_layouts *l, const bt_layout_search *s, bt_part_shape *out,
                         size_t most);
#define BT_LAYOUT_NEAR 0.02 /* relative to the time of a step */
/* Predicts all times and sorts: layouts that fit first, then by time; the simplest of those near the first is moved
 * to the front. */
bt_code bt_layouts_predict(bt_layouts *l, const bt_layout_search *s, const bt_rates *r, bt_err *err)
    BT_MUST_CHECK;
/* Sorts again: tried layouts first, by their measured times. */
void bt_layouts_prefer_tried(bt_layouts *l);
/* Seconds of a step: tried if available, else predicted. */
double bt_layout_step_s(const bt_layout *l);
/* Compares axes and ZeRO stage; ignores micro-batches, chunks and recomputation. */
bool bt_layout_same_mesh(const bt_layout *a, const bt_layout *b);
/* "pp 2, dp 2 (ZeRO-1), tp 1, micro-batch 4 x 2" */
const char *bt_layout_words(const bt_layout *l, char *buf, size_t size);

#endif
