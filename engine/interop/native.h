/* native.h - bitrain's checkpoints as one of the formats: the settings in a checkpoint, and writing one from any model.
 * Threads: one caller, which has the thread pool. */
#ifndef BT_ENGINE_INTEROP_NATIVE_H
#define BT_ENGINE_INTEROP_NATIVE_H

#include "engine/config/run_cfg.h"
#include "engine/interop/model_file.h"

/* Reads the settings with which a checkpoint was trained. Unknown ones of other versions are ignored, except those of
 * the model (BT_UNSUPPORTED), because it may compute something else. path: for messages. */
bt_code bt_native_settings(bt_run_cfg *out, const bt_ckpt_meta *meta, const char *path, bt_err *err)
    BT_MUST_CHECK;

/* Default limit of the sequence length of an imported model, because memory is proportional to it. */
enum { BT_CONTEXT_MOST = 4096 };

/* Writes the name of a run for the model in a file or folder: "qwen3-0.6b" for "/x/Qwen3 0.6B/". */
void bt_native_name(char out[64], const char *path);

/* Makes the settings for a model of another program: its shape, defaults for everything else, for one rank, arithmetic
 * in fp32 like the file. tokenizer: the value of data.tokenizer. */
bt_code bt_native_settings_of(bt_run_cfg *out, const bt_model_cfg *model, const char *tokenizer,
                              bt_err *err) BT_MUST_CHECK;

/* Writes DEST/step-000000000000 with the weights, and DEST/tokenizer.json. DEST must not exist, and is removed after a
 * failure. A tensor is never in memory as a whole. bytes (may be NULL): the number written. */
bt_code bt_native_write(bt_model_file *s, const char *dest, int64_t *bytes, bt_err *err)
    BT_MUST_CHECK;

#endif
