/* import_curves.h - `bitrain runs import FILE`: stores the curves of a table (curve_table.h), or the run of another
 * program (store/import/foreign_run.h), as finished runs, which all views can display. */
#ifndef BT_CLI_RUNS_IMPORT_CURVES_H
#define BT_CLI_RUNS_IMPORT_CURVES_H

#include "engine/base/status.h"

/* A curve of a table becomes a run "FILE.RECIPE" of the group "FILE" that ends at the file's date. A validation becomes
 * a step with its tokens and, as val_loss, the bits per byte converted to nats. A run of another program is named like
 * its file, or like the folder where the program chose the name of the file; names of values that are not metrics are
 * printed once. `name` replaces the name of the run, or that of the group; "": none. Prints the names of the
 * runs. BT_NOTFOUND, BT_FORMAT: the file is missing or invalid. BT_BUSY: a run with such a name exists. */
bt_code bt_curves_import(const char *store, const char *file, const char *name, double wait_s,
                         bt_err *err) BT_MUST_CHECK;

#endif
