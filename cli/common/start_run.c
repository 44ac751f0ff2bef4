/* start_run.c - composes the command line of a detached `bitrain train` and starts it. */
#include "cli/common/start_run.h"

#include "cli/common/run_name.h"
#include "monitor/job/launch/detach.h"

bt_code bt_cli_start_run(const char *store, int n, const char *const *words, char name[BT_NAME_MAX],
                         double patience_s, bt_err *err) {
    enum { MOST = 30 };
    const char *argv[MOST + 5];
    int k = 0;
    if (n > MOST) return bt_fail(err, BT_ARG, "%d words are too many to start a run with", n);
    if (!name[0]) BT_TRY(bt_run_make_name(store, name, err));
    argv[k++] = "train";
    for (int i = 0; i < n; i++) argv[k++] = words[i];
    argv[k++] = "--name";
    argv[k++] = name;
    argv[k++] = "--store";
    argv[k++] = store;
    return bt_job_detach(k, argv, patience_s, err);
}
