/* instruct.c - converts JSON rows of instruction data to conversations; each value of data.form has its function. */
#include "engine/data/chat/instruct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/system/ascii.h"
#include "engine/base/text.h"
#include "engine/data/chat/content.h"
#include "engine/data/chat/labels.h"

enum { MAX_MESSAGES = 1024 };

typedef struct conversation {
    bt_chat_message m[MAX_MESSAGES];
    size_t n;
    bt_text joined[2]; /* texts made of several fields */
    bt_text *parts;    /* (MAX_MESSAGES) contents that are lists of parts; NULL: none */
} conversation;

static void release_conversation(conversation *c) {
    for (int i = 0; i < 2; i++) bt_text_release(&c->joined[i]);
    for (size_t i = 0; c->parts && i < MAX_MESSAGES; i++) bt_text_release(&c->parts[i]);
    free(c->parts);
    free(c);
}

static bt_code fail_field(bt_err *err, const char *field, const char *what) {
    return bt_fail(err, BT_FORMAT, "field '%s' %s", field, what);
}

/* Returns NULL if the field is absent, null or "". */
static bt_code optional_text(json_t *o, const char *field, const char **out, bt_err *err) {
    json_t *v = json_object_get(o, field);
    *out = NULL;
    if (!v || json_is_null(v)) return BT_OK;
    if (!json_is_string(v)) return fail_field(err, field, "is not a string");
    if (json_string_length(v)) *out = json_string_value(v);
    return BT_OK;
}

static bt_code add_turn(conversation *c, bt_chat_role role, const char *text, size_t n,
                        bt_err *err) {
    if (c->n == MAX_MESSAGES)
        return bt_fail(err, BT_FORMAT,
                       "the conversation has more than %d messages: split it into several rows",
                       MAX_MESSAGES);
    c->m[c->n++] = (bt_chat_message){.role = role, .text = text, .n = n};
    return BT_OK;
}

static bt_code add_text(conversation *c, bt_chat_role role, const char *text, bt_err *err) {
    return add_turn(c, role, text, strlen(text), err);
}

#define PREAMBLE_WITH_INPUT \
    "Below is an instruction that describes a task, paired with an input that provides further " \
    "context. Write a response that appropriately completes the request."

static bt_code add_history(conversation *c, json_t *pairs, bt_err *err) {
    size_t i;
    json_t *pair;
    if (!pairs || json_is_null(pairs)) return BT_OK;
    if (!json_is_array(pairs)) return fail_field(err, "history", "is not a list of pairs");
    json_array_foreach(pairs, i, pair) {
        const char *q = json_string_value(json_array_get(pair, 0)),
                   *a = json_string_value(json_array_get(pair, 1));
        if (!q || !a || json_array_size(pair) != 2)
            return bt_fail(err, BT_FORMAT,
                           "field 'history': entry %zu is not a list of two strings, a question "
                           "and its answer",
                           i + 1);
        BT_TRY(add_text(c, BT_CHAT_USER, q, err));
        BT_TRY(add_text(c, BT_CHAT_ASSISTANT, a, err));
    }
    return BT_OK;
}

static bt_code read_alpaca(const bt_form *f, json_t *o, conversation *c, bt_err *err) {
    const char *instruction, *input, *system;
    json_t *output = json_object_get(o, "output");
    bool preamble = f->encoder.t->flags & BT_CHAT_PREAMBLE;
    BT_TRY(optional_text(o, "instruction", &instruction, err));
    BT_TRY(optional_text(o, "input", &input, err));
    BT_TRY(optional_text(o, "system", &system, err));
    if (!instruction && !input) return fail_field(err, "instruction", "is missing or empty");
    if (!output) return fail_field(err, "output", "is missing");
    if (!json_is_string(output)) return fail_field(err, "output", "is not a string");
    if (!system && preamble && input && instruction) system = PREAMBLE_WITH_INPUT;
    if (system) BT_TRY(add_text(c, BT_CHAT_SYSTEM, system, err));
    BT_TRY(add_history(c, json_object_get(o, "history"), err));
    bt_text *q = &c->joined[0];
    bt_text_printf(q, "%s%s%s", instruction ? instruction : "",
                   !instruction || !input ? ""
                   : preamble             ? "\n\n### Input:\n"
                                          : "\n",
                   input ? input : "");
    if (q->failed) return bt_fail(err, BT_NOMEM, "cannot allocate memory for a question");
    BT_TRY(add_turn(c, BT_CHAT_USER, bt_text_str(q), q->len, err));
    return add_turn(c, BT_CHAT_ASSISTANT, json_string_value(output), json_string_length(output),
                    err);
}

