/* run_once.h - runs this program once on several ranks until its end, without wire, restart or
 * record, for benchmarks.
 *
 * The output of the ranks is kept: the last line that begins with BT_RUN_ONCE_RESULT is the
 * result, lines that begin with BT_RUN_ONCE_PROGRESS go to `heard`, an error line becomes the
 * error, and after a failure the rest goes to the log callback. INT and TERM end the ranks and
 * return BT_STOPPED. */
#ifndef BT_MONITOR_JOB_LAUNCH_RUN_ONCE_H
#define BT_MONITOR_JOB_LAUNCH_RUN_ONCE_H

#include <stddef.h>

#include "engine/base/status.h"
#include "engine/base/text.h"

#define BT_RUN_ONCE_RESULT "bitrain result: "
#define BT_RUN_ONCE_PROGRESS "bitrain progress: "

typedef struct bt_run_once {
    int ranks;
    const char *hosts, *mpirun_args; /* "" for none */
    const char *const *words;        /* argv after the program's name */
    size_t n_words;
    /* may be NULL: the rest of a line of progress; NULL about five times a second */
    void (*heard)(void *ctx, const char *line);
    void *heard_ctx;
} bt_run_once;

bt_code bt_run_once_run(const bt_run_once *o, bt_text *result, bt_err *err) BT_MUST_CHECK;

#endif
