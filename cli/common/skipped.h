/* skipped.h - tells of files of a data folder that hold no text. */
#ifndef BT_CLI_COMMON_SKIPPED_H
#define BT_CLI_COMMON_SKIPPED_H

#include "engine/data/io/sources.h"

/* one line on standard error; nothing when no file was passed over */
void bt_cli_tell_skipped(const bt_sources *s);

#endif
