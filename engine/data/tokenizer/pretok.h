/* pretok.h - cuts text into words, by one of three fixed patterns or by the rules of a tokenizer.json. BPE merges
 * nothing across words.
 *
 * Rules are regular expressions, one per line. The first rule cuts a text into its matches and the text between them;
 * each further rule cuts the pieces of the previous one.
 * Threads:  a bt_pretok has one caller; the compiled patterns are shared. */
#ifndef BT_ENGINE_DATA_TOKENIZER_PRETOK_H
#define BT_ENGINE_DATA_TOKENIZER_PRETOK_H

#include <stddef.h>

#include "engine/base/status.h"

/* RULES: the rules of a file. */
typedef enum {
    BT_PATTERN_GPT2,
    BT_PATTERN_LLAMA3,
    BT_PATTERN_QWEN2,
    BT_PATTERN_COUNT,
    BT_PATTERN_RULES = BT_PATTERN_COUNT
} bt_pattern;
enum { BT_WORD_RULES_MAX = 8, BT_WORD_RULE_BYTES = 4096 };

typedef struct bt_pretok bt_pretok;

/* rules: for BT_PATTERN_RULES. BT_UNSUPPORTED: a rule has unsupported syntax or matches an empty text. */
bt_code bt_pretok_create(bt_pretok **out, bt_pattern pattern, const char *rules, bt_err *err)
    BT_MUST_CHECK;
/* Returns the end of the word that begins at text[at]. Adjacent bytes that are not UTF-8 form a word. n: length of the
 * text. Calls for one text have increasing `at`, beginning with 0. */
bt_code bt_pretok_next(bt_pretok *p, const char *text, size_t n, size_t at, size_t *end,
                       bt_err *err) BT_MUST_CHECK;
void bt_pretok_destroy(bt_pretok *p); /* accepts NULL */

const char *bt_pattern_name(bt_pattern p); /* "gpt2", "llama3", "qwen2", "rules" */
/* Returns the pattern's form in Hugging Face's tokenizer.json. */
const char *bt_pattern_regex(bt_pattern p);

#endif
