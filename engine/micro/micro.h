/* micro.h - one micro-batch of a step on this rank: functions common to all schedules. A schedule
 * (micro_schedule.h) decides the order of forward and backward passes of a step's micro-batches; these functions
 * prepare and check each pass: tokens, rounding keys, the destination of gradients.
 * Threads: the training thread. No allocation after create. */
#ifndef BT_ENGINE_MICRO_MICRO_H
#define BT_ENGINE_MICRO_MICRO_H

#include "engine/base/progress_page.h"
#include "engine/data/shards/loader.h"
#include "engine/micro/micro_plan.h"
#include "engine/model/net/model.h"
#include "engine/observe/telemetry.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/update/update.h"

typedef struct bt_micro {
    /* all borrowed */
    bt_model *model;
    bt_loader *loader;
    bt_reducer *reducer;
    bt_update *update;
    bt_telemetry *telemetry;
    bt_progress_page *page;
    const bt_micro_plan *plan;

    bool reproducible; /* every micro-batch is a separate unit, summed in a fixed tree */
    int64_t rows;      /* tokens of a micro-batch */
    /* Length of the token range of attention; if it is shorter than a sequence, sequences are divided into
     * documents of this length. 0: always whole sequences */
    int64_t stretch, seq_len;
    int32_t *positions; /* (rows) positions of tokens in their stretch; NULL: stretch is 0 */
    uint64_t seed;
    int64_t before_rows; /* rows of the same step computed by other islands: for the noise */
    int64_t step;        /* the step that is computed */
    /* divisor of the loss of this rank's micro-batches of the step so far: learned targets, or pairs of
     * preferences */
    int64_t counted;
    /* Called for each micro-batch that the loader returned, whose inputs it may replace by an array that is valid until
     * the next call (-1: no token, its embedding is zero); called before each pass of the model. first_row: number of
     * its first token in the global batch. NULL: none */
    void (*loaded)(void *ctx, bt_batch *b, int64_t first_row);
    void (*before_pass)(void *ctx, int64_t first_row);
    void *ctx;
    /* called with each micro-batch before its pass; NULL: none */
    bt_code (*look_up)(void *ctx, const bt_batch *b, bt_err *err);
    void *look_up_ctx;
    double *losses;      /* (plan->micros) sums of token losses, at the micro-batch's index */
    double slowdown;     /* at least 1: sleeps to simulate a processor slower by this factor */
    int64_t delay_ns;    /* additional sleep in each pass */
    int64_t computed_ns; /* forward and backward of this step, when the pass began */
} bt_micro;

bt_code bt_micro_create(bt_micro *m, int64_t micros, bt_err *err) BT_MUST_CHECK;
void bt_micro_release(bt_micro *m);
/* memory used by create; rows: with a stretch, else 0 */
size_t bt_micro_bytes(int64_t micros, int64_t rows);

/* this rank's i-th micro-batch of the step, 0 <= i < plan->n; its loss goes here */
double *bt_micro_loss(const bt_micro *m, int64_t i);
/* tokens of micro-batch i, which is the next one; positions are this struct's until the next ones */
bt_code bt_micro_tokens(bt_micro *m, int64_t i, bt_batch *out, bt_err *err) BT_MUST_CHECK;
/* called before each pass of micro-batch i: passes properties of its tokens to the model */
void bt_micro_point(bt_micro *m, int64_t i, const int32_t *positions);
/* called before the pass with the head: passes the other inputs of the loss to the model */
bt_code bt_micro_look_up(bt_micro *m, const bt_batch *b, bt_err *err) BT_MUST_CHECK;
/* Called before the backward pass of micro-batch i through a chunk of the model's layers (stage.h; else 0): sets
 * rounding keys and the destination of its gradients. The returned function is called when tensors' gradients are
 * finished, with m->reducer */
bt_grad_ready_fn bt_micro_begin_backward(bt_micro *m, int chunk, int64_t i);
/* before and after a pass of the model, which charges its time to its phases */
void bt_micro_pass_begin(bt_micro *m);
bt_code bt_micro_pass_end(bt_micro *m, bt_err *err) BT_MUST_CHECK;
/* the backward pass of micro-batch i through the chunk is done */
bt_code bt_micro_end(bt_micro *m, int chunk, int64_t i, bt_err *err) BT_MUST_CHECK;

#endif
