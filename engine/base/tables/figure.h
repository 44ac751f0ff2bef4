/* figure.h - names of the figures of a run, generated from figures.def. Threads: any; constant tables. */
#ifndef BT_ENGINE_BASE_TABLES_FIGURE_H
#define BT_ENGINE_BASE_TABLES_FIGURE_H

#include "engine/base/tables/metric.h"

typedef enum {
    BT_SPAN_NEWEST,
    BT_SPAN_EVAL,
    BT_SPAN_AVERAGE,
    BT_SPAN_RECENT,
    BT_SPAN_RUN
} bt_figure_span;

#define BT_FIGURE(id, key, label, brief, span, unit, help) BT_FIGURE_##id,
typedef enum {
#include "engine/base/tables/figures.def"
    BT_FIGURES
} bt_figure;
#undef BT_FIGURE

typedef struct bt_figure_row {
    const char *key, *label, *brief; /* "tokens_per_s", "tokens/s", "tok/s" */
    bt_figure_span span;
    bt_unit unit;
    const char *help;
} bt_figure_row;
extern const bt_figure_row bt_figures[BT_FIGURES];

/* Returns "newest step", "newest evaluation", "average of about 10 steps" and so on. */
const char *bt_figure_span_name(bt_figure_span span);

#endif
