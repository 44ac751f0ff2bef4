/* classify.c - prints the quality of a classifier by label, classifies a text, and prints the reward of an answer. */
#include "cli/model/classify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/chat/labels.h"
#include "engine/train/data/run_data.h"

bt_code bt_classifier_refuse(const bt_trained *t, bt_err *err) {
    const size_t n = bt_labels_count(t->cfg.data.labels);
    if (bt_run_cfg_is_reward_model(&t->cfg))
        return bt_fail(err, BT_ARG,
                       "'%.100s' is a reward model and generates no text (for the reward of an "
                       "answer: bitrain generate %.60s --prompt '{\"prompt\": ..., "
                       "\"completion\": ...}')",
                       t->meta.run, t->meta.run);
    if (!n) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "'%.100s' is a classifier of %zu labels and generates no text (for the label of a "
        "text: bitrain generate %.60s --prompt TEXT)",
        t->meta.run, n, t->meta.run);
}

typedef struct label_figures {
    char name[BT_LABEL_BYTES];
    double n, precision, recall, f1; /* NaN: there are no texts */
    size_t mistaken; /* index of the label that texts of this label are most often mistaken for */
    double mistakes; /* number of these texts */
} label_figures;

static label_figures compute_label_figures(const bt_trained *t, const double *confusion, size_t k) {
    const size_t classes = bt_labels_count(t->cfg.data.labels);
    label_figures x = {.mistaken = k};
    double picked = 0;
    const double right = confusion[k * classes + k];
    bt_labels_name(t->cfg.data.labels, k, x.name);
    for (size_t i = 0; i < classes; i++) {
        const double as = confusion[k * classes + i];
        x.n += as;
        picked += confusion[i * classes + k];
        if (i != k && as > x.mistakes) {
            x.mistakes = as;
            x.mistaken = i;
        }
    }
    x.precision = picked > 0 ? right / picked : NAN;
    x.recall = x.n > 0 ? right / x.n : NAN;
    x.f1 = picked + x.n > 0 ? 2 * right / (picked + x.n) : NAN;
    return x;
}

void bt_classifier_put(const bt_trained *t, const double *confusion, bt_printout *o) {
    const size_t classes = bt_labels_count(t->cfg.data.labels);
    char other[BT_LABEL_BYTES];
    bt_printout_rows(o, "labels");
    for (size_t k = 0; k < classes; k++) {
        const label_figures x = compute_label_figures(t, confusion, k);
        bt_printout_row(o);
        bt_printout_str(o, "label", "label", x.name);
        bt_printout_int(o, "texts", "texts", (int64_t)x.n);
        bt_printout_numf(o, "precision", "precision", x.precision, 1, "%.3f");
        bt_printout_numf(o, "recall", "recall", x.recall, 1, "%.3f");
        bt_printout_numf(o, "f1", "F1", x.f1, 1, "%.3f");
        bt_labels_name(t->cfg.data.labels, x.mistaken, other);
        if (x.mistakes > 0)
            bt_printout_cellf(o, "taken for", "%s (%.0f)", other, x.mistakes);
        else
            bt_printout_str(o, NULL, "taken for", "");
        if (o->json) bt_json_array(&o->j, "taken_for"); /* number of texts by predicted label */
        for (size_t i = 0; i < classes && o->json; i++)
            bt_json_int(&o->j, NULL, (int64_t)confusion[k * classes + i]);
        if (o->json) bt_json_end(&o->j, ']');
        bt_printout_end(o);
    }
    bt_printout_rows_end(o, "");
}

static bt_code print_label(const bt_trained *t, const float *p, size_t classes, bool json,
                           bt_err *err) {
    char name[BT_LABEL_BYTES];
    size_t best = 0;
    bt_printout o;
    for (size_t k = 1; k < classes; k++)
        if (p[k] > p[best]) best = k;
    bt_labels_name(t->cfg.data.labels, best, name);
    bt_printout_begin(&o, json);
    bt_printout_str(&o, "run", NULL, t->meta.run);
    bt_printout_str(&o, "checkpoint", NULL, t->path);
    bt_printout_int(&o, "step", NULL, t->meta.step);
    bt_printout_str(&o, "label", NULL, name);
    bt_printout_line(&o, "%s", name);
    bt_printout_object(&o, "probabilities");
    for (size_t k = 0; k < classes; k++) {
        bt_labels_name(t->cfg.data.labels, k, name);
        bt_printout_num(&o, name, NULL, (double)p[k], BT_UNIT_NONE);
        if (k < 16) bt_printout_line(&o, "%s%s %.4f", k ? ", " : "  (", name, (double)p[k]);
    }
    bt_printout_end(&o);
    bt_printout_line(&o, ")\n");
    return bt_printout_print(&o, err);
}

