/* chat_session.c - renders the whole conversation for every reply; tokens that the cache already contains are not
 * computed again. */
#include "cli/model/chat_session.h"
#include "cli/common/printout/printout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/model/model_notes.h"
#include "cli/model/sampling_opts.h"
#include "engine/base/clock.h"
#include "engine/data/chat/instruct.h"

enum { MAX_MESSAGES = 4096 };

typedef struct session {
    bt_trained *t;
    const bt_chat_session_cfg *cfg;
    const bt_chat_template *template;
    bt_gen *gen;
    bt_chat_encoder encoder;
    bt_chat_message messages[MAX_MESSAGES]; /* the texts are owned by the session */
    size_t n;
    bt_chat_ids ids;
    const char *stops[BT_STOPS_MAX + BT_CHAT_STOPS];
    size_t n_stops;
} session;

void bt_chat_note_unknown(bt_trained *t, const char *used) {
    const char *jinja = bt_tokenizer_chat_template(t->tokenizer), *how;
    const bt_chat_template *row;
    bt_text note = {0};
    bt_err why = BT_ERR_INIT;
    if (!jinja || bt_chat_of_jinja(&row, jinja, &how, &why) == BT_OK) return;
    bt_text_printf(&note,
                   "conversations are written in the template '%s', by the tokenizer's special "
                   "tokens, not in the model's own (choose one with --template): %s\n",
                   used, why.msg);
    bt_notes_collect(&t->notes, &note, t->path);
    bt_text_release(&note);
}

bt_code bt_chat_choose(const bt_chat_template **out, const char *name, bt_trained *t, bool quiet,
                       bt_err *err) {
    const bool trained = !*name && t->cfg.data.form > BT_FORM_COMPLETION;
    if (trained) name = t->cfg.data.template;
    if (*name) {
        const bt_code code = bt_chat_find(out, name, err);
        if (trained && !quiet && code == BT_OK)
            fprintf(stderr, "chat template '%s', as in training; --template chooses another\n",
                    (*out)->name);
        return code == BT_NOTFOUND ? err->code = BT_ARG : code;
    }
    const char *jinja = bt_tokenizer_chat_template(t->tokenizer), *how;
    bt_err unknown = BT_ERR_INIT;
    if (jinja && bt_chat_of_jinja(out, jinja, &how, &unknown) == BT_OK) {
        if (!quiet)
            fprintf(stderr, "chat template '%s', %s; --template chooses another\n", (*out)->name,
                    how);
        return BT_OK;
    }
    *out = bt_chat_of_tokenizer(t->tokenizer);
    if (jinja) bt_chat_note_unknown(t, (*out)->name);
    if (quiet || jinja) return BT_OK;
    if ((*out)->marks)
        fprintf(
            stderr,
            "chat template '%s', by the tokenizer's special tokens; --template chooses another\n",
            (*out)->name);
    else
        fprintf(
            stderr,
            "chat template '%s': the tokenizer has no chat tokens (--template chooses another)\n"
            "a model that was trained on plain text continues a question rather than answers it\n",
            (*out)->name);
    return BT_OK;
}

static bt_code append_message(session *s, bt_chat_role role, const char *text, size_t n,
                              bt_err *err) {
    if (s->n == MAX_MESSAGES)
        return bt_fail(err, BT_ARG, "the conversation has %d messages: begin another",
                       MAX_MESSAGES);
    char *copy = malloc(n + 1);
    if (!copy) return bt_fail(err, BT_NOMEM, "no memory for a message");
    memcpy(copy, text, n);
    s->messages[s->n++] = (bt_chat_message){.role = role, .text = copy, .n = n};
    return BT_OK;
}

static void drop_messages(session *s, size_t first, size_t n) {
    for (size_t i = first; i < first + n; i++) free((void *)(size_t)s->messages[i].text);
    memmove(s->messages + first, s->messages + first + n, (s->n - first - n) * sizeof *s->messages);
    s->n -= n;
}

static size_t first_message_after_system(const session *s) {
    return s->n && s->messages[0].role == BT_CHAT_SYSTEM ? 1 : 0;
}

/* Encodes the conversation. The oldest questions and their replies are removed until half of the context is free for
 * the next reply. */
static bt_code encode_conversation(session *s, bt_err *err) {
    const size_t room = (size_t)bt_model_config(s->t->model)->T / 2,
                 first = first_message_after_system(s);
    for (;;) {
        s->ids.n = 0;
        BT_TRY(bt_chat_encode(&s->encoder, s->messages, s->n, true, false, &s->ids, err));
        if (s->ids.n <= room || s->n < first + 3) return BT_OK;
        drop_messages(s, first, 2);
    }
}

static bt_code append_chat_piece(void *ctx, const bt_chat_piece *p, bt_err *err) {
    (void)err;
    bt_text_putn(ctx, p->text, p->n);
    return BT_OK;
}

/* Computes the tokens that are not in the cache, at least one. */
static bt_code feed_new_tokens(session *s, bt_written *w, bt_err *err) {
    const int64_t began = bt_now_ns();
    size_t have, same = 0;
    const int32_t *cached = bt_gen_cached(s->gen, &have);
    while (same < have && same + 1 < s->ids.n && cached[same] == s->ids.ids[same]) same++;
    bt_gen_rewind(s->gen, same);
    BT_TRY(bt_gen_feed(s->gen, s->ids.ids + same, s->ids.n - same, err));
    w->prompt_tokens = (int64_t)(s->ids.n - same);
    w->prompt_seconds = (double)(bt_now_ns() - began) / 1e9;
    return BT_OK;
}

