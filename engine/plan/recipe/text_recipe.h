/* text_recipe.h - chooses settings for a run on little text within a time budget (`bitrain train --minutes`).
 *
 * All values that were fitted to measurements are in the tables at the top of text_recipe.c.
 * Threads: any. Pure functions. */
#ifndef BT_ENGINE_PLAN_RECIPE_TEXT_RECIPE_H
#define BT_ENGINE_PLAN_RECIPE_TEXT_RECIPE_H

#include <stddef.h>
#include <stdint.h>

typedef struct bt_recipe_shape {
    int layers, d_model, heads, d_ff;
} bt_recipe_shape;

typedef struct bt_recipe_strength {
    const char *key; /* name of a setting */
    char value[32];  /* "": the default */
} bt_recipe_strength;

/* Returns the number of tokens in the vocabulary to train on a text, in so many minutes; 0: bytes are the tokens. */
int bt_recipe_vocab(uint64_t text_bytes, double minutes);
size_t bt_recipe_shapes(void);
const bt_recipe_shape *bt_recipe_shape_at(size_t i);
/* Returns the index of the shape to train. tokens, params: (bt_recipe_shapes()) number of tokens that each shape can
 * train in the time, and its parameters. */
size_t bt_recipe_choose(const double *tokens, const double *params);
/* Returns the tokens per step for a run of so many tokens: a multiple of `unit`, one sequence on each rank. */
int64_t bt_recipe_batch(double run_tokens, int64_t unit);
/* Strengths of regularisers for a run. These are optional features; the caller ignores those that are missing. */
typedef struct bt_recipe_run {
    double steps, passes, params;
    double text_tokens; /* tokens in one pass over the training data */
} bt_recipe_run;
size_t bt_recipe_strengths(void);
bt_recipe_strength bt_recipe_strength_at(size_t i, const bt_recipe_run *r);

#endif
