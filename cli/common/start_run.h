/* start_run.h - starts a run like `bitrain train`, in its own session, for `top` and `dash`. */
#ifndef BT_CLI_COMMON_START_RUN_H
#define BT_CLI_COMMON_START_RUN_H

#include "engine/base/sink.h"
#include "engine/base/status.h"

/* Starts a run with n words (at most 30) of a command line after `train`. name: requested name; "" is replaced by a
 * generated one. Waits up to patience_s: if the run ends within this time it has failed, and its last line becomes
 * the error. Threads: one caller. */
bt_code bt_cli_start_run(const char *store, int n, const char *const *words, char name[BT_NAME_MAX],
                         double patience_s, bt_err *err) BT_MUST_CHECK;

#endif
