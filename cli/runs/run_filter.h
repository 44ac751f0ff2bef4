/* run_filter.h - filters that select runs: "abl", "state:done", "loss<2.5", "optim.lr=3e-4", "tags:paper". */
#ifndef BT_CLI_RUNS_RUN_FILTER_H
#define BT_CLI_RUNS_RUN_FILTER_H

#include "engine/base/text.h"
#include "store/store.h"

enum { BT_FILTER_WORDS = 16 };

typedef struct bt_run_filter {
    bt_text where; /* " WHERE ..." or "" */
    const char *params[2 * BT_FILTER_WORDS];
    char buf[BT_FILTER_WORDS][160]; /* keys of the words, NUL-terminated */
    int n_params;
} bt_run_filter;

/* A word without operator is searched for in name, tags and note. KEY OP VALUE compares a column of `runs`, else a
 * setting, else a fact. OP: : (contains; for numbers: equal) = != < <= > >=. BT_ARG: no column, setting or fact is
 * named KEY, or OP orders numbers and VALUE is not a number. */
bt_code bt_run_filter_init(bt_run_filter *f, bt_db *db, const char *const *words, size_t n,
                           bt_err *err) BT_MUST_CHECK;
void bt_run_filter_release(bt_run_filter *f);

#endif
