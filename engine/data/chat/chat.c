/* chat.c - looks up chat templates and divides a conversation into pieces. */
#include "engine/data/chat/chat.h"

#include <stdio.h>
#include <string.h>

static const bt_chat_template templates[] = {
#define BT_CHAT_TEMPLATE(...) {__VA_ARGS__},
#include "engine/data/chat/chat.def"
#undef BT_CHAT_TEMPLATE
};
enum { N_TEMPLATES = sizeof templates / sizeof *templates };

const bt_chat_template *bt_chat_at(size_t i) { return i < N_TEMPLATES ? &templates[i] : NULL; }

void bt_chat_names(char *out, size_t size) {
    size_t at = 0;
    *out = '\0';
    for (size_t i = 0; i < N_TEMPLATES && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "", templates[i].name);
}

bt_code bt_chat_find(const bt_chat_template **out, const char *name, bt_err *err) {
    *out = NULL;
    for (size_t i = 0; i < N_TEMPLATES && !*out; i++)
        if (strcmp(templates[i].name, name) == 0) *out = &templates[i];
    if (*out) return BT_OK;
    char names[240];
    bt_chat_names(names, sizeof names);
    return bt_fail(err, BT_NOTFOUND, "there is no chat template '%.30s' (%s)", name, names);
}

/* Returns the number of special tokens in the column `marks` of a row; 0 if the tokenizer lacks one of them. */
static size_t count_marks(const bt_chat_template *c, const bt_tokenizer *t) {
    size_t n = 0;
    for (const char *p = c->marks ? c->marks : ""; *p; n++) {
        const size_t k = strcspn(p, " ");
        if (bt_tokenizer_named(t, p, k) < 0) return 0;
        p += k + strspn(p + k, " ");
    }
    return n;
}

const bt_chat_template *bt_chat_of_tokenizer(const bt_tokenizer *t) {
    const bt_chat_template *best = &templates[N_TEMPLATES - 1]; /* the row "plain" */
    size_t most = 0;
    for (size_t i = 0; i < N_TEMPLATES; i++) {
        const size_t n = count_marks(&templates[i], t);
        if (n <= most) continue;
        most = n;
        best = &templates[i];
    }
    return best;
}

int32_t bt_chat_end_token(const bt_chat_template *t, const bt_tokenizer *tokenizer) {
    return t->end ? bt_tokenizer_named(tokenizer, t->end, strlen(t->end)) : -1;
}

size_t bt_chat_stops(const bt_chat_template *t, const bt_tokenizer *tokenizer,
                     const char *stops[BT_CHAT_STOPS]) {
    size_t n = 0;
    if (bt_chat_end_token(t, tokenizer) >= 0) return 0;
    /* Many sentences end with a line feed, so the beginning of the next turn is a better stop text. */
    if (t->end && strcmp(t->end, "\n") != 0) stops[n++] = t->end;
    if (t->stop) stops[n++] = t->stop;
    return n;
}

typedef struct render {
    const bt_chat_template *t;
    const bt_chat_message *messages;
    size_t n;
    bt_chat_emit_fn emit;
    void *ctx;
    bt_err *err;
} render;

static bt_code put_rendered(const render *r, const char *text, bool learned, size_t message) {
    if (!text || !*text) return BT_OK;
    const bt_chat_piece piece = {
        .text = text, .n = strlen(text), .markup = true, .learned = learned, .message = message};
    return r->emit(r->ctx, &piece, r->err);
}

static bool is_chat_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bt_code put_message_text(const render *r, const bt_chat_message *m, bool learned,
                                size_t message) {
    bt_chat_piece piece = {.text = m->text, .n = m->n, .learned = learned, .message = message};
    if (r->t->flags & BT_CHAT_TRIM) {
        while (piece.n && is_chat_blank(*piece.text)) piece.text++, piece.n--;
        while (piece.n && is_chat_blank(piece.text[piece.n - 1])) piece.n--;
    }
    return piece.n ? r->emit(r->ctx, &piece, r->err) : BT_OK;
}

