/* fact.c - formats and compares facts by the rows of facts.def. */
#include "engine/base/tables/fact.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/tables/metric.h"

typedef struct fact_row {
    const char *key;
    double scale;
    bt_unit unit;
    const char *suffix;
    double noise;
} fact_row;

#define BT_FACT(id, key, scale, unit, suffix, noise, help) \
    {key, scale, BT_UNIT_##unit, suffix, noise},
static const fact_row rows[] = {
#include "engine/base/tables/facts.def"
};
#undef BT_FACT

/* pattern: at most one `*`, which matches any text. */
static bool matches_pattern(const char *pattern, const char *key) {
    const char *star = strchr(pattern, '*');
    if (!star) return strcmp(pattern, key) == 0;
    size_t head = (size_t)(star - pattern), tail = strlen(star + 1), n = strlen(key);
    return n > head + tail && strncmp(pattern, key, head) == 0 &&
           strcmp(star + 1, key + n - tail) == 0;
}

static const fact_row *find_fact_row(const char *key) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (matches_pattern(rows[i].key, key)) return &rows[i];
    return NULL;
}

static double parse_fact_number(const char *text) {
    char *end = NULL;
    double v = text ? strtod(text, &end) : NAN;
    return end && end != text && *end == 0 ? v : (double)NAN;
}

const char *bt_fact_format(char *buf, size_t size, const char *key, const char *value) {
    const fact_row *row = find_fact_row(key);
    double v = row ? parse_fact_number(value) * row->scale : NAN;
    char plain[64];
    if (isnan(v)) {
        snprintf(buf, size, "%s", value ? value : "-");
        return buf;
    }
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a fact that was found
    bt_metric_format(plain, sizeof plain, v, row->unit);
    /* The prefix of the number is written at the unit: "1.23 TFLOP/s"; without a prefix, "48 FLOP". */
    size_t n = strlen(plain);
    bool gap = row->suffix[0] && row->suffix[0] != '/' && n && plain[n - 1] >= '0' &&
               plain[n - 1] <= '9';
    snprintf(buf, size, "%s%s%s", plain, gap ? " " : "", row->suffix);
    return buf;
}

const char *bt_setting_format(char *buf, size_t size, const char *value) {
    const double v = parse_fact_number(value);
    if (isfinite(v) && strpbrk(value, ".eE"))
        snprintf(buf, size, "%.6g", v);
    else
        snprintf(buf, size, "%s", value ? value : "-");
    return buf;
}

double bt_fact_noise(const char *key) {
    const fact_row *row = find_fact_row(key);
    return row ? row->noise : 0;
}

bool bt_fact_same(const char *key, const char *a, const char *b) {
    double noise = bt_fact_noise(key), x = parse_fact_number(a), y = parse_fact_number(b);
    if (a && b && strcmp(a, b) == 0) return true;
    /* a link that one of the runs could not measure is not a difference */
    if (noise > 0 && (!(x > 0) || !(y > 0))) return true;
    if (!a || !b || !(noise > 0)) return !a && !b;
    return fmax(x, y) <= noise * fmin(x, y);
}
