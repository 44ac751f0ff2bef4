/* metric.c - descriptors from metrics.def; values for people. */
#include "engine/base/metric.h"

#include <math.h>
#include <stdio.h>

#define ROW(id, key, unit, panel, help) {#id, key, BT_UNIT_##unit, BT_PANEL_##panel, help},
#define BT_STEP_METRIC(...) ROW(__VA_ARGS__)
#define BT_RANK_METRIC(...)
#define BT_LAYER_METRIC(...)
#define BT_COMM_METRIC(...)
#define BT_PAIR_METRIC(...)
const bt_metric bt_step_metrics[BT_MS_COUNT] = {
#include "engine/base/metrics.def"
};
#undef BT_STEP_METRIC
#undef BT_RANK_METRIC
#define BT_STEP_METRIC(...)
#define BT_RANK_METRIC(...) ROW(__VA_ARGS__)
const bt_metric bt_rank_metrics[BT_MR_COUNT] = {
#include "engine/base/metrics.def"
};
#undef BT_RANK_METRIC
#undef BT_LAYER_METRIC
#define BT_RANK_METRIC(...)
#define BT_LAYER_METRIC(...) ROW(__VA_ARGS__)
const bt_metric bt_layer_metrics[BT_ML_COUNT] = {
#include "engine/base/metrics.def"
};
#undef BT_LAYER_METRIC
#undef BT_COMM_METRIC
#define BT_LAYER_METRIC(...)
#define BT_COMM_METRIC(...) ROW(__VA_ARGS__)
const bt_metric bt_comm_metrics[BT_MC_COUNT] = {
#include "engine/base/metrics.def"
};
#undef BT_COMM_METRIC
#undef BT_PAIR_METRIC
#define BT_COMM_METRIC(...)
#define BT_PAIR_METRIC(...) ROW(__VA_ARGS__)
const bt_metric bt_pair_metrics[BT_MP_COUNT] = {
#include "engine/base/metrics.def"
};

const char *bt_unit_name(bt_unit unit) {
    static const char *const names[] = {"", "ms", "MiB", "bytes", "", "1/s", "fraction", "nats"};
    return (unsigned)unit < 8 ? names[unit] : "";
}

const char *bt_panel_name(bt_metric_panel panel) {
    static const char *const names[] = {"train", "speed", "step", "comm", "ternary", "system"};
    return (unsigned)panel < 6 ? names[panel] : "";
}

/* three or four significant digits with a prefix: 8.93 k, 15.1 M */
static void with_prefix(char *buf, size_t size, double v, double base, const char *const *prefixes,
                        const char *suffix) {
    int i = 0;
    double a = fabs(v);
    while (a >= 999.5 && prefixes[i + 1]) {
        a /= base;
        v /= base;
        i++;
    }
    int digits = (i == 0 && a == floor(a)) ? 0 : a >= 99.95 ? 0 : a >= 9.995 ? 1 : 2;
    const char *gap = prefixes[i][0] || suffix[0] ? " " : "";
    snprintf(buf, size, "%.*f%s%s%s", digits, v, gap, prefixes[i], suffix);
}

const char *bt_metric_format(char *buf, size_t size, double value, bt_unit unit) {
    static const char *const si[] = {"", "k", "M", "G", "T", "P", NULL};
    static const char *const binary[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", NULL};
    if (isnan(value)) {
        snprintf(buf, size, "-");
        return buf;
    }
    double a = fabs(value);
    switch (unit) {
    case BT_UNIT_MS:
        if (a >= 99999.5)
            snprintf(buf, size, "%.0f s", value / 1e3);
        else if (a >= 9999.5)
            snprintf(buf, size, "%.1f s", value / 1e3);
        else if (a >= 99.95)
            snprintf(buf, size, "%.0f ms", value);
        else if (a >= 9.995)
            snprintf(buf, size, "%.1f ms", value);
        else if (a >= 0.0995 || a == 0)
            snprintf(buf, size, "%.2f ms", value);
        else
            snprintf(buf, size, "%.0f us", value * 1e3);
        break;
    case BT_UNIT_MIB: with_prefix(buf, size, value * 1048576.0, 1024.0, binary, "B"); break;
    case BT_UNIT_BYTES: with_prefix(buf, size, value, 1024.0, binary, "B"); break;
    case BT_UNIT_COUNT: with_prefix(buf, size, value, 1000.0, si, ""); break;
    case BT_UNIT_PER_S: with_prefix(buf, size, value, 1000.0, si, "/s"); break;
    case BT_UNIT_FRAC: snprintf(buf, size, "%.1f %%", value * 100.0); break;
    case BT_UNIT_NATS: snprintf(buf, size, "%.4f", value); break;
    case BT_UNIT_NONE:
        snprintf(buf, size, a != 0 && (a < 1e-2 || a >= 1e5) ? "%.3g" : "%.4g", value);
        break;
    }
    return buf;
}
