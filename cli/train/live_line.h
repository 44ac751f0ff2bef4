/* live_line.h - the display of `bitrain train` on stderr; it never blocks the run.
 *
 * A terminal gets one rewriting line and permanent lines for events; other files get one key=value line at most
 * every 10 s, and the first and the last step. Keys are read from stdin if both are terminals. After a hangup of
 * the terminal nothing is written to it. */
#ifndef BT_CLI_TRAIN_LIVE_LINE_H
#define BT_CLI_TRAIN_LIVE_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "monitor/job/supervisor.h"

typedef struct bt_live bt_live;

/* greeting: lines shown before the first news of the ranks; a run that never gets that far has its
 * error line only */
bt_code bt_live_open(bt_live **out, int64_t steps, const char *greeting, bool quiet, bt_err *err)
    BT_MUST_CHECK;
bt_job_ui bt_live_ui(bt_live *l); /* callbacks for the supervisor; valid until close */
/* the same as a sink, for rank 0 without a supervisor */
const bt_sink *bt_live_sink(bt_live *l);
void bt_live_bell(bt_live *l, bool on); /* an alert rings the terminal's bell; off at first */
/* last key=value line, end of the rewriting line, terminal as it was */
void bt_live_finish(bt_live *l);
void bt_live_close(bt_live *l); /* accepts NULL */

#endif
