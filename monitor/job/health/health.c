/* health.c - compares the time since the last progress with the usual step time. */
#include "monitor/job/health/health.h"
#include "engine/base/tables/derived.h"

#include <string.h>

void bt_health_start(bt_health *h) { memset(h, 0, sizeof *h); }

void bt_health_step(bt_health *h, int64_t now_ns) {
    if (h->last_ns > 0 && now_ns > h->last_ns) {
        double gap = (double)(now_ns - h->last_ns) / 1e9;
        h->gaps[h->at] = gap;
        h->at = (h->at + 1) % BT_HEALTH_WINDOW;
        if (h->n < BT_HEALTH_WINDOW) h->n++;
        if (gap > h->longest_s && !h->warned) h->longest_s = gap;
    }
    h->last_ns = now_ns;
}

void bt_health_sign(bt_health *h, int64_t now_ns) {
    if (h->last_ns > 0 && now_ns > h->last_ns) h->last_ns = now_ns;
}

void bt_health_pause(bt_health *h, bool paused, int64_t now_ns) {
    h->paused = paused;
    if (h->last_ns > 0) h->last_ns = now_ns;
}

double bt_health_median_s(const bt_health *h) {
    double sorted[BT_HEALTH_WINDOW];
    if (h->n == 0) return 0;
    memcpy(sorted, h->gaps, (size_t)h->n * sizeof *sorted);
    return bt_median_known(sorted, (size_t)h->n);
}

static double usual_interval_s(const bt_health *h) {
    const double limit = 10 * bt_health_median_s(h);
    return 3 * h->longest_s > limit ? 3 * h->longest_s : limit;
}

double bt_health_limit_s(const bt_health *h) {
    const double usual = usual_interval_s(h);
    return usual > 30 ? usual : 30;
}

double bt_health_silence_s(const bt_health *h, int64_t now_ns) {
    return h->last_ns > 0 && now_ns > h->last_ns ? (double)(now_ns - h->last_ns) / 1e9 : 0;
}

bt_health_verdict bt_health_check(bt_health *h, int64_t now_ns, double deadline_s) {
    if (h->paused) return BT_HEALTH_FINE;
    const double silence = bt_health_silence_s(h, now_ns), limit = bt_health_limit_s(h);
    if (h->warned && silence < limit) {
        h->warned = false;
        return BT_HEALTH_RECOVERED;
    }
    if (deadline_s > 0 && silence > deadline_s && silence > usual_interval_s(h))
        return BT_HEALTH_DEAD;
    if (!h->warned && silence > limit) {
        h->warned = true;
        return BT_HEALTH_LATE;
    }
    return BT_HEALTH_FINE;
}
