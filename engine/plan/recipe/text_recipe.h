/* text_recipe.h - choices for a run on little text within a budget of time (`bitrain train --minutes`).
 *
 * All that is fitted to measurements is in the tables at the top of text_recipe.c.
 *
 * Threads: any. Pure functions. */
#ifndef BT_ENGINE_PLAN_RECIPE_TEXT_RECIPE_H
#define BT_ENGINE_PLAN_RECIPE_TEXT_RECIPE_H

#include <stddef.h>
#include <stdint.h>

typedef struct bt_recipe_shape {
    int layers, d_model, heads, d_ff;
} bt_recipe_shape;

typedef struct bt_recipe_strength {
    const char *key; /* a setting */
    char value[32];  /* "": its default */
} bt_recipe_strength;

/* tokens of the vocabulary that is learned from a text for a training of so many minutes; 0: bytes are the tokens */
int bt_recipe_vocab(uint64_t text_bytes, double minutes);
size_t bt_recipe_shapes(void);
const bt_recipe_shape *bt_recipe_shape_at(size_t i);
/* Index of the shape to train. tokens, params: (bt_recipe_shapes()) tokens that each shape trains in the time, and its
 * parameters. */
size_t bt_recipe_choose(const double *tokens, const double *params);
/* tokens of a step for a run of so many tokens: a multiple of `unit`, one sequence for each rank */
int64_t bt_recipe_batch(double run_tokens, int64_t unit);
/* The strengths of regularisers for a run. A program without one of these settings, which belong to parts of training,
 * leaves it out. */
typedef struct bt_recipe_run {
    double steps, passes, params;
    double text_tokens; /* of one pass over the training data */
} bt_recipe_run;
size_t bt_recipe_strengths(void);
bt_recipe_strength bt_recipe_strength_at(size_t i, const bt_recipe_run *r);

#endif
