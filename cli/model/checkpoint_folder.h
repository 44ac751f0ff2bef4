/* checkpoint_folder.h - finds the checkpoint folder of a run; warns of damaged newer checkpoints. */
#ifndef BT_CLI_MODEL_CHECKPOINT_FOLDER_H
#define BT_CLI_MODEL_CHECKPOINT_FOLDER_H

#include <limits.h>
#include <stdbool.h>

#include "engine/base/status.h"
#include "engine/base/text.h"

/* Writes the word without "@best"; returns true if it has this suffix. */
bool bt_trained_split_best(const char *word, char *run, size_t size);
/* Writes the checkpoint folder of a run ("RUN", "RUN@best", "last"), or `which` itself if it is a path. store: "": the
 * default. */
bt_code bt_trained_folder(const char *which, const char *store, char out[PATH_MAX], bt_err *err)
    BT_MUST_CHECK;
/* passed_over: one line for each damaged checkpoint that is newer than the one at `path`. Logs these lines as warnings;
 * with `newest`, fails with BT_FORMAT and names --allow-older. */
bt_code bt_trained_check_newest(const bt_text *passed_over, const char *path, bool newest,
                                bt_err *err) BT_MUST_CHECK;
/* Writes the lines of passed_over as an array of this name, if there are any. */
void bt_trained_put_passed(const bt_text *passed_over, bt_json *j);

#endif