static bt_code parse_role(const char *name, size_t i, bt_chat_role *out, bt_err *err) {
    static const struct {
        const char *name;
        bt_chat_role role;
    } names[] = {{"system", BT_CHAT_SYSTEM},   {"user", BT_CHAT_USER},
                 {"human", BT_CHAT_USER},      {"assistant", BT_CHAT_ASSISTANT},
                 {"gpt", BT_CHAT_ASSISTANT},   {"bot", BT_CHAT_ASSISTANT},
                 {"model", BT_CHAT_ASSISTANT}, {"developer", BT_CHAT_SYSTEM}};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        if (strcmp(names[k].name, name) != 0) continue;
        *out = names[k].role;
        return BT_OK;
    }
    return bt_fail(
        err, BT_UNSUPPORTED,
        "message %zu: the role '%.40s' is unknown (use system, user or human, assistant or gpt)",
        i + 1, name);
}

static bt_code add_content(conversation *c, const json_t *v, size_t i, bt_err *err) {
    bt_chat_message *m = &c->m[c->n - 1];
    bt_text none = {0};
    if (json_is_array(v) && !c->parts) c->parts = calloc(MAX_MESSAGES, sizeof *c->parts);
    if (json_is_array(v) && !c->parts)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a conversation");
    const int got = bt_chat_content(v, c->parts ? &c->parts[c->n - 1] : &none, &m->text, &m->n);
    if (got == BT_CONTENT_OK) return BT_OK;
    if (got == BT_CONTENT_NOMEM)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a conversation");
    if (got == BT_CONTENT_NO_TEXT)
        return bt_fail(err, BT_FORMAT, "message %zu: its content is not a string", i + 1);
    return bt_fail(
        err, BT_UNSUPPORTED,
        "message %zu: part %d of its content is not text, and only text can be trained on", i + 1,
        got);
}

/* Reads `weight` (OpenAI), `train` (Axolotl, LLaMA-Factory) or `loss` (ms-swift): 0 or false excludes an answer. */
static bt_code read_muted_flag(const json_t *m, size_t i, bool *muted, bt_err *err) {
    static const char *const keys[] = {"weight", "train", "loss"};
    *muted = false;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *v = json_object_get(m, keys[k]);
        if (!v || json_is_null(v)) continue;
        const double number = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
        if (!(json_is_boolean(v) || json_is_number(v)) || (number != 0 && number != 1))
            return bt_fail(err, BT_FORMAT, "message %zu: '%s' must be 0 or 1, or true or false",
                           i + 1, keys[k]);
        *muted |= number == 0;
    }
    return BT_OK;
}

static bt_code add_json_message(conversation *c, json_t *m, size_t i, bt_err *err) {
    json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
    bt_chat_role which = BT_CHAT_USER;
    if (!role) role = json_object_get(m, "from");
    if (!content) content = json_object_get(m, "value");
    if (!json_is_string(role))
        return bt_fail(err, BT_FORMAT, "message %zu has no 'role' or 'from'", i + 1);
    if (!content) return bt_fail(err, BT_FORMAT, "message %zu has no 'content' or 'value'", i + 1);
    BT_TRY(parse_role(json_string_value(role), i, &which, err));
    BT_TRY(add_turn(c, which, "", 0, err));
    BT_TRY(read_muted_flag(m, i, &c->m[c->n - 1].muted, err));
    return add_content(c, content, i, err);
}

static bt_code read_message_list(const bt_form *f, json_t *o, conversation *c, bt_err *err) {
    static const char *const names[] = {"messages", "conversations", "conversation"};
    const char *system;
    json_t *list = NULL, *m;
    size_t i, k = 0;
    (void)f;
    while (k < 3 && !(list = json_object_get(o, names[k]))) k++;
    if (!list) return fail_field(err, "messages", "is missing, and so is 'conversations'");
    if (!json_is_array(list)) return fail_field(err, names[k], "is not a list of messages");
    BT_TRY(optional_text(o, "system", &system, err));
    if (system) BT_TRY(add_text(c, BT_CHAT_SYSTEM, system, err));
    json_array_foreach(list, i, m) BT_TRY(add_json_message(c, m, i, err));
    return BT_OK;
}

