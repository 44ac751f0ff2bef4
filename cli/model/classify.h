/* classify.h - what `eval` and `generate` tell of a classifier. */
#ifndef BT_CLI_MODEL_CLASSIFY_H
#define BT_CLI_MODEL_CLASSIFY_H

#include "cli/model/checkpoint_model.h"
#include "engine/train/evaluate.h"

/* BT_ARG for a classifier, which writes no text */
bt_code bt_classifier_refuse(const bt_trained *t, bt_err *err) BT_MUST_CHECK;
/* a line for each label: texts, precision, recall, F1, and what it was taken for most often. confusion:
 * bt_evaluator_confusion's */
void bt_classifier_print(const bt_trained *t, const double *confusion);
void bt_classifier_json(const bt_trained *t, const double *confusion, bt_json *j);
/* the probabilities of the labels for a text, on stdout */
bt_code bt_classify_text(bt_trained *t, const char *text, size_t n, bool json, bt_err *err)
    BT_MUST_CHECK;

#endif
