/* machine_rates.h - the rates of this machine (engine/plan/rates.h) for a use of it: from the data
 * folder, where a run before has left them, and what is missing measured by a short job of ranks.
 *
 * Files lie in the folder rates/ beside the metrics database. A file of another build or machine is
 * not used: what it holds is measured again, and `told` says why. */
#ifndef BT_CLI_LAYOUT_MACHINE_RATES_H
#define BT_CLI_LAYOUT_MACHINE_RATES_H

#include "engine/plan/rates.h"

#define BT_PROBING_S 20.0      /* that measuring and trying layouts may take together */
#define BT_PROBE_BUDGET_S 15.0 /* seconds that measuring may take, start of the job not counted */
#define BT_GROUPS_BUDGET_S 3.0 /* beside that: layers in real tensor-parallel groups */

typedef struct bt_rates_wanted {
    const bt_run_cfg *cfg;     /* resolved for `ranks`: threads, kernel set, host file */
    int ranks, ranks_per_host; /* of the job that is planned */
    bool no_links;             /* messages between its ranks need not be known */
    const bt_part_shape *parts;
    size_t n_parts;
    const char *store; /* path of the metrics database, beside which rates are kept */
    bool anew;         /* measure although there are rates */
    bool never;        /* measure nothing: what the file has, or BT_NOTFOUND */
    double budget_s;   /* 0: BT_PROBE_BUDGET_S */
    bool quiet;        /* no progress bar */
} bt_rates_wanted;

/* told (may be NULL) receives lines for people: what was refused, what is measured. A failure to
 * keep the rates is told as well; they are used all the same. */
bt_code bt_machine_rates(const bt_rates_wanted *w, bt_rates *out, bt_text *told, bt_err *err)
    BT_MUST_CHECK;

/* the file in which the rates of an identified machine, build and use are kept (bt_rates_identify) */
void bt_machine_rates_file(const bt_rates *r, const char *store, char *out, size_t size);

/* what a rank of that job does: `bitrain plan rates-probe ...`, words after rates-probe */
#define BT_RATES_PROBE_WORD "rates-probe"
bt_code bt_rates_probe_rank(int argc, char **argv, int *exit_status, bt_err *err) BT_MUST_CHECK;

#endif
