/* budget_steps.c - computes the number of steps that fit into a time, from the newest steps. */
#include "engine/train/parts/time_budget/budget_steps.h"

#include <math.h>

static const double SAME = 0.02;

int64_t bt_budget_steps(double budget_s, bt_time_use before, bt_time_use now, int64_t planned,
                        int64_t most) {
    const double measured = (double)(now.steps - before.steps);
    const double pace_s = (now.seconds - before.seconds) / measured;
    if (!(measured > 0) || !(pace_s > 0)) return planned;
    const double left = fmax(0, floor((budget_s - now.seconds) / pace_s));
    const double total = fmin((double)now.steps + left, (double)most);
    if (fabs(total - (double)planned) <= SAME * (double)planned) return planned;
    return (int64_t)total;
}
