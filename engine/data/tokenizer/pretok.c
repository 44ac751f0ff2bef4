/* pretok.c - cuts text into words with PCRE2, by fixed patterns or by the rules of a file, at about 100 MB/s. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/data/tokenizer/pretok.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/text.h"
#include "engine/data/io/utf8.h"
#include "engine/data/tokenizer/word_rules.h"

/* Unicode's White_Space, the meaning of \s in other programs; in PCRE2 \s also matches U+180E. */
#define SPACE "\\x09-\\x0d\\x85\\p{Z}"
#define MODERN(numbers) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^" SPACE \
    "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define MODERN_HF(numbers) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *name, *hugging_face, *ours;
} patterns[BT_PATTERN_COUNT] = {
    [BT_PATTERN_GPT2] =
        {"gpt2",
         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE
         "]+(?![^" SPACE "])|[" SPACE "]+"},
    [BT_PATTERN_LLAMA3] = {"llama3", MODERN_HF("\\p{N}{1,3}"), MODERN("\\p{N}{1,3}")},
    [BT_PATTERN_QWEN2] = {"qwen2", MODERN_HF("\\p{N}"), MODERN("\\p{N}")},
};

const char *bt_pattern_name(bt_pattern p) {
    return p == BT_PATTERN_RULES ? "rules" : patterns[p].name;
}
const char *bt_pattern_regex(bt_pattern p) { return patterns[p].hugging_face; }

typedef struct word_rule {
    pcre2_code *code;
    bool jit;
    size_t begin, end; /* the piece of the text that the rule cuts at present */
} word_rule;

struct bt_pretok {
    word_rule rules[BT_WORD_RULES_MAX];
    size_t n_rules;
    bool anchored; /* a single pattern, which matches at every position */
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    size_t valid_begin, valid_end; /* range of the text that is valid UTF-8 */
};

static bt_code compile_rule(bt_pretok *p, const char *regex, const char *shown, bt_err *err) {
    word_rule *r = &p->rules[p->n_rules];
    int rc = 0;
    PCRE2_SIZE at;
    uint32_t empty = 0;
    char plain[100];
    bt_text_plain(plain, sizeof plain, shown);
    r->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | (p->anchored ? PCRE2_ANCHORED : 0), &rc, &at,
                            NULL);
    if (!r->code && rc == PCRE2_ERROR_HEAP_FAILED)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the word pattern '%s'", plain);
    if (!r->code)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the word pattern is not a regular expression that PCRE2 supports, at "
                       "character %zu: '%s'",
                       (size_t)at + 1, plain);
    p->n_rules++;
    /* Without permission for executable memory JIT fails, and matching is slower. */
    r->jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
    (void)pcre2_pattern_info(r->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (!p->anchored && empty)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the word pattern can match an empty text, which is not supported: '%s'",
                       plain);
    return BT_OK;
}

static bt_code compile_rules(bt_pretok *p, const char *rules, bt_err *err) {
    char one[BT_WORD_RULE_BYTES];
    bt_text regex = {0};
    bt_code code = BT_OK;
    for (size_t n; code == BT_OK && *rules; rules += n + (rules[n] == '\n')) {
        n = strcspn(rules, "\n");
        if (n >= sizeof one || p->n_rules == BT_WORD_RULES_MAX) {
            code = bt_fail(err, BT_UNSUPPORTED,
                           "it has more than %d word patterns, or one that is too long (%zu bytes)",
                           BT_WORD_RULES_MAX, n);
            break;
        }
        memcpy(one, rules, n);
        one[n] = '\0';
        bt_text_clear(&regex);
        code = bt_word_rule_translate(one, &regex, err);
        if (code == BT_OK) code = compile_rule(p, bt_text_str(&regex), one, err);
    }
    bt_text_release(&regex);
    if (code == BT_OK && !p->n_rules)
        code = bt_fail(err, BT_UNSUPPORTED,
                       "the tokenizer does not cut text into words, which is not supported");
    return code;
}

