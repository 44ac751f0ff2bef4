/* classify.h - output of a classifier or a reward model for `eval` and `generate`. */
#ifndef BT_CLI_MODEL_CLASSIFY_H
#define BT_CLI_MODEL_CLASSIFY_H

#include "cli/common/printout/printout.h"
#include "cli/model/checkpoint_model.h"
#include "engine/train/evaluate.h"

/* Returns BT_ARG for a classifier or a reward model, which cannot generate text. */
bt_code bt_classifier_refuse(const bt_trained *t, bt_err *err) BT_MUST_CHECK;
/* Adds rows "labels": number of texts, precision, recall, F1, and the label for which each was most often mistaken.
 * confusion: from bt_evaluator_confusion. */
void bt_classifier_put(const bt_trained *t, const double *confusion, bt_printout *o);
/* Prints the probabilities of the labels for a text on stdout, or the reward of an answer: text is a JSON object with
 * a prompt and a completion, in the fields of data.form=preference. */
bt_code bt_classify_text(bt_trained *t, const char *text, size_t n, bool json, bt_err *err)
    BT_MUST_CHECK;

#endif
