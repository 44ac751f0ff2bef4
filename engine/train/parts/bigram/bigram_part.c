/* bigram_part.c - in the first steps, the target is the distribution of the tokens that follow each token in the
 * data. During train.bigram_steps it is the only target, and the model has no attention. During train.share_steps
 * the model has attention, and the weight of the distribution decreases. The step number determines the kind of a
 * step, also after a resume. */
#include <inttypes.h>
#include <stdlib.h>

#include "engine/config/tune_cfg.h"
#include "engine/data/shards/followers.h"
#include "engine/train/trainer_impl.h"

static const double FIRST_WEIGHT =
    0.9; /* weight of the distribution in the first of train.share_steps */

static int64_t last_bigram_step(const bt_run_cfg *c) {
    return c->train.bigram_steps + c->train.share_steps;
}

static float distribution_weight(const bt_run_cfg *c, int64_t step) {
    const int64_t faded = step - c->train.bigram_steps;
    if (faded < 0) return 1;
    return (float)(FIRST_WEIGHT * (1 - (double)faded / (double)c->train.share_steps));
}

static bt_code bigram_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t;
    if (last_bigram_step(s->cfg) == 0) return BT_OK;
    return bt_part_new(self, sizeof(bt_followers), "the bigram model",
                       err); /* counts of following tokens; NULL when no longer needed */
}

static void bigram_release(void *self) {
    bt_followers_release(self);
    free(self);
}

static bt_code begin_bigram(bt_followers *f, bt_trainer *t, bt_err *err) {
    const bt_loader_cfg data = bt_trainer_loader_cfg(t);
    BT_TRY(bt_agree(t->mesh.world, bt_followers_count(f, &data, err), err));
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "soft targets until step %" PRId64 " (train.share_steps)",
                       last_bigram_step(&t->cfg));
    if (!bt_run_cfg_bigram(&t->cfg, t->at.step)) return BT_OK;
    t->telemetry.flop_token = bt_tune_count(&t->cfg).flop_bigram;
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "no attention until step %" PRId64 " (train.bigram_steps)",
                       t->cfg.train.bigram_steps);
    return BT_OK;
}

static void begin_attention(bt_trainer *t) {
    t->telemetry.flop_token = bt_tune_count(&t->cfg).flop_token;
    bt_telemetry_forget(&t->telemetry); /* steps become slower */
    bt_parts_new_level(t);              /* the gradient norm changes */
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "attention from step %" PRId64 " on", t->at.step + 1);
}

static bt_code bigram_before_step(void *self, bt_trainer *t, bt_err *err) {
    bt_followers *f = self;
    const bt_run_cfg *c = &t->cfg;
    const int64_t step = t->at.step;
    const bool now = step < last_bigram_step(c), before = f->at != NULL;
    if (now && !before) BT_TRY(begin_bigram(f, t, err));
    if (before && c->train.bigram_steps && step == c->train.bigram_steps) begin_attention(t);
    if (before && !now) {
        bt_model_follower_targets(t->model, (bt_follower_targets){0});
        bt_followers_release(f);
    }
    if (now) /* set in every step, because the model may have been recreated */
        bt_model_follower_targets(t->model, (bt_follower_targets){f, distribution_weight(c, step),
                                                                  !bt_run_cfg_bigram(c, step)});
    return BT_OK;
}

static bool bigram_partial(void *self, const bt_trainer *t) {
    (void)self;
    return bt_run_cfg_bigram(&t->cfg, t->at.step - 1);
}

const bt_part bt_part_bigram = {.name = "bigram",
                                .create = bigram_create,
                                .release = bigram_release,
                                .before_step = bigram_before_step,
                                .partial = bigram_partial};
