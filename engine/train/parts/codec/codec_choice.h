/* codec_choice.h - selects the codec of the gradients for each step, at most --codec: bf16 or none during the warm-up,
 * then the codec that keeps exchanges within comm.budget, or a safer one if too much precision is lost:
 *
 *   a tensor is sent as fp32 from then on if its residual over all ranks exceeds comm.residual_cap times its
 *   gradient (checked every BT_DIAL_WINDOW steps)
 *   all tensors move one rung down the ladder permanently after two consecutive bad steps
 *
 * Every change occurs on all ranks at the same step, emits an event, and is part of a checkpoint.
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
    struct bt_trainer *trainer;
    bt_codec_ladder ladder; /* allowed codecs, from exact to small */
    int at, most;           /* rung after the warm-up; highest allowed rung */
    bool by_budget;         /* comm.budget determines the rung; otherwise `at` equals `most` */
    bt_codec_dial dial;
    bool budget_applied;   /* comm.budget has determined the rung in this process */
    bt_dial_window window; /* current window of this rank */
    bt_reduce_times took;  /* duration of the step's exchange */
    bool reported_delays;
    const bt_codec *made; /* codec of the reducer */
    /* AdamW's second moment is frozen for this codec after held_at optimizer updates */
    const bt_codec *frozen_for;
    int64_t held_at; /* 0: the second moment is not frozen */
    int bad_in_row;
    bool fp32_changed;  /* a tensor was changed to fp32 since the reducer was created */
    size_t n;           /* number of tensors of all stages */
    bool *sent_as_fp32; /* (n) whether a tensor is sent as fp32 because of its residual */
    /* (n) each: results of the last check */
    double *residual_squares, *ratio, *bits;
} bt_codec_choice;

bt_code bt_codec_choice_create(bt_codec_choice *c, struct bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_codec_choice_release(bt_codec_choice *c); /* accepts an all-zero struct */
void bt_codec_choice_add_state(bt_codec_choice *c, struct bt_trainer *t, bt_state *s);
const bt_codec *bt_codec_choice_now(const bt_codec_choice *c, const struct bt_trainer *t);
/* true if the gradient exchange must be recreated for the next step */
bool bt_codec_choice_stale(const bt_codec_choice *c, const struct bt_trainer *t);
void bt_codec_choice_made(bt_codec_choice *c, struct bt_trainer *t, const bt_codec *codec);
/* Marks the tensors that are sent as fp32 again after the model was recreated. */
void bt_codec_choice_keep_plain(bt_codec_choice *c, struct bt_trainer *t);
/* Selects the next codec after every step and emits events for changes; the caller then recreates the reducer.
 * residual: the part of this rank's gradients that was not sent. Collective over the world. */
bt_code bt_codec_choice_step(bt_codec_choice *c, struct bt_trainer *t,
                             const struct bt_residual *residual, const struct bt_step_outcome *o,
                             bt_err *err) BT_MUST_CHECK;
/* Writes residual ratios and bits per element to the outcome, for the statistics. Collective. */
bt_code bt_codec_choice_sample(bt_codec_choice *c, struct bt_trainer *t,
                               const struct bt_residual *residual, struct bt_step_outcome *o,
                               bt_err *err) BT_MUST_CHECK;

#endif
