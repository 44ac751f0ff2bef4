/* alert_settings.h - the settings alert.* as a struct, the member `alert` of bt_run_cfg. */
#ifndef BT_ENGINE_CONFIG_SETTINGS_ALERT_SETTINGS_H
#define BT_ENGINE_CONFIG_SETTINGS_ALERT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_alert_settings {
#define BT_SETTINGS_TABLE "engine/config/settings/alert_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_alert_settings;

#endif
