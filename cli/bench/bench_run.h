/* bench_run.h - generated runs with realistic values, for measurements of the database and of the dashboard. */
#ifndef BT_CLI_BENCH_BENCH_RUN_H
#define BT_CLI_BENCH_BENCH_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/common/progress.h"
#include "engine/base/tables/metric.h"
#include "store/store.h"

/* Generates BT_MS_COUNT values of a step, and BT_MR_COUNT values of each of its ranks. */
void bt_bench_step(int64_t step, int ranks, double *values, double *all);
double bt_bench_cpu_s(void); /* processor time of this process */
bt_code bt_bench_begin(bt_writer *w, const char *name, int ranks, bt_err *err) BT_MUST_CHECK;
/* Writes a whole run named "bench", and returns wall and processor time of writing alone, without generating the steps.
 * bar shows the number of written steps. */
bt_code bt_bench_write_run(const char *path, int64_t steps, int ranks, bool with_ranks,
                           bt_progress *bar, double *wall_s, double *used_s, bt_err *err)
    BT_MUST_CHECK;

/* Creates a temporary folder in `given`, else in $TMPDIR, else in /tmp. */
bt_code bt_bench_folder(char *out, size_t size, const char *given, bt_err *err) BT_MUST_CHECK;

typedef struct bt_figure {
    const char *key, *words;
    double value;
    const char *unit;
} bt_figure;
/* Prints one JSON object (version, the sizes as whole numbers, the figures), or the title and one line per figure. */
bt_code bt_bench_print(bool json, const char *title, const bt_figure *sizes, size_t n_sizes,
                       const bt_figure *rows, size_t n_rows, bt_err *err) BT_MUST_CHECK;

#endif
