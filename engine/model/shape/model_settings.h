/* model_settings.h - the settings model.* as a struct; bt_run_cfg has it as its field `model`. */
#ifndef BT_ENGINE_MODEL_SHAPE_MODEL_SETTINGS_H
#define BT_ENGINE_MODEL_SHAPE_MODEL_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_model_settings {
#define BT_SETTINGS_TABLE "engine/model/shape/model_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_model_settings;

#endif
