/* plot_curves.h - curves of a file (curve_table.h) as a chart in the terminal. */
#ifndef BT_CLI_RUNS_PLOT_CURVES_H
#define BT_CLI_RUNS_PLOT_CURVES_H

#include <stdbool.h>

#include "cli/common/curve_table.h"

typedef struct bt_curves_style {
    int w, h;
    bool tokens; /* the x axis; else minutes */
    bool ascii, log_y;
} bt_curves_style;
/* to stdout; more than twelve curves: the first twelve */
bt_code bt_curves_draw(const bt_curves *c, const char *title, const bt_curves_style *how,
                       bt_err *err) BT_MUST_CHECK;

#endif
