/* pretok.c - the patterns, for PCRE2. With JIT it runs these patterns at ~100 MB/s. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/data/tokenizer/pretok.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/utf8.h"

/* Unicode's White_Space, as the other programs understand \s (PCRE2's own adds U+180E) */
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

const char *bt_pattern_name(bt_pattern p) { return patterns[p].name; }
const char *bt_pattern_regex(bt_pattern p) { return patterns[p].hugging_face; }

struct bt_pretok {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    bool jit;
    size_t valid_end; /* text up to here is UTF-8 (from the last `at` on) */
};

bt_code bt_pretok_create(bt_pretok **out, bt_pattern pattern, bt_err *err) {
    *out = NULL;
    bt_pretok *p = calloc(1, sizeof *p);
    int rc = 0;
    PCRE2_SIZE at;
    if (p) {
        p->code = pcre2_compile((PCRE2_SPTR)patterns[pattern].ours, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &rc, &at, NULL);
        p->match = pcre2_match_data_create(1, NULL);
        p->context = pcre2_match_context_create(NULL);
        p->stack = pcre2_jit_stack_create(32 << 10, 1 << 20, NULL);
    }
    if (!p || !p->code || !p->match || !p->context || !p->stack) {
        bt_pretok_destroy(p);
        return bt_fail(err, BT_NOMEM, "cannot compile the pre-tokeniser '%s' (PCRE2 %d)",
                       patterns[pattern].name, rc);
    }
    pcre2_jit_stack_assign(p->context, NULL, p->stack);
    /* not where memory may not become code: slower */
    p->jit = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    *out = p;
    return BT_OK;
}

void bt_pretok_destroy(bt_pretok *p) {
    if (!p) return;
    pcre2_jit_stack_free(p->stack);
    pcre2_match_context_free(p->context);
    pcre2_match_data_free(p->match);
    pcre2_code_free(p->code);
    free(p);
}

bt_code bt_pretok_next(bt_pretok *p, const char *text, size_t n, size_t at, size_t *end,
                       bt_err *err) {
    if (at == 0 || at >= p->valid_end) {
        p->valid_end = at + bt_utf8_valid(text + at, n - at);
        /* bytes that are no UTF-8, up to the next character that is */
        if (p->valid_end == at) {
            size_t i = at + 1;
            while (i < n && !bt_utf8_char(text + i, n - i)) i++;
            p->valid_end = i;
            *end = i;
            return BT_OK;
        }
    }
    PCRE2_SPTR s = (PCRE2_SPTR)text;
    int rc = p->jit ? pcre2_jit_match(p->code, s, p->valid_end, at, 0, p->match, p->context)
                    : pcre2_match(p->code, s, p->valid_end, at, PCRE2_NO_UTF_CHECK, p->match,
                                  p->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, s, p->valid_end, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, p->match,
                         p->context);
    if (rc < 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the pre-tokeniser failed at byte %zu of a text (PCRE2 error %d)", at, rc);
    *end = pcre2_get_ovector_pointer(p->match)[1];
    return BT_OK;
}
