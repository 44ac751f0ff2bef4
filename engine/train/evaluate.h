/* evaluate.h - the validation loss: the same sequences every time, shared out over the
 * data-parallel ranks.
 *
 * The sequences are read once, at open, and kept (8 bytes a token and rank's share): an evaluation
 * touches no file. Collective over dp and, with a pipe, over the stages of a pipeline. Threads: the
 * training thread. */
#ifndef BT_ENGINE_TRAIN_EVALUATE_H
#define BT_ENGINE_TRAIN_EVALUATE_H

#include "engine/data/shards/loader.h"
#include "engine/model/net/model.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/parallel/pp/pipe.h"

typedef struct bt_evaluator bt_evaluator;

typedef struct bt_eval_result {
    double nats, bits_per_byte;
    int64_t tokens; /* that were predicted; of preferences pairs, of a classifier texts */
    /* of what is judged right or wrong, else NaN: share that is right; mean reward margin; of a
     * classifier the mean over the labels of F1 (labels that neither are nor were picked count for
     * nothing) */
    double accuracy, margin, macro_f1;
} bt_eval_result;

/* `data` names the sources; its split, B, T and shares are set here. tokens: how many to use,
 * capped by the split */
bt_code bt_evaluator_open(bt_evaluator **out, const bt_loader_cfg *data, int64_t tokens,
                          bt_comm *dp, bt_err *err) BT_MUST_CHECK;
/* pipe: NULL where the model is whole */
bt_code bt_evaluator_run(bt_evaluator *e, bt_model *m, bt_pipe *pipe, bt_eval_result *out,
                         bt_err *err) BT_MUST_CHECK;
/* called after each micro-batch of this rank with the share that is done */
void bt_evaluator_watch(bt_evaluator *e, void (*progress)(void *ctx, double done), void *ctx);
/* called after the pass of each micro-batch, which m has just been through; a whole model */
typedef bt_code (*bt_evaluator_seen)(void *ctx, bt_model *m, const bt_batch *b, bt_err *err);
void bt_evaluator_look(bt_evaluator *e, bt_evaluator_seen seen, void *ctx);
/* that a rank runs; on all the same */
int64_t bt_evaluator_micros(const bt_evaluator *e);
/* of a classifier's evaluation before: (classes, classes) texts, row what is, column what was picked.
 * NULL: it was none */
const double *bt_evaluator_confusion(const bt_evaluator *e);
/* the first tokens of this rank's sequences; *n: how many */
const int32_t *bt_evaluator_tokens(const bt_evaluator *e, size_t *n);
size_t bt_evaluator_bytes(const bt_evaluator *e);
/* bytes of text a token of the validation data stands for: what makes bits per byte of nats per token */
double bt_evaluator_bytes_per_token(const bt_evaluator *e);
/* of the files it is made of, as bt_loader_notes; "" for NULL */
const char *bt_evaluator_notes(const bt_evaluator *e);
/* of the data it is made of, bt_loader_hash's; 0 for NULL */
uint64_t bt_evaluator_hash(const bt_evaluator *e);
void bt_evaluator_close(bt_evaluator *e); /* accepts NULL */

#endif
