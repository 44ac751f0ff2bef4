/* run_name.h - names of runs: made for runs without one, and distinguished from paths. */
#ifndef BT_CLI_COMMON_RUN_NAME_H
#define BT_CLI_COMMON_RUN_NAME_H

#include <stdbool.h>

#include "engine/base/sink.h"
#include "engine/base/status.h"

/* "brave-otter-7", not in the store yet */
bt_code bt_run_make_name(const char *store, char name[BT_NAME_MAX], bt_err *err) BT_MUST_CHECK;

/* Resolves a word. A word with '/' is a path. Any other is the run of the name `name` (the word without a suffix
 * such as "@best"), or else a file or a folder that exists; if both exist the run is taken, and a line on stderr
 * reports it. `store` may be "" for the default. run receives the name if *is_path becomes false. Fails with
 * BT_NOTFOUND if neither exists; for an unknown suffix after '@' the message lists the run's checkpoints. */
bt_code bt_run_or_path(const char *store, const char *word, const char *name, bool *is_path,
                       char run[BT_NAME_MAX], bt_err *err) BT_MUST_CHECK;

#endif
