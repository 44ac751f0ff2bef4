/* chat_encode.c - converts the pieces of a conversation to tokens and marks the tokens that are learned. */
#include <stdlib.h>
#include <string.h>

#include "engine/data/chat/chat.h"

typedef struct job {
    const bt_chat_encoder *e;
    const bt_chat_message *messages;
    bt_chat_learn learn;
    size_t last; /* index of the message that contains the last answer */
    bt_chat_ids *out;
} job;

void bt_chat_ids_release(bt_chat_ids *ids) {
    free(ids->ids);
    free(ids->learned);
    *ids = (bt_chat_ids){0};
}

static bt_code reserve_ids(bt_chat_ids *out, size_t more, bt_err *err) {
    if (out->n + more <= out->cap) return BT_OK;
    size_t cap = out->cap ? out->cap : 256;
    while (cap < out->n + more) cap *= 2;
    int32_t *ids = realloc(out->ids, cap * sizeof *ids);
    if (ids) out->ids = ids;
    unsigned char *learned = realloc(out->learned, cap);
    if (learned) out->learned = learned;
    if (!ids || !learned)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a conversation of %zu tokens",
                       cap);
    out->cap = cap;
    return BT_OK;
}

bt_code bt_chat_ids_add(bt_chat_ids *out, int32_t id, bool learned, bt_err *err) {
    BT_TRY(reserve_ids(out, 1, err));
    out->ids[out->n] = id;
    out->learned[out->n++] = learned;
    return BT_OK;
}

bt_code bt_chat_ids_encode(bt_chat_ids *out, const bt_tokenizer *tokenizer, unsigned how,
                           const char *text, size_t n, bool learned, bt_err *err) {
    int32_t *ids = NULL;
    size_t count = 0, cap = 0;
    if (!n) return BT_OK;
    bt_code code = bt_tokenizer_encode_as(tokenizer, how, text, n, &ids, &count, &cap, err);
    if (code == BT_OK) code = reserve_ids(out, count, err);
    if (code == BT_OK) {
        memcpy(out->ids + out->n, ids, count * sizeof *ids);
        memset(out->learned + out->n, learned, count);
        out->n += count;
    }
    free(ids);
    return code;
}

static bt_code encode_chat_piece(void *ctx, const bt_chat_piece *p, bt_err *err) {
    const job *j = ctx;
    const bt_tokenizer *t = j->e->tokenizer;
    const bool answer = p->learned && (j->learn != BT_CHAT_LEARN_LAST || p->message == j->last);
    const bool learned = (answer || j->learn == BT_CHAT_LEARN_ALL) &&
                         !j->messages[p->message].muted;
    if (p->bos) {
        const int32_t id = bt_tokenizer_named(t, p->text, p->n);
        return id >= 0 ? bt_chat_ids_add(j->out, id, learned, err) : BT_OK;
    }
    const int32_t last = j->out->n ? j->out->ids[j->out->n - 1] : -1;
    const unsigned how = (p->markup ? BT_ENCODE_SPECIAL : BT_ENCODE_TEXT) |
                         bt_tokenizer_continues(t, last);
    return bt_chat_ids_encode(j->out, t, how, p->text, p->n, learned, err);
}

bt_code bt_chat_encode(const bt_chat_encoder *e, const bt_chat_message *messages, size_t n,
                       bool prompt, bt_chat_learn learn, bt_chat_ids *out, bt_err *err) {
    job j = {e, messages, learn, n - 1, out};
    return bt_chat_render(e->t, messages, n, prompt, encode_chat_piece, &j, err);
}