static bt_code print_answer_json(const session *s, const bt_written *w, bt_err *err) {
    bt_text mended, prompt;
    bt_printout o;
    bt_text_init(&prompt);
    const bt_code code = bt_chat_render(s->template, s->messages, s->n, true, append_chat_piece,
                                        &prompt, err);
    bt_text_init(&mended);
    bt_utf8_mend(&mended, bt_text_str(&w->out.text), w->out.text.len, false);
    bt_printout_begin(&o, true);
    bt_json_str(&o.j, "run", s->t->meta.run);
    bt_json_str(&o.j, "checkpoint", s->t->path);
    bt_json_str(&o.j, "template", s->template->name);
    bt_json_str(&o.j, "prompt", bt_text_str(&prompt));
    bt_json_str(&o.j, "text", bt_text_str(&mended));
    bt_json_int(&o.j, "tokens", w->tokens);
    bt_json_str(&o.j, "finish_reason", w->finish);
    bt_json_num(&o.j, "tokens_per_s", bt_written_rate(w));
    bt_json_int(&o.j, "prompt_tokens", (int64_t)s->ids.n);
    bt_json_num(&o.j, "prompt_tokens_per_s", bt_per_second(w->prompt_tokens, w->prompt_seconds));
    bt_json_str(&o.j, "precision", bt_trained_precision(s->t));
    bt_notes_json(&o.j, &s->t->notes);
    bt_text_release(&mended);
    bt_text_release(&prompt);
    const bt_code printed = bt_printout_finish(&o, code, err);
    fflush(stdout);
    return printed;
}

static bt_code answer_question(session *s, const char *question, size_t n, bt_err *err) {
    bt_written w;
    memset(&w, 0, sizeof w);
    BT_TRY(append_message(s, BT_CHAT_USER, question, n, err));
    bt_output_init(&w.out, s->stops, s->n_stops);
    bt_code code = encode_conversation(s, err);
    if (code == BT_OK) code = feed_new_tokens(s, &w, err);
    if (code == BT_OK) code = bt_write_tokens(s->t, s->gen, &s->cfg->write, &w, err);
    if (code == BT_OK && s->cfg->json) code = print_answer_json(s, &w, err);
    if (code == BT_OK && !s->cfg->json) {
        putchar('\n');
        fflush(stdout);
        bt_show_speed(s->t, &w);
    }
    if (code == BT_OK)
        code = append_message(s, BT_CHAT_ASSISTANT, bt_text_str(&w.out.text), w.out.text.len, err);
    bt_output_release(&w.out);
    return code;
}

/* kinds of input lines that are not questions */
typedef enum { WORD_NONE, WORD_NEW, WORD_END, WORD_HELP } chat_word;

static chat_word classify_chat_line(const char *line, bool terminal) {
    if (strcmp(line, "/new") == 0) return WORD_NEW;
    if (!terminal || line[0] != '/' || strpbrk(line, " \t")) return WORD_NONE;
    for (const char *const *w = (const char *const[]){"/quit", "/exit", "/bye", NULL}; *w; w++)
        if (strcmp(line, *w) == 0) return WORD_END;
    return strchr(line + 1, '/') ? WORD_NONE
                                 : WORD_HELP; /* a line that contains a path is a question */
}

static void print_chat_commands(void) {
    fprintf(stderr,
            "a line is a question; /new begins another conversation, /quit or Ctrl-D ends\n");
}

static bt_code run_chat(session *s, bt_err *err) {
    const bool terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    char *line = NULL;
    size_t cap = 0;
    bt_code code = BT_OK;
    if (terminal) print_chat_commands();
    while (code == BT_OK) {
        if (terminal) fprintf(stderr, "> ");
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0) break;
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = '\0';
        if (n == 0) continue;
        const chat_word word = classify_chat_line(line, terminal);
        if (word == WORD_END) break;
        if (word == WORD_HELP) print_chat_commands();
        if (word == WORD_NEW)
            drop_messages(s, first_message_after_system(s), s->n - first_message_after_system(s));
        if (word != WORD_NONE) continue;
        code = answer_question(s, line, (size_t)n, err);
    }
    if (terminal) fprintf(stderr, "\n");
    free(line);
    return code;
}

bt_code bt_chat_session(bt_trained *t, const bt_chat_session_cfg *cfg, bt_err *err) {
    session *s = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "no memory for a conversation");
    s->t = t;
    bt_chat_session_cfg own = *cfg;
    s->cfg = &own;
    bt_code code = bt_chat_choose(&s->template, cfg->template, t, cfg->json, err);
    if (code == BT_OK) {
        own.write.end = bt_chat_end_token(s->template, t->tokenizer);
        own.write.quiet = cfg->json;
        s->n_stops = bt_chat_stops(s->template, t->tokenizer, s->stops);
        for (size_t i = 0; i < cfg->n_stops; i++) s->stops[s->n_stops++] = cfg->stops[i];
        s->encoder = (bt_chat_encoder){s->template, t->tokenizer};
    }
    if (code == BT_OK) code = bt_gen_create(&s->gen, t->model, err);
    if (code == BT_OK && *cfg->system)
        code = append_message(s, BT_CHAT_SYSTEM, cfg->system, strlen(cfg->system), err);
    if (code == BT_OK)
        code = *cfg->message ? answer_question(s, cfg->message, strlen(cfg->message), err)
                             : run_chat(s, err);
    drop_messages(s, 0, s->n);
    bt_gen_destroy(s->gen);
    bt_chat_ids_release(&s->ids);
    free(s);
    return code;
}
