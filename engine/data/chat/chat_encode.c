/* chat_encode.c - pieces of a conversation to tokens, each with whether it is learned. */
#include <stdlib.h>
#include <string.h>

#include "engine/data/chat/chat.h"

typedef struct job {
    const bt_chat_encoder *e;
    const bt_chat_message *messages;
    bt_chat_learn learn;
    size_t last; /* message */
    bt_chat_ids *out;
} job;

bt_code bt_chat_encoder_init(bt_chat_encoder *e, const bt_chat_template *t,
                             const bt_tokenizer *tokenizer, bt_err *err) {
    int V = bt_tokenizer_vocab(tokenizer);
    size_t n = 0;
    *e = (bt_chat_encoder){.t = t, .tokenizer = tokenizer};
    for (int id = 0; id < V; id++) e->n_specials += bt_tokenizer_is_special(tokenizer, id);
    e->specials = malloc((e->n_specials + 1) * sizeof *e->specials);
    if (!e->specials) return bt_fail(err, BT_NOMEM, "cannot take memory for special tokens");
    for (int id = 0; id < V; id++)
        if (bt_tokenizer_is_special(tokenizer, id)) e->specials[n++] = id;
    return BT_OK;
}

void bt_chat_encoder_release(bt_chat_encoder *e) {
    free(e->specials);
    *e = (bt_chat_encoder){0};
}

void bt_chat_ids_release(bt_chat_ids *ids) {
    free(ids->ids);
    free(ids->learned);
    *ids = (bt_chat_ids){0};
}

static bt_code reserve(bt_chat_ids *out, size_t more, bt_err *err) {
    if (out->n + more <= out->cap) return BT_OK;
    size_t cap = out->cap ? out->cap : 256;
    while (cap < out->n + more) cap *= 2;
    int32_t *ids = realloc(out->ids, cap * sizeof *ids);
    if (ids) out->ids = ids;
    unsigned char *learned = realloc(out->learned, cap);
    if (learned) out->learned = learned;
    if (!ids || !learned)
        return bt_fail(err, BT_NOMEM, "cannot take memory for a conversation of %zu tokens", cap);
    out->cap = cap;
    return BT_OK;
}

bt_code bt_chat_ids_add(bt_chat_ids *out, int32_t id, bool learned, bt_err *err) {
    BT_TRY(reserve(out, 1, err));
    out->ids[out->n] = id;
    out->learned[out->n++] = learned;
    return BT_OK;
}

bt_code bt_chat_ids_text(bt_chat_ids *out, const bt_tokenizer *tokenizer, const char *text,
                         size_t n, bool learned, bt_err *err) {
    int32_t *ids = NULL;
    size_t count = 0, cap = 0;
    if (!n) return BT_OK;
    bt_code code = bt_tokenizer_encode(tokenizer, text, n, &ids, &count, &cap, err);
    if (code == BT_OK) code = reserve(out, count, err);
    if (code == BT_OK) {
        memcpy(out->ids + out->n, ids, count * sizeof *ids);
        memset(out->learned + out->n, learned, count);
        out->n += count;
    }
    free(ids);
    return code;
}

/* the special token with the longest name that begins text; -1: none */
static int32_t special_at(const bt_chat_encoder *e, const char *text, size_t n, size_t *length) {
    int32_t best = -1;
    *length = 0;
    for (size_t i = 0; i < e->n_specials; i++) {
        size_t k;
        const char *name = bt_tokenizer_bytes(e->tokenizer, e->specials[i], &k);
        if (k <= *length || k > n || memcmp(name, text, k) != 0) continue;
        best = e->specials[i];
        *length = k;
    }
    return best;
}

static bt_code put_markup(const job *j, const bt_chat_piece *p, bool learned, bt_err *err) {
    size_t plain = 0;
    for (size_t at = 0; at < p->n;) {
        size_t k;
        int32_t id = special_at(j->e, p->text + at, p->n - at, &k);
        if (id < 0) {
            at++;
            continue;
        }
        BT_TRY(
            bt_chat_ids_text(j->out, j->e->tokenizer, p->text + plain, at - plain, learned, err));
        BT_TRY(bt_chat_ids_add(j->out, id, learned, err));
        plain = at += k;
    }
    return bt_chat_ids_text(j->out, j->e->tokenizer, p->text + plain, p->n - plain, learned, err);
}

static bt_code put_piece(void *ctx, const bt_chat_piece *p, bt_err *err) {
    const job *j = ctx;
    const bool answer = p->learned && (j->learn != BT_CHAT_LEARN_LAST || p->message == j->last);
    const bool learned = (answer || j->learn == BT_CHAT_LEARN_ALL) &&
                         !j->messages[p->message].muted;
    size_t k;
    if (p->bos) {
        int32_t id = special_at(j->e, p->text, p->n, &k);
        return id >= 0 && k == p->n ? bt_chat_ids_add(j->out, id, learned, err) : BT_OK;
    }
    if (p->markup) return put_markup(j, p, learned, err);
    return bt_chat_ids_text(j->out, j->e->tokenizer, p->text, p->n, learned, err);
}

bt_code bt_chat_encode(const bt_chat_encoder *e, const bt_chat_message *messages, size_t n,
                       bool prompt, bt_chat_learn learn, bt_chat_ids *out, bt_err *err) {
    job j = {e, messages, learn, n - 1, out};
    return bt_chat_render(e->t, messages, n, prompt, put_piece, &j, err);
}
