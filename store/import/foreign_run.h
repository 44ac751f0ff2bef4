/* foreign_run.h - curves of a run that another program recorded: TensorBoard's event files, CSV with a header
 * line, and JSON rows (`trainer_state.json` of Hugging Face, lines of JSON).
 *
 * Names of columns, tags and keys are mapped to metrics of a step (engine/base/tables/metrics.def, scope step):
 *     our own keys            loss, val_loss, lr, ...; also behind a panel's name, as `bitrain export` writes them
 *     other programs' names   the rows of metric_names.c
 *     train/X, train_X        X                eval/X, val_X, X/test, ...   the metric of the validation
 *     "RUN - X"               X (CSV files of Weights & Biases)
 * A name without a metric is kept in `unused`. Threads: one caller. */
#ifndef BT_STORE_IMPORT_FOREIGN_RUN_H
#define BT_STORE_IMPORT_FOREIGN_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/tables/metric.h"
#include "engine/base/text.h"

typedef struct bt_foreign_step {
    int64_t step;   /* number in the file */
    double wall_s;  /* seconds since 1970; NaN: unknown */
    size_t arrival; /* order in the file */
    double values[BT_MS_COUNT];
} bt_foreign_step;

typedef struct bt_foreign_run {
    bt_foreign_step *at; /* after bt_foreign_run_read: in ascending order of steps, one for each */
    size_t n, cap;
    bt_text unused; /* names without a metric, each once, separated by '\n' */
    size_t n_unused;
    bt_text notes; /* lines for the user */
} bt_foreign_run;

/* Reads a file, whose first bytes determine its format, or all event files of a folder in the order of their names.
 * Values of the same step and metric: the last one counts. BT_NOTFOUND; BT_FORMAT: damaged, another format, or
 * without any value of a metric; BT_UNSUPPORTED. On an error *out is empty. */
bt_code bt_foreign_run_read(bt_foreign_run *out, const char *path, bt_err *err) BT_MUST_CHECK;
void bt_foreign_run_release(bt_foreign_run *r);

/* Returns the metric of a name (BT_MS_...); -1: none. */
int bt_metric_of_name(const char *name);

/* ---- used by readers of the file formats ---- */

/* Adds a value. Returns false if out of memory. */
bool bt_foreign_run_add(bt_foreign_run *r, int64_t step, double wall_s, const char *name,
                        double value);
/* Sorts the steps and keeps one of each number, with the newest value of each metric. */
void bt_foreign_run_merge(bt_foreign_run *r);
/* Lists a name whose values are not numbers. */
bool bt_foreign_run_unused(bt_foreign_run *r, const char *name);
bool bt_is_step_name(const char *name);
bool bt_is_wall_name(const char *name);
bt_code bt_read_tensorboard(bt_foreign_run *r, const char *path, bt_err *err) BT_MUST_CHECK;
bt_code bt_read_csv(bt_foreign_run *r, const char *path, const char *text, bt_err *err)
    BT_MUST_CHECK;
/* Changes the text. */
bt_code bt_read_json_rows(bt_foreign_run *r, const char *path, char *text, bt_err *err)
    BT_MUST_CHECK;

#endif
