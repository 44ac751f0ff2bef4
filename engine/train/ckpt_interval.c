/* ckpt_interval.c - computes the interval and stores its inputs in checkpoints. */
#include "engine/train/ckpt_interval.h"

#include <math.h>

#include "engine/base/clock.h"

static const double LEAST_S = 10, WRITTEN_SHARE = 10, PRIOR_S = 86400;
/* assumed rates before any measurement, bytes per second: copy in memory, disk */
static const double COPY_RATE = 1e9, DISK_RATE = 2e8;

void bt_ckpt_interval_estimate(bt_ckpt_interval *i, size_t bytes, bool beside) {
    if (i->measured) return;
    i->cost_s = (double)bytes / (beside ? COPY_RATE : DISK_RATE);
    i->written_s = (double)bytes / DISK_RATE;
}

void bt_ckpt_interval_measured(bt_ckpt_interval *i, double cost_s, double written_s) {
    i->cost_s = i->measured ? 0.5 * (i->cost_s + cost_s) : cost_s;
    i->written_s = written_s;
    i->measured = true;
}

static double seconds_trained(const bt_ckpt_interval *i, int64_t now_ns) {
    return i->before_s + (i->began_ns ? (double)(now_ns - i->began_ns) / 1e9 : 0);
}

double bt_ckpt_interval_mtbf_s(const bt_ckpt_interval *i, int64_t now_ns) {
    return (PRIOR_S + seconds_trained(i, now_ns)) / (double)(1 + i->failures);
}

double bt_ckpt_interval_s(const bt_ckpt_interval *i, int64_t now_ns) {
    const double best = sqrt(2 * i->cost_s * bt_ckpt_interval_mtbf_s(i, now_ns)) - i->cost_s,
                 least = fmax(LEAST_S, WRITTEN_SHARE * i->written_s);
    return fmin(fmax(best, least), i->most_s);
}

static void save_interval(void *ctx, bt_json *j) {
    const bt_ckpt_interval *i = ctx;
    bt_json_int(j, "count", i->failures);
    /* A whole number, so that the text has the same length on all ranks, whose clocks differ (memory_saver.c). */
    bt_json_int(j, "trained_s", (int64_t)seconds_trained(i, bt_now_ns()));
    bt_json_bool(j, "closing", i->closing);
}

static void load_interval(void *ctx, const bt_state_values *v) {
    bt_ckpt_interval *i = ctx;
    const int64_t count = bt_state_int(v, "count", -1);
    const double before = bt_state_real(v, "trained_s", 0);
    if (count < 0 || !(before >= 0 && before < 1e12))
        return; /* checkpoint from before this row existed */
    i->failures = count + !bt_state_bool(v, "closing", true);
    i->before_s = before;
}

void bt_ckpt_interval_add_state(bt_ckpt_interval *i, bt_state *s) {
    bt_state_add(s,
                 &(bt_state_row){
                     .name = "failures", .ctx = i, .save = save_interval, .load = load_interval});
}