bt_code bt_pretok_create(bt_pretok **out, bt_pattern pattern, const char *rules, bt_err *err) {
    enum { MATCH_STEPS = 10000000 }; /* limits the work of a pattern that backtracks */
    *out = NULL;
    bt_pretok *p = calloc(1, sizeof *p);
    if (p) {
        p->match = pcre2_match_data_create(1, NULL);
        p->context = pcre2_match_context_create(NULL);
        p->stack = pcre2_jit_stack_create(32 << 10, 1 << 20, NULL);
    }
    if (!p || !p->match || !p->context || !p->stack) {
        bt_pretok_destroy(p);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to cut text into words");
    }
    pcre2_jit_stack_assign(p->context, NULL, p->stack);
    pcre2_set_match_limit(p->context, MATCH_STEPS);
    p->anchored = pattern != BT_PATTERN_RULES;
    const bt_code code = p->anchored
                             ? compile_rule(p, patterns[pattern].ours, patterns[pattern].name, err)
                             : compile_rules(p, rules ? rules : "", err);
    if (code == BT_OK)
        *out = p;
    else
        bt_pretok_destroy(p);
    return code;
}

void bt_pretok_destroy(bt_pretok *p) {
    if (!p) return;
    pcre2_jit_stack_free(p->stack);
    pcre2_match_context_free(p->context);
    pcre2_match_data_free(p->match);
    for (size_t i = 0; i < p->n_rules; i++) pcre2_code_free(p->rules[i].code);
    free(p);
}

/* Finds the first match at or after `at` in text[0..n). *from is n if there is none. */
static bt_code match_rule(bt_pretok *p, const word_rule *r, const char *text, size_t n, size_t at,
                          size_t *from, size_t *to, bt_err *err) {
    PCRE2_SPTR s = (PCRE2_SPTR)text;
    int rc = r->jit ? pcre2_jit_match(r->code, s, n, at, 0, p->match, p->context)
                    : pcre2_match(r->code, s, n, at, PCRE2_NO_UTF_CHECK, p->match, p->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(r->code, s, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, p->match,
                         p->context);
    *from = *to = n;
    if (rc == PCRE2_ERROR_NOMATCH && !p->anchored) return BT_OK;
    if (rc < 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the pre-tokeniser failed at byte %zu of a text (PCRE2 error %d)", at, rc);
    *from = pcre2_get_ovector_pointer(p->match)[0];
    *to = pcre2_get_ovector_pointer(p->match)[1];
    return BT_OK;
}

/* Finds the word at `at`. Each rule cuts the current piece of the previous rule and stores its own current piece. */
static bt_code next_word_by_rules(bt_pretok *p, const char *text, size_t at, bool fresh,
                                  size_t *end, bt_err *err) {
    size_t begin = p->valid_begin, stop = p->valid_end;
    for (size_t i = 0; i < p->n_rules; i++) {
        word_rule *r = &p->rules[i];
        fresh |= at >= r->end;
        if (fresh) {
            size_t from, to;
            BT_TRY(match_rule(p, r, text + begin, stop - begin, at - begin, &from, &to, err));
            from += begin;
            to += begin;
            r->begin = at;
            r->end = from > at ? from : to;
            if (r->end <= at)
                return bt_fail(err, BT_UNSUPPORTED, "a word pattern matched an empty text");
        }
        begin = r->begin;
        stop = r->end;
    }
    *end = stop;
    return BT_OK;
}

bt_code bt_pretok_next(bt_pretok *p, const char *text, size_t n, size_t at, size_t *end,
                       bt_err *err) {
    const bool fresh = at == 0 || at >= p->valid_end;
    if (fresh) {
        p->valid_begin = at;
        p->valid_end = at + bt_utf8_valid(text + at, n - at);
        /* bytes up to the next valid character form one word */
        if (p->valid_end == at) {
            size_t i = at + 1;
            while (i < n && !bt_utf8_char(text + i, n - i)) i++;
            p->valid_end = i;
            *end = i;
            return BT_OK;
        }
    }
    if (!p->anchored) return next_word_by_rules(p, text, at, fresh, end, err);
    size_t from;
    return match_rule(p, &p->rules[0], text, p->valid_end, at, &from, end, err);
}
