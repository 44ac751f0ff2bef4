/* word_rules.c - translates the regular expressions of a tokenizer.json for PCRE2.
 *
 * Hugging Face's library runs them with Oniguruma. Syntax with the same meaning in both is copied; \s becomes the
 * property White_Space. All other syntax is refused by name, because it could cut text at other positions. */
#include "engine/data/tokenizer/word_rules.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/system/ascii.h"

/* Unicode's White_Space, inside a class */
#define SPACE "\\x09-\\x0d\\x85\\p{Z}"

typedef struct translation {
    const char *regex; /* whole expression, for messages */
    bt_text *out;
    bool in_class, class_begins;
} translation;

static bt_code refuse_syntax(const translation *t, const char *what, bt_err *err) {
    char plain[100];
    bt_text_plain(plain, sizeof plain, t->regex);
    return bt_fail(err, BT_UNSUPPORTED, "the word pattern has %s, which is not supported: '%s'",
                   what, plain);
}

/* Returns the length of \p{..} or \P{..} at s, with only the name of a property in it; 0: other text. */
static size_t property_length(const char *s) {
    if (s[0] != '\\' || (s[1] != 'p' && s[1] != 'P') || s[2] != '{') return 0;
    size_t n = 3;
    while (bt_ascii_alnum(s[n]) || s[n] == '_' || s[n] == '^') n++;
    return s[n] == '}' && n > 3 ? n + 1 : 0;
}

static bt_code translate_escape(translation *t, const char *s, size_t *used, bt_err *err) {
    char name[24];
    const char c = s[1];
    *used = property_length(s);
    if (*used) {
        bt_text_putn(t->out, s, *used);
        return BT_OK;
    }
    *used = 2;
    if (c == 's' || (c == 'S' && !t->in_class)) {
        bt_text_put(t->out, t->in_class ? SPACE : c == 's' ? "[" SPACE "]" : "[^" SPACE "]");
        return BT_OK;
    }
    const bool letter = bt_ascii_alnum(c);
    if (c && (!letter || strchr("rntfd", c)) && (unsigned char)c >= 0x20 &&
        (unsigned char)c < 0x7f) {
        bt_text_putn(t->out, s, 2);
        return BT_OK;
    }
    snprintf(name, sizeof name, "\\%c", letter ? c : ' ');
    return refuse_syntax(t, name, err);
}

/* Checks the text after "(?": groups without capture, groups that ignore case, and lookahead are allowed. */
static bt_code check_group(const translation *t, const char *s, bt_err *err) {
    static const char *const known[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"};
    if (s[1] == '*') return refuse_syntax(t, "(*", err);
    if (s[1] != '?') return BT_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(s, known[i], strlen(known[i])) == 0) return BT_OK;
    return refuse_syntax(t, "a group of another kind than (?:...)", err);
}

static bt_code translate_plain(translation *t, const char *s, bt_err *err) {
    if (t->in_class) {
        if (*s == '[' || strncmp(s, "&&", 2) == 0)
            return refuse_syntax(t, "a class inside a class", err);
        if (*s == ']' && !t->class_begins) t->in_class = false;
        t->class_begins = t->class_begins && *s == '^';
    } else if (*s == '[') {
        t->in_class = t->class_begins = true;
        if (s[1] == ']') return refuse_syntax(t, "an empty class", err);
    } else if (*s == '^' || *s == '$') {
        return refuse_syntax(t, "an anchor", err);
    } else if (*s == '}' && s[1] == '+') {
        return refuse_syntax(t, "a repetition '}+'", err);
    } else if (*s == '(') {
        BT_TRY(check_group(t, s, err));
    }
    bt_text_putn(t->out, s, 1);
    return BT_OK;
}

bt_code bt_word_rule_translate(const char *regex, bt_text *out, bt_err *err) {
    translation t = {.regex = regex, .out = out};
    for (size_t at = 0, used; regex[at]; at += used) {
        used = 1;
        if ((unsigned char)regex[at] < 0x20) return refuse_syntax(&t, "a control character", err);
        if (regex[at] == '\\') {
            BT_TRY(translate_escape(&t, regex + at, &used, err));
            t.class_begins = false;
        } else {
            BT_TRY(translate_plain(&t, regex + at, err));
        }
    }
    return out->failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for a word pattern")
                       : BT_OK;
}
