/* optim_settings.h - settings optim.* as a struct, the member `optim` of bt_run_cfg. */
#ifndef BT_ENGINE_OPTIM_OPTIM_SETTINGS_H
#define BT_ENGINE_OPTIM_OPTIM_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_optim_settings {
#define BT_SETTINGS_TABLE "engine/optim/optim_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_optim_settings;

#endif
