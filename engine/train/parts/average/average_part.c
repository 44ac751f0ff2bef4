/* average_part.c - an exponential average of the weights (optim.average), which each update moves towards them. */
#include <math.h>
#include <stdlib.h>

#include "engine/train/trainer_impl.h"

typedef struct average {
    double keep; /* share of the average that one update keeps */
} average;

static bt_code average_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t;
    if (s->cfg->optim.average == 0) return BT_OK;
    BT_TRY(bt_part_new(self, sizeof(average), "the average of the weights", err));
    ((average *)*self)->keep = exp2(-1 / s->cfg->optim.average);
    return BT_OK;
}

static bt_code average_load(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err) {
    (void)self, (void)err;
    if (stage == BT_LOAD_FRESH) bt_update_average_begin(&t->update);
    return BT_OK;
}

/* At the start the average follows more quickly: it forgets the initial weights within a tenth of the updates done. */
static bt_code average_after_update(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    const average *a = self;
    const double n = (double)t->at.updates, most = (1 + n) / (10 + n);
    (void)err;
    if (o->applied) bt_update_average(&t->update, a->keep < most ? a->keep : most);
    return BT_OK;
}

const bt_part bt_part_average = {.name = "average",
                                 .create = average_create,
                                 .release = free,
                                 .load = average_load,
                                 .after_update = average_after_update};
