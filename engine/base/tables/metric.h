/* metric.h - the metrics: enums and descriptors generated from metrics.def, scopes.def, phases.def and panels.def, and
 * the formatter of values for people.
 * Threads: any; constant tables. */
#ifndef BT_ENGINE_BASE_TABLES_METRIC_H
#define BT_ENGINE_BASE_TABLES_METRIC_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    BT_UNIT_NONE,
    BT_UNIT_MS,
    BT_UNIT_MIB,
    BT_UNIT_BYTES,
    BT_UNIT_COUNT,
    BT_UNIT_PER_S,
    BT_UNIT_FRAC,
    BT_UNIT_NATS,
    BT_UNIT_J
} bt_unit;

#define BT_PANEL(id, name, title, question) BT_PANEL_##id,
typedef enum {
#include "engine/base/tables/panels.def"
    BT_PANEL_COUNT,
    BT_PANEL_NONE = BT_PANEL_COUNT /* no list of metrics contains it */
} bt_metric_panel;
#undef BT_PANEL

typedef struct bt_metric {
    const char *id;  /* "COMM_EXPOSED" */
    const char *key; /* column of the public view, with the unit as suffix */
    bt_unit unit;
    bt_metric_panel panel;
    const char *help;
} bt_metric;

/* clang-format off */
#define BT_METRICS_BEGIN(scope, S) typedef enum {
#define BT_METRIC(S, id, key, unit, panel, help) BT_M##S##_##id,
#define BT_METRICS_END(scope, S) BT_M##S##_COUNT } bt_##scope##_metric; \
    extern const bt_metric bt_##scope##_metrics[BT_M##S##_COUNT];
#include "engine/base/tables/metrics.def"
#undef BT_METRICS_BEGIN
#undef BT_METRIC
#undef BT_METRICS_END
/* clang-format on */

/* Indices over all scopes. */
#define BT_METRICS_BEGIN(scope, S)
#define BT_METRIC(S, id, key, unit, panel, help) BT_METRIC_##S##_##id,
#define BT_METRICS_END(scope, S)
enum {
#include "engine/base/tables/metrics.def"
    BT_METRICS_COUNT
};
#undef BT_METRICS_BEGIN
#undef BT_METRIC
#undef BT_METRICS_END

#define BT_SCOPE(id, S, name, view, table, kept, per, ...) BT_SCOPE_##id,
typedef enum {
#include "engine/base/tables/scopes.def"
    BT_SCOPE_COUNT
} bt_scope;
#undef BT_SCOPE

typedef enum { BT_KEPT_STEPS, BT_KEPT_PACKED, BT_KEPT_SAMPLED } bt_scope_kept;

enum { BT_SCOPE_KEYS = 4 };
typedef struct bt_scope_key {
    const char *name;
    bool text; /* true: text; false: an integer */
} bt_scope_key;

typedef struct bt_scope_row {
    const char *name, *view, *table;
    bt_scope_kept kept;
    const char *per; /* subject of a row, such as "ternary tensor" */
    bt_scope_key key[BT_SCOPE_KEYS];
    int n_keys;
    int n; /* number of metrics */
    const bt_metric *metric;
} bt_scope_row;
extern const bt_scope_row bt_scopes[BT_SCOPE_COUNT];

int bt_metric_find(bt_scope scope, const char *key); /* -1: not found */

#define BT_PHASE(id, name, letter, title, key, panel, counted, c256, c16, light, dark, help) \
    BT_PH_##id,
typedef enum {
#include "engine/base/tables/phases.def"
    BT_PHASE_COUNT
} bt_phase;
#undef BT_PHASE

typedef struct bt_phase_row {
    const char *name, *title; /* "comm", "communication" */
    char letter;
    bt_rank_metric metric;
    bool rest;                /* the phase is the time outside all spans */
    const char *light, *dark; /* its colour on a page, "#1f5fbf" */
} bt_phase_row;
extern const bt_phase_row bt_phases[BT_PHASE_COUNT];

/* Returns "ms", "MiB", "bytes", "", "1/s", "fraction" or "nats". */
const char *bt_unit_name(bt_unit unit);
const char *bt_panel_name(bt_metric_panel panel);  /* "train" */
const char *bt_panel_title(bt_metric_panel panel); /* "Training" */
const char *bt_panel_query(bt_metric_panel panel); /* "does the model learn?" */
bt_metric_panel bt_panel_find(const char *name);   /* BT_PANEL_COUNT: no such panel */
/* Returns buf with the value for display: "412 ms", "1.24 GiB", "8.9 k/s", "31.0 %", "2.3145"; "-" for NaN. */
const char *bt_metric_format(char *buf, size_t size, double value, bt_unit unit);

#endif
