/* live_line.h - the display of `bitrain train` on stderr, which never blocks the run.
 *
 * A terminal shows one status line that is redrawn, and permanent lines for events. Otherwise stderr receives the first
 * and the last step as key=value lines, and at most one such line every 10 s in between. Keys are read from stdin if
 * both are terminals. Nothing is written after a hangup of the terminal. */
#ifndef BT_CLI_TRAIN_LIVE_LINE_H
#define BT_CLI_TRAIN_LIVE_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "monitor/job/supervisor.h"

typedef struct bt_live bt_live;

/* greeting: lines to print before the first report of the ranks; a run that fails before prints only its error. */
bt_code bt_live_open(bt_live **out, int64_t steps, const char *greeting, bool quiet, bt_err *err)
    BT_MUST_CHECK;
bt_job_ui bt_live_ui(bt_live *l); /* callbacks for the supervisor; valid until close */
/* Returns the same callbacks as a sink, for rank 0 without a supervisor. */
const bt_sink *bt_live_sink(bt_live *l);
void bt_live_bell(bt_live *l, bool on); /* alerts ring the terminal's bell; off by default */
/* Prints the last key=value line, ends the status line, and restores the terminal. */
void bt_live_finish(bt_live *l);
void bt_live_close(bt_live *l); /* accepts NULL */

#endif
