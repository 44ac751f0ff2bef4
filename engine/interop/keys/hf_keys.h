/* hf_keys.h - the keys of config.json and generation_config.json of Hugging Face that no reader here uses.
 *
 * Refused: keys that change what a model computes (scaled logits, experts, soft caps, ...), unless their value switches
 * them off. Passed over: keys of training and of transformers itself. Reported: all others. */
#ifndef BT_ENGINE_INTEROP_KEYS_HF_KEYS_H
#define BT_ENGINE_INTEROP_KEYS_HF_KEYS_H

#include <jansson.h>

#include "engine/base/text.h"

/* null, false, 0, "" or an empty list: the value of a key that asks for nothing */
bool bt_hf_is_off(const json_t *v);
/* root: all of config.json. notes (may be NULL) gets at most one line. BT_UNSUPPORTED names the key */
bt_code bt_hf_keys_check(json_t *root, bt_text *notes, bt_err *err) BT_MUST_CHECK;

#endif
