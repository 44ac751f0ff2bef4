/* chat_session.h - a conversation with a model on the terminal; replies are printed while they are generated. */
#ifndef BT_CLI_MODEL_CHAT_SESSION_H
#define BT_CLI_MODEL_CHAT_SESSION_H

#include "cli/model/write_text.h"
#include "engine/data/chat/chat.h"

typedef struct bt_chat_session_cfg {
    const char *template; /* name; "": chosen by the tokenizer's special tokens */
    const char *system;   /* "": none */
    const char
        *message; /* the only message of the user; "": each line of standard input is a message */
    const char *const *stops;
    size_t n_stops;
    bt_write_how write;
    bool json; /* one JSON object per reply */
} bt_chat_session_cfg;

/* Finds the template of that name; "": the template of the model's training data or, if there was none, the one for the
 * tokenizer's special tokens, which is printed on standard error unless quiet. An unknown template of the tokenizer is
 * always reported. BT_ARG lists the names. */
bt_code bt_chat_choose(const bt_chat_template **out, const char *name, bt_trained *t, bool quiet,
                       bt_err *err) BT_MUST_CHECK;
/* If the tokenizer has a template that this program does not know, writes a note to standard error and t->notes: the
 * template used instead, and the reason. */
void bt_chat_note_unknown(bt_trained *t, const char *used);
bt_code bt_chat_session(bt_trained *t, const bt_chat_session_cfg *cfg, bt_err *err) BT_MUST_CHECK;
#endif
