/* start_run.h - begins a run as `bitrain train` would, in a session of its own: what `top` and `dash` do. */
#ifndef BT_CLI_COMMON_START_RUN_H
#define BT_CLI_COMMON_START_RUN_H

#include "engine/base/sink.h"
#include "engine/base/status.h"

/* Starts a run with n words of a command line after `train`, at most 30; name: the requested name, or "", which is
 * replaced by a new one. Waits up to patience_s: a run that ends within this time has failed, and its last line
 * becomes the error. Threads: one caller. */
bt_code bt_cli_start_run(const char *store, int n, const char *const *words, char name[BT_NAME_MAX],
                         double patience_s, bt_err *err) BT_MUST_CHECK;

#endif
