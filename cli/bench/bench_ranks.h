/* bench_ranks.h - measurements that need several ranks: mpirun starts this program again, and the result of rank 0
 * is returned as one line. */
#ifndef BT_CLI_BENCH_BENCH_RANKS_H
#define BT_CLI_BENCH_BENCH_RANKS_H

#include "cli/common/printout/printout.h"
#include "cli/common/progress.h"
#include "engine/config/run_cfg.h"

/* Progress of a measurement. One of several ranks prints progress lines for its parent process; a single process draws
 * a bar. */
typedef struct bt_bench_bar {
    bt_progress bar;
    bool marked;
} bt_bench_bar;
/* marked: as for bt_bench_print_result; quiet: a single process shows no progress. */
void bt_bench_bar_begin(bt_bench_bar *b, bool marked, bool quiet);
/* done: 0..1. Draws at once, because the next part may take long. */
void bt_bench_bar_show(bt_bench_bar *b, double done, const char *note);
void bt_bench_bar_end(bt_bench_bar *b);

/* Runs `bitrain bench VERB argv` on cfg's ranks and hosts, and prints the result. */
bt_code bt_bench_on_ranks(const char *verb, int argc, char **argv, const bt_run_cfg *cfg,
                          bt_err *err) BT_MUST_CHECK;
/* marked: rank 0 of several ranks prints for its parent process; otherwise it prints text of any number of lines. */
void bt_bench_print_result(bt_printout *o, bool marked);

#endif
