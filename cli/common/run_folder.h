/* run_folder.h - what a run keeps on disk besides its records: checkpoints, log, locks. */
#ifndef BT_CLI_COMMON_RUN_FOLDER_H
#define BT_CLI_COMMON_RUN_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

/* dir is the out folder of a run on this machine; checkpoints and bytes of all its files are counted */
bool bt_run_folder_look(const char *dir, int *checkpoints, int64_t *bytes);
/* removes what runs write (step-*, log.txt, locks, records not yet taken over) and then the folder;
 * *left: it holds other files, which stay */
bt_code bt_run_folder_remove(const char *dir, bool *left, bt_err *err) BT_MUST_CHECK;
/* The records of an ended run, and its checkpoints when asked to: what `dash` and `top` do. reply says
 * what went and what stays. */
bt_code bt_run_remove(const char *store, const char *run, bool checkpoints, char *reply,
                      size_t size, bt_err *err) BT_MUST_CHECK;

#endif
