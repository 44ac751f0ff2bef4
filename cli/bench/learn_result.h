/* learn_result.h - the runs of `bitrain bench learn` and their summary: means over seeds, a comparison of each recipe
 * with the first one, and a table of curves. */
#ifndef BT_CLI_BENCH_LEARN_RESULT_H
#define BT_CLI_BENCH_LEARN_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/experiment/train_group.h"

enum { BT_LEARN_RECIPES = 32, BT_LEARN_CORPORA = 16, BT_LEARN_SEEDS = 100, BT_LEARN_POINTS = 512 };

typedef struct bt_learn_cfg {
    char recipes[8192], corpora[4096], with[4096], store[1024], dir[512], curves[1024];
    int64_t seeds;
    double goal,
        minutes; /* minutes of steps for each run; 0: the settings give the number of steps */
    bool json, force;
} bt_learn_cfg;

typedef struct bt_learn_word {
    char name[32];
    const char *rest; /* settings separated by blanks; or a path */
} bt_learn_word;

typedef struct bt_learn_point {
    /* minutes of training steps, tokens of training, bits per byte of validation */
    double minutes, tokens, bits;
} bt_learn_point;

typedef struct bt_learn_run {
    bt_training run; /* first member */
    size_t recipe, corpus;
    int64_t seed;
    bt_learn_point curve[BT_LEARN_POINTS];
    size_t n;
    double goal_minutes, goal_tokens; /* NaN: not reached */
} bt_learn_run;

typedef struct bt_learn {
    const bt_learn_cfg *cfg;
    int *exit_status; /* exit status of the command */
    bt_learn_word recipes[BT_LEARN_RECIPES], corpora[BT_LEARN_CORPORA];
    int64_t steps[BT_LEARN_RECIPES]; /* number of steps of the runs; 0: given by their settings */
    bool measures;                   /* short runs that measure the step time */
    size_t n_recipes, n_corpora, n_runs;
    bt_learn_run *runs;         /* (seeds, corpora, recipes) */
    char folder[600], db[1024]; /* folder and database of the runs */
    char temporary[600];        /* folder removed at the end */
} bt_learn;

/* Every run has at least one point. */
bt_code bt_learn_print(const bt_learn *b, bt_err *err) BT_MUST_CHECK;
/* Writes the file cfg->curves (curve_table.h), unless the name is "". */
bt_code bt_learn_curves(const bt_learn *b, bt_err *err) BT_MUST_CHECK;

#endif
