/* ramps_part.c - steps and sequences that grow (train.batch_ramp, train.seq_ramp): before a step of
 * another size, everything that knows the size takes the new one. The size of a step is a function of its
 * number alone, so all ranks change together and a resumed run goes on with the same data. */
#include <inttypes.h>
#include <stdlib.h>

#include "engine/config/ramp.h"
#include "engine/train/trainer_impl.h"

typedef struct ramps {
    bt_ramp batch, seq; /* n 0: steps, sequences of one size */
} ramps;

static bt_code create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    const bt_run_cfg *c = s->cfg;
    if (!c->batch_ramp[0] && !c->seq_ramp[0]) return BT_OK;
    ramps *r = calloc(1, sizeof *r);
    if (!r) return bt_fail(err, BT_NOMEM, "cannot take memory for the ramps");
    *self = r;
    BT_TRY(bt_ramp_read(&r->batch, "train.batch_ramp", c->batch_ramp, c->ramp_steps, err));
    BT_TRY(bt_ramp_read(&r->seq, "train.seq_ramp", c->seq_ramp, c->ramp_steps, err));
    if (r->seq.n > 0) t->micro.stretch = c->seq_len;
    return BT_OK;
}

/* The optimizer's units are other ones, and so is who adds up which. */
static bt_code resize(ramps *r, bt_trainer *t, int64_t tokens, bt_err *err) {
    const bt_micro_plan *p = &t->micro_plan;
    const int64_t B = t->cfg.micro_batch;
    bt_micro_plan_resize(&t->micro_plan, tokens / t->cfg.seq_len, B);
    t->step.tokens = t->telemetry.step_tokens = tokens;
    t->step.origin = bt_ramp_origin(&r->batch, t->cfg.batch_tokens / t->cfg.seq_len, t->at.step);
    if (t->setup.units > 0) {
        t->setup.units = p->micros;
        BT_TRY(bt_trainer_make_reducer(t, err));
    }
    const bt_loader_steps steps = {.step = t->at.step,
                                   .origin = t->step.origin,
                                   .sequences_per_step = (int)p->sequences,
                                   .first_sequence = (int)(p->first * B),
                                   .n_sequences = (int)(p->n * B)};
    return bt_loader_resize(t->loader, &steps, err);
}

static bt_code before_step(void *self, bt_trainer *t, bt_err *err) {
    ramps *r = self;
    const int64_t step = t->at.step,
                  tokens = t->cfg.batch_tokens >> bt_ramp_halvings(&r->batch, step),
                  stretch = t->cfg.seq_len >> bt_ramp_halvings(&r->seq, step);
    const bool first = step == t->attempt.first_step, other = tokens != t->step.tokens;
    if (!first && !other && stretch == t->micro.stretch) return BT_OK;
    t->micro.stretch = stretch;
    if (first || other) BT_TRY(resize(r, t, tokens, err));
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "from step %" PRId64 " on a step has %" PRId64
                       " tokens and attention sees stretches of %" PRId64,
                       t->at.step + 1, t->step.tokens, t->micro.stretch);
    return BT_OK;
}

static bool partial(void *self, const bt_trainer *t) {
    const ramps *r = self;
    return t->step.tokens != t->cfg.batch_tokens ||
           (r->seq.n > 0 && t->micro.stretch != t->cfg.seq_len);
}

const bt_part bt_part_ramps = {.name = "ramps",
                               .create = create,
                               .release = free,
                               .before_step = before_step,
                               .partial = partial};