static bt_code add_message_list(conversation *c, json_t *list, const char *field, bt_err *err) {
    json_t *m;
    size_t i;
    if (!json_is_array(list)) return fail_field(err, field, "is not a list of messages");
    json_array_foreach(list, i, m) BT_TRY(add_json_message(c, m, i, err));
    return BT_OK;
}

/* Returns the chosen (which = 0) or the rejected answer (1), under whichever of its known names the row has. */
static json_t *find_preference_answer(json_t *o, int which, const char **field) {
    static const char *const names[2][3] = {{"chosen", "chosen_response", "preferred_output"},
                                            {"rejected", "rejected_response",
                                             "non_preferred_output"}};
    for (size_t i = 0; i < 3; i++) {
        json_t *v = json_object_get(o, *field = names[which][i]);
        if (v && !json_is_null(v)) return v;
    }
    *field = names[which][0];
    return NULL;
}

static bool has_several_parts(json_t *answer) {
    return json_is_array(answer) && json_array_size(answer) > 1;
}

/* Adds the messages before the answer, from a text or a list of messages, under the names that several tools use. */
static bt_code add_prompt(const bt_form *f, json_t *o, conversation *c, bool answered,
                          bt_err *err) {
    static const char *const lists[] = {"messages", "conversations", "conversation"};
    const char *system, *text;
    json_t *prompt = json_object_get(o, "prompt");
    (void)f;
    BT_TRY(optional_text(o, "system", &system, err));
    if (system) BT_TRY(add_text(c, BT_CHAT_SYSTEM, system, err));
    if (json_is_array(prompt)) return add_message_list(c, prompt, "prompt", err);
    json_t *asked = json_object_get(json_object_get(o, "input"), "messages"); /* OpenAI's format */
    if (asked) return add_message_list(c, asked, "input.messages", err);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_t *list = json_object_get(o, lists[i]);
        if (!list) continue;
        BT_TRY(add_message_list(c, list, lists[i], err));
        /* 'messages' ends with the chosen answer, and 'rejected_response' has the other one. */
        if (!answered && c->n && c->m[c->n - 1].role == BT_CHAT_ASSISTANT) c->n--;
        return BT_OK;
    }
    BT_TRY(optional_text(o, "prompt", &text, err));
    if (!text) BT_TRY(optional_text(o, "question", &text, err));
    if (text) return add_text(c, BT_CHAT_USER, text, err);
    const char *instruction, *input;
    BT_TRY(optional_text(o, "instruction", &instruction, err));
    BT_TRY(optional_text(o, "input", &input, err));
    if (!instruction && !input)
        return fail_field(err, "prompt",
                          "is missing, and so are 'messages', 'question' and 'instruction'");
    BT_TRY(add_history(c, json_object_get(o, "history"), err));
    bt_text_printf(&c->joined[0], "%s%s%s", instruction ? instruction : "",
                   instruction && input ? "\n" : "", input ? input : "");
    if (c->joined[0].failed) return bt_fail(err, BT_NOMEM, "cannot allocate memory for a question");
    return add_turn(c, BT_CHAT_USER, bt_text_str(&c->joined[0]), c->joined[0].len, err);
}

/* The label is true, false, 1 or 0, or one of these as text. */
static bt_code read_binary_label(json_t *v, const char *field, bool *out, bt_err *err) {
    const char *s = json_string_value(v);
    const double n = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
    const bool yes = s && (bt_ascii_equal(s, "true") || strcmp(s, "1") == 0),
               no = s && (bt_ascii_equal(s, "false") || strcmp(s, "0") == 0);
    if (s ? !yes && !no : !(json_is_boolean(v) || json_is_number(v)) || (n != 0 && n != 1))
        return fail_field(err, field, "is neither true nor false");
    *out = s ? yes : n != 0;
    return BT_OK;
}

static json_t *find_first_field(json_t *o, const char *const *names, const char **field) {
    for (; *names; names++) {
        json_t *v = json_object_get(o, *field = *names);
        if (v && !json_is_null(v)) return v;
    }
    return NULL;
}

