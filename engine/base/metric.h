/* metric.h - enums and descriptors made from metrics.def, and the one formatter of values for
 * people. */
#ifndef BT_ENGINE_BASE_METRIC_H
#define BT_ENGINE_BASE_METRIC_H

#include <stddef.h>

typedef enum {
    BT_UNIT_NONE,
    BT_UNIT_MS,
    BT_UNIT_MIB,
    BT_UNIT_BYTES,
    BT_UNIT_COUNT,
    BT_UNIT_PER_S,
    BT_UNIT_FRAC,
    BT_UNIT_NATS
} bt_unit;
typedef enum {
    BT_PANEL_TRAIN,
    BT_PANEL_SPEED,
    BT_PANEL_STEP,
    BT_PANEL_COMM,
    BT_PANEL_TERNARY,
    BT_PANEL_SYSTEM
} bt_metric_panel;

#define BT_STEP_METRIC(id, key, unit, panel, help) BT_MS_##id,
#define BT_RANK_METRIC(id, key, unit, panel, help)
#define BT_LAYER_METRIC(id, key, unit, panel, help)
#define BT_COMM_METRIC(id, key, unit, panel, help)
#define BT_PAIR_METRIC(id, key, unit, panel, help)
typedef enum {
#include "engine/base/metrics.def"
    BT_MS_COUNT
} bt_step_metric;
#undef BT_STEP_METRIC
#undef BT_RANK_METRIC
#define BT_STEP_METRIC(id, key, unit, panel, help)
#define BT_RANK_METRIC(id, key, unit, panel, help) BT_MR_##id,
typedef enum {
#include "engine/base/metrics.def"
    BT_MR_COUNT
} bt_rank_metric;
#undef BT_RANK_METRIC
#undef BT_LAYER_METRIC
#define BT_RANK_METRIC(id, key, unit, panel, help)
#define BT_LAYER_METRIC(id, key, unit, panel, help) BT_ML_##id,
typedef enum {
#include "engine/base/metrics.def"
    BT_ML_COUNT
} bt_layer_metric;
#undef BT_LAYER_METRIC
#undef BT_COMM_METRIC
#define BT_LAYER_METRIC(id, key, unit, panel, help)
#define BT_COMM_METRIC(id, key, unit, panel, help) BT_MC_##id,
typedef enum {
#include "engine/base/metrics.def"
    BT_MC_COUNT
} bt_comm_metric;
#undef BT_COMM_METRIC
#undef BT_PAIR_METRIC
#define BT_COMM_METRIC(id, key, unit, panel, help)
#define BT_PAIR_METRIC(id, key, unit, panel, help) BT_MP_##id,
typedef enum {
#include "engine/base/metrics.def"
    BT_MP_COUNT
} bt_pair_metric;
#undef BT_STEP_METRIC
#undef BT_RANK_METRIC
#undef BT_LAYER_METRIC
#undef BT_COMM_METRIC
#undef BT_PAIR_METRIC

typedef struct bt_metric {
    const char *id;  /* "COMM_EXPOSED" */
    const char *key; /* column of the public view, unit as suffix */
    bt_unit unit;
    bt_metric_panel panel;
    const char *help;
} bt_metric;

extern const bt_metric bt_step_metrics[BT_MS_COUNT];
extern const bt_metric bt_rank_metrics[BT_MR_COUNT];
extern const bt_metric bt_layer_metrics[BT_ML_COUNT];
extern const bt_metric bt_comm_metrics[BT_MC_COUNT];
extern const bt_metric bt_pair_metrics[BT_MP_COUNT];

/* "ms", "MiB", "bytes", "", "1/s", "fraction", "nats" */
const char *bt_unit_name(bt_unit unit);
const char *bt_panel_name(bt_metric_panel panel); /* "train", ... */
/* "412 ms", "1.24 GiB", "8.9 k/s", "31.0 %", "2.3145"; NaN gives "-". Returns buf. */
const char *bt_metric_format(char *buf, size_t size, double value, bt_unit unit);

#endif
