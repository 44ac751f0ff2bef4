/* import_keys.h - reads values of Hugging Face's tokenizer.json and refuses unknown keys. Private to engine/data. */
#ifndef BT_ENGINE_DATA_TOKENIZER_IMPORT_KEYS_H
#define BT_ENGINE_DATA_TOKENIZER_IMPORT_KEYS_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/base/status.h"

const char *bt_import_type(json_t *o);
bool bt_import_absent(json_t *v); /* the value is missing, null, or an empty string */
bool bt_import_true(json_t *v);   /* the value exists and is neither null nor false */
/* Refuses keys of o that are not in `used`, because they could change the ids of a text. within: for the error. */
bt_code bt_import_known_keys(json_t *o, const char *within, const char *const *used, bt_err *err)
    BT_MUST_CHECK;

#endif
