/* layout_search.h - every layout that a job could have: found with the resolver that `train` uses, with the
 * memory of its largest rank and, from rates, the time of a step; and their order.
 *
 * Order:    find (meshes, micro-batches, ZeRO stages that are legal) -> shapes (what must be known of
 *           the machine) -> predict -> [0] is the choice.
 * Two times of which the model cannot tell the shorter one (BT_LAYOUT_NEAR) are the same time: then
 * the simpler layout comes first.
 * A layout is chosen among those that fit the memory; recomputation is taken where nothing else
 * fits. What the user has set stays as it is.
 * Threads: none shared. Owns: its list. */
#ifndef BT_ENGINE_PLAN_LAYOUT_SEARCH_H
#define BT_ENGINE_PLAN_LAYOUT_SEARCH_H

#include "engine/plan/time_model.h"

typedef struct bt_layout {
    bt_mesh_shape shape;
    int virtual_stages; /* chunks of layers, of each pipeline stage */
    int zero, recompute, gather, codec;
    int64_t micro_batch, accum;
    size_t rank_bytes; /* of the rank that needs most */
    double all_bytes;  /* of all ranks */
    bool fits;
    bt_prediction time;
    double trial_s; /* a step, when some were run (cli/layout/layout_trial.h); 0: predicted only */
    double
        trial_load; /* tasks of other programs for each processor before the trial; NaN: not known */
} bt_layout;

/* what the planner may change: whatever nobody has set */
typedef struct bt_layout_freedom {
    bool mesh, virtual_stages, zero, micro_batch, recompute, gather;
} bt_layout_freedom;
/* from what has been set by flag, file or environment */
bt_layout_freedom bt_layout_freedom_of(const bt_opts *o);

typedef struct bt_layout_search {
    const bt_run_cfg *cfg; /* read, not resolved. Borrowed */
    bt_layout_freedom may;
    bt_cluster cluster;
    /* shapes of the first layout's micro-batch alone: the others' rates are scaled */
    bool one_micro_batch;
    /* times of those alone that may be the choice, or the first of another mesh: the others' stay 0 */
    bool choice_only;
} bt_layout_search;

typedef struct bt_layouts {
    bt_layout *at;
    size_t n, cap, fitting;
    size_t refused;     /* combinations that the resolver does not allow */
    char reason[240];   /* the first refusal, for when nothing is legal */
    size_t least_bytes; /* of the layout whose largest rank needs least */
} bt_layouts;

/* BT_ARG: nothing is legal; the message is the resolver's */
bt_code bt_layouts_find(bt_layouts *out, const bt_layout_search *s, bt_err *err) BT_MUST_CHECK;
void bt_layouts_release(bt_layouts *l); /* accepts an all-zero struct */
/* the settings of a layout, resolved */
bt_code bt_layout_settings(const bt_layout_search *s, const bt_layout *l, bt_run_cfg *out,
                           bt_err *err) BT_MUST_CHECK;
/* The distinct shapes of layers and heads of all layouts, at most `most`: first one micro-batch for
 * every size of tensor-parallel groups, then another for each, so that a probe which runs out of time
 * has seen the slices of all. Returns their number; 0: no memory */
size_t bt_layouts_shapes(const bt_layouts *l, const bt_layout_search *s, bt_part_shape *out,
                         size_t most);
#define BT_LAYOUT_NEAR 0.02 /* of a step's time */
/* times of all, and their order: those that fit before those that do not, the fastest first; but the
 * simplest of those that are near the first goes before it */
bt_code bt_layouts_predict(bt_layouts *l, const bt_layout_search *s, const bt_rates *r, bt_err *err)
    BT_MUST_CHECK;
/* The order anew, where some have been tried: those come first, by what they took. */
void bt_layouts_prefer_tried(bt_layouts *l);
/* the best that is known of a step's time */
double bt_layout_step_s(const bt_layout *l);
/* the same axes and ZeRO stage, whatever micro-batches, chunks and recomputation are */
bool bt_layout_same_mesh(const bt_layout *a, const bt_layout *b);
/* "pp 2, dp 2 (ZeRO-1), tp 1, micro-batch 4 x 2" */
const char *bt_layout_words(const bt_layout *l, char *buf, size_t size);

#endif
