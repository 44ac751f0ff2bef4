/* choose_layout.h - ranks the layouts of a job on this machine or its hosts by predicted time, from settings that were
 * read but not resolved: for `bitrain plan` and `train --layout auto`. */
#ifndef BT_CLI_LAYOUT_CHOOSE_LAYOUT_H
#define BT_CLI_LAYOUT_CHOOSE_LAYOUT_H

#include "cli/layout/machine_rates.h"
#include "engine/plan/layout_search.h"
#include "engine/plan/layout_why.h"
#include "engine/plan/rates.h"

/* Describes this machine, or the hosts of the host file. */
bt_cluster bt_cluster_here(const bt_run_cfg *cfg, int ranks);
/* Facts about the data of resolved settings: reads and tokenises their files. All zero for a stream, for files
 * above 32 MB together and for files that cannot be read. */
bt_data_facts bt_data_facts_of(const bt_run_cfg *cfg);

typedef struct bt_layout_choice {
    bt_layout_search search;
    bt_layouts layouts; /* the best first */
    bt_rates rates;
    bt_run_cfg settings; /* resolved settings of the best layout */
} bt_layout_choice;

#define BT_LAYOUT_TRIAL_S 10 /* seconds for trials of layouts if --trial is not given */

typedef struct bt_layout_job {
    const bt_opts *opts; /* source of the settings */
    const bt_run_cfg *cfg;
    int ranks;
    const char *store;
    bool anew, never; /* see bt_rates_request */
    /* Seconds for trials of the first layouts (layout_trial.h). 0: use only earlier trials. If trial_given is false,
     * measuring and trials together take at most BT_PROBING_S. */
    double trial_s;
    bool trial_given;
    bool quiet; /* no progress bars */
} bt_layout_job;

/* BT_NOMEM: no layout fits; the message names the missing memory and a remedy. `notes` receives lines about the rates.
 * On failure *out needs no release. */
bt_code bt_layout_choose(bt_layout_choice **out, const bt_layout_job *job, bt_text *notes,
                         bt_err *err) BT_MUST_CHECK;
void bt_layout_choice_release(bt_layout_choice *c); /* accepts NULL */

/* Sets the options of a layout and its prediction as if a user had given them. `where` names their origin. Derived
 * settings remain derived. */
bt_code bt_layout_apply(bt_opts *o, const bt_layout *l, const char *where, bt_err *err)
    BT_MUST_CHECK;

#endif
