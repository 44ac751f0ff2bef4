/* run_folder.h - the files of a run outside the database: checkpoints, log, locks. */
#ifndef BT_CLI_COMMON_RUN_FOLDER_H
#define BT_CLI_COMMON_RUN_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

/* dir is the out folder of a run on this machine; checkpoints and bytes of all its files are counted */
bool bt_run_folder_measure(const char *dir, int *checkpoints, int64_t *bytes);
/* Removes the files of a run (step-*, log.txt, locks, records that were not stored yet) and then the folder; *left:
 * true if it holds other files, which are kept. */
bt_code bt_run_folder_remove(const char *dir, bool *left, bt_err *err) BT_MUST_CHECK;
/* Removes the records of an ended run, and its checkpoints if requested, for `dash` and `top`. reply: the removed
 * and the kept parts. */
bt_code bt_run_remove(const char *store, const char *run, bool checkpoints, char *reply,
                      size_t size, bt_err *err) BT_MUST_CHECK;

#endif
