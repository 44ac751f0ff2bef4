/* eval_choices.h - accuracy of a model on questions with choices, scored like lm-evaluation-harness 0.4.13. */
#ifndef BT_CLI_MODEL_EVAL_CHOICES_H
#define BT_CLI_MODEL_EVAL_CHOICES_H

#include "cli/model/checkpoint_model.h"
#include "engine/choices/choice_tasks.h"

typedef struct bt_choices_job {
    const bt_choice_task *task;
    const char *path;      /* JSONL */
    const char *shot_path; /* JSONL file of examples; "": none */
    int64_t
        shots; /* number of examples before each question: the first of the file (or of the subject) */
    int64_t limit; /* maximum number of questions; 0: all */
    bool quiet;
} bt_choices_job;

typedef struct bt_choices_result {
    int64_t questions,
        cut; /* cut: number of contexts that were too long and lost their beginning */
    /* share of questions whose right choice has the largest log probability: unscaled, per character, per byte */
    double acc, acc_norm, acc_bytes;
} bt_choices_result;

/* Scores the questions with a model that was opened but not loaded: its sequences become as long as the longest
 * question, at most as long as in training. */
bt_code bt_eval_choices(bt_trained *t, const bt_trained_how *how, const bt_choices_job *job,
                        bt_choices_result *out, bt_err *err) BT_MUST_CHECK;

#endif
