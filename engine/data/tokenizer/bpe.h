/* bpe.h - byte-pair encoding with given merges: lookup tables, cache of words, encoder. Private to engine/data. */
#ifndef BT_ENGINE_DATA_TOKENIZER_BPE_H
#define BT_ENGINE_DATA_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_bpe bt_bpe;
struct bt_tokenizer;

/* Builds the lookup tables of t and sets the id of each merge. Foreign merges and duplicate tokens are errors. */
bt_code bt_bpe_create(bt_bpe **out, struct bt_tokenizer *t, bt_err *err) BT_MUST_CHECK;
void bt_bpe_destroy(bt_bpe *b); /* accepts NULL */
/* Appends the tokens of a text to *ids after its first *count ids. how: BT_ENCODE_SPECIAL, BT_ENCODE_MORE. */
bt_code bt_bpe_encode(const struct bt_tokenizer *t, unsigned how, const char *text, size_t n,
                      int32_t **ids, size_t *count, size_t *cap, bt_err *err) BT_MUST_CHECK;
/* Returns the ordinary token with these bytes; -1: none. */
int32_t bt_bpe_token(const struct bt_tokenizer *t, const char *bytes, size_t n);
bool bt_bpe_merges(const struct bt_tokenizer *t, int32_t left, int32_t right);

#endif
