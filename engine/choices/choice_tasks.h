/* choice_tasks.h - multiple-choice questions of well-known benchmarks, with the prompts of lm-evaluation-harness
 * 0.4.13.
 *
 * Owns: a question its texts. Threads: pure functions. */
#ifndef BT_ENGINE_CHOICES_CHOICE_TASKS_H
#define BT_ENGINE_CHOICES_CHOICE_TASKS_H

#include <jansson.h>

#include "engine/base/text.h"

enum { BT_CHOICES_MAX = 26 };

typedef struct bt_choice_item {
    bt_text context;                 /* text read by the model, without trailing blanks */
    bt_text choices[BT_CHOICES_MAX]; /* continuations to score, after one blank */
    size_t n;
    size_t gold;      /* the right one */
    char subject[96]; /* mmlu; "" elsewhere */
} bt_choice_item;

typedef struct bt_choice_task {
    const char *name;
    const char *fields; /* fields of a line, for messages */
    /* parses the fields of a JSON object into a question; BT_FORMAT: err has the name of the wrong field */
    bt_code (*read)(json_t *line, bt_choice_item *out, bt_err *err);
    /* appends text that precedes all questions of a subject, NULL: none */
    void (*describe)(const char *subject, bt_text *out);
    bool norm; /* acc_norm and acc_bytes are figures of the task */
} bt_choice_task;

/* "arc|hellaswag|mmlu" */
#define BT_CHOICE_TASKS "arc|hellaswag|mmlu"
const bt_choice_task *bt_choice_task_at(int i); /* in the order of BT_CHOICE_TASKS */

void bt_choice_item_release(bt_choice_item *q);
/* letters, not bytes, as Python counts them */
size_t bt_text_letters(const char *s);

/* a choice in the form in which it is scored */
typedef struct bt_choice_score {
    double log_prob; /* sum over its tokens, nats */
    size_t letters, bytes;
} bt_choice_score;
/* the choice with the largest log probability: as it is, by letters, by bytes; of equals the first */
typedef struct bt_choice_picked {
    size_t plain, by_letters, by_bytes;
} bt_choice_picked;
bt_choice_picked bt_choice_pick(const bt_choice_score *s, size_t n);

#endif
