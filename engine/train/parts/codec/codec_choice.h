/* codec_choice.h - selects the codec of the gradients for each step, at most --codec: bf16 or none during the warm-up;
 * the dial's choice (comm.budget); a safer codec where the loss of precision is too large:
 *
 *     a tensor     is sent as fp32 from then on if its residual over all ranks exceeds comm.residual_cap times its
 *                  gradient (checked every BT_DIAL_WINDOW steps)
 *     all tensors  move one rung down the ladder permanently after two consecutive bad steps
 *
 * Every change is an event, occurs on all ranks at the same step, and is part of a checkpoint.
 * Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_CODEC_CHOICE_H
#define BT_ENGINE_TRAIN_CODEC_CHOICE_H

#include "engine/ckpt/state.h"
#include "engine/parallel/grad/codec_dial.h"
#include "engine/parallel/grad/reducer.h"

struct bt_trainer;
struct bt_step_outcome;
struct bt_residual;

typedef struct bt_codec_choice {
    struct bt_trainer *trainer; /* owner of the state row */
    bt_codec_ladder ladder;     /* a ladder of one rung leaves no choice */
    int at, most;               /* rung after the warm-up; highest allowed rung */
    bool dialled;               /* comm.budget is set; otherwise `at` equals `most` */
    bt_codec_dial dial;
    bool turned;           /* the dial has decided in this process */
    bt_dial_window window; /* current window of this rank */
    bt_reduce_times took;  /* times of the step's exchange */
    /* an event has reported that exchanges delay steps for a reason other than the link */
    bool told_of_delays;
    const bt_codec *made; /* codec of the reducer */
    /* codec that decides whether AdamW's second moment is frozen; optimizer updates before it */
    const bt_codec *held_by;
    int64_t held_at; /* 0: the second moment is not frozen */
    int bad_in_row;
    bool fell_anew; /* a tensor changed to fp32 since the reducer was created */
    size_t n;       /* tensors of all stages */
    bool *fell;     /* (n) the tensor is sent as fp32 because of its residual */
    /* (n) values of the last check */
    double *owed, *ratio, *bits;
} bt_codec_choice;

bt_code bt_codec_choice_create(bt_codec_choice *c, struct bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_codec_choice_release(bt_codec_choice *c); /* accepts an all-zero struct */
/* row "codec" */
void bt_codec_choice_add_state(bt_codec_choice *c, struct bt_trainer *t, bt_state *s);
/* the codec of the next step */
const bt_codec *bt_codec_choice_now(const bt_codec_choice *c, const struct bt_trainer *t);
/* true if the gradient exchange must be recreated for the next step */
bool bt_codec_choice_stale(const bt_codec_choice *c, const struct bt_trainer *t);
/* records that the reducer was created with this codec */
void bt_codec_choice_made(bt_codec_choice *c, struct bt_trainer *t, const bt_codec *codec);
/* After the model was recreated, marks the tensors again that are sent as fp32. */
void bt_codec_choice_keep_plain(bt_codec_choice *c, struct bt_trainer *t);
/* Called after every step. residual: the unsent part of this rank's gradients. Emits events for changes; the caller
 * then recreates the reducer. Collective over the world. */
bt_code bt_codec_choice_step(bt_codec_choice *c, struct bt_trainer *t,
                             const struct bt_residual *residual, const struct bt_step_outcome *o,
                             bt_err *err) BT_MUST_CHECK;
/* Writes residual ratios and bits to the outcome, for statistics of several ranks. Collective. */
bt_code bt_codec_choice_sample(bt_codec_choice *c, struct bt_trainer *t,
                               const struct bt_residual *residual, struct bt_step_outcome *o,
                               bt_err *err) BT_MUST_CHECK;

#endif
