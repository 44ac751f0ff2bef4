/* tune_settings.h - the settings tune.* as a struct, the member `tune` of bt_run_cfg. */
#ifndef BT_ENGINE_CONFIG_SETTINGS_TUNE_SETTINGS_H
#define BT_ENGINE_CONFIG_SETTINGS_TUNE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_tune_settings {
#define BT_SETTINGS_TABLE "engine/config/settings/tune_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_tune_settings;

#endif
