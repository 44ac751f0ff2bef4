/* chat_session.h - a conversation with a model on the terminal: question by line, answer by stream. */
#ifndef BT_CLI_MODEL_CHAT_SESSION_H
#define BT_CLI_MODEL_CHAT_SESSION_H

#include "cli/model/write_text.h"
#include "engine/data/chat/chat.h"

typedef struct bt_chat_session_cfg {
    const char *template; /* name, or "" to choose by the tokenizer's special tokens */
    const char *system;   /* "" none */
    const char *message;  /* the only question; "" asks on standard input, line by line */
    const char *const *stops;
    size_t n_stops;
    bt_write_how write;
    bool json; /* one object an answer */
} bt_chat_session_cfg;

/* The row of that name; "": what the model's conversations were trained in, or, where it had none, by
 * the tokenizer's tokens, which standard error is told unless quiet; an own template that is not known
 * here is reported in any case. BT_ARG lists the names. */
bt_code bt_chat_choose(const bt_chat_template **out, const char *name, bt_trained *t, bool quiet,
                       bt_err *err) BT_MUST_CHECK;
/* Where the tokenizer has a template of its own that is not known here, a note on standard error and in
 * t->notes names the one that is used instead, and the reason. */
void bt_chat_note_unknown(bt_trained *t, const char *used);
bt_code bt_chat_session(bt_trained *t, const bt_chat_session_cfg *cfg, bt_err *err) BT_MUST_CHECK;
#endif
