/* hf_keys.h - the keys of config.json and generation_config.json of Hugging Face that no reader uses.
 *
 * Refused: keys that change what a model computes (scaled logits, experts, soft caps, ...), unless their value disables
 * them.
 * Ignored: keys of training and of transformers itself. Reported: all others.
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_INTEROP_KEYS_HF_KEYS_H
#define BT_ENGINE_INTEROP_KEYS_HF_KEYS_H

#include <jansson.h>

#include "engine/base/text.h"

/* Returns true for null, false, 0, "" or an empty list, which disable a key. */
bool bt_hf_is_off(const json_t *v);
/* root: all of config.json. own: further keys that the class uses, NULL after the last one. notes (may be NULL)
 * receives at most one line. BT_UNSUPPORTED names the key. */
bt_code bt_hf_keys_check(json_t *root, const char *const *own, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

#endif
