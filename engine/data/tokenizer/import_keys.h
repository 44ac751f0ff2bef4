/* import_keys.h - values of Hugging Face's tokenizer.json, and the refusal of keys that are not known. Inside
 * engine/data.
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_DATA_TOKENIZER_IMPORT_KEYS_H
#define BT_ENGINE_DATA_TOKENIZER_IMPORT_KEYS_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/base/status.h"

/* Returns the member "type", "none" if there is none. */
const char *bt_import_type(json_t *o);
bool bt_import_absent(json_t *v); /* missing, null, or an empty text */
bool bt_import_true(json_t *v);   /* present, and neither null nor false */
/* Refuses keys of o (part `within` of the file) that are not in `used`: they could change the ids of a text. */
bt_code bt_import_known_keys(json_t *o, const char *within, const char *const *used, bt_err *err)
    BT_MUST_CHECK;

#endif