static bt_code render_system(const render *r, const bt_chat_message *system) {
    const bt_chat_template *t = r->t;
    const char *fallback = t->fallback ? t->fallback : "";
    const bt_chat_message given = {.role = BT_CHAT_SYSTEM, .text = fallback, .n = strlen(fallback)};
    if (!system && !*fallback && !(t->flags & BT_CHAT_DATED)) return BT_OK;
    BT_TRY(put_rendered(r, t->system, false, 0));
    BT_TRY(put_message_text(r, system ? system : &given, false, 0));
    return put_rendered(r, t->system_end, false, 0);
}

static bt_code put_user_turn(const render *r, size_t i, const bt_chat_message *system) {
    const bt_chat_template *t = r->t;
    size_t first = r->messages[0].role == BT_CHAT_SYSTEM;
    bool here = (t->place == BT_CHAT_SYSTEM_FIRST && i == first) ||
                (t->place == BT_CHAT_SYSTEM_FINAL && i == r->n - 1);
    BT_TRY(put_rendered(r, t->user, false, i));
    if (system && here) {
        BT_TRY(put_message_text(r, system, false, 0));
        BT_TRY(put_rendered(r, t->system_end, false, 0));
    }
    BT_TRY(put_message_text(r, &r->messages[i], false, i));
    return put_rendered(r, t->user_end, false, i);
}

static bt_code render_answer(const render *r, size_t i) {
    const bt_chat_template *t = r->t;
    bool last = i == r->n - 1;
    BT_TRY(put_rendered(r, t->answer, false, i));
    if (last) BT_TRY(put_rendered(r, t->before_last, false, i));
    BT_TRY(put_message_text(r, &r->messages[i], true, i));
    BT_TRY(put_rendered(r, t->end, true, i));
    return last && (t->flags & BT_CHAT_BETWEEN) ? BT_OK : put_rendered(r, t->tail, false, i);
}

static const char *const roles[] = {"system", "user", "assistant"};

static bt_code check_order(const bt_chat_message *m, size_t n, bool prompt, bt_err *err) {
    /* Only conversations of training data can be skipped by data.bad_rows, not the prompt of a user. */
    const char *skip = prompt ? "" : "; data.bad_rows=skip leaves such rows out";
    size_t first = n && m[0].role == BT_CHAT_SYSTEM;
    if (n == first) return bt_fail(err, BT_FORMAT, "the conversation has no message of a user");
    for (size_t i = first; i < n; i++) {
        bt_chat_role want = (i - first) % 2 ? BT_CHAT_ASSISTANT : BT_CHAT_USER;
        if (m[i].role != want)
            return bt_fail(err, BT_FORMAT,
                           "message %zu has the role '%s', but the role '%s' is expected there (an "
                           "optional system message, then user and assistant alternately%s)",
                           i + 1, roles[m[i].role], roles[want], skip);
    }
    bt_chat_role end = prompt ? BT_CHAT_USER : BT_CHAT_ASSISTANT;
    if (m[n - 1].role == end) return BT_OK;
    return bt_fail(err, BT_FORMAT,
                   "the last message has the role '%s', but must have the role '%s'",
                   roles[m[n - 1].role], roles[end]);
}

bt_code bt_chat_render(const bt_chat_template *t, const bt_chat_message *messages, size_t n,
                       bool prompt, bt_chat_emit_fn emit, void *ctx, bt_err *err) {
    const render r = {t, messages, n, emit, ctx, err};
    BT_TRY(check_order(messages, n, prompt, err));
    const bt_chat_message *system = messages[0].role == BT_CHAT_SYSTEM ? messages : NULL;
    if (system && t->place == BT_CHAT_SYSTEM_REFUSED)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the chat template '%s' cannot render system messages: remove them, or "
                       "choose another template",
                       t->name);
    if (t->bos) {
        const bt_chat_piece bos = {
            .text = t->bos, .n = strlen(t->bos), .markup = true, .bos = true};
        BT_TRY(emit(ctx, &bos, err));
    }
    if (t->place == BT_CHAT_SYSTEM_OWN_TURN) BT_TRY(render_system(&r, system));
    for (size_t i = system ? 1 : 0; i < n; i++)
        BT_TRY(messages[i].role == BT_CHAT_USER ? put_user_turn(&r, i, system)
                                                : render_answer(&r, i));
    if (!prompt) return put_rendered(&r, t->close, false, n - 1);
    return t->flags & BT_CHAT_BARE ? BT_OK : put_rendered(&r, t->answer, false, n);
}
