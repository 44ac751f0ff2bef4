/* run_name.h - names of runs: generated for runs without a name, and distinguished from paths. */
#ifndef BT_CLI_COMMON_RUN_NAME_H
#define BT_CLI_COMMON_RUN_NAME_H

#include <stdbool.h>

#include "engine/base/sink.h"
#include "engine/base/status.h"

/* Writes a name such as "brave-otter-7" that the store does not contain. */
bt_code bt_run_make_name(const char *store, char name[BT_NAME_MAX], bt_err *err) BT_MUST_CHECK;

/* Resolves a word. A word with '/' is a path. Any other word is the run `name` (the word without a suffix such as
 * "@best"), or else an existing file or folder; if both exist, the run is used, and stderr reports it. store: "" for
 * the default. `run` receives the name if *is_path becomes false. Fails with BT_NOTFOUND if neither exists; for an
 * unknown suffix the message lists the run's checkpoints. */
bt_code bt_run_or_path(const char *store, const char *word, const char *name, bool *is_path,
                       char run[BT_NAME_MAX], bt_err *err) BT_MUST_CHECK;

#endif
