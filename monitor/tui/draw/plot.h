/* plot.h - line plots and heat maps in character cells: braille (2x4 dots per cell), half blocks
 * (1x2) or ASCII (1x3).
 *
 * NaN breaks a line; it is never interpolated. A band is drawn in sparse dots behind its line
 * and leaves the cells of lines free. Triangles at the edge mark values beyond y0 and y1, so
 * that no value is hidden. Later series are drawn over earlier ones. Each of several series has
 * its own colour and a legend entry; in mono, the order of the legend and the first and last
 * values of the plot distinguish them.
 * Threads:  no shared state. */
#ifndef BT_MONITOR_TUI_DRAW_PLOT_H
#define BT_MONITOR_TUI_DRAW_PLOT_H

#include "engine/base/tables/metric.h"
#include "monitor/tui/draw/canvas.h"

typedef struct bt_plot_series {
    const char *name;
    const double *x, *y;   /* n points, x ascending; y NULL: band only */
    const double *lo, *hi; /* band, or NULL */
    size_t n;
    uint8_t color; /* bt_color of the line */
    uint8_t band;  /* colour of the band; BT_C_NONE: BT_C_FAINT */
} bt_plot_series;

/* point in the plot with a glyph, and a label beside it or NULL */
typedef struct bt_plot_point {
    double x, y;
    uint32_t glyph;
    uint8_t color;
    const char *label;
} bt_plot_point;

/* drawn on the x axis */
typedef struct bt_plot_mark {
    double x;
    uint32_t glyph;
    uint8_t color;
} bt_plot_mark;
/* a dotted horizontal line */
typedef struct bt_plot_level {
    double y;
    const char *label;
} bt_plot_level;

typedef struct bt_plot {
    double x0, x1, y0, y1; /* NaN: derived from the data */
    bool log_x, log_y;
    bt_unit x_unit, y_unit;
    const char *x_name; /* "step", "tokens": at the right end of the axis; NULL: none */
    bool x_is_time;     /* seconds, labelled as durations */
    const bt_plot_mark *marks;
    size_t n_marks;
    const bt_plot_level *levels;
    size_t n_levels;
    const bt_plot_point *points; /* drawn before everything else */
    size_t n_points;
    double cursor_x; /* position of a vertical line, or NaN */
    bool no_bands;   /* for terminals that distinguish a band from its line by colour only */
} bt_plot;

void bt_plot_init(bt_plot *p); /* everything is automatic */
void bt_plot_draw(bt_canvas *c, bt_rect r, const bt_plot *p, const bt_plot_series *series,
                  size_t n_series);

/* Computes round tick values within [lo, hi], at most max; returns their number. log: 1 2 5 per decade, thinned to
 * fit. */
size_t bt_plot_ticks(double lo, double hi, size_t max, bool log, double *out);
/* Writes the short text of an axis value: "1.5 M", "0.002", "12m". */
void bt_plot_label(char *buf, size_t size, double v, bt_unit unit, double tick_step);

/* A heat map with dual-coded cells: colour and the height (or density) of the glyph show the
 * same value. value(ctx, row, col) in 0..1, NaN: no data. label: text left of a row. */
typedef struct bt_heat {
    size_t rows, cols;
    double (*value)(void *ctx, size_t row, size_t col);
    void (*label)(void *ctx, size_t row, char *buf, size_t size);
    void *ctx;
    int label_w;
    int row_h;        /* text rows of a heat row (0: 1) */
    bool diverging;   /* value in -1..1 */
    int cursor_col;   /* -1: none */
    int selected_row; /* -1: none */
} bt_heat;

void bt_heat_draw(bt_canvas *c, bt_rect r, const bt_heat *h); /* rows are counted from the top */
/* "low ▁▂▃▄▅▆▇█ high" in w columns; returns the columns used */
int bt_heat_legend(bt_canvas *c, int x, int y, int w, const char *low, const char *high,
                   bool diverging);

/* segments of a stacked horizontal bar; in mono and ASCII each segment is filled with its letter */
typedef struct bt_segment {
    double value;
    uint8_t color;
    char letter;
} bt_segment;
void bt_stack_draw(bt_canvas *c, int x, int y, int w, double full_scale, const bt_segment *seg,
                   size_t n, bool letters);
/* Makes the last bar thinner, so that bars of neighbouring rows do not touch. */
void bt_stack_thin(bt_canvas *c, bt_rect r);

#endif
