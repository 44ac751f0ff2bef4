/* tokenizer_impl.h - inside engine/data: the tables of a tokenizer, shared by the files that build,
 * read and use them.
 *
 * A tokenizer is a list of V byte strings (ids 0..V-1; some are specials), all 256 single bytes
 * among them, plus merges (left id, right id) -> id in order of rank. The byte tokenizer has no
 * merges and is used without them. A Unigram tokenizer has scores instead of merges (unigram.h). */
#ifndef BT_ENGINE_DATA_TOKENIZER_TOKENIZER_IMPL_H
#define BT_ENGINE_DATA_TOKENIZER_TOKENIZER_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/data/tokenizer/added.h"
#include "engine/data/tokenizer/bpe.h"
#include "engine/data/tokenizer/marked_spaces.h"
#include "engine/data/tokenizer/pretok.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/unigram/unigram.h"

/* PLAIN: made by merges. SPECIAL, ADDED: created by name only (added.h); a special token is not shown. HOLE: an
 * unused id. BYTE: <0x0A> of a tokenizer that marks spaces. */
enum { BT_TOKEN_PLAIN, BT_TOKEN_SPECIAL, BT_TOKEN_HOLE, BT_TOKEN_ADDED, BT_TOKEN_BYTE };
enum { BT_MAX_VOCAB = 1 << 20, BT_MAX_TOKEN_BYTES = 1 << 16, BT_AFFIX_MAX = 8 };

typedef struct bt_merge {
    int32_t left, right, id;
} bt_merge;

struct bt_tokenizer {
    int V;
    bool is_bytes;
    /* a word that is a token is not merged (Llama 3) */
    bool ignore_merges;
    bool nfc; /* text is normalised to NFC first (Qwen) */
    bt_marked
        marked; /* marked.how is not BT_SPACES_PLAIN: of SentencePiece's kind, without a pattern */
    bt_pattern pattern;
    char *rules; /* regular expressions in lines (pretok.h); NULL: a fixed pattern */
    int32_t eot;
    int32_t prefix[BT_AFFIX_MAX], suffix[BT_AFFIX_MAX]; /* around a whole text (post-processor) */
    size_t n_prefix, n_suffix;
    bt_token_roles roles;
    char *kept
        [BT_KEPT_FILES]; /* packed (engine/data/io/packed.h), by the order of their names; NULL: none */
    char kind[24];
    char *chat_template; /* NULL: none */
    uint64_t hash;

    char *bytes;  /* bytes of all tokens, concatenated */
    uint32_t *at; /* [V + 1] token i is bytes[at[i] .. at[i+1]) */
    char *
        shown; /* all tokens as text, with spaces for marks and bytes for byte tokens; NULL: as `bytes` */
    uint32_t *shown_at;     /* [V + 1] */
    bt_byte_pairs *pairs;   /* adjacent bytes of its tokens; NULL unless it marks spaces */
    unsigned char *special; /* [V] BT_TOKEN_PLAIN, .. */
    /* [n_added] by id: all SPECIAL and ADDED tokens, and PLAIN ones that a text can name as well */
    bt_added *added;
    size_t n_added;
    bt_added_names *names, *names_normalized; /* NULL: none */
    int32_t byte_id[256];
    bt_merge *merges;
    size_t n_merges;
    double *scores; /* [n_scores] of the first tokens; NULL unless it is a Unigram model */
    size_t n_scores;
    bt_unigram *unigram;
    int32_t unknown;    /* the token of characters without one */
    bool byte_fallback; /* they become byte tokens instead */
    /* lookup tables and caches of the encoder; NULL for bytes */
    bt_bpe *bpe;
};

/* builders: begin, add every token in id order, add merges, seal (checks all rules, computes the
 * hash). err names the rule. */
typedef struct bt_tokenizer_draft {
    bt_tokenizer *t;
    size_t bytes_n, bytes_cap, merges_cap, added_cap;
    int V_cap;
} bt_tokenizer_draft;

bt_code bt_draft_begin(bt_tokenizer_draft *d, bt_err *err) BT_MUST_CHECK;
bt_code bt_draft_token(bt_tokenizer_draft *d, const char *bytes, size_t n, int kind, bt_err *err)
    BT_MUST_CHECK;
/* Sets how text names the token that was added last (`id` is ignored). Without this call SPECIAL and ADDED tokens
 * have an entry without flags. */
bt_code bt_draft_name(bt_tokenizer_draft *d, const bt_added *how, bt_err *err) BT_MUST_CHECK;
bt_code bt_draft_merge(bt_tokenizer_draft *d, int32_t left, int32_t right, bt_err *err)
    BT_MUST_CHECK;
/* frees the draft on failure */
bt_code bt_draft_seal(bt_tokenizer_draft *d, bt_tokenizer **out, bt_err *err) BT_MUST_CHECK;
void bt_draft_release(bt_tokenizer_draft *d);
/* the byte tokenizer */
bt_code bt_tokenizer_make_bytes(bt_tokenizer **out, bt_err *err) BT_MUST_CHECK;

/* Cuts words by rules (pretok.h), which are compiled once to be checked; a fixed pattern in one line becomes that
 * pattern. */
bt_code bt_tokenizer_set_rules(bt_tokenizer *t, const char *rules, bt_err *err) BT_MUST_CHECK;

/* Returns token id as the vocabulary has it: with marks of spaces, a byte token as <0x0A>. */
const char *bt_tokenizer_raw(const bt_tokenizer *t, int32_t id, size_t *n);
static inline bool bt_tokenizer_marks(const bt_tokenizer *t) {
    return t->marked.how != BT_SPACES_PLAIN;
}

/* Returns true for a special token that can end a text. */
bool bt_tokenizer_may_end(const bt_tokenizer *t, int32_t id);

/* Stores an already packed file; BT_FORMAT: files of this name are not stored. */
bt_code bt_kept_file_set(bt_tokenizer *t, const char *name, const char *packed, bt_err *err)
    BT_MUST_CHECK;

/* Parse bitrain's JSON (bpe_file.c) and Hugging Face's (bpe_import.c). */
bt_code bt_tokenizer_parse_own(bt_tokenizer **out, const char *json, size_t n, const char *name,
                               bt_err *err) BT_MUST_CHECK;

/* Decodes GPT-2's printable byte alphabet; returns false for another character. */
bool bt_alphabet_decode(const char *s, size_t n, bt_text *out);
void bt_alphabet_encode(const char *bytes, size_t n, bt_text *out);

#endif
