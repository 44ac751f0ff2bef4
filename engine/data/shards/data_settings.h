/* data_settings.h - settings data.* as a struct, the member `data` of bt_run_cfg. */
#ifndef BT_ENGINE_DATA_SHARDS_DATA_SETTINGS_H
#define BT_ENGINE_DATA_SHARDS_DATA_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_data_settings {
#define BT_SETTINGS_TABLE "engine/data/shards/data_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_data_settings;

#endif
