/* run_shown.c - turns progress lines of rank 0 into a progress bar. */
#include "cli/common/run_shown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/progress.h"
#include "engine/parallel/mpi/comm.h"
#include "monitor/job/launch/output.h"

typedef struct shown {
    bt_progress bar;
    const char *what;
    double done;
    char note[64];
} shown;

/* line: NULL if rank 0 has printed nothing for a moment. */
static void show_progress_line(void *ctx, const char *line) {
    shown *s = ctx;
    char *end = NULL;
    if (line) {
        s->done = strtod(line, &end);
        snprintf(s->note, sizeof s->note, "%s", *end == ' ' ? end + 1 : "");
    }
    bt_progress_show(&s->bar, s->what, s->done, s->note);
}

bt_code bt_run_shown(const bt_run_once *o, const char *what, bool quiet, bt_text *result,
                     bt_err *err) {
    shown s = {.what = what};
    bt_run_once job = *o;
    job.heard = show_progress_line;
    job.heard_ctx = &s;
    bt_progress_begin(&s.bar, quiet);
    bt_code code = bt_run_once_run(&job, result, err);
    bt_progress_end(&s.bar);
    return code;
}

void bt_run_shown_progress(double done, const char *note) {
    if (bt_comm_rank(bt_comm_world()) != 0) return;
    printf(BT_RUN_ONCE_PROGRESS "%.3f %s\n", done, note);
    fflush(stdout);
}

/* The parent of a rank parses the first error line. Every failed rank prints this line, because the first rank that
 * exits ends the others. */
void bt_run_shown_fail(bt_code code, const bt_err *err, int *exit_status) {
    char line[640];
    *exit_status = bt_exit_code(code);
    bt_output_error_line(line, sizeof line,
                         err->rank >= 0 ? err->rank : bt_comm_rank(bt_comm_world()), code,
                         err->msg);
    fputs(line, stderr);
    if (bt_comm_size(bt_comm_world()) > 1) bt_comm_abort(*exit_status);
}
