/* cmd_generate.c - generates text with a trained model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/printout/printout.h"
#include "cli/model/chat_session.h"
#include "cli/model/checkpoint_folder.h"
#include "cli/model/checkpoint_model.h"
#include "cli/model/classify.h"
#include "cli/model/members.h"
#include "cli/model/model_notes.h"
#include "cli/model/sampling_opts.h"
#include "cli/model/write_text.h"
#include "engine/base/clock.h"
#include "engine/generate/generate.h"

typedef struct generate_cfg {
    char prompt[65536], message[65536], system[65536], template[40];
    char store[1024], stop[4096];
    int64_t tokens;
    bt_sampling_opts sampling;
    bt_trained_opts trained;
    bool chat, json, no_special;
} generate_cfg;

static const bt_opt generate_opts[] = {
    BT_ROW_TEXT(generate_cfg, prompt, "--prompt", "",
                "text to continue ('-' reads it from standard input)"),
    BT_ROW_FLAG(generate_cfg, no_special, "--no-special",
                "treat names of special tokens in --prompt as plain text (default: they become "
                "these tokens)"),
    BT_ROW_FLAG(generate_cfg, chat, "--chat",
                "converse: each line of standard input is a question"),
    BT_ROW_TEXT(generate_cfg, message, "--message", "",
                "the only question of a conversation (with --chat)"),
    BT_ROW_TEXT(generate_cfg, system, "--system", "", "system message of a conversation"),
    BT_ROW_TEXT(generate_cfg, template, "--template", "",
                "chat template (default: as in training, or by the tokenizer's special tokens)"),
    BT_ROW_INT(generate_cfg, tokens, "--tokens", "256", 1, 1e9, "tokens",
               "maximum number of generated tokens"),
    BT_ROW_LIST(generate_cfg, stop, "--stop", "",
                "stop before any of these texts (\\n is a line feed)"),
    BT_SAMPLING_OPTS(generate_cfg),
    BT_TRAINED_OPTS(generate_cfg),
    BT_ROW_FLAG(generate_cfg, json, "--json", "one JSON object at the end"),
    BT_ROW_STORE(generate_cfg),
};

static bt_code read_prompt_from_stdin(bt_text *out, bt_err *err) {
    char buf[4096];
    for (size_t n; (n = fread(buf, 1, sizeof buf, stdin)) > 0 && out->len < 16 << 20;)
        bt_text_putn(out, buf, n);
    return ferror(stdin) || out->failed
               ? bt_fail(err, BT_IO, "cannot read the prompt from standard input")
               : BT_OK;
}

static bt_code continue_prompt(bt_trained *t, const generate_cfg *cfg, const bt_text *prompt,
                               bt_written *w, bt_err *err) {
    bt_gen *gen = NULL;
    int32_t *ids = NULL;
    size_t n = 0, cap = 0;
    const unsigned how = BT_ENCODE_WHOLE | (cfg->no_special ? 0 : BT_ENCODE_SPECIAL);
    bt_code code = bt_tokenizer_encode_as(t->tokenizer, how, bt_text_str(prompt), prompt->len, &ids,
                                          &n, &cap, err);
    if (code == BT_OK && n == 0)
        code = bt_tokenizer_encode(t->tokenizer, "\n", 1, &ids, &n, &cap, err);
    if (code == BT_OK) code = bt_gen_create(&gen, t->model, err);
    const int64_t began = bt_now_ns();
    if (code == BT_OK) code = bt_gen_feed(gen, ids, n, err);
    const int64_t fed = bt_now_ns();
    w->prompt_tokens = (int64_t)n;
    w->prompt_seconds = (double)(fed - began) / 1e9;
    if (code == BT_OK && !cfg->json) bt_show(bt_text_str(prompt), prompt->len);
    if (code == BT_OK) {
        const bt_write_how write = {bt_sampling_of(&cfg->sampling), cfg->tokens, -1, cfg->json};
        code = bt_write_tokens(t, gen, &write, w, err);
    }
    if (code == BT_OK && !cfg->json &&
        (!w->out.text.len || w->out.text.data[w->out.text.len - 1] != '\n'))
        putchar('\n');
    bt_gen_destroy(gen);
    free(ids);
    return code;
}

static bt_code print_generated_json(const bt_trained *t, const bt_text *prompt, const bt_written *w,
                                    bt_err *err) {
    bt_text mended;
    bt_printout o;
    bt_text_init(&mended);
    bt_printout_begin(&o, true);
    bt_json_str(&o.j, "run", t->meta.run);
    bt_json_str(&o.j, "checkpoint", t->path);
    bt_json_int(&o.j, "step", t->meta.step);
    bt_trained_put_passed(&t->passed_over, &o.j);
    bt_trained_put_members(t, &o.j);
    bt_json_str(&o.j, "prompt", bt_text_str(prompt));
    bt_utf8_mend(&mended, bt_text_str(&w->out.text), w->out.text.len, false);
    bt_json_str(&o.j, "text", bt_text_str(&mended));
    bt_json_int(&o.j, "tokens", w->tokens);
    bt_json_str(&o.j, "finish_reason", w->finish);
    bt_json_str(&o.j, "precision", bt_trained_precision(t));
    bt_json_num(&o.j, "tokens_per_s", bt_written_rate(w));
    bt_json_int(&o.j, "prompt_tokens", w->prompt_tokens);
    bt_json_num(&o.j, "prompt_tokens_per_s", bt_per_second(w->prompt_tokens, w->prompt_seconds));
    bt_notes_json(&o.j, &t->notes);
    bt_text_release(&mended);
    return bt_printout_print(&o, err);
}

static bt_code check_generate_options(const generate_cfg *cfg, bt_err *err) {
    if (cfg->chat && cfg->prompt[0])
        return bt_fail(err, BT_ARG,
                       "--prompt continues a text and --chat answers: give one of them");
    if (!cfg->chat && (cfg->message[0] || cfg->system[0] || cfg->template[0]))
        return bt_fail(err, BT_ARG, "--message, --system and --template need --chat");
    return BT_OK;
}

static bt_code chat_in_terminal(const generate_cfg *cfg, bt_trained *t, const bt_output *o,
                                bt_err *err) {
    const bt_chat_session_cfg session = {.template = cfg->template,
                                         .system = cfg->system,
                                         .message = cfg->message,
                                         .stops = o->stop,
                                         .n_stops = o->n_stop,
                                         .write = {.sampling = bt_sampling_of(&cfg->sampling),
                                                   .limit = cfg->tokens},
                                         .json = cfg->json};
    return bt_chat_session(t, &session, err);
}

static bt_code generate_from_run(const generate_cfg *cfg, const char *which, bt_err *err) {
    bt_trained t;
    bt_text prompt, stop_text;
    bt_written w;
    const char *stops[BT_STOPS_MAX];
    size_t n_stops = 0;
    bt_text_init(&prompt);
    bt_text_init(&stop_text);
    memset(&t, 0, sizeof t);
    memset(&w, 0, sizeof w);
    bt_trained_how how = bt_trained_how_of(&cfg->trained, which, cfg->store);
    how.B = 1;
    bt_code code = check_generate_options(cfg, err);
    if (code == BT_OK) code = bt_stops_of(cfg->stop, &stop_text, stops, &n_stops, err);
    bt_output_init(&w.out, stops, n_stops);
    if (code == BT_OK && strcmp(cfg->prompt, "-") == 0)
        code = read_prompt_from_stdin(&prompt, err);
    else
        bt_text_put(&prompt, cfg->prompt);
    if (code == BT_OK) code = bt_trained_load(&t, &how, err);
    const bool classifier = code == BT_OK && bt_run_cfg_classes(&t.cfg) > 0;
    if (classifier && cfg->chat) code = bt_classifier_refuse(&t, err);
    if (classifier && code == BT_OK)
        code = bt_classify_text(&t, bt_text_str(&prompt), prompt.len, cfg->json, err);
    if (code == BT_OK && cfg->chat) code = chat_in_terminal(cfg, &t, &w.out, err);
    if (code == BT_OK && !cfg->chat && !classifier) {
        if (!cfg->json) bt_trained_report_affixes(&t);
        code = continue_prompt(&t, cfg, &prompt, &w, err);
        if (code == BT_OK && cfg->json) code = print_generated_json(&t, &prompt, &w, err);
        if (code == BT_OK && !cfg->json) bt_show_speed(&t, &w);
    }
    bt_trained_release(&t);
    bt_output_release(&w.out);
    bt_text_release(&stop_text);
    bt_text_release(&prompt);
    return code;
}

static bt_code cmd_generate(bt_call *call, bt_err *err) {
    bt_text which = {0};
    for (size_t i = 0; i < call->n; i++)
        if (strchr(call->words[i], ' ') && access(call->words[i], F_OK) != 0)
            return bt_fail(err, BT_ARG,
                           "unexpected text '%.200s' (--prompt gives the text to "
                           "continue)",
                           call->words[i]);
    bt_members_join(&which, call->words, call->n);
    const bt_code code = generate_from_run(call->cfg, bt_text_str(&which), err);
    bt_text_release(&which);
    return code;
}

const bt_command bt_cmd_generate = {
    .name = "generate",
    .summary = "write text with a trained model, or converse with it",
    .args = "[RUN|GROUP|DIR...]",
    .examples = "bitrain generate last --prompt 'In the beginning'\n"
                "bitrain generate abl-3 --tokens 400 --temperature 0.7 --top-k 40 --seed 7\n"
                "bitrain generate last --prompt 'Q: why?' --stop '\\n' 'Q:' # one line of answer\n"
                "bitrain generate last --chat --system 'Be brief.'\n"
                "bitrain generate style --weight 0.5 --add facts:0.5 # two adapters of one base\n"
                "bitrain generate abl --prompt 'In the beginning' # a group of runs as one model\n"
                "echo 'And God said' | bitrain generate last --prompt -\n"
                "bitrain generate spam --prompt 'You have won' # a classifier prints the label\n",
    .options = BT_OPTION_SET(generate_opts, generate_cfg),
    .max_words = BT_MEMBERS_MOST,
    .run = cmd_generate,
};
