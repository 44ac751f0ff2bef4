/* compare_groups.h - `bitrain compare --group-by KEY`: compares groups of runs with equal values of a setting. */
#ifndef BT_CLI_RUNS_COMPARE_GROUPS_H
#define BT_CLI_RUNS_COMPARE_GROUPS_H

#include <stdbool.h>

#include "store/read/compare_runs.h"

typedef struct bt_group_cfg {
    const char *keys; /* settings, separated by commas: "optim.lr,model.norm" */
    const char
        *paired; /* setting whose equal values form pairs of runs, such as run.seed; "": none */
    const char *metric; /* metric of a step, or column of `runs` */
    bt_at at;           /* x NaN: the largest progress that all runs have reached */
    int window;         /* number of values to average */
    bool json;
} bt_group_cfg;

/* words: names of runs, or filters as for `bitrain runs`; none: all runs. Prints the result. */
bt_code bt_compare_groups(bt_db *db, const bt_group_cfg *cfg, const char *const *words, size_t n,
                          bt_err *err) BT_MUST_CHECK;

#endif
