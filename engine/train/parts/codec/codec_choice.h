/* codec_choice.h - which codec gradients travel by at a step, of those up to --codec: while it
 * warms up bf16, or none; what the dial says (comm.budget); and a safer one where it loses too much:
 *
 *     a tensor     of which all ranks together owe more than comm.residual_cap times its gradient
 *                  travels as fp32 from then on (looked at every BT_DIAL_WINDOW steps)
 *     all tensors  go one rung down the ladder, for good, when two steps in a row were bad
 *
 * Every change is an event, the same on all ranks at the same step, and part of a checkpoint.
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
    struct bt_trainer *trainer; /* of the state row */
    bt_codec_ladder ladder;     /* one rung: nothing is to be chosen */
    int at, most;               /* the rung in use after the warm-up; the last that may be */
    bool dialled;               /* comm.budget is not off; else `at` is `most` */
    bt_codec_dial dial;
    bool turned;           /* since this process began */
    bt_dial_window window; /* of this rank, so far */
    bt_reduce_times took;  /* by the step's exchange */
    /* exchanges held steps up, the link did not explain it, and an event said so */
    bool told_of_delays;
    const bt_codec *made; /* the reducer's */
    /* the codec that holds AdamW's second moment, or does not; optimizer updates before it came */
    const bt_codec *held_by;
    int64_t held_at; /* 0: it is not held */
    int bad_in_row;
    bool fell_anew; /* since the reducer was made */
    size_t n;       /* tensors of all stages */
    bool *fell;     /* (n) travels as fp32: too much was owed */
    /* (n) as of the last look */
    double *owed, *ratio, *bits;
} bt_codec_choice;

bt_code bt_codec_choice_create(bt_codec_choice *c, struct bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_codec_choice_release(bt_codec_choice *c); /* accepts an all-zero struct */
/* row "codec" */
void bt_codec_choice_add_state(bt_codec_choice *c, struct bt_trainer *t, bt_state *s);
/* the codec of the next step */
const bt_codec *bt_codec_choice_now(const bt_codec_choice *c, const struct bt_trainer *t);
/* the exchange of gradients must be made anew for the next step */
bool bt_codec_choice_stale(const bt_codec_choice *c, const struct bt_trainer *t);
/* the reducer is made with this codec */
void bt_codec_choice_made(bt_codec_choice *c, struct bt_trainer *t, const bt_codec *codec);
/* the model was made anew: what travels as fp32 still does */
void bt_codec_choice_keep_plain(bt_codec_choice *c, struct bt_trainer *t);
/* After every step; residual: what this rank's codec has yet to send. Changes are events; the caller then makes the
 * reducer anew. Collective over the world */
bt_code bt_codec_choice_step(bt_codec_choice *c, struct bt_trainer *t,
                             const struct bt_residual *residual, const struct bt_step_outcome *o,
                             bt_err *err) BT_MUST_CHECK;
/* for the statistics of a step of several ranks, into the outcome. Collective */
bt_code bt_codec_choice_sample(bt_codec_choice *c, struct bt_trainer *t,
                               const struct bt_residual *residual, struct bt_step_outcome *o,
                               bt_err *err) BT_MUST_CHECK;

#endif
