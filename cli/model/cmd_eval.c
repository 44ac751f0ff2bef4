/* cmd_eval.c - the prediction quality of a trained model: nats per token, perplexity, bits per byte. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common/command.h"
#include "cli/model/chat_session.h"
#include "cli/model/checkpoint_folder.h"
#include "cli/model/checkpoint_model.h"
#include "cli/model/classify.h"
#include "cli/model/eval_choices.h"
#include "cli/model/eval_text.h"
#include "cli/model/members.h"
#include "cli/model/model_notes.h"
#include "engine/base/clock.h"
#include "engine/base/tables/metric.h"
#include "engine/data/io/sources.h"
#include "engine/data/shards/corpus.h"
#include "engine/train/data/run_data.h"

typedef struct eval_cfg {
    char data[4096], field[64], chat_template[32], store[1024], shot_data[4096], logits[1024];
    int64_t tokens, shots, limit, top_k;
    int task; /* 0: text */
    int form; /* 0: that of the run; otherwise 1 + value of data.form */
    bt_trained_opts trained;
    bool json, quiet, force;
} eval_cfg;

static const bt_opt eval_opts[] = {
    BT_ROW_LIST(eval_cfg, data, "--data", "",
                "text, .jsonl, token shards or folders, evaluated completely (default: the run's "
                "validation split)"),
    BT_ROW_TEXT(eval_cfg, field, "--field", "",
                "field of a JSONL object that holds the text (default: as in the run)"),
    BT_ROW_ENUM(eval_cfg, form, "--form", "auto",
                "auto|text|completion|alpaca|messages|sharegpt|preference|label",
                "content of a line of .jsonl data (auto: as in the run)"),
    {"template", "--template", BT_OPT_TEXT, BT_FIELD(eval_cfg, chat_template), "", 0, 0, NULL, NULL,
     "chat template of conversations (default: as in the run)"},
    BT_ROW_ENUM(eval_cfg, task, "--task", "text", "text|" BT_CHOICE_TASKS,
                "content of --data: text, or questions (JSON lines) in the format of ARC, "
                "HellaSwag or MMLU"),
    BT_ROW_INT(eval_cfg, shots, "--shots", "0", 0, 1000, NULL,
               "questions: number of solved examples before each"),
    BT_ROW_TEXT(eval_cfg, shot_data, "--shot-data", "",
                "questions: file of the examples; the first ones (of the same subject) are "
                "used"),
    BT_ROW_INT(eval_cfg, limit, "--limit", "0", 0, 1e12, NULL,
               "questions: maximum number (0: all)"),
    BT_ROW_INT(eval_cfg, tokens, "--tokens", "0", 0, 1e12, "tokens",
               "maximum number of tokens (0: all; for endless data as many as in the run)"),
    BT_ROW_TEXT(eval_cfg, logits, "--logits", "",
                "write the most likely tokens at each position of --data to this file, for "
                "distillation (tune.logits)"),
    BT_ROW_FLAG(eval_cfg, force, "--force", "--logits: replace a file that exists"),
    BT_ROW_INT(eval_cfg, top_k, "--top-k", "32", 1, BT_TOP_MOST, NULL,
               "number of tokens per position in --logits"),
    BT_TRAINED_OPTS(eval_cfg),
    BT_ROW_JSON(eval_cfg),
    BT_ROW_QUIET(eval_cfg),
    BT_ROW_STORE(eval_cfg),
};

/* Prints the model and its step at the beginning of the report. */
static void put_evaluated_model(bt_printout *o, const bt_trained *t, bool step) {
    bt_printout_str(o, "run", NULL, t->meta.run);
    bt_printout_str(o, "checkpoint", NULL, t->path);
    if (step) bt_printout_int(o, "step", NULL, t->meta.step);
    bt_printout_str(o, "precision", NULL, bt_trained_precision(t));
    if (o->json) bt_trained_put_passed(&t->passed_over, &o->j);
    if (o->json) bt_trained_put_members(t, &o->j);
    if (t->n_others)
        bt_printout_line(o, "%s, mean of %zu models: ", t->meta.run, t->n_others + 1);
    else
        bt_printout_line(o, "%s, step %lld: ", t->meta.run, (long long)t->meta.step);
}

