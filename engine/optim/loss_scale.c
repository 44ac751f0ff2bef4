/* loss_scale.c - halves the loss scale after an overflow, and doubles it after a number of good steps. */
#include "engine/optim/loss_scale.h"

#include <math.h>

bool bt_loss_scale_is(double value) {
    int exponent;
    return value >= 1 && value <= BT_LOSS_SCALE_MOST && frexp(value, &exponent) == 0.5;
}

void bt_loss_scale_init(bt_loss_scale *s, bool on, double first, int64_t every) {
    *s = (bt_loss_scale){.on = on, .value = on ? first : 1, .every = every};
}

bool bt_loss_scale_overflow(bt_loss_scale *s) {
    if (!s->on || s->value <= 1) return false;
    s->value /= 2;
    s->good = 0;
    return true;
}

bool bt_loss_scale_good(bt_loss_scale *s) {
    if (!s->on || ++s->good < s->every) return false;
    s->good = 0;
    if (s->value >= BT_LOSS_SCALE_MOST) return false;
    s->value *= 2;
    return true;
}
