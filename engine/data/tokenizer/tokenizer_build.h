/* tokenizer_build.h - a tokenizer from a tree in the form of Hugging Face's tokenizer.json, which a
 * reader of another format may have put together. */
#ifndef BT_ENGINE_DATA_TOKENIZER_TOKENIZER_BUILD_H
#define BT_ENGINE_DATA_TOKENIZER_TOKENIZER_BUILD_H

#include <jansson.h>

#include "engine/data/tokenizer/tokenizer.h"

bt_code bt_tokenizer_build(bt_tokenizer **out, json_t *root, bt_err *err) BT_MUST_CHECK;
/* the member "pre_tokenizer" for a pattern of that name ("gpt2", "llama3", "qwen2"), or for rules in lines (pretok.h);
 * NULL: no memory */
json_t *bt_tokenizer_pre_tokenizer(const char *pattern);

#endif
