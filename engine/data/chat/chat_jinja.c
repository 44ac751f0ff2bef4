/* chat_jinja.c - finds the row of chat.def that renders like a tokenizer's Jinja template. Jinja is not executed: the
 * row has the same hash, or the template contains the column `signs` of the row and none of the parts below. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/numbers/sha256.h"
#include "engine/data/chat/chat.h"

/* A template with one of these parts renders text that no row with `signs` renders: thoughts, dates, tools, ... */
static const char *const strangers[] = {"<think>",      "reasoning_content", "enable_thinking",
                                        "strftime_now", "CuttingKnowledge",  "Youare",
                                        "[INST]",       "[SYSTEM_PROMPT]",   "<|user|>",
                                        "<|channel|>",  "<|start|>",         "###",
                                        "TodayDate"};

/* Returns the template without blanks, quotes, + and ~; each line feed becomes a backslash and an n. The caller frees
 * the result. NULL: out of memory. */
static char *strip_jinja_joins(const char *jinja) {
    char *out = malloc(2 * strlen(jinja) + 1), *to = out;
    for (const char *p = jinja; out && *p; p++) {
        if (strchr(" \t\"'+~", *p)) continue;
        if (*p == '\n')
            *to++ = '\\', *to++ = 'n';
        else
            *to++ = *p;
    }
    if (out) *to = '\0';
    return out;
}

static bool has_signs(const bt_chat_template *t, const char *text) {
    for (size_t i = 0; i < sizeof t->signs / sizeof *t->signs && t->signs[i]; i++)
        if (!strstr(text, t->signs[i])) return false;
    return t->signs[0] != NULL;
}

static bool template_trims_blanks(const char *text) {
    return strstr(text, "|trim") || strstr(text, ".strip(");
}

/* True if both the text and the row begin with a BOS token, or neither does. */
static bool has_same_first_token(const bt_chat_template *t, const char *text) {
    return (strstr(text, "bos_token") || (t->bos && strstr(text, t->bos))) == (t->bos != NULL);
}

/* Returns the only row whose signs are all present; NULL: `why` receives the reason. */
static const bt_chat_template *find_row_by_structure(const char *text, bt_text *why) {
    const bt_chat_template *found = NULL;
    bool several = false;
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        if (!strstr(text, strangers[i])) continue;
        bt_text_printf(why, "it has '%s'", strangers[i]);
        return NULL;
    }
    for (size_t i = 0; bt_chat_at(i); i++) {
        const bt_chat_template *t = bt_chat_at(i);
        const bool trims = (t->flags & BT_CHAT_TRIM) != 0;
        if (!has_signs(t, text)) continue;
        if (has_same_first_token(t, text) && template_trims_blanks(text) == trims) {
            several |= found != NULL;
            found = t;
        } else {
            bt_text_clear(why);
            bt_text_printf(why, "it %s otherwise than '%s'",
                           has_same_first_token(t, text) ? "treats white space"
                                                         : "begins (bos_token)",
                           t->name);
        }
    }
    if (several) bt_text_put(why, "it is like several of them");
    if (!found && !why->len) bt_text_put(why, "it has the markup of none");
    return several ? NULL : found;
}

bt_code bt_chat_of_jinja(const bt_chat_template **out, const char *jinja, const char **how,
                         bt_err *err) {
    char hash[BT_SHA256_HEX], names[240];
    *out = NULL;
    *how = "by the hash of the tokenizer's own";
    bt_sha256_hex(hash, jinja, strlen(jinja));
    for (size_t i = 0; bt_chat_at(i) && !*out; i++)
        if (bt_chat_at(i)->sha256 && strcmp(bt_chat_at(i)->sha256, hash) == 0) *out = bt_chat_at(i);
    if (*out) return BT_OK;
    char *text = strip_jinja_joins(jinja);
    if (!text) return bt_fail(err, BT_NOMEM, "cannot allocate memory to read a chat template");
    *how = "by the structure of the tokenizer's own";
    bt_text why = {0};
    *out = find_row_by_structure(text, &why);
    free(text);
    bt_chat_names(names, sizeof names);
    const bt_code code = *out ? BT_OK
                              : bt_fail(err, BT_ARG,
                                        "the tokenizer's chat template matches none of the known "
                                        "templates: %s (choose one with data.template: %s)",
                                        bt_text_str(&why), names);
    bt_text_release(&why);
    return code;
}
