/* machine_rates.h - rates of this machine (engine/plan/rates.h) for one use: loaded from the data folder, with
 * missing rates measured by a short job of ranks.
 *
 * The files are in the folder rates/ beside the metrics database. Rates of another build or machine are not used:
 * they are measured again, and `notes` receives the reason. */
#ifndef BT_CLI_LAYOUT_MACHINE_RATES_H
#define BT_CLI_LAYOUT_MACHINE_RATES_H

#include "engine/plan/rates.h"

#define BT_PROBING_S 20.0 /* limit for measuring and trials together */
#define BT_PROBE_BUDGET_S \
    15.0 /* maximum time of measuring in seconds, without the start of the job */
#define BT_GROUPS_BUDGET_S 3.0 /* additional seconds for layers in real tensor-parallel groups */

typedef struct bt_rates_request {
    const bt_run_cfg *cfg;     /* resolved for `ranks`: threads, kernel set, host file */
    int ranks, ranks_per_host; /* size of the planned job */
    bool no_links;             /* true: speeds of links between ranks are not needed */
    const bt_part_shape *parts;
    size_t n_parts;
    const char *store; /* path of the metrics database, beside which rates are stored */
    bool anew;         /* true: measure even if there are rates */
    bool never;        /* true: measure nothing; BT_NOTFOUND if the file has no rates */
    double budget_s;   /* 0: BT_PROBE_BUDGET_S */
    bool quiet;        /* no progress bar */
} bt_rates_request;

/* `notes` (may be NULL) receives lines for people: rejected files and measurements in progress. If the rates cannot be
 * saved, notes receives a warning and the function succeeds. */
bt_code bt_machine_rates(const bt_rates_request *w, bt_rates *out, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

/* Returns the file for the rates of a certain machine, build and use (bt_rates_identify). */
void bt_machine_rates_file(const bt_rates *r, const char *store, char *out, size_t size);

/* Runs one rank of that job: `bitrain plan rates-probe ...`. argv: words after rates-probe. */
#define BT_RATES_PROBE_WORD "rates-probe"
bt_code bt_rates_probe_rank(int argc, char **argv, int *exit_status, bt_err *err) BT_MUST_CHECK;

#endif
