/* metric.c - descriptors of metrics, and formatting of values for people. */
#include "engine/base/tables/metric.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define BT_METRICS_BEGIN(scope, S) const bt_metric bt_##scope##_metrics[BT_M##S##_COUNT] = {
#define BT_METRIC(S, id, key, unit, panel, help) {#id, key, BT_UNIT_##unit, BT_PANEL_##panel, help},
#define BT_METRICS_END(scope, S) };
#include "engine/base/tables/metrics.def"
/* clang-format on */

#define BT_KEY_INT(name) \
    { name, false }
#define BT_KEY_TEXT(name) \
    { name, true }
#define BT_NO_KEYS \
    { NULL, false }
/* The single nameless entry of BT_NO_KEYS is not counted. */
#define BT_SCOPE(id, S, name, view, table, kept, per, ...) \
    {#name, \
     view, \
     table, \
     BT_KEPT_##kept, \
     per, \
     {__VA_ARGS__}, \
     BT_KEPT_##kept == BT_KEPT_STEPS \
         ? 0 \
         : (int)(sizeof((const bt_scope_key[]){__VA_ARGS__}) / sizeof(bt_scope_key)), \
     BT_M##S##_COUNT, \
     bt_##name##_metrics},
const bt_scope_row bt_scopes[BT_SCOPE_COUNT] = {
#include "engine/base/tables/scopes.def"
};
#undef BT_SCOPE

#define BT_PHASE(id, name, letter, title, key, panel, counted, c256, c16, light, dark, help) \
    {name, title, letter, BT_MR_##id, counted, light, dark},
enum { SPENT = false, REST = true };
const bt_phase_row bt_phases[BT_PHASE_COUNT] = {
#include "engine/base/tables/phases.def"
};
#undef BT_PHASE

static const struct {
    const char *name, *title, *question;
} panels[] = {
#define BT_PANEL(id, name, title, question) {name, title, question},
#include "engine/base/tables/panels.def"
#undef BT_PANEL
};

int bt_metric_find(bt_scope scope, const char *key) {
    for (int i = 0; i < bt_scopes[scope].n; i++)
        if (strcmp(bt_scopes[scope].metric[i].key, key) == 0) return i;
    return -1;
}

const char *bt_unit_name(bt_unit unit) {
    static const char *const names[] = {"",    "ms",       "MiB",  "bytes", "",
                                        "1/s", "fraction", "nats", "J"};
    return (unsigned)unit < 9 ? names[unit] : "";
}

const char *bt_panel_name(bt_metric_panel panel) {
    return (unsigned)panel < BT_PANEL_COUNT ? panels[panel].name : "";
}
const char *bt_panel_title(bt_metric_panel panel) {
    return (unsigned)panel < BT_PANEL_COUNT ? panels[panel].title : "";
}
const char *bt_panel_query(bt_metric_panel panel) {
    return (unsigned)panel < BT_PANEL_COUNT ? panels[panel].question : "";
}

bt_metric_panel bt_panel_find(const char *name) {
    int p = 0;
    while (p < BT_PANEL_COUNT && strcmp(panels[p].name, name) != 0) p++;
    return (bt_metric_panel)p;
}

/* Writes three or four significant digits with a prefix, such as 8.93 k or 15.1 M. */
static void format_with_prefix(char *buf, size_t size, double v, double base,
                               const char *const *prefixes, const char *suffix) {
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

/* Writes a loss with four decimals; that of a diverged run as "12346" or "3.756e10", like format.js. */
static void format_loss(char *buf, size_t size, double value) {
    char text[32];
    const double a = fabs(value);
    if (!(a >= 1e4)) {
        snprintf(buf, size, "%.4f", value);
    } else if (a < 99999.5 || isinf(value)) {
        snprintf(buf, size, "%.0f", value);
    } else {
        snprintf(text, sizeof text, "%.3e", value);
        char *e = strchr(text, 'e'), *end = e;
        while (end[-1] == '0') end--;
        if (end[-1] == '.') end--;
        *e = 0;
        snprintf(buf, size, "%.*se%d", (int)(end - text), text, atoi(e + 1));
    }
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
        else if (a >= 0.0009995)
            snprintf(buf, size, "%.0f us", value * 1e3);
        else
            snprintf(buf, size, "%.0f ns", value * 1e6);
        break;
    case BT_UNIT_MIB: format_with_prefix(buf, size, value * 1048576.0, 1024.0, binary, "B"); break;
    case BT_UNIT_BYTES: format_with_prefix(buf, size, value, 1024.0, binary, "B"); break;
    case BT_UNIT_COUNT: format_with_prefix(buf, size, value, 1000.0, si, ""); break;
    case BT_UNIT_PER_S: format_with_prefix(buf, size, value, 1000.0, si, "/s"); break;
    case BT_UNIT_FRAC: snprintf(buf, size, "%.1f %%", value * 100.0); break;
    case BT_UNIT_J:
        if (a >= 0.0995 || a == 0)
            format_with_prefix(buf, size, value, 1000.0, si, "J");
        else if (a >= 0.995e-4)
            snprintf(buf, size, "%.*f mJ", a >= 9.995e-3 ? 1 : 2, value * 1e3);
        else
            snprintf(buf, size, "%.3g uJ", value * 1e6);
        break;
    case BT_UNIT_NATS: format_loss(buf, size, value); break;
    case BT_UNIT_NONE:
        snprintf(buf, size, a != 0 && (a < 1e-2 || a >= 1e5) ? "%.3g" : "%.4g", value);
        break;
    }
    return buf;
}
