/* ckpt_settings.h - the settings ckpt.* as a struct, the member `ckpt` of bt_run_cfg. */
#ifndef BT_ENGINE_CONFIG_SETTINGS_CKPT_SETTINGS_H
#define BT_ENGINE_CONFIG_SETTINGS_CKPT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_ckpt_settings {
#define BT_SETTINGS_TABLE "engine/config/settings/ckpt_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_ckpt_settings;

#endif
