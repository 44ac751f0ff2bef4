/* shares_part.c - in the first steps (train.share_steps) the target is partly the distribution of the tokens that
 * follow each token in the data, with a weight that decreases. The step number determines it, also after a resume. */
#include <inttypes.h>
#include <stdlib.h>

#include "engine/data/shards/followers.h"
#include "engine/train/trainer_impl.h"

/* weight of the distribution in the first step */
static const double FIRST_WEIGHT = 0.9;

static float distribution_weight(const bt_run_cfg *c, int64_t step) {
    return (float)(FIRST_WEIGHT * (1 - (double)step / (double)c->shares.share_steps));
}

static bt_code shares_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t;
    if (s->cfg->shares.share_steps == 0) return BT_OK;
    return bt_part_new(self, sizeof(bt_followers), "the shares of following tokens", err);
}

static void shares_release(void *self) {
    bt_followers_release(self);
    free(self);
}

static bt_code count_shares(bt_followers *f, bt_trainer *t, bt_err *err) {
    const bt_loader_cfg data = bt_trainer_loader_cfg(t);
    BT_TRY(bt_agree(t->mesh.world, bt_followers_count(f, &data, err), err));
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "soft targets until step %" PRId64 " (train.share_steps)",
                       t->cfg.shares.share_steps);
    return BT_OK;
}

static bt_code shares_before_step(void *self, bt_trainer *t, bt_err *err) {
    bt_followers *f = self; /* its counts are NULL when they are not needed */
    const bt_run_cfg *c = &t->cfg;
    const int64_t step = t->at.step;
    const bool now = step < c->shares.share_steps, before = f->at != NULL;
    if (now && !before) BT_TRY(count_shares(f, t, err));
    if (before && !now) {
        bt_model_follower_targets(t->model, (bt_follower_targets){0});
        bt_followers_release(f);
    }
    if (now) /* set in every step, because the model may have been recreated */
        bt_model_follower_targets(t->model, (bt_follower_targets){f, distribution_weight(c, step)});
    return BT_OK;
}

const bt_part bt_part_shares = {.name = "shares",
                                .create = shares_create,
                                .release = shares_release,
                                .before_step = shares_before_step};
