/* marked_json.h - the parts of tokenizer.json by which a tokenizer of SentencePiece's kind marks spaces. Inside
 * engine/data.
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_DATA_TOKENIZER_MARKED_JSON_H
#define BT_ENGINE_DATA_TOKENIZER_MARKED_JSON_H

#include <jansson.h>

#include "engine/data/tokenizer/marked_spaces.h"

/* Reads normalizer, pre_tokenizer and decoder of a file whose model has byte_fallback or scores (`has`, for
 * messages); refuses by name what is not run here. */
bt_code bt_marked_read(json_t *root, const char *has, bt_marked *out, bt_err *err) BT_MUST_CHECK;
/* Return new members of tokenizer.json; NULL: no memory. */
json_t *bt_marked_normalizer(const bt_marked *m);
json_t *bt_marked_pre_tokenizer(const bt_marked *m);
json_t *bt_marked_decoder(const bt_marked *m);

#endif
