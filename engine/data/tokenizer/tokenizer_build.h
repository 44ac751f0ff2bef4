/* tokenizer_build.h - builds a tokenizer from a JSON tree in the form of Hugging Face's tokenizer.json, which a reader
 * of another format may have created. */
#ifndef BT_ENGINE_DATA_TOKENIZER_TOKENIZER_BUILD_H
#define BT_ENGINE_DATA_TOKENIZER_TOKENIZER_BUILD_H

#include <jansson.h>

#include "engine/data/tokenizer/tokenizer.h"

bt_code bt_tokenizer_build(bt_tokenizer **out, json_t *root, bt_err *err) BT_MUST_CHECK;
/* Returns the member "pre_tokenizer" for a pattern ("gpt2", ...) or for rules, one per line. NULL: out of memory. */
json_t *bt_tokenizer_pre_tokenizer(const char *pattern);

#endif
