/* eval_text.c - computes the loss of a trained model on text: the run's validation split or other data. */
#include "cli/model/eval_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/given_path.h"
#include "cli/common/progress.h"
#include "cli/common/skipped.h"
#include "cli/common/verbs.h"
#include "cli/model/classify.h"
#include "engine/base/tables/metric.h"
#include "engine/config/tune_cfg.h"
#include "engine/train/data/run_data.h"
#include "engine/tune/logit_file.h"

/* The loader reads its tokenizer from a file; if the checkpoint's tokenizer is in no file, a temporary one is
 * written. */
static bt_code write_tokenizer_for_loader(const bt_trained *t, char *path, size_t size, bool *made,
                                          bt_err *err) {
    *made = false;
    snprintf(path, size, "%s", t->cfg.data.tokenizer);
    if (strcmp(path, "bytes") == 0) return BT_OK;
    bt_tokenizer *file = NULL;
    bt_err ignored = BT_ERR_INIT;
    const bool same = bt_tokenizer_load(&file, path, &ignored) == BT_OK &&
                      bt_tokenizer_hash(file) == t->meta.vocab_hash;
    bt_tokenizer_free(file);
    if (same) return BT_OK;
    snprintf(path, size, "/tmp/bitrain-tokenizer-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0)
        return bt_fail(err, BT_IO, "cannot create '%s' for the checkpoint's tokenizer", path);
    *made = true;
    const bool ok = write(fd, bt_text_str(&t->meta.tokenizer), t->meta.tokenizer.len) ==
                    (ssize_t)t->meta.tokenizer.len;
    close(fd);
    return ok ? BT_OK : bt_fail(err, BT_IO, "cannot write '%s'", path);
}

typedef struct watch {
    bt_progress bar;
    double tokens; /* number of tokens of all passes */
} watch;

static void show_eval_progress(void *ctx, double done) {
    watch *w = ctx;
    char rate[32], note[48];
    snprintf(note, sizeof note, "%s tokens",
             bt_metric_format(rate, sizeof rate, done * w->tokens / bt_progress_seconds(&w->bar),
                              BT_UNIT_PER_S));
    bt_progress_show(&w->bar, "measuring", done, note);
}

static bt_code run_evaluator(bt_evaluator *e, const bt_trained *t, const bt_eval_job *job,
                             bt_eval_result *out, bt_err *err) {
    watch w = {.tokens = (double)bt_evaluator_micros(e) * (double)t->cfg.train.micro_batch *
                         (double)t->cfg.model.seq_len};
    bt_progress_begin(&w.bar, job->quiet);
    bt_evaluator_watch(e, show_eval_progress, &w);
    bt_code code = bt_evaluator_run(e, t->model, NULL, out, err);
    bt_progress_end(&w.bar);
    return code;
}

static bt_code copy_logits(void *ctx, bt_model *m, const bt_batch *b, bt_err *err) {
    return bt_logit_writer_add(ctx, m, b, err);
}

/* Evaluates, and writes the most probable tokens of every pass if a file for them was given. */
static bt_code evaluate_and_write_logits(bt_evaluator *e, const bt_trained *t,
                                         const bt_eval_job *job, const bt_loader_cfg *data,
                                         bt_eval_result *out, bt_err *err) {
    bt_tokenizer *tokenizer;
    bt_logit_writer *w;
    bt_text told = {0};
    if (!job->logits[0]) return run_evaluator(e, t, job, out, err);
    BT_TRY(bt_tokenizer_load(&tokenizer, data->tokenizer, err));
    const bt_logit_shape s = {.k = (int)job->top_k,
                              .V = data->V,
                              .B = data->B,
                              .T = data->T,
                              .tokenizer = bt_tokenizer_hash(tokenizer)};
    bt_tokenizer_free(tokenizer);
    BT_TRY(bt_logit_writer_create(&w, job->logits, &s, err));
    bt_evaluator_visit(e, copy_logits, w);
    bt_code code = run_evaluator(e, t, job, out, err);
    code = bt_logit_writer_close(w, code, &told, err);
    if (code == BT_OK) fprintf(stderr, "%s\n", bt_text_str(&told));
    bt_text_release(&told);
    return code;
}

static bt_code check_logits(const bt_trained *t, const bt_eval_job *job, bt_err *err) {
    if (!job->logits[0]) return BT_OK;
    if (!job->data[0])
        return bt_fail(err, BT_ARG, "--logits needs --data FILE, what the student trains on");
    BT_TRY(bt_may_write(job->logits, job->force, err));
    if (t->cfg.data.form == BT_FORMED_LABEL || t->cfg.data.form == BT_FORMED_PREFERENCE)
        return bt_fail(err, BT_ARG,
                       "--logits keeps probabilities of tokens, and these data have %s",
                       t->cfg.data.form == BT_FORMED_LABEL ? "labels" : "preferences");
    return BT_OK;
}

static bt_code check_eval_kind(const bt_trained *t, bt_err *err) {
    if (bt_tune_has_reference(&t->cfg) && !bt_model_base(t->model))
        return bt_fail(err, BT_ARG,
                       "'%.100s' has no adapters: preferences are judged by what adapters change "
                       "in the probabilities of their base",
                       t->meta.run);
    if (t->cfg.data.form == BT_FORMED_LABEL && !t->cfg.data.labels[0])
        return bt_fail(err, BT_ARG, "'%.100s' is no classifier: it has no labels", t->meta.run);
    const bool suits = t->cfg.data.form == BT_FORMED_LABEL || bt_run_cfg_is_reward_model(&t->cfg);
    return suits ? BT_OK : bt_classifier_refuse(t, err);
}

bt_code bt_eval_text(const bt_trained *t, const bt_eval_job *job, bt_eval_result *out,
                     double **confusion, bt_err *err) {
    char tokenizer[1024], cache[PATH_MAX] = "";
    bool made = false;
    bt_evaluator *e = NULL;
    bt_progress bar;
    bt_progress_begin(&bar, job->quiet);
    const bt_model_cfg *m = bt_model_config(t->model);
    BT_TRY(check_eval_kind(t, err));
    BT_TRY(check_logits(t, job, err));
    const bool own = job->data[0] != '\0';
    for (size_t i = 0; !own && i < t->n_others; i++)
        if (strcmp(t->cfg.data.fold, t->others[i].cfg.data.fold) != 0)
            return bt_fail(err, BT_ARG,
                           "the members hold out different parts of their text (data.fold=%.24s "
                           "and %.24s), so no part is held out from all of them (give a text with "
                           "--data)",
                           t->cfg.data.fold, t->others[i].cfg.data.fold);
    bt_code code = write_tokenizer_for_loader(t, tokenizer, sizeof tokenizer, &made, err);
    /* a model of another program has no cache folder yet */
    if (!own && !t->cfg.data.cache[0] && code == BT_OK)
        code = bt_verbs_corpus(t->cfg.data.path, cache, sizeof cache, err);
    bt_loader_cfg data = bt_run_data(&t->cfg);
    data.progress = bt_progress_tokenising;
    data.ctx = &bar;
    data.val_remedy = own ? "give a longer text with --data" : "give a text with --data";
    if (own)
        data.paths = data.val_paths = job->data, data.cache_dir = "";
    else if (cache[0])
        data.cache_dir = cache;
    data.tokenizer = tokenizer;
    if (job->field[0]) data.field = data.form.field = job->field;
    data.T = m->T;
    data.V = m->V;
    const bool endless = strncmp(data.val_paths[0] ? data.val_paths : data.paths, "synth:", 6) == 0;
    const int64_t all = endless ? t->cfg.train.eval_tokens : INT64_MAX / 2;
    if (code == BT_OK)
        code = bt_evaluator_open(&e, &data, job->tokens ? job->tokens : all, bt_comm_world(), err);
    bt_progress_end(&bar);
    if (code == BT_OK && own) bt_cli_print_data_notes(bt_evaluator_notes(e));
    if (code == BT_OK) code = evaluate_and_write_logits(e, t, job, &data, out, err);
    const size_t table = (size_t)m->classes * (size_t)m->classes * sizeof **confusion;
    if (code == BT_OK && m->classes > 1) *confusion = malloc(table);
    if (code == BT_OK && m->classes > 1 && *confusion)
        memcpy(*confusion, bt_evaluator_confusion(e), table);
    bt_evaluator_close(e);
    if (made) unlink(tokenizer);
    return code;
}
