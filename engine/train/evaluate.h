/* evaluate.h - validation loss on a fixed set of sequences, divided among the data-parallel ranks.
 *
 * The sequences are read once at open and kept (8 bytes per token of a rank's share), so an evaluation reads no file.
 * Collective over dp and, with a pipe, over the stages of a pipeline. Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_EVALUATE_H
#define BT_ENGINE_TRAIN_EVALUATE_H

#include "engine/data/shards/loader.h"
#include "engine/model/net/model.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/parallel/pp/pipe.h"

typedef struct bt_evaluator bt_evaluator;

typedef struct bt_eval_result {
    double nats, bits_per_byte;
    int64_t tokens; /* counts predicted tokens, preference pairs, or texts of a classifier */
    /* Preferences and classifiers only, else NaN: share of correct results, mean reward margin, mean F1 over the
     * labels that occur or were predicted. */
    double accuracy, margin, macro_f1;
} bt_eval_result;

/* Reads the validation sequences. `data` names the sources; its split, B, T and shares are set here. tokens: number
 * to use, limited by the split. */
bt_code bt_evaluator_open(bt_evaluator **out, const bt_loader_cfg *data, int64_t tokens,
                          bt_comm *dp, bt_err *err) BT_MUST_CHECK;
/* Computes the validation loss. pipe: NULL if this rank has the whole model. */
bt_code bt_evaluator_run(bt_evaluator *e, bt_model *m, bt_pipe *pipe, bt_eval_result *out,
                         bt_err *err) BT_MUST_CHECK;
/* Sets a function to call after each micro-batch of this rank; `done` is the completed share. */
void bt_evaluator_watch(bt_evaluator *e, void (*progress)(void *ctx, double done), void *ctx);
/* Sets a function that is called after each micro-batch has passed through m, which must be a whole model. */
typedef bt_code (*bt_evaluator_seen)(void *ctx, bt_model *m, const bt_batch *b, bt_err *err);
void bt_evaluator_visit(bt_evaluator *e, bt_evaluator_seen seen, void *ctx);
int64_t bt_evaluator_micros(const bt_evaluator *e);
/* (classes, classes) counts of texts in the last evaluation, row: true label, column: prediction; NULL if no
 * classifier */
const double *bt_evaluator_confusion(const bt_evaluator *e);
/* first tokens of this rank's sequences; *n: their number */
const int32_t *bt_evaluator_tokens(const bt_evaluator *e, size_t *n);
size_t bt_evaluator_bytes(const bt_evaluator *e);
/* Bytes of text per validation token, to convert nats per token to bits per byte. */
double bt_evaluator_bytes_per_token(const bt_evaluator *e);
/* notes of its files, see bt_loader_notes; "" for NULL */
const char *bt_evaluator_notes(const bt_evaluator *e);
/* hash of its data, see bt_loader_hash; 0 for NULL */
uint64_t bt_evaluator_hash(const bt_evaluator *e);
void bt_evaluator_close(bt_evaluator *e); /* accepts NULL */

#endif
