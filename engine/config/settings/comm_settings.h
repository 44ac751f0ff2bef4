/* comm_settings.h - the settings comm.* as a struct, the member `comm` of bt_run_cfg. */
#ifndef BT_ENGINE_CONFIG_SETTINGS_COMM_SETTINGS_H
#define BT_ENGINE_CONFIG_SETTINGS_COMM_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_comm_settings {
#define BT_SETTINGS_TABLE "engine/config/settings/comm_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_comm_settings;

#endif