/* Converts an answer to the tokens that training reads: a row of a single answer needs a label. */
static bt_code encode_answer(const bt_trained *t, const char *text, size_t n, bt_chat_ids *out,
                             bt_err *err) {
    const bt_loader_cfg data = bt_run_data(&t->cfg);
    bt_form form;
    json_error_t at;
    BT_TRY(bt_form_init(&form, &data.form, t->tokenizer, err));
    json_t *row = json_loadb(text, n, 0, &at);
    bt_code code = json_is_object(row) ? BT_OK
                                       : bt_fail(err, BT_ARG,
                                                 "a reward model scores an answer: --prompt "
                                                 "'{\"prompt\": ..., \"completion\": ...}'");
    if (code == BT_OK && json_object_set_new(row, "label", json_true()) != 0)
        code = bt_fail(err, BT_NOMEM, "cannot take memory for an answer");
    if (code == BT_OK) code = bt_form_encode(&form, row, 0, out, err);
    json_decref(row);
    return code;
}

static bt_code print_reward(bt_trained *t, const char *text, size_t n, bool json, bt_err *err) {
    const int T = bt_model_config(t->model)->T;
    bt_chat_ids ids = {0};
    bt_printout o;
    bt_code code = encode_answer(t, text, n, &ids, err);
    if (code == BT_OK && (ids.n == 0 || ids.n > (size_t)T))
        code = bt_fail(err, BT_ARG,
                       "the answer and its prompt have %zu tokens, and the model reads 1 to %d",
                       ids.n, T);
    if (code == BT_OK) {
        bt_model_forward_tokens(t->model, ids.ids, ids.n);
        const double reward = bt_model_reward(t->model, ids.n);
        bt_printout_begin(&o, json);
        bt_printout_str(&o, "run", NULL, t->meta.run);
        bt_printout_str(&o, "checkpoint", NULL, t->path);
        bt_printout_int(&o, "step", NULL, t->meta.step);
        bt_printout_num(&o, "reward", NULL, reward, BT_UNIT_NATS);
        bt_printout_line(&o, "reward %.4f\n", reward);
        code = bt_printout_print(&o, err);
    }
    bt_chat_ids_release(&ids);
    return code;
}

bt_code bt_classify_text(bt_trained *t, const char *text, size_t n, bool json, bt_err *err) {
    if (bt_run_cfg_is_reward_model(&t->cfg)) return print_reward(t, text, n, json, err);
    const bt_model_cfg *m = bt_model_config(t->model);
    const size_t classes = (size_t)m->classes;
    int32_t *ids = NULL;
    size_t n_ids = 0, cap = 0;
    float *p = malloc(classes * sizeof *p);
    bt_code code = p ? bt_tokenizer_encode_as(t->tokenizer, n ? BT_ENCODE_WHOLE : 0, text, n, &ids,
                                              &n_ids, &cap, err)
                     : bt_fail(err, BT_NOMEM, "cannot take memory for %zu labels", classes);
    if (code == BT_OK && n_ids == 0)
        code = bt_fail(err, BT_ARG, "a text without a token has no label (give one with --prompt)");
    if (code == BT_OK && n_ids > (size_t)m->T)
        code = bt_fail(err, BT_ARG,
                       "the text has %zu tokens, and the model reads %d at most (give less of it)",
                       n_ids, m->T);
    if (code == BT_OK) {
        bt_model_forward_tokens(t->model, ids, n_ids);
        bt_model_class_probabilities(t->model, n_ids, p);
        code = print_label(t, p, classes, json, err);
    }
    free(ids);
    free(p);
    return code;
}
