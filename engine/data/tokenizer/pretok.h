/* pretok.h - cuts text into the words that BPE merges inside of: three fixed patterns, never one
 * from a file.
 * Threads:  bt_pretok is one caller's; the compiled patterns are shared. */
#ifndef BT_ENGINE_DATA_TOKENIZER_PRETOK_H
#define BT_ENGINE_DATA_TOKENIZER_PRETOK_H

#include <stddef.h>

#include "engine/base/status.h"

typedef enum { BT_PATTERN_GPT2, BT_PATTERN_LLAMA3, BT_PATTERN_QWEN2, BT_PATTERN_COUNT } bt_pattern;

typedef struct bt_pretok bt_pretok;

bt_code bt_pretok_create(bt_pretok **out, bt_pattern pattern, bt_err *err) BT_MUST_CHECK;
/* the word at text[at]; its end. Any bytes: what is not UTF-8 forms words of its own. `n` is the
 * text's end. Call with rising `at` over one text, beginning with 0. */
bt_code bt_pretok_next(bt_pretok *p, const char *text, size_t n, size_t at, size_t *end,
                       bt_err *err) BT_MUST_CHECK;
void bt_pretok_destroy(bt_pretok *p); /* accepts NULL */

const char *bt_pattern_name(bt_pattern p); /* "gpt2", "llama3", "qwen2" */
/* the form in Hugging Face's tokenizer.json */
const char *bt_pattern_regex(bt_pattern p);

#endif
