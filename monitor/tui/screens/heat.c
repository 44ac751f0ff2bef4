/* heat.c - draws heat maps and stacked bars whose values are readable without colour. */
#include <math.h>

#include "monitor/tui/draw/plot.h"

/* value as a glyph: heights with Unicode (mapped to densities by the canvas for ASCII) */
static uint32_t level_glyph(double frac) {
    int e = (int)(frac * 8);
    return 0x2581U + (uint32_t)(e < 0 ? 0 : e > 7 ? 7 : e);
}

static void draw_heat_cell(bt_canvas *c, int x, int y, int h, double frac, bt_style s) {
    int eighths = (int)(frac * 8 * h) + 1;
    eighths = eighths < 1 ? 1 : eighths > 8 * h ? 8 * h : eighths;
    for (int row = h - 1; row >= 0; row--, eighths -= 8) {
        if (eighths > 0)
            bt_canvas_put(c, x, y + row, 0x2580U + (uint32_t)(eighths > 8 ? 8 : eighths), s);
        else if (s.attr)
            bt_canvas_put(c, x, y + row, ' ', s);
    }
}

void bt_heat_draw(bt_canvas *c, bt_rect r, const bt_heat *h) {
    bt_rect old = bt_canvas_clip(c, r);
    int width = r.w - h->label_w, tall = h->row_h > 1 ? h->row_h : 1;
    for (size_t row = 0; row < h->rows && (int)row * tall < r.h; row++) {
        int y = r.y + (int)row * tall;
        bool selected = (int)row == h->selected_row;
        if (h->label && h->label_w > 1) {
            char buf[128];
            h->label(h->ctx, row, buf, sizeof buf);
            bt_canvas_text(c, r.x, y + tall - 1, h->label_w - 1,
                           (bt_style){.fg = selected ? BT_C_BRIGHT : BT_C_LABEL,
                                      .attr = selected ? BT_ATTR_BOLD : 0},
                           buf);
        }
        for (size_t col = 0; col < h->cols && (int)col < width; col++) {
            double v = h->value(h->ctx, row, col);
            int x = r.x + h->label_w + (int)col;
            bt_style s = {.fg = h->diverging ? bt_color_diverge(v) : bt_color_heat(v)};
            if ((int)col == h->cursor_col) s.attr = BT_ATTR_REVERSE;
            if (isnan(v))
                bt_canvas_put(c, x, y + tall - 1, 0xB7,
                              (bt_style){.fg = BT_C_FAINT, .attr = s.attr});
            else
                draw_heat_cell(c, x, y, tall, h->diverging ? (v + 1) / 2 : v, s);
        }
    }
    bt_canvas_unclip(c, old);
}

int bt_heat_legend(bt_canvas *c, int x, int y, int w, const char *low, const char *high,
                   bool diverging) {
    bt_style label = {.fg = BT_C_LABEL};
    int at = x + bt_canvas_text(c, x, y, w, label, low) + 1;
    for (int i = 0; i < 8 && at < x + w; i++) {
        double f = (i + 0.5) / 8;
        bt_canvas_put(c, at++, y, level_glyph(f),
                      (bt_style){.fg = diverging ? bt_color_diverge(2 * f - 1) : bt_color_heat(f)});
    }
    at++;
    return at - x + bt_canvas_text(c, at, y, x + w - at, label, high);
}

void bt_stack_draw(bt_canvas *c, int x, int y, int w, double full_scale, const bt_segment *seg,
                   size_t n, bool letters) {
    if (!(full_scale > 0) || w <= 0) return;
    double sum = 0;
    int at = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(seg[i].value > 0)) continue;
        sum += seg[i].value;
        int end = (int)lround(fmin(sum / full_scale, 1) * w);
        for (; at < end; at++)
            bt_canvas_put(c, x + at, y,
                          letters || c->chars == BT_CHARS_ASCII
                              ? (uint32_t)(unsigned char)seg[i].letter
                              : 0x2588,
                          (bt_style){.fg = seg[i].color});
    }
}

void bt_stack_thin(bt_canvas *c, bt_rect r) {
    for (int y = r.y; y < r.y + r.h && y < c->h; y++)
        for (int x = r.x; x < r.x + r.w && x < c->w; x++) {
            bt_cell *cell = &c->cells[(size_t)y * (size_t)c->w + (size_t)x];
            if (cell->glyph == 0x2588) cell->glyph = 0x2586;
        }
}
