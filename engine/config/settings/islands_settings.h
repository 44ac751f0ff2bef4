/* islands_settings.h - the settings islands.* as a struct, the member `islands` of bt_run_cfg. */
#ifndef BT_ENGINE_CONFIG_SETTINGS_ISLANDS_SETTINGS_H
#define BT_ENGINE_CONFIG_SETTINGS_ISLANDS_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_islands_settings {
#define BT_SETTINGS_TABLE "engine/config/settings/islands_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_islands_settings;

#endif
