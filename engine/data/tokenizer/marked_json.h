/* marked_json.h - reads and writes those parts of tokenizer.json by which tokenizers like SentencePiece mark spaces.
 * Private to engine/data.
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_DATA_TOKENIZER_MARKED_JSON_H
#define BT_ENGINE_DATA_TOKENIZER_MARKED_JSON_H

#include <jansson.h>

#include "engine/data/tokenizer/marked_spaces.h"

/* Reads normalizer, pre_tokenizer and decoder of a model with byte_fallback or scores; has: "byte_fallback" or "a
 * Unigram model", for errors. Unsupported steps are refused by name. */
bt_code bt_marked_read(json_t *root, const char *has, bt_marked *out, bt_err *err) BT_MUST_CHECK;
/* These return new members of tokenizer.json; NULL: out of memory. */
json_t *bt_marked_normalizer(const bt_marked *m);
json_t *bt_marked_pre_tokenizer(const bt_marked *m);
json_t *bt_marked_decoder(const bt_marked *m);

#endif
