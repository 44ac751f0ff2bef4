/* canvas.h - a grid of styled cells that every screen draws into, independent of the terminal.
 *
 * The content of a cell is safe to show: control and bidirectional-override characters are
 * dropped, invalid UTF-8 becomes '?', so text from logs, host names and run names cannot control
 * the terminal. With BT_CHARS_ASCII every glyph is mapped to ASCII here, so screens always draw
 * Unicode. Coordinates are cells, (0, 0) top left; cells outside the clip rectangle are not
 * drawn.
 * Owns:     the cells.
 * Threads:  one caller. */
#ifndef BT_MONITOR_TUI_DRAW_CANVAS_H
#define BT_MONITOR_TUI_DRAW_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/text.h"
#include "monitor/tui/draw/color.h"

/* each set includes the previous one */
typedef enum { BT_CHARS_ASCII, BT_CHARS_BLOCK, BT_CHARS_BRAILLE } bt_chars;

enum { BT_ATTR_BOLD = 1, BT_ATTR_DIM = 2, BT_ATTR_REVERSE = 4, BT_ATTR_UNDERLINE = 8 };

typedef struct bt_style {
    uint8_t fg, bg; /* bt_color */
    uint8_t attr;   /* BT_ATTR_* */
} bt_style;

typedef struct bt_cell {
    uint32_t glyph; /* code point; 0: right half of a wide glyph */
    bt_style style;
} bt_cell;

typedef struct bt_rect {
    int x, y, w, h;
} bt_rect;

typedef struct bt_canvas {
    int w, h;
    bt_chars chars;
    bt_rect clip;
    bt_cell *cells; /* (h, w) */
} bt_canvas;

bt_code bt_canvas_init(bt_canvas *c, int w, int h, bt_chars chars, bt_err *err) BT_MUST_CHECK;
/* accepts an all-zero struct */
void bt_canvas_release(bt_canvas *c);
/* Clears all cells and sets the clip rectangle to the whole grid. */
void bt_canvas_clear(bt_canvas *c);
/* Narrows the clip rectangle to r; returns the previous one. */
bt_rect bt_canvas_clip(bt_canvas *c, bt_rect r);
void bt_canvas_unclip(bt_canvas *c, bt_rect old);

void bt_canvas_put(bt_canvas *c, int x, int y, uint32_t glyph, bt_style s);
/* Draws UTF-8 from x on, at most max_w columns (cut text ends in '…'); returns the number of columns used. */
int bt_canvas_text(bt_canvas *c, int x, int y, int max_w, bt_style s, const char *utf8);
int bt_canvas_textf(bt_canvas *c, int x, int y, int max_w, bt_style s, const char *fmt, ...)
    BT_PRINTF(6, 7);
/* The text ends before x_end. */
void bt_canvas_text_right(bt_canvas *c, int x_end, int y, int max_w, bt_style s, const char *utf8);
int bt_canvas_text_width(const char *utf8); /* number of columns of the text */
/* Breaks the text into lines at spaces and line breaks, as many as fit; returns their number. A cut text ends in an
 * ellipsis; c NULL: only counts. */
int bt_canvas_wrap(bt_canvas *c, bt_rect r, bt_style s, const char *utf8);
void bt_canvas_fill(bt_canvas *c, bt_rect r, uint32_t glyph, bt_style s);
void bt_canvas_box(bt_canvas *c, bt_rect r, bt_style s, const char *title);
/* "title ───────── right": the heading of a panel, one row */
void bt_canvas_rule(bt_canvas *c, bt_rect row, bt_style title_style, const char *title,
                    const char *right);
/* Draws a horizontal bar, whose length is exact to an eighth of a cell. */
void bt_canvas_bar(bt_canvas *c, int x, int y, int w, double frac, bt_style s);
/* NaN: gap */
void bt_canvas_spark(bt_canvas *c, bt_rect r, const double *v, size_t n, double lo, double hi,
                     bt_style s);
/* bg BT_C_NONE: the background is unchanged. */
void bt_canvas_restyle(bt_canvas *c, bt_rect r, uint8_t attr_on, uint8_t bg);

/* Writes the grid as text, one line per row, without trailing spaces. */
void bt_canvas_dump(const bt_canvas *c, bt_text *out);
/* Writes the grid with SGR colour sequences; depth as in color.h. */
void bt_canvas_dump_ansi(const bt_canvas *c, bt_color_depth depth, bt_text *out);

/* Returns the next code point, '?' for an invalid byte; 0 at the end. */
uint32_t bt_glyph_next(const char **p);
size_t bt_glyph_put(char out[5], uint32_t cp); /* returns the bytes written, NUL-terminated */
int bt_glyph_width(uint32_t cp);               /* 0 (combining, control), 1 or 2 */

#endif
