/* run_folder.h - files of a run outside the database: checkpoints, log, locks. */
#ifndef BT_CLI_COMMON_RUN_FOLDER_H
#define BT_CLI_COMMON_RUN_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

/* Counts the checkpoints in a run's output folder and the bytes of all its files. */
bool bt_run_folder_measure(const char *dir, int *checkpoints, int64_t *bytes);
/* Removes the files of a run (step-*, log.txt, locks, records not yet stored), then the folder. Other files are
 * kept, and *left is then true. */
bt_code bt_run_folder_remove(const char *dir, bool *left, bt_err *err) BT_MUST_CHECK;
/* Removes the records of an ended run, and its checkpoints if requested, for `dash` and `top`. reply: names the
 * removed and the kept parts. */
bt_code bt_run_remove(const char *store, const char *run, bool checkpoints, char *reply,
                      size_t size, bt_err *err) BT_MUST_CHECK;

#endif
