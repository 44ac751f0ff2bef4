/* classify.c - a classifier's figures by label, and the label of a text. */
#include "cli/model/classify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/chat/labels.h"

bt_code bt_classifier_refuse(const bt_trained *t, bt_err *err) {
    const size_t n = bt_labels_count(t->cfg.data.labels);
    if (!n) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "'%.100s' is a classifier of %zu labels and writes no text (ask for the label of "
        "one: bitrain generate %.60s --prompt TEXT)",
        t->meta.run, n, t->meta.run);
}

/* ---- by label -------------------------------------------------------------------------------- */

typedef struct label_figures {
    char name[BT_LABEL_BYTES];
    double n, precision, recall, f1; /* NaN: of nothing */
    size_t mistaken;                 /* for this label most often */
    double mistakes;                 /* so often */
} label_figures;

static label_figures figures_of(const bt_trained *t, const double *confusion, size_t k) {
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

static const char *share(char out[16], double x) {
    if (isfinite(x))
        (void)snprintf(out, 16, "%.3f", x);
    else
        (void)snprintf(out, 16, "-");
    return out;
}

void bt_classifier_print(const bt_trained *t, const double *confusion) {
    const size_t classes = bt_labels_count(t->cfg.data.labels);
    int wide = 5;
    char a[16], b[16], c[16], other[BT_LABEL_BYTES];
    for (size_t k = 0; k < classes; k++) {
        bt_labels_name(t->cfg.data.labels, k, other);
        wide = (int)strlen(other) > wide ? (int)strlen(other) : wide;
    }
    printf("%-*s %7s %9s %7s %7s  taken for\n", wide, "label", "texts", "precision", "recall",
           "F1");
    for (size_t k = 0; k < classes; k++) {
        const label_figures x = figures_of(t, confusion, k);
        printf("%-*s %7.0f %9s %7s %7s", wide, x.name, x.n, share(a, x.precision),
               share(b, x.recall), share(c, x.f1));
        bt_labels_name(t->cfg.data.labels, x.mistaken, other);
        if (x.mistakes > 0) printf("  %s (%.0f)", other, x.mistakes);
        printf("\n");
    }
}

void bt_classifier_json(const bt_trained *t, const double *confusion, bt_json *j) {
    const size_t classes = bt_labels_count(t->cfg.data.labels);
    bt_json_array(j, "labels");
    for (size_t k = 0; k < classes; k++) {
        const label_figures x = figures_of(t, confusion, k);
        bt_json_object(j, NULL);
        bt_json_str(j, "label", x.name);
        bt_json_int(j, "texts", (int64_t)x.n);
        bt_json_num(j, "precision", x.precision);
        bt_json_num(j, "recall", x.recall);
        bt_json_num(j, "f1", x.f1);
        bt_json_array(j, "taken_for"); /* texts, by label */
        for (size_t i = 0; i < classes; i++)
            bt_json_int(j, NULL, (int64_t)confusion[k * classes + i]);
        bt_json_end(j, ']');
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

/* ---- a text ---------------------------------------------------------------------------------- */

static void put_answer(const bt_trained *t, const float *p, size_t classes, bool json) {
    char name[BT_LABEL_BYTES];
    size_t best = 0;
    bt_text out = {0};
    bt_json j;
    for (size_t k = 1; k < classes; k++)
        if (p[k] > p[best]) best = k;
    bt_labels_name(t->cfg.data.labels, best, name);
    if (!json) {
        printf("%s", name);
        for (size_t k = 0; k < classes && k < 16; k++) {
            bt_labels_name(t->cfg.data.labels, k, name);
            printf("%s%s %.4f", k ? ", " : "  (", name, (double)p[k]);
        }
        printf(")\n");
        return;
    }
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "run", t->meta.run);
    bt_json_str(&j, "checkpoint", t->path);
    bt_json_int(&j, "step", t->meta.step);
    bt_json_str(&j, "label", name);
    bt_json_object(&j, "probabilities");
    for (size_t k = 0; k < classes; k++) {
        bt_labels_name(t->cfg.data.labels, k, name);
        bt_json_num(&j, name, (double)p[k]);
    }
    bt_json_end(&j, '}');
    bt_json_end(&j, '}');
    puts(bt_text_str(&out));
    bt_text_release(&out);
}

bt_code bt_classify_text(bt_trained *t, const char *text, size_t n, bool json, bt_err *err) {
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
        put_answer(t, p, classes, json);
    }
    free(ids);
    free(p);
    return code;
}
