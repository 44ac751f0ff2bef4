/* adapters_read.h - the adapters with which a training begins: a bitrain checkpoint, or a PEFT folder.
 *
 * Threads: one caller. */
#ifndef BT_ENGINE_TUNE_ADAPTERS_READ_H
#define BT_ENGINE_TUNE_ADAPTERS_READ_H

#include "engine/interop/model_file.h"

typedef struct bt_adapter_base {
    const char *path; /* compared with the name in a folder of PEFT; a difference becomes a note */
    int64_t hash;     /* bt_base_weights.hash; 0: unknown */
} bt_adapter_base;

/* Opens a checkpoint of adapters, or a folder with adapter_config.json and adapter_model.safetensors, as a file whose
 * tensors bt_model_file_read reads. BT_ARG: the adapters do not fit `model` (rank, layers, scale), or the checkpoint
 * records another base than that of this hash. */
bt_code bt_adapters_open(bt_model_file **out, const char *path, const bt_model_cfg *model,
                         const bt_adapter_base *base, bt_err *err) BT_MUST_CHECK;

/* Opens a folder of PEFT for any model with the shape of `model`, whose `lora` is ignored: rank, scale and layers are
 * those of the
 * folder. base: as bt_adapter_base.path, or NULL. */
bt_code bt_adapters_open_peft(bt_model_file **out, const char *folder, const bt_model_cfg *model,
                              const char *base, bt_err *err) BT_MUST_CHECK;

#endif
