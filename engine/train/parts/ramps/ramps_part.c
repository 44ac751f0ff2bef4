/* ramps_part.c - steps and sequences that grow (train.batch_ramp, train.seq_ramp): before a step of
 * another size, everything that knows the size takes the new one. What a step has is a function of its
 * number alone, so all ranks change together and a resumed run goes on with the same data. */
#include <inttypes.h>

#include "engine/train/trainer_impl.h"

bt_code bt_trainer_ramp_read(bt_trainer *t, bt_err *err) {
    const bt_run_cfg *c = &t->cfg;
    t->step_tokens = c->batch_tokens;
    BT_TRY(bt_ramp_read(&t->batch_ramp, "train.batch_ramp", c->batch_ramp, c->ramp_steps, err));
    return bt_ramp_read(&t->seq_ramp, "train.seq_ramp", c->seq_ramp, c->ramp_steps, err);
}

int64_t bt_trainer_first_sequence(const bt_trainer *t) {
    return bt_ramp_sum(&t->batch_ramp, t->cfg.batch_tokens / t->cfg.seq_len, t->at.step);
}

bool bt_trainer_full_size(const bt_trainer *t) {
    return t->step_tokens == t->cfg.batch_tokens &&
           (t->seq_ramp.n == 0 || t->micro.stretch == t->cfg.seq_len);
}

/* The optimizer's units are other ones, and so is who adds up which. */
static bt_code resize(bt_trainer *t, int64_t tokens, bt_err *err) {
    const bt_micro_plan *p = &t->micro_plan;
    const int64_t B = t->cfg.micro_batch;
    bt_micro_plan_resize(&t->micro_plan, tokens / t->cfg.seq_len, B);
    t->step_tokens = t->telemetry.step_tokens = tokens;
    if (t->setup.units > 0) {
        t->setup.units = p->micros;
        BT_TRY(bt_trainer_make_reducer(t, err));
    }
    const bt_loader_steps steps = {
        .step = t->at.step,
        .origin = bt_ramp_origin(&t->batch_ramp, t->cfg.batch_tokens / t->cfg.seq_len, t->at.step),
        .sequences_per_step = (int)p->sequences,
        .first_sequence = (int)(p->first * B),
        .n_sequences = (int)(p->n * B)};
    return bt_loader_resize(t->loader, &steps, err);
}

static void tell(bt_trainer *t) {
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "from step %" PRId64 " on a step has %" PRId64
                       " tokens and attention sees stretches of %" PRId64,
                       t->at.step + 1, t->step_tokens, t->micro.stretch);
}

bt_code bt_trainer_ramp(bt_trainer *t, bool first, bt_err *err) {
    if (t->batch_ramp.n + t->seq_ramp.n == 0) return BT_OK;
    const int64_t step = t->at.step,
                  tokens = t->cfg.batch_tokens >> bt_ramp_halvings(&t->batch_ramp, step),
                  stretch = t->cfg.seq_len >> bt_ramp_halvings(&t->seq_ramp, step);
    const bool other = tokens != t->step_tokens;
    if (!first && !other && stretch == t->micro.stretch) return BT_OK;
    t->micro.stretch = stretch;
    if (first || other) BT_TRY(resize(t, tokens, err));
    tell(t);
    return BT_OK;
}
