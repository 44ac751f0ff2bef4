/* unigram.h - divides a word into the tokens with the highest sum of scores, as SentencePiece's Unigram and Hugging
 * Face's library do (tokenizers, unigram/model.rs, encode_optimized): sums in fp64 from left to right, a tie keeps the
 * candidate that begins first, a character without a token has the lowest score - 10. Characters without a token
 * become byte tokens, or a run of them one unknown token. Inside engine/data. */
#ifndef BT_ENGINE_DATA_TOKENIZER_UNIGRAM_UNIGRAM_H
#define BT_ENGINE_DATA_TOKENIZER_UNIGRAM_UNIGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_unigram bt_unigram; /* prefix tree of all tokens that text can contain */
struct bt_tokenizer;

bt_code bt_unigram_create(bt_unigram **out, const struct bt_tokenizer *t, bt_err *err)
    BT_MUST_CHECK;
void bt_unigram_destroy(bt_unigram *u); /* accepts NULL */

typedef struct bt_path_end { /* the best path to one position of a word */
    double score;
    int32_t from, id; /* its last token; from -1: no path ends here */
} bt_path_end;

typedef struct bt_lattice { /* working memory; the sum and its end continue from word to word */
    bt_path_end *ends;
    size_t cap;
    double score;
    bool unknown; /* the last token is the unknown one */
} bt_lattice;

/* Appends the tokens of a word, at most n, to ids. Words of a text that are not separated by rule end where no token
 * crosses: their paths add up as if the text were one word. */
bt_code bt_unigram_word(const struct bt_tokenizer *t, bt_lattice *l, const char *word, size_t n,
                        int32_t *ids, size_t *count, bt_err *err) BT_MUST_CHECK;

#endif
