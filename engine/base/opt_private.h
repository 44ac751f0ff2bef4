/* opt_private.h - internals of opt.c used by opt_argv.c and opt_yaml.c. */
#ifndef BT_ENGINE_BASE_OPT_PRIVATE_H
#define BT_ENGINE_BASE_OPT_PRIVATE_H

#include "engine/base/opt.h"

/* Returns the key that the user probably meant, or NULL. */
const char *bt_opt_nearest(const bt_opt *table, size_t n, const char *key);

/* Returns BT_OK if the wrong setting's message was added to o->faults; returns other codes and failures unchanged. */
bt_code bt_opts_fault(bt_opts *o, bt_code code, bt_err *err) BT_MUST_CHECK;

#endif
