/* print_config.h - `bitrain train --print-config`: every setting, its value and where it came
 * from. */
#ifndef BT_CLI_TRAIN_PRINT_CONFIG_H
#define BT_CLI_TRAIN_PRINT_CONFIG_H

#include <stdbool.h>
#include <stdio.h>

#include "engine/base/opt.h"

/* As a configuration file that `bitrain train` reads back ("optim.lr: 0.002   # preset nano"), or as one JSON object.
 * `o` after bt_run_cfg_settle, so that automatic values are final. */
bt_code bt_print_config(const bt_opts *o, bool json, FILE *to, bt_err *err) BT_MUST_CHECK;

#endif
