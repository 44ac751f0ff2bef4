/* choose_layout.h - the layouts of a job on this machine or its hosts, ranked by predicted time, from
 * settings that were read but not resolved: for `bitrain plan` and `train --layout auto`. */
#ifndef BT_CLI_LAYOUT_CHOOSE_LAYOUT_H
#define BT_CLI_LAYOUT_CHOOSE_LAYOUT_H

#include "cli/layout/machine_rates.h"
#include "engine/plan/layout_search.h"
#include "engine/plan/layout_why.h"
#include "engine/plan/rates.h"

/* this machine, or the hosts of the host file */
bt_cluster bt_cluster_here(const bt_run_cfg *cfg, int ranks);
/* of the data of settings that are resolved, whose files it reads and tokenises; nothing of a stream, and of
 * files that are long or cannot be read */
bt_data_facts bt_data_facts_of(const bt_run_cfg *cfg);

typedef struct bt_layout_choice {
    bt_layout_search search;
    bt_layouts layouts; /* the best first */
    bt_rates rates;
    bt_run_cfg settings; /* of the best, resolved */
} bt_layout_choice;

#define BT_LAYOUT_TRIAL_S 10 /* for trying layouts, where nobody has given it */

typedef struct bt_layout_job {
    const bt_opts *opts; /* where the settings come from */
    const bt_run_cfg *cfg;
    int ranks;
    const char *store;
    bool anew, never; /* as in bt_rates_wanted */
    /* for trying the first layouts (layout_trial.h), 0: only those already tried; where nobody has given it, less
     * if measuring has taken much of BT_PROBING_S */
    double trial_s;
    bool trial_given;
    bool quiet; /* no progress bars */
} bt_layout_job;

/* BT_NOMEM: no layout fits; says by how much, and what would. told: lines about the rates. On
 * failure there is nothing to release. */
bt_code bt_layout_choose(bt_layout_choice **out, const bt_layout_job *job, bt_text *told,
                         bt_err *err) BT_MUST_CHECK;
void bt_layout_choice_release(bt_layout_choice *c); /* accepts NULL */

/* the settings of a layout and its prediction into a table of options, as if they were given (`where` says by whom):
 * what follows from them by itself stays open */
bt_code bt_layout_apply(bt_opts *o, const bt_layout *l, const char *where, bt_err *err)
    BT_MUST_CHECK;

#endif
