/* plot_curves.h - draws the curves of a file (curve_table.h) as a chart in the terminal. */
#ifndef BT_CLI_RUNS_PLOT_CURVES_H
#define BT_CLI_RUNS_PLOT_CURVES_H

#include <stdbool.h>

#include "cli/common/curve_table.h"

typedef struct bt_curves_style {
    int w, h;
    bool tokens; /* x axis: tokens; otherwise minutes */
    bool ascii, log_y;
} bt_curves_style;
bt_code bt_curves_draw(const bt_curves *c, const char *title, const bt_curves_style *how,
                       bt_err *err) BT_MUST_CHECK;

#endif
