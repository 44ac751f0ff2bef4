/* plan_simulate.h - `bitrain plan --simulate`: predicts a run on another cluster. */
#ifndef BT_CLI_PLAN_PLAN_SIMULATE_H
#define BT_CLI_PLAN_PLAN_SIMULATE_H

#include "cli/train/train_parts.h"

typedef struct bt_simulation_words {
    const char *hosts, *link, *memory, *mtbf; /* given values; "": not given */
    double straggler_frac, watts, price;
    bool anew; /* measure this machine's rates even if they are known */
} bt_simulation_words;

/* p: settings as read, not resolved. Prints the simulation; lines about rates go to stderr. */
bt_code bt_plan_simulate(bt_train_plan *p, const bt_simulation_words *w, bt_err *err) BT_MUST_CHECK;

#endif
