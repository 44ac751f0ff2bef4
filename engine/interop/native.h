/* native.h - our checkpoints as one of the formats: the settings inside one, and a new one made of
 * any source.
 * Threads: one caller, which has the thread pool. */
#ifndef BT_ENGINE_INTEROP_NATIVE_H
#define BT_ENGINE_INTEROP_NATIVE_H

#include "engine/config/run_cfg.h"
#include "engine/interop/model_file.h"

/* The settings a checkpoint was trained with. Unknown ones of other versions are ignored, except those of the
 * model: BT_UNSUPPORTED, since it may compute something else. path: for messages */
bt_code bt_native_settings(bt_run_cfg *out, const bt_ckpt_meta *meta, const char *path, bt_err *err)
    BT_MUST_CHECK;

/* Default limit of the sequence length of an imported model, because memory is proportional to it. */
enum { BT_CONTEXT_MOST = 4096 };

/* the name of a run for the model in a file or folder: "qwen3-0.6b" of "/x/Qwen3 0.6B/" */
void bt_native_name(char out[64], const char *path);

/* Settings of a model from elsewhere: its shape, everything else by default, settled for one rank;
 * arithmetic in fp32, the file's own. tokenizer: the value of data.tokenizer */
bt_code bt_native_settings_of(bt_run_cfg *out, const bt_model_cfg *model, const char *tokenizer,
                              bt_err *err) BT_MUST_CHECK;

/* Writes DEST/step-000000000000 with the weights, and DEST/tokenizer.json; DEST must not exist, and is removed
 * after a failure. A tensor is never in memory as a whole. bytes (may be NULL): number written */
bt_code bt_native_write(bt_model_file *s, const char *dest, int64_t *bytes, bt_err *err)
    BT_MUST_CHECK;

#endif