static bt_code print_evaluation(const bt_trained *t, const eval_cfg *cfg, const bt_eval_result *r,
                                const double *confusion, double seconds, bt_err *err) {
    const char *what = "tokens";
    bt_printout o;
    bt_printout_begin(&o, cfg->json);
    put_evaluated_model(&o, t, true);
    bt_printout_num(&o, "nats", NULL, r->nats, BT_UNIT_NATS);
    if (t->cfg.data.form == BT_FORMED_PREFERENCE) {
        what = "preferences";
        bt_printout_line(&o, "%.4f nats per preference, %.1f %% right, reward margin %.4f", r->nats,
                         100 * r->accuracy, r->margin);
        bt_printout_num(&o, "accuracy", NULL, r->accuracy, BT_UNIT_FRAC);
        bt_printout_num(&o, "reward_margin", NULL, r->margin, BT_UNIT_NATS);
    } else if (confusion) {
        what = "texts";
        bt_printout_line(&o, "%.4f nats per text, %.1f %% right, macro F1 %.4f", r->nats,
                         100 * r->accuracy, r->macro_f1);
        bt_printout_num(&o, "accuracy", NULL, r->accuracy, BT_UNIT_FRAC);
        bt_printout_num(&o, "macro_f1", NULL, r->macro_f1, BT_UNIT_FRAC);
    } else {
        bt_printout_line(&o, "%.4f nats per token, perplexity %.3f, %.4f bits per byte", r->nats,
                         exp(r->nats), r->bits_per_byte);
        bt_printout_num(&o, "perplexity", NULL, exp(r->nats), BT_UNIT_NONE);
        bt_printout_num(&o, "bits_per_byte", NULL, r->bits_per_byte, BT_UNIT_NONE);
    }
    bt_printout_int(&o, what, NULL, r->tokens);
    bt_printout_line(&o, " (%lld %s of %s, %s)\n", (long long)r->tokens, what,
                     cfg->data[0] ? "the data given" : "the validation split",
                     bt_trained_precision(t));
    if (confusion) bt_classifier_put(t, confusion, &o);
    bt_printout_num(&o, "tokens_per_s", NULL, seconds > 0 ? (double)r->tokens / seconds : NAN,
                    BT_UNIT_PER_S);
    if (o.json) bt_notes_json(&o.j, &t->notes);
    return bt_printout_print(&o, err);
}

/* Prints an accuracy with its standard error. */
static void put_accuracy(bt_printout *o, const char *name, double acc, int64_t n) {
    char key[32];
    bt_printout_num(o, name, NULL, acc, BT_UNIT_FRAC);
    snprintf(key, sizeof key, "%s_stderr", name);
    bt_printout_num(o, key, NULL, n > 1 ? sqrt(acc * (1 - acc) / (double)(n - 1)) : NAN,
                    BT_UNIT_FRAC);
}

static bt_code print_choices(const bt_trained *t, const eval_cfg *cfg, const bt_choices_result *r,
                             bt_err *err) {
    const bt_choice_task *task = bt_choice_task_at(cfg->task - 1);
    bt_printout o;
    bt_printout_begin(&o, cfg->json);
    put_evaluated_model(&o, t, false);
    bt_printout_str(&o, "task", NULL, task->name);
    bt_printout_int(&o, "questions", NULL, r->questions);
    bt_printout_int(&o, "cut", NULL, r->cut);
    bt_printout_line(&o, "%s, %lld questions: acc %.4f", task->name, (long long)r->questions,
                     r->acc);
    put_accuracy(&o, "acc", r->acc, r->questions);
    if (task->norm) {
        bt_printout_line(&o, ", acc_norm %.4f, acc_bytes %.4f", r->acc_norm, r->acc_bytes);
        put_accuracy(&o, "acc_norm", r->acc_norm, r->questions);
        put_accuracy(&o, "acc_bytes", r->acc_bytes, r->questions);
    }
    if (r->cut)
        bt_printout_line(&o, " (%lld were too long and lost their beginning)", (long long)r->cut);
    bt_printout_line(&o, " (%s)\n", bt_trained_precision(t));
    if (o.json) bt_notes_json(&o.j, &t->notes);
    return bt_printout_print(&o, err);
}

static bt_code evaluate_choices(const bt_trained_how *how, const eval_cfg *cfg, bt_err *err) {
    bt_trained t;
    bt_choices_result r;
    const bt_choices_job job = {.task = bt_choice_task_at(cfg->task - 1),
                                .path = cfg->data,
                                .shot_path = cfg->shot_data,
                                .shots = cfg->shots,
                                .limit = cfg->limit,
                                .quiet = cfg->quiet || cfg->json};
    if (!cfg->data[0]) return bt_fail(err, BT_ARG, "--task needs --data FILE, the questions");
    bt_code code = bt_trained_open(&t, how, err);
    if (code == BT_OK) code = bt_eval_choices(&t, how, &job, &r, err);
    if (code == BT_OK) code = print_choices(&t, cfg, &r, err);
    bt_trained_release(&t);
    return code;
}

/* Sets the form of conversations, which the settings of another program's model do not contain. */
static bt_code set_conversation_form(bt_trained *t, const eval_cfg *cfg, bt_err *err) {
    bt_run_cfg *run = &t->cfg;
    const bool trained = run->data.form > BT_FORMED_TEXT;
    if (bt_run_cfg_is_reward_model(run) && cfg->form && cfg->form - 1 != run->data.form)
        return bt_fail(err, BT_ARG,
                       "'%.100s' is a reward model, which judges preferences (leave --form out)",
                       t->meta.run);
    if (cfg->chat_template[0])
        (void)snprintf(run->data.template, sizeof run->data.template, "%s", cfg->chat_template);
    if (!cfg->form) return BT_OK;
    run->data.form = cfg->form - 1;
    if (!trained && !cfg->chat_template[0] && run->data.form > BT_FORM_COMPLETION &&
        run->data.form != BT_FORM_LABEL)
        bt_chat_note_unknown(t, run->data.template);
    run->data.packing = run->data.form ? BT_PACKED_DOCUMENTS : BT_PACKED_STREAM;
    return BT_OK;
}

