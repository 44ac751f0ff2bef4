/* unigram_import.h - the model of a Hugging Face tokenizer.json of the type Unigram. Inside engine/data. */
#ifndef BT_ENGINE_DATA_TOKENIZER_UNIGRAM_UNIGRAM_IMPORT_H
#define BT_ENGINE_DATA_TOKENIZER_UNIGRAM_UNIGRAM_IMPORT_H

#include <jansson.h>

#include "engine/data/tokenizer/tokenizer_impl.h"

bool bt_unigram_is_model(json_t *model);
/* Reads scores, unknown token and fallback into t. *vocab: ids by tokens, as BPE models have them; the caller frees
 * it. */
bt_code bt_unigram_read_model(json_t *model, bt_tokenizer *t, json_t **vocab, bt_err *err)
    BT_MUST_CHECK;
/* Returns the member "model" of tokenizer.json; NULL: no memory, or a token is not UTF-8. */
json_t *bt_unigram_model(const bt_tokenizer *t);

#endif
