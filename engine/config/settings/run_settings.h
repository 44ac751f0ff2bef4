/* run_settings.h - the settings run.* as a struct, the member `run` of bt_run_cfg. */
#ifndef BT_ENGINE_CONFIG_SETTINGS_RUN_SETTINGS_H
#define BT_ENGINE_CONFIG_SETTINGS_RUN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_run_settings {
#define BT_SETTINGS_TABLE "engine/config/settings/run_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_run_settings;

#endif