/* Adds an answer: a text, a message or a conversation; nothing for NULL. */
static bt_code add_answer(conversation *c, json_t *answer, const char *field, bt_err *err) {
    if (json_is_string(answer))
        return add_turn(c, BT_CHAT_ASSISTANT, json_string_value(answer), json_string_length(answer),
                        err);
    if (json_is_array(answer)) return add_message_list(c, answer, field, err);
    if (json_is_object(answer)) return add_json_message(c, answer, c->n, err);
    return answer ? fail_field(err, field, "is neither a text, nor a message, nor a conversation")
                  : BT_OK;
}

/* Encodes a row with a single answer and a label, desirable or undesirable. Document 0 of a row is its desirable
 * answer, document 1 the undesirable one; *absent: the row has no document `which`. */
static bt_code encode_single_answer(const bt_form *f, json_t *o, int which, conversation *c,
                                    bool *absent, bt_err *err) {
    static const char *const answers[] = {"completion", "response", "output", NULL},
                             *const labels[] = {"label", "kto_tag", NULL};
    const char *field, *label_field;
    bool desirable = false;
    json_t *answer = find_first_field(o, answers, &field),
           *label = find_first_field(o, labels, &label_field);
    if (!label)
        return fail_field(err, "label",
                          "is missing: a row needs 'chosen' and 'rejected', or an answer with "
                          "'label' or 'kto_tag' (true or false)");
    BT_TRY(read_binary_label(label, label_field, &desirable, err));
    *absent = desirable != (which == 0);
    BT_TRY(add_prompt(f, o, c, true, err));
    BT_TRY(add_answer(c, answer, field, err));
    return c->n && c->m[c->n - 1].role == BT_CHAT_ASSISTANT
               ? BT_OK
               : fail_field(err, answer ? field : "completion",
                            answer ? "does not end with an answer of the assistant" : "is missing");
}

/* Returns true for a row with a label or an answer, but with neither a chosen nor a rejected answer. */
static bool is_single_answer_row(json_t *o) {
    static const char *const names[] = {"label", "kto_tag", "completion", "response", NULL};
    const char *field;
    return !find_preference_answer(o, 0, &field) && !find_preference_answer(o, 1, &field) &&
           find_first_field(o, names, &field);
}

static bt_code encode_preference(const bt_form *f, json_t *o, int which, conversation *c,
                                 bt_err *err) {
    const char *field, *other;
    json_t *answer = find_preference_answer(o, which, &field);
    /* the chosen answer may be the last of 'messages' */
    const bool last = which == 0 && !answer && find_preference_answer(o, 1, &other);
    if (!answer && !last) return fail_field(err, field, "is missing");
    if (!has_several_parts(answer)) BT_TRY(add_prompt(f, o, c, last, err));
    BT_TRY(add_answer(c, answer, field, err));
    return c->n && c->m[c->n - 1].role == BT_CHAT_ASSISTANT
               ? BT_OK
               : fail_field(err, field, "does not end with an answer of the assistant");
}

_Static_assert((int)BT_LEARN_LAST == (int)BT_CHAT_LEARN_LAST &&
                   (int)BT_LEARN_ALL == (int)BT_CHAT_LEARN_ALL,
               "forms and templates count what is learned alike");

typedef bt_code (*read_fn)(const bt_form *f, json_t *object, conversation *c, bt_err *err);
static const read_fn readers[BT_FORM_COUNT] = {[BT_FORM_ALPACA] = read_alpaca,
                                               [BT_FORM_MESSAGES] = read_message_list,
                                               [BT_FORM_SHAREGPT] = read_message_list};

static bt_code find_text_field(const bt_form *f, json_t *o, json_t **out, const char **field,
                               bt_err *err) {
    *field = f->cfg.field && *f->cfg.field ? f->cfg.field : "text";
    *out = json_object_get(o, *field);
    if (!*out)
        return fail_field(err, *field,
                          "is missing: set data.field to the field that contains the text");
    return json_is_string(*out) ? BT_OK : fail_field(err, *field, "is not a string");
}

/* Appends the tokens that the tokenizer adds before or after a text. */
static bt_code add_affix(bt_chat_ids *out, const bt_tokenizer *t, bool behind, bool learned,
                         bt_err *err) {
    size_t n;
    const int32_t *ids = bt_tokenizer_affix(t, behind, &n);
    for (size_t i = 0; i < n; i++) BT_TRY(bt_chat_ids_add(out, ids[i], learned, err));
    return BT_OK;
}

