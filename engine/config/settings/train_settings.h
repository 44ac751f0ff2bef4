/* train_settings.h - the settings train.* as a struct, the member `train` of bt_run_cfg. */
#ifndef BT_ENGINE_CONFIG_SETTINGS_TRAIN_SETTINGS_H
#define BT_ENGINE_CONFIG_SETTINGS_TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_train_settings {
#define BT_SETTINGS_TABLE "engine/config/settings/train_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_train_settings;

#endif
