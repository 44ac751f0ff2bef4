/* trainer_bigram.c - the first steps of a run as those of a bigram model (train.bigram_steps): attention is left
 * out, and the head learns all that follows a token in the data instead of one target. What a step is, is
 * a function of its number alone: a resumed run goes on alike. */
#include <inttypes.h>

#include "engine/config/tune_cfg.h"
#include "engine/train/trainer_impl.h"

/* The same on all ranks, which read the same sequences. */
static bt_code begin(bt_trainer *t, bt_err *err) {
    const bt_loader_cfg data = bt_trainer_loader_cfg(t);
    BT_TRY(bt_agree(t->mesh.world, bt_followers_count(&t->followers, &data, err), err));
    t->telemetry.flop_token = bt_tune_count(&t->cfg).flop_bigram;
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "up to step %" PRId64 " the model is a bigram model, without attention",
                       t->cfg.bigram_steps);
    return BT_OK;
}

static void end(bt_trainer *t) {
    bt_model_bigram(t->model, NULL);
    t->telemetry.flop_token = bt_tune_count(&t->cfg).flop_token;
    bt_telemetry_forget(&t->telemetry); /* they were shorter */
    bt_followers_release(&t->followers);
    bt_guard_forget(&t->guard); /* the gradient has another size */
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "from step %" PRId64 " on the model has attention", t->at.step + 1);
}

bt_code bt_trainer_bigram(bt_trainer *t, bt_err *err) {
    const bool now = bt_run_cfg_bigram(&t->cfg, t->at.step), before = t->followers.at != NULL;
    if (now && !before) BT_TRY(begin(t, err));
    if (now) bt_model_bigram(t->model, &t->followers); /* it may be a new one (trainer_phase.c) */
    if (before && !now) end(t);
    return BT_OK;
}