/* Encodes a prompt and its completion, in the format of TRL and OpenAI: both are texts, or both are lists of
 * messages. The prompt is not learned, except with data.train_on=all. */
static bt_code encode_prompt_completion(const bt_form *f, json_t *prompt, json_t *answer,
                                        bt_chat_ids *out, bt_err *err) {
    const bt_tokenizer *t = f->encoder.tokenizer;
    const bool all = f->cfg.learn == BT_LEARN_ALL;
    if (json_is_string(answer) && (!prompt || json_is_string(prompt))) {
        if (!json_string_length(prompt) && !json_string_length(answer)) return BT_OK;
        BT_TRY(add_affix(out, t, false, all, err));
        if (prompt)
            BT_TRY(bt_chat_ids_encode(out, t, BT_ENCODE_TEXT, json_string_value(prompt),
                                      json_string_length(prompt), all, err));
        return bt_chat_ids_encode(out, t, BT_ENCODE_TEXT, json_string_value(answer),
                                  json_string_length(answer), true, err);
    }
    if (!json_is_array(answer) || !json_is_array(prompt))
        return fail_field(err, "completion",
                          "and 'prompt' must both be texts, or both lists of messages");
    conversation *c = calloc(1, sizeof *c);
    if (!c) return bt_fail(err, BT_NOMEM, "cannot allocate memory for a conversation");
    bt_code code = add_message_list(c, prompt, "prompt", err);
    for (size_t i = 0; !all && i < c->n; i++) c->m[i].muted = true;
    if (code == BT_OK) code = add_message_list(c, answer, "completion", err);
    if (code == BT_OK)
        code = bt_chat_encode(&f->encoder, c->m, c->n, false,
                              all ? BT_CHAT_LEARN_ALL : BT_CHAT_LEARN_ANSWERS, out, err);
    release_conversation(c);
    return code;
}

static bt_code encode_completion(const bt_form *f, json_t *o, bt_chat_ids *out, bt_err *err) {
    const char *field;
    const bt_tokenizer *t = f->encoder.tokenizer;
    json_t *v, *answer = json_object_get(o, "completion"), *prompt = json_object_get(o, "prompt");
    if (answer && !json_object_get(o, f->cfg.field && *f->cfg.field ? f->cfg.field : "text")) {
        BT_TRY(encode_prompt_completion(f, json_is_null(prompt) ? NULL : prompt, answer, out, err));
        if (json_is_array(answer)) return BT_OK; /* the template has ended it */
    } else {
        BT_TRY(find_text_field(f, o, &v, &field, err));
        if (!json_string_length(v)) return BT_OK;
        BT_TRY(add_affix(out, t, false, true, err));
        BT_TRY(bt_chat_ids_encode(out, t, BT_ENCODE_TEXT, json_string_value(v),
                                  json_string_length(v), true, err));
    }
    if (!out->n) return BT_OK;
    BT_TRY(add_affix(out, t, true, true, err));
    return bt_tokenizer_eot(t) >= 0 && !bt_tokenizer_ends_texts(t)
               ? bt_chat_ids_add(out, bt_tokenizer_eot(t), true, err)
               : BT_OK;
}

static bt_code encode_labelled_text(const bt_form *f, json_t *o, bt_chat_ids *out, bt_err *err) {
    const char *field;
    char name[BT_LABEL_BYTES];
    json_t *v;
    BT_TRY(find_text_field(f, o, &v, &field, err));
    BT_TRY(bt_label_of(o, name, err));
    const int class = bt_labels_find(f->cfg.labels, name);
    if (class < 0) {
        bt_text known = {0};
        bt_labels_text(f->cfg.labels, &known);
        bt_code code = bt_fail(err, BT_FORMAT,
                               "field 'label': '%s' is not one of the labels of the model (%s)",
                               name, bt_text_str(&known));
        bt_text_release(&known);
        return code;
    }
    if (!json_string_length(v)) return fail_field(err, field, "is empty");
    BT_TRY(bt_chat_ids_encode(out, f->encoder.tokenizer, BT_ENCODE_WHOLE, json_string_value(v),
                              json_string_length(v), false, err));
    return bt_chat_ids_add(out, class, true, err);
}

