/* instruct.h - converts a row of an instruction data set to tokens.
 *
 * A row becomes one document; a preference becomes two: the chosen answer, then the rejected one. Each token has a
 * mark: whether the model learns to write it.
 * Threads: constant after init; encode writes only the caller's output. */
#ifndef BT_ENGINE_DATA_CHAT_INSTRUCT_H
#define BT_ENGINE_DATA_CHAT_INSTRUCT_H

#include "engine/data/chat/chat.h"
#include "engine/data/io/json.h"
#include "engine/data/io/json_rows.h"

/* in the order of the words of data.form */
typedef enum {
    BT_FORM_TEXT, /* plain text, which documents.h reads */
    BT_FORM_COMPLETION,
    BT_FORM_ALPACA,
    BT_FORM_MESSAGES,
    BT_FORM_SHAREGPT,
    BT_FORM_PREFERENCE, /* a prompt with a preferred and a rejected answer */
    /* a text and its class: the tokens of the text, then the number of the class, which alone is learned */
    BT_FORM_LABEL,
    BT_FORM_COUNT
} bt_form_kind;
/* values of data.train_on */
typedef enum { BT_LEARN_ANSWERS, BT_LEARN_LAST, BT_LEARN_ALL } bt_learn;

typedef struct bt_form_cfg {
    bt_form_kind kind;
    bt_learn learn;
    const char *template_name; /* name of a row of chat.def */
    const char *field;         /* COMPLETION, LABEL: name of the text field; NULL or "": "text" */
    const char *labels;        /* LABEL: the classes (labels.h) */
} bt_form_cfg;

typedef struct bt_form {
    bt_form_cfg cfg;
    bt_chat_encoder encoder;
} bt_form;

/* Borrows cfg's strings and the tokenizer. */
bt_code bt_form_init(bt_form *f, const bt_form_cfg *cfg, const bt_tokenizer *tokenizer, bt_err *err)
    BT_MUST_CHECK;
int bt_form_documents(const bt_form *f);
/* The result borrows cfg's field. */
bt_json_selection bt_form_keys(const bt_form_cfg *cfg);
/* Appends the tokens of document `which`. The error names the invalid field. */
bt_code bt_form_encode(const bt_form *f, json_t *object, int which, bt_chat_ids *out, bt_err *err)
    BT_MUST_CHECK;
/* Returns a hash of the settings on which tokens and marks depend. */
uint64_t bt_form_hash(const bt_form_cfg *cfg);

#endif
