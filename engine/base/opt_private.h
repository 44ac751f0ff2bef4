/* opt_private.h - functions of opt.c that opt_argv.c and opt_yaml.c use. */
#ifndef BT_ENGINE_BASE_OPT_PRIVATE_H
#define BT_ENGINE_BASE_OPT_PRIVATE_H

#include "engine/base/opt.h"

/* Returns the key that the user probably meant, or NULL. */
const char *bt_opt_nearest(const bt_opt *table, size_t n, const char *key);

/* Adds the message of a wrong setting to o->faults, if set, and returns BT_OK; returns other codes unchanged. */
bt_code bt_opts_fault(bt_opts *o, bt_code code, bt_err *err) BT_MUST_CHECK;

#endif
