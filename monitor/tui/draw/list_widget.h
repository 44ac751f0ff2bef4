/* list_widget.h - rows and columns with a header, a selection, a sort mark; columns that do not fit
 * are left out by importance. */
#ifndef BT_MONITOR_TUI_DRAW_LIST_WIDGET_H
#define BT_MONITOR_TUI_DRAW_LIST_WIDGET_H

#include <stdint.h>

#include "monitor/tui/draw/canvas.h"

enum { BT_LIST_COLUMNS = 24 };

typedef struct bt_list_col {
    const char *title;
    int w; /* minimum width; a `grow` column takes the remaining width */
    bool right, grow;
    int importance; /* 0: always shown; columns with larger numbers are dropped first */
} bt_list_col;

typedef struct bt_list_table {
    const bt_list_col *cols;
    int n_cols;
    size_t n_rows;
    /* Writes the text of a cell, and its style if it is not the default. */
    void (*cell)(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *style);
    /* draws the cell itself (bars, sparklines) and returns true; may be NULL */
    bool (*paint)(void *ctx, bt_canvas *c, bt_rect cell, size_t row, int col);
    bool (*marked)(void *ctx, size_t row); /* may be NULL */
    void *ctx;
    int selected; /* -1: none */
    /* receives a bit for each visible column with a title; may be NULL */
    uint32_t *shown;
    int sort_col; /* -1: none */
    bool descending;
} bt_list_table;

/* keeps `selected` visible by moving *top; returns the rows that fit */
int bt_list_draw(bt_canvas *c, bt_rect r, const bt_list_table *t, int *top);

#endif
