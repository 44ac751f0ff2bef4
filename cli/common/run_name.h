/* run_name.h - names for runs that have none. */
#ifndef BT_CLI_COMMON_RUN_NAME_H
#define BT_CLI_COMMON_RUN_NAME_H

#include "engine/base/sink.h"
#include "engine/base/status.h"

/* "brave-otter-7", not in the store yet */
bt_code bt_run_make_name(const char *store, char name[BT_NAME_MAX], bt_err *err) BT_MUST_CHECK;

#endif
