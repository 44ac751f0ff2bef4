/* run_once.h - runs this program once on several ranks until it ends, without wire, restart or record, for benchmarks.
 *
 * The last line that begins with BT_RUN_ONCE_RESULT is the result, lines that begin with BT_RUN_ONCE_PROGRESS are
 * passed to `heard`, an error line becomes the error, and after a failure the remaining output is passed to the log
 * callback. INT and TERM end the ranks and return BT_STOPPED. */
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
    const char *const *words;        /* arguments of the program */
    size_t n_words;
    /* Receives the text of a progress line, and NULL about five times a second. May be NULL. */
    void (*heard)(void *ctx, const char *line);
    void *heard_ctx;
} bt_run_once;

bt_code bt_run_once_run(const bt_run_once *o, bt_text *result, bt_err *err) BT_MUST_CHECK;

#endif
