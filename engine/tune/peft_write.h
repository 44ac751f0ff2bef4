/* peft_write.h - writes adapters as a folder that PEFT loads (peft.PeftModel.from_pretrained): adapter_config.json and
 * adapter_model.safetensors, with the names and shapes of PEFT 0.21.
 * Threads: one caller. */
#ifndef BT_ENGINE_TUNE_PEFT_WRITE_H
#define BT_ENGINE_TUNE_PEFT_WRITE_H

#include "engine/interop/model_file.h"

/* Writes the name of an adapter's tensor: "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight". */
enum { BT_PEFT_NAME = 160 };
void bt_peft_name(char out[BT_PEFT_NAME], const bt_tensor *t);

/* s: a checkpoint of adapters. base: the value of base_model_name_or_path. DEST must not exist (BT_BUSY), and is
 * removed after a
 * failure. */
bt_code bt_peft_write(bt_model_file *s, const char *dest, const char *base, bt_text *notes,
                      int64_t *bytes, bt_err *err) BT_MUST_CHECK;

#endif
