/* panes.h - divides a rectangle among panes: a pure function.
 *
 * Each item gets at least `min` rows (or columns) and a share of the rest by `weight`, up to
 * `max`. If the minima do not fit, items of the highest `rank` are dropped first; a dropped item
 * gets size 0. */
#ifndef BT_MONITOR_TUI_DRAW_PANES_H
#define BT_MONITOR_TUI_DRAW_PANES_H

#include "monitor/tui/draw/canvas.h"

enum { BT_LAYOUT_MAX = 12 };

typedef struct bt_pane_size {
    int min, max; /* max 0: no limit */
    int weight;
    int rank; /* 0: most important */
} bt_pane_size;

void bt_layout_rows(bt_rect r, const bt_pane_size *want, int n, int gap, bt_rect *out);
void bt_layout_cols(bt_rect r, const bt_pane_size *want, int n, int gap, bt_rect *out);

#endif