bt_code bt_form_init(bt_form *f, const bt_form_cfg *cfg, const bt_tokenizer *tokenizer,
                     bt_err *err) {
    const bt_chat_template *t;
    *f = (bt_form){.cfg = *cfg};
    BT_TRY(bt_chat_find(&t, cfg->template_name, err));
    f->encoder = (bt_chat_encoder){t, tokenizer};
    return BT_OK;
}

int bt_form_documents(const bt_form *f) { return f->cfg.kind == BT_FORM_PREFERENCE ? 2 : 1; }

bt_json_selection bt_form_keys(const bt_form_cfg *cfg) {
    static const char *const
        inner[] = {"role", "from", "content", "value",    "weight", "train",
                   "loss", "type", "text",    "messages", NULL},
        *const alpaca_row[] = {"instruction", "input", "output", "system", "history", NULL},
        *const messages_row[] = {"messages", "conversations", "conversation", "system", NULL},
        *const completion_row[] = {"prompt", "completion", NULL},
        *const preference_row[] = {"prompt",        "chosen",          "rejected",
                                   "system",        "chosen_response", "rejected_response",
                                   "question",      "messages",        "preferred_output",
                                   "instruction",   "input",           "non_preferred_output",
                                   "conversations", "conversation",    "history",
                                   "completion",    "response",        "output",
                                   "label",         "kto_tag",         NULL},
        *const label_row[] = {"label", NULL};
    static const struct {
        const char *form;
        const char *const *row;
        bool field; /* the form uses data.field */
    } forms[BT_FORM_COUNT] = {
        [BT_FORM_TEXT] = {NULL, NULL, true},
        [BT_FORM_COMPLETION] = {"completion", completion_row, true},
        [BT_FORM_ALPACA] = {"alpaca", alpaca_row, false},
        [BT_FORM_MESSAGES] = {"messages", messages_row, false},
        [BT_FORM_SHAREGPT] = {"sharegpt", messages_row, false},
        [BT_FORM_PREFERENCE] = {"preference", preference_row, false},
        [BT_FORM_LABEL] = {"label", label_row, true},
    };
    const char *field = cfg->field && *cfg->field ? cfg->field : "text";
    return (bt_json_selection){.form = forms[cfg->kind].form,
                               .row = forms[cfg->kind].row,
                               .inner = inner,
                               .path = forms[cfg->kind].field ? field : NULL};
}

bt_code bt_form_encode(const bt_form *f, json_t *object, int which, bt_chat_ids *out, bt_err *err) {
    const bool pair = f->cfg.kind == BT_FORM_PREFERENCE;
    if (f->cfg.kind == BT_FORM_COMPLETION) return encode_completion(f, object, out, err);
    if (f->cfg.kind == BT_FORM_LABEL) return encode_labelled_text(f, object, out, err);
    conversation *c = calloc(1, sizeof *c);
    if (!c) return bt_fail(err, BT_NOMEM, "cannot allocate memory for a conversation");
    const size_t first = out->n;
    bool absent = false;
    bt_code code = !pair ? readers[f->cfg.kind](f, object, c, err)
                   : is_single_answer_row(object)
                       ? encode_single_answer(f, object, which, c, &absent, err)
                       : encode_preference(f, object, which, c, err);
    if (code == BT_OK)
        code = bt_chat_encode(&f->encoder, c->m, c->n, false,
                              pair ? BT_CHAT_LEARN_LAST : (bt_chat_learn)f->cfg.learn, out, err);
    release_conversation(c);
    if (code == BT_OK && absent && out->n > first) {
        out->n = first + 1;
        out->learned[first] = 0;
    }
    return code;
}

uint64_t bt_form_hash(const bt_form_cfg *cfg) {
    bt_form_kind kind = cfg->kind == BT_FORM_SHAREGPT ? BT_FORM_MESSAGES : cfg->kind;
    uint64_t facts[2] = {(uint64_t)kind, cfg->learn}, h;
    if (cfg->kind == BT_FORM_TEXT) return 0;
    h = XXH3_64bits(facts, sizeof facts);
    h = XXH3_64bits_withSeed(cfg->template_name, strlen(cfg->template_name), h);
    h = XXH3_64bits_withSeed(cfg->field ? cfg->field : "", strlen(cfg->field ? cfg->field : ""), h);
    return cfg->kind == BT_FORM_LABEL ? XXH3_64bits_withSeed(cfg->labels, strlen(cfg->labels), h)
                                      : h;
}
