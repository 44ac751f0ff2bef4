/* hf_config.h - config.json of Hugging Face: what a model computes, in the words of our settings, and
 * back.
 *
 * Reading: a key that is missing means what the class in `transformers` takes for it (formats.def).
 * Refused by name: architectures that are not rows of formats.def, and every key whose value changes
 * what is computed in a way that this program does not know (biases, sliding windows, scaled
 * rotary embeddings, other quantisation methods). */
#ifndef BT_ENGINE_INTEROP_HF_CONFIG_H
#define BT_ENGINE_INTEROP_HF_CONFIG_H

#include "engine/base/text.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/interop/formats.h"

/* how linear layers are stored, by quantization_config */
typedef enum {
    BT_HF_DENSE,         /* none: what is stored is what is multiplied with */
    BT_HF_LATENT,        /* "online": latent weights, quantised by absmean */
    BT_HF_CODES,         /* autobitlinear, "offline": U8 codes, weight_scale multiplies */
    BT_HF_CODES_INVERSE, /* bitlinear, "offline": U8 codes, weight_scale divides */
} bt_hf_linear;

typedef struct bt_hf_config {
    bt_arch arch;
    bt_model_cfg model;
    bt_hf_linear linear;
    bt_token_roles roles; /* bos_token_id, pad_token_id, eos_token_id */
} bt_hf_config;

/* notes (may be NULL) gets one line for each thing worth knowing */
bt_code bt_hf_config_read(bt_hf_config *out, const char *path, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

/* Adds what generation_config.json says of the tokens that end a text, and of bos and pad where
 * config.json says nothing. A file that is not there adds nothing. */
bt_code bt_hf_generation_read(bt_token_roles *roles, const char *path, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

/* the members bos_token_id, eos_token_id (a number, a list, or null) and pad_token_id; generation:
 * for generation_config.json, which has no nulls */
void bt_hf_roles_write(bt_json *j, const bt_token_roles *roles, bool generation);
/* A tokenizer.json with the files beside it: the chat template, and all that bt_kept_file_name lists, which
 * the tokenizer keeps. notes (may be NULL) tells what these say and is not followed. A tokenizer.json of
 * another name is read alone. */
bt_code bt_hf_tokenizer_read(bt_tokenizer **out, const char *path, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

/* config.json for a model whose tensors are written as `number`; both spellings of the keys that
 * transformers 4 and 5 spell differently */
void bt_hf_config_write(bt_text *out, const bt_hf_config *c, bt_number number);

#endif
