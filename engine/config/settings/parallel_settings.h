/* parallel_settings.h - the settings parallel.* as a struct, the member `parallel` of bt_run_cfg. */
#ifndef BT_ENGINE_CONFIG_SETTINGS_PARALLEL_SETTINGS_H
#define BT_ENGINE_CONFIG_SETTINGS_PARALLEL_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_parallel_settings {
#define BT_SETTINGS_TABLE "engine/config/settings/parallel_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_parallel_settings;

#endif
