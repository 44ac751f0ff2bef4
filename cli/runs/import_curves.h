/* import_curves.h - `bitrain runs import FILE`: the curves of a table (curve_table.h) as ended runs, which
 * every view of runs then draws. */
#ifndef BT_CLI_RUNS_IMPORT_CURVES_H
#define BT_CLI_RUNS_IMPORT_CURVES_H

#include "engine/base/status.h"

/* Each curve becomes run "FILE.RECIPE" of the group "FILE", its end at the file's date. A validation is a
 * step of it: tokens, and as val_loss the bits per byte in nats. Prints the runs' names. BT_NOTFOUND,
 * BT_FORMAT: of the file; BT_BUSY: there is such a run */
bt_code bt_curves_import(const char *store, const char *file, double wait_s, bt_err *err)
    BT_MUST_CHECK;

#endif
