/* fmt.c - formats numbers, and selects the colours of states and phases. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/tui/screens/top_state.h"

const char *bt_fmt_int(char *buf, size_t size, int64_t v) {
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)(v < 0 ? -v : v)), out = 0;
    if (size < 40) {
        snprintf(buf, size, "%lld", (long long)v);
        return buf;
    }
    if (v < 0) buf[out++] = '-';
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) buf[out++] = ',';
        buf[out++] = digits[i];
    }
    buf[out] = 0;
    return buf;
}

const char *bt_fmt(char *buf, size_t size, double v, bt_unit unit) {
    return bt_metric_format(buf, size, v, unit);
}

const char *bt_fmt_percent(char *buf, size_t size, double frac) {
    if (isnan(frac))
        snprintf(buf, size, "-");
    else
        snprintf(buf, size, fabs(frac) < 0.0995 && fabs(frac) >= 0.0005 ? "%.1f %%" : "%.0f %%",
                 frac * 100);
    return buf;
}

const char *bt_fmt_age(char *buf, size_t size, double seconds) {
    if (isnan(seconds))
        snprintf(buf, size, "-");
    else if (seconds < 10)
        snprintf(buf, size, "%.1f s", seconds);
    else if (seconds < 60)
        snprintf(buf, size, "%.0f s", floor(seconds));
    else
        bt_duration(buf, size, floor(seconds));
    return buf;
}

uint8_t bt_state_color(bt_run_state s) {
    switch (s) {
    case BT_STATE_RUNNING: return BT_C_GOOD;
    case BT_STATE_DONE: return BT_C_ACCENT;
    case BT_STATE_STOPPED: return BT_C_LABEL;
    case BT_STATE_FAILED: return BT_C_BAD;
    default: return BT_C_WARN;
    }
}

uint8_t bt_phase_color(bt_phase p) {
#define BT_PHASE(id, name, letter, title, key, panel, counted, c256, c16, light, dark, help) \
    BT_C_P_##id,
    static const uint8_t colors[BT_PHASE_COUNT] = {
#include "engine/base/tables/phases.def"
    };
#undef BT_PHASE
    return p < BT_PHASE_COUNT ? colors[p] : BT_C_LABEL;
}

uint8_t bt_score_color(double score) {
    return isnan(score)   ? BT_C_LABEL
           : score < 0.75 ? BT_C_BAD
           : score < 0.9  ? BT_C_WARN
                          : BT_C_TEXT;
}