/* A text shorter than the model's sequences is measured as one sequence of length *T. */
static bt_code fit_short_text(const bt_trained *t, const eval_cfg *cfg, int *T, bt_err *err) {
    enum { BYTES = 64 }; /* a text with more bytes per token of a sequence is not short */
    bt_loader_cfg data = bt_run_data(&t->cfg);
    bt_sources sources;
    bt_corpus *corpus = NULL;
    uint64_t bytes = 0, tokens;
    if (!cfg->data[0] || data.packing > BT_PACKING_STREAM || strncmp(cfg->data, "synth:", 6) == 0)
        return BT_OK;
    BT_TRY(bt_sources_list_glob(&sources, cfg->data, data.glob, "", err));
    for (size_t i = 0; i < sources.n; i++) bytes += sources.items[i].bytes;
    data.cache_dir = "";
    data.split = BT_SPLIT_VAL;
    data.T = 1;
    if (cfg->field[0]) data.field = data.form.field = cfg->field;
    bt_code code = BT_OK;
    if (bytes < (uint64_t)t->cfg.model.seq_len * BYTES)
        code = bt_corpus_open(&corpus, &sources, &data, t->tokenizer, true, err);
    bt_sources_release(&sources);
    if (!corpus) return code;
    tokens = bt_corpus_count(corpus);
    bt_corpus_close(corpus);
    if (tokens < 2)
        return bt_fail(err, BT_ARG, "--data has fewer than two tokens: nothing can be measured");
    if (tokens <= (uint64_t)t->cfg.model.seq_len) *T = (int)tokens - 1;
    return BT_OK;
}

static bt_code evaluate_words(const eval_cfg *cfg, const char *which, bt_err *err) {
    bt_trained t;
    bt_eval_result r;
    double *confusion = NULL;
    bt_trained_how how = bt_trained_how_of(&cfg->trained, which, cfg->store);
    how.quiet = cfg->quiet || cfg->json;
    if (cfg->task) return evaluate_choices(&how, cfg, err);
    bt_code code = bt_trained_open(&t, &how, err);
    if (code == BT_OK) code = set_conversation_form(&t, cfg, err);
    if (code == BT_OK && !cfg->quiet && !cfg->json) bt_trained_report_affixes(&t);
    if (code == BT_OK) code = fit_short_text(&t, cfg, &how.T, err);
    if (code == BT_OK) code = bt_trained_model(&t, &how, err);
    const int64_t began = bt_now_ns();
    const bt_eval_job job = {.data = cfg->data,
                             .field = cfg->field,
                             .logits = cfg->logits,
                             .tokens = cfg->tokens,
                             .top_k = cfg->top_k,
                             .force = cfg->force,
                             .quiet = cfg->quiet};
    if (code == BT_OK) code = bt_eval_text(&t, &job, &r, &confusion, err);
    if (code == BT_OK)
        code = print_evaluation(&t, cfg, &r, confusion, (double)(bt_now_ns() - began) / 1e9, err);
    bt_trained_release(&t);
    free(confusion);
    return code;
}

/* A model is a folder or a GGUF file. */
static bool is_file_but_no_model(const char *word) {
    struct stat st;
    const size_t n = strlen(word);
    return stat(word, &st) == 0 && S_ISREG(st.st_mode) &&
           (n < 5 || strcmp(word + n - 5, ".gguf") != 0);
}

static bt_code cmd_eval(bt_call *call, bt_err *err) {
    bt_text which = {0};
    for (size_t i = 1; i < call->n; i++)
        if (is_file_but_no_model(call->words[i]))
            return bt_fail(err, BT_ARG, "unexpected word '%.200s' (--data gives the text)",
                           call->words[i]);
    bt_members_join(&which, call->words, call->n);
    const bt_code code = evaluate_words(call->cfg, bt_text_str(&which), err);
    bt_text_release(&which);
    return code;
}

const bt_command bt_cmd_eval = {
    .name = "eval",
    .summary = "measure a trained model on text",
    .args = "[RUN|GROUP|DIR...]",
    .examples = "bitrain eval last # the validation split of the newest run\n"
                "bitrain eval abl-3 --data book.txt --json\n"
                "bitrain eval runs/abl-3/step-000000002000 --tokens 1M\n"
                "bitrain eval last --task arc --data arc_easy.jsonl # accuracy on questions with "
                "choices\n"
                "bitrain eval big --data chat.jsonl --logits big.btl # a file for tune.logits of "
                "students\n"
                "bitrain eval abl # a group of runs, or several names: the mean of their "
                "probabilities\n"
                "bitrain eval spam --data test.jsonl # a classifier: accuracy, and F1 by label\n",
    .options = BT_OPTION_SET(eval_opts, eval_cfg),
    .max_words = BT_MEMBERS_MOST,
    .run = cmd_eval,
};
