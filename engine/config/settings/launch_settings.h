/* launch_settings.h - the settings launch.* as a struct, the member `launch` of bt_run_cfg. */
#ifndef BT_ENGINE_CONFIG_SETTINGS_LAUNCH_SETTINGS_H
#define BT_ENGINE_CONFIG_SETTINGS_LAUNCH_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_launch_settings {
#define BT_SETTINGS_TABLE "engine/config/settings/launch_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_launch_settings;

#endif
