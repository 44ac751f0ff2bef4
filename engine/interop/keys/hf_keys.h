/* hf_keys.h - keys of config.json and generation_config.json of Hugging Face that no reader here uses.
 *
 * Refused: keys that change the computation of a model (scaled logits, experts, soft caps, ...), unless their
 *          value disables them. Ignored: keys of training and of transformers itself. Reported: all others.
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_INTEROP_KEYS_HF_KEYS_H
#define BT_ENGINE_INTEROP_KEYS_HF_KEYS_H

#include <jansson.h>

#include "engine/base/text.h"

/* null, false, 0, "" or an empty list: the key is disabled */
bool bt_hf_is_off(const json_t *v);
/* root: all of config.json. own: further keys that the class uses, NULL behind the last. notes (may be NULL) gets at
 * most one line. BT_UNSUPPORTED names the key */
bt_code bt_hf_keys_check(json_t *root, const char *const *own, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

#endif
