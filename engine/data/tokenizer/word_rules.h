/* word_rules.h - regular expressions of a tokenizer.json, written for PCRE2.
 * Threads: pure functions. */
#ifndef BT_ENGINE_DATA_TOKENIZER_WORD_RULES_H
#define BT_ENGINE_DATA_TOKENIZER_WORD_RULES_H

#include "engine/base/status.h"
#include "engine/base/text.h"

/* Appends the expression. BT_UNSUPPORTED names syntax that Oniguruma, which Hugging Face's library uses, may
 * understand in another way. */
bt_code bt_word_rule_translate(const char *regex, bt_text *out, bt_err *err) BT_MUST_CHECK;

#endif
