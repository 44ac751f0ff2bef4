/* eval_text.h - measures how well a trained model predicts a text. One process, no MPI. */
#ifndef BT_CLI_MODEL_EVAL_TEXT_H
#define BT_CLI_MODEL_EVAL_TEXT_H

#include "cli/model/checkpoint_model.h"
#include "engine/train/evaluate.h"

typedef struct bt_eval_job {
    const char *data;   /* one path per line; "": the validation split of the run */
    const char *field;  /* JSONL field with the text; "": that of the run */
    const char *logits; /* file for the most probable tokens; "": none */
    int64_t
        tokens;    /* maximum number of tokens; 0: all, or for endless data as many as in the run */
    int64_t top_k; /* number of tokens written for each token of the data */
    bool force;    /* true: replace an existing file of logits */
    bool quiet;    /* no progress bar */
} bt_eval_job;

/* t has a model. confusion: for a classifier (classes, classes), number of texts by true and predicted class, which the
 * caller frees; otherwise unchanged. */
bt_code bt_eval_text(const bt_trained *t, const bt_eval_job *job, bt_eval_result *out,
                     double **confusion, bt_err *err) BT_MUST_CHECK;

#endif
