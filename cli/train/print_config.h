/* print_config.h - `bitrain train --print-config`: every setting with its value and its origin. */
#ifndef BT_CLI_TRAIN_PRINT_CONFIG_H
#define BT_CLI_TRAIN_PRINT_CONFIG_H

#include <stdbool.h>
#include <stdio.h>

#include "engine/base/opt.h"

/* Prints a configuration file that `bitrain train` can read ("optim.lr: 0.002 # preset nano"), or one JSON object.
 * `o` must have passed bt_run_cfg_resolve_opts, so that automatic values are final. */
bt_code bt_print_config(const bt_opts *o, bool json, FILE *to, bt_err *err) BT_MUST_CHECK;

#endif
