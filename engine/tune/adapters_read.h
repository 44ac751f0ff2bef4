/* adapters_read.h - adapters that a training begins with: a checkpoint of ours, or a folder of PEFT. */
#ifndef BT_ENGINE_TUNE_ADAPTERS_READ_H
#define BT_ENGINE_TUNE_ADAPTERS_READ_H

#include "engine/interop/model_file.h"

/* path: a checkpoint of adapters, or a folder with adapter_config.json and adapter_model.safetensors.
 * They must be those of `model` (rank, layers, scale) and, where the checkpoint says so, have been trained
 * beside the base of this hash: else BT_ARG. bt_model_file_read gives their tensors */
bt_code bt_adapters_open(bt_model_file **out, const char *path, const bt_model_cfg *model,
                         int64_t base_hash, bt_err *err) BT_MUST_CHECK;

#endif
