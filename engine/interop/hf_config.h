/* hf_config.h - config.json of Hugging Face: converts a model's configuration to bitrain's settings, and back.
 *
 * Reading: a missing key has the default of its class in `transformers` (formats.def). Refused by name: architectures
 * that are
 *          not rows of formats.def, and every key whose value changes the computation in an unsupported way (biases,
 *          other scaled rotary embeddings, other quantisation methods).
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_INTEROP_HF_CONFIG_H
#define BT_ENGINE_INTEROP_HF_CONFIG_H

#include "engine/base/text.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/interop/formats/formats.h"

/* How linear layers are stored, according to quantization_config. */
typedef enum {
    BT_HF_DENSE,         /* none: the stored weights are used unchanged */
    BT_HF_LATENT,        /* "online": latent weights, quantised by absmean */
    BT_HF_CODES,         /* autobitlinear, "offline": U8 codes, multiplied by weight_scale */
    BT_HF_CODES_INVERSE, /* bitlinear, "offline": U8 codes, divided by weight_scale */
} bt_hf_linear;

typedef struct bt_hf_config {
    bt_arch arch;
    bt_model_cfg model;
    bt_hf_linear linear;
    bt_token_roles roles; /* bos_token_id, pad_token_id, eos_token_id */
} bt_hf_config;

/* notes (may be NULL) receives one line for each property that the user should check. */
bt_code bt_hf_config_read(bt_hf_config *out, const char *path, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

/* Adds the end tokens of generation_config.json, and its bos and pad if config.json has none; it may be missing. */
bt_code bt_hf_generation_read(bt_token_roles *roles, const char *path, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

/* Writes the members bos_token_id, eos_token_id (a number, a list, or null) and pad_token_id. generation: for
 * generation_config.json, which has no nulls. */
void bt_hf_roles_write(bt_json *j, const bt_token_roles *roles, bool generation);
/* Reads a tokenizer.json with the files beside it: the chat template, and all files of bt_kept_file_name, which the
 * tokenizer keeps. notes (may be NULL) lists settings that have no effect. If the file is not called tokenizer.json, it
 * is read alone. */
bt_code bt_hf_tokenizer_read(bt_tokenizer **out, const char *path, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

/* words of rope_type, in the order of bt_rope_method */
extern const char *const bt_hf_rope_types[];

/* Writes config.json for tensors of type `number`; keys that transformers 4 and 5 name differently have both names. */
void bt_hf_config_write(bt_text *out, const bt_hf_config *c, bt_number number);

#endif
