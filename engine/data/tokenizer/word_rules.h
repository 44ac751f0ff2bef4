/* word_rules.h - translates the regular expressions of a tokenizer.json for PCRE2.
 * Threads: pure functions. */
#ifndef BT_ENGINE_DATA_TOKENIZER_WORD_RULES_H
#define BT_ENGINE_DATA_TOKENIZER_WORD_RULES_H

#include "engine/base/status.h"
#include "engine/base/text.h"

/* Appends the translated expression. BT_UNSUPPORTED names syntax that may have another meaning in Oniguruma. */
bt_code bt_word_rule_translate(const char *regex, bt_text *out, bt_err *err) BT_MUST_CHECK;

#endif
