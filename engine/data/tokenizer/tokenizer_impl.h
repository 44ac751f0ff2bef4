/* tokenizer_impl.h - private to engine/data: the tables of a tokenizer.
 *
 * A tokenizer has V byte strings (ids 0 to V-1; some are special tokens), among them all 256 single bytes, and merges
 * (left id, right id) -> id in the order of rank. The byte tokenizer has no merges. A Unigram tokenizer has scores
 * instead of merges (unigram.h). */
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

/* PLAIN: created by merges. SPECIAL, ADDED: created only by name (added.h); special tokens are not shown. HOLE: an
 * unused id. BYTE: <0x0A> in a tokenizer that marks spaces. */
enum { BT_TOKEN_PLAIN, BT_TOKEN_SPECIAL, BT_TOKEN_HOLE, BT_TOKEN_ADDED, BT_TOKEN_BYTE };
enum { BT_MAX_VOCAB = 1 << 20, BT_MAX_TOKEN_BYTES = 1 << 16, BT_AFFIX_MAX = 8 };

typedef struct bt_merge {
    int32_t left, right, id;
} bt_merge;

struct bt_tokenizer {
    int V;
    bool is_bytes;
    bool ignore_merges; /* A word that equals a token is not merged (Llama 3). */
    bool nfc;           /* text is normalised to NFC first (Qwen) */
    /* if marked.how is not BT_SPACES_PLAIN, the tokenizer marks spaces and has no pattern */
    bt_marked marked;
    bt_pattern pattern;
    char *rules; /* regular expressions, one per line (pretok.h); NULL: a fixed pattern */
    int32_t eot;
    /* tokens around a whole text (post-processor) */
    int32_t prefix[BT_AFFIX_MAX], suffix[BT_AFFIX_MAX];
    size_t n_prefix, n_suffix;
    bt_token_roles roles;
    /* packed original files (packed.h), in the order of bt_kept_file_name; NULL: none */
    char *kept[BT_KEPT_FILES];
    char kind[24];
    char *chat_template; /* NULL: none */
    uint64_t hash;

    char *bytes;  /* bytes of all tokens, concatenated */
    uint32_t *at; /* [V + 1] token i is bytes[at[i] .. at[i+1]) */
    /* text of all tokens, with spaces for marks and bytes for byte tokens; NULL: equal to `bytes` */
    char *shown;
    uint32_t *shown_at;     /* [V + 1] */
    bt_byte_pairs *pairs;   /* adjacent bytes in its tokens; NULL unless it marks spaces */
    unsigned char *special; /* [V] BT_TOKEN_PLAIN, .. */
    /* [n_added] sorted by id: all SPECIAL and ADDED tokens, and PLAIN tokens that a name in a text can create, too */
    bt_added *added;
    size_t n_added;
    bt_added_names *names, *names_normalized; /* NULL: none */
    int32_t byte_id[256];
    bt_merge *merges;
    size_t n_merges;
    double *scores; /* [n_scores] scores of the first tokens; NULL unless it is a Unigram model */
    size_t n_scores;
    bt_unigram *unigram;
    int32_t unknown;    /* replaces characters without a token */
    bool byte_fallback; /* true: such characters become byte tokens instead */
    bt_bpe *bpe;        /* lookup tables and caches of the encoder; NULL for bytes */
};

/* Building: begin, add every token in the order of ids, add merges, seal. `seal` checks all rules and computes the
 * hash; its error names the violated rule. */
typedef struct bt_tokenizer_draft {
    bt_tokenizer *t;
    size_t bytes_n, bytes_cap, merges_cap, added_cap;
    int V_cap;
} bt_tokenizer_draft;

bt_code bt_draft_begin(bt_tokenizer_draft *d, bt_err *err) BT_MUST_CHECK;
bt_code bt_draft_token(bt_tokenizer_draft *d, const char *bytes, size_t n, int kind, bt_err *err)
    BT_MUST_CHECK;
/* Sets how text names the token that was added last; `how->id` is ignored. Otherwise it has no flags. */
bt_code bt_draft_name(bt_tokenizer_draft *d, const bt_added *how, bt_err *err) BT_MUST_CHECK;
bt_code bt_draft_merge(bt_tokenizer_draft *d, int32_t left, int32_t right, bt_err *err)
    BT_MUST_CHECK;
/* Frees the draft, also on failure. */
bt_code bt_draft_seal(bt_tokenizer_draft *d, bt_tokenizer **out, bt_err *err) BT_MUST_CHECK;
void bt_draft_release(bt_tokenizer_draft *d);
bt_code bt_tokenizer_make_bytes(bt_tokenizer **out, bt_err *err) BT_MUST_CHECK;

/* Sets rules that cut words (pretok.h), if they compile. A rule that equals a fixed pattern selects it. */
bt_code bt_tokenizer_set_rules(bt_tokenizer *t, const char *rules, bt_err *err) BT_MUST_CHECK;

/* Returns the token as the vocabulary spells it: with marks of spaces, and a byte token as <0x0A>. */
const char *bt_tokenizer_raw(const bt_tokenizer *t, int32_t id, size_t *n);
static inline bool bt_tokenizer_marks(const bt_tokenizer *t) {
    return t->marked.how != BT_SPACES_PLAIN;
}

/* Returns true for a special token that can end a text. */
bool bt_tokenizer_may_end(const bt_tokenizer *t, int32_t id);

/* Stores a file that is already packed. BT_FORMAT: files of this name are not stored. */
bt_code bt_kept_file_set(bt_tokenizer *t, const char *name, const char *packed, bt_err *err)
    BT_MUST_CHECK;

/* Parses bitrain's JSON (bpe_file.c). */
bt_code bt_tokenizer_parse_own(bt_tokenizer **out, const char *json, size_t n, const char *name,
                               bt_err *err) BT_MUST_CHECK;

/* Decodes GPT-2's printable byte alphabet. Returns false at a character outside of it. */
bool bt_alphabet_decode(const char *s, size_t n, bt_text *out);
void bt_alphabet_encode(const char *bytes, size_t n, bt_text *out);

#endif
