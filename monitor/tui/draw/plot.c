/* plot.c - draws dots into cells: scales, ticks, lines, bands. */
#include "monitor/tui/draw/plot.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dots {
    bt_canvas *c;
    bt_rect r;      /* cells of the drawing area */
    int dx, dy;     /* dots per cell */
    int w, h;       /* dots */
    uint8_t *bits;  /* (r.h, r.w): dots of lines */
    uint8_t *band;  /* (r.h, r.w): dots of bands, shown in cells without a line */
    uint8_t *color; /* (r.h, r.w) */
} dots;

/* y_log: between y0 and y1 */
typedef struct scale {
    double x0, x1, y0, y1;
    bool log_x, log_y;
    double y0_log, y_log;
} scale;

void bt_plot_init(bt_plot *p) {
    *p = (bt_plot){.x0 = NAN, .x1 = NAN, .y0 = NAN, .y1 = NAN, .cursor_x = NAN};
}

/* ---- ticks ----------------------------------------------------------------------------------- */

/* the finest of 1, 2, 5 x 10^k that puts no more than max ticks into [lo, hi] */
static double choose_tick_step(double lo, double hi, size_t max) {
    double mag = pow(10, floor(log10((hi - lo) / (double)max)) - 1);
    for (int i = 0; i < 12; i++) {
        int exponent = i / 3;
        double step = mag * (double[]){1, 2, 5}[i % 3] * pow(10, exponent),
               count = floor(hi / step + 1e-6) - ceil(lo / step - 1e-9) + 1;
        if (count <= (double)max) return step;
    }
    return hi - lo;
}

static size_t compute_log_ticks(double lo, double hi, size_t max, double *out) {
    int d0 = (int)floor(log10(lo)), d1 = (int)ceil(log10(hi)), every = 1;
    static const double mult[] = {1, 2, 5};
    for (int per = 3; per >= 1; per -= 2) {
        size_t n = 0;
        for (int d = d0; d <= d1; d++)
            for (int i = 0; i < per; i++) {
                double v = mult[i] * pow(10, d);
                if (v >= lo * 0.9999 && v <= hi * 1.0001 && n++ < max) out[n - 1] = v;
            }
        if (n >= 2 && n <= max) return n;
        /* Ticks are at decades or, if there are too many, at every second, third, ... decade. */
        if (n > 0 && per == 1) {
            every = (int)((n + max - 1) / max);
            n = 0;
            for (int d = d0; d <= d1; d += every) {
                double v = pow(10, d);
                if (v >= lo * 0.9999 && v <= hi * 1.0001 && n < max) out[n++] = v;
            }
            return n;
        }
    }
    return 0;
}

size_t bt_plot_ticks(double lo, double hi, size_t max, bool log, double *out) {
    if (!(hi > lo) || max == 0 || !isfinite(lo) || !isfinite(hi)) return 0;
    if (log && lo > 0) {
        size_t n = compute_log_ticks(lo, hi, max, out);
        if (n >= 2) return n;
    }
    double step = choose_tick_step(lo, hi, max), first = ceil(lo / step - 1e-9) * step;
    size_t n = 0;
    for (int i = 0; n < max; i++) {
        double v = first + i * step;
        if (v > hi + step * 1e-6) break;
        out[n++] = fabs(v) < step * 1e-6 ? 0 : v;
    }
    return n;
}

void bt_plot_label(char *buf, size_t size, double v, bt_unit unit, double tick_step) {
    if (unit == BT_UNIT_NONE || unit == BT_UNIT_NATS || unit == BT_UNIT_MS ||
        unit == BT_UNIT_FRAC) {
        double shown = unit == BT_UNIT_FRAC ? v * 100 : v,
               step = unit == BT_UNIT_FRAC ? tick_step * 100 : tick_step;
        if (v != 0 && (fabs(shown) < 1e-3 || fabs(shown) >= 1e5)) {
            snprintf(buf, size, "%.1e", shown);
            /* "2.0e8", "1.0e-5" */
            char *e = strchr(buf, 'e');
            if (e) snprintf(e + 1, size - (size_t)(e + 1 - buf), "%d", atoi(e + 1));
        } else {
            int digits = step > 0 ? (int)ceil(-log10(step) - 1e-6) : 2;
            snprintf(buf, size, "%.*f%s",
                     digits < 0   ? 0
                     : digits > 4 ? 4
                                  : digits,
                     shown, unit == BT_UNIT_FRAC ? " %" : "");
        }
        return;
    }
    bt_metric_format(buf, size, v, unit == BT_UNIT_PER_S ? BT_UNIT_COUNT : unit);
    char *rest = NULL, word[16];
    const double shown = strtod(buf, &rest),
                 base = unit == BT_UNIT_BYTES || unit == BT_UNIT_MIB ? 1024 : 1000;
    if (rest == buf || shown == 0 || !(v / shown > 0)) return;
    /* as many digits as distinguish adjacent ticks: 1 k, but 220.5 MiB */
    const double factor = pow(base, round(log(v / shown) / log(base)));
    int digits = tick_step > 0 ? (int)ceil(-log10(tick_step / factor) - 1e-6) : 0;
    snprintf(word, sizeof word, "%s", rest);
    int n = snprintf(buf, size, "%.*f", digits < 0 ? 0 : digits > 4 ? 4 : digits, v / factor);
    while (digits > 0 && n > 1 && buf[n - 1] == '0') n--; /* 1.0 M -> 1 M */
    if (digits > 0 && buf[n - 1] == '.') n--;
    snprintf(buf + n, size - (size_t)n, "%s", word);
}

/* ---- dots ------------------------------------------------------------------------------------ */

static void set_dot(dots *d, int x, int y, uint8_t color) {
    if (x < 0 || y < 0 || x >= d->w || y >= d->h) return;
    size_t i = (size_t)(y / d->dy) * (size_t)d->r.w + (size_t)(x / d->dx);
    d->bits[i] |= (uint8_t)(1U << ((y % d->dy) * d->dx + x % d->dx));
    d->color[i] = color;
}

static void draw_dotted_line(dots *d, int x0, int y0, int x1, int y1, uint8_t color) {
    int dx = abs(x1 - x0), dy = -abs(y1 - y0), sx = x0 < x1 ? 1 : -1, sy = y0 < y1 ? 1 : -1,
        e = dx + dy;
    for (;;) {
        set_dot(d, x0, y0, color);
        if (x0 == x1 && y0 == y1) return;
        int e2 = 2 * e;
        if (e2 >= dy) e += dy, x0 += sx;
        if (e2 <= dx) e += dx, y0 += sy;
    }
}

/* clamp distant values near the frame, so that a line leaves in the right direction and
 * Bresenham is short */
static int fraction_to_dot(double frac, int size) {
    double v = frac * (size - 1);
    return (int)lround(v < -2.0 * size ? -2.0 * size : v > 3.0 * size ? 3.0 * size : v);
}

static double x_as_fraction(const scale *s, double x) {
    if (s->log_x) return log((x > 1e-300 ? x : 1e-300) / s->x0) / log(s->x1 / s->x0);
    return (x - s->x0) / (s->x1 - s->x0);
}

static int x_dot(const dots *d, const scale *s, double x) {
    return fraction_to_dot(x_as_fraction(s, x), d->w);
}

static int y_dot(const dots *d, const scale *s, double y) {
    double f = s->log_y ? (log(y > 1e-300 ? y : 1e-300) - s->y0_log) / s->y_log
                        : (y - s->y0) / (s->y1 - s->y0);
    return d->h - 1 - fraction_to_dot(f, d->h);
}

/* Draws one dot in four of the column from y0 to y1, so that a band is fainter than its line, also without colours. */
static void draw_band_column(dots *d, int x, int y0, int y1, uint8_t color) {
    if (y1 >= d->h) y1 = d->h - 1;
    if (x < 0 || x >= d->w) return;
    for (int y = y0 + (4 - (x + y0) % 4) % 4; y <= y1; y += 4) {
        const size_t i = (size_t)(y / d->dy) * (size_t)d->r.w + (size_t)(x / d->dx);
        d->band[i] |= (uint8_t)(1U << ((y % d->dy) * d->dx + x % d->dx));
        if (!d->bits[i]) d->color[i] = color;
    }
}

static void draw_band(dots *d, const scale *s, const bt_plot_series *p) {
    for (size_t i = 0; i < p->n; i++) {
        if (isnan(p->lo[i]) || isnan(p->hi[i])) continue;
        int x1 = x_dot(d, s, p->x[i]),
            x0 = i > 0 && !isnan(p->lo[i - 1]) ? x_dot(d, s, p->x[i - 1]) + 1 : x1;
        int top = y_dot(d, s, p->hi[i]), bottom = y_dot(d, s, p->lo[i]);
        if (top < 0) top = 0;
        /* A bucket begins after the previous bucket's end. */
        for (int x = x0 < 0 ? 0 : x0 > x1 ? x1 : x0; x <= x1 && x < d->w; x++)
            draw_band_column(d, x, top, bottom, p->band ? p->band : BT_C_FAINT);
    }
}

static void draw_line(dots *d, const scale *s, const bt_plot_series *p) {
    bool pen = false;
    int px = 0, py = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (!isfinite(p->y[i]) || !isfinite(p->x[i])) {
            pen = false;
            continue;
        }
        int x = x_dot(d, s, p->x[i]), y = y_dot(d, s, p->y[i]);
        if (pen)
            draw_dotted_line(d, px, py, x, y, p->color);
        else
            set_dot(d, x, y, p->color);
        px = x, py = y, pen = true;
    }
}

static uint32_t glyph_of_dots(bt_chars chars, unsigned bits) {
    if (chars == BT_CHARS_BRAILLE) {
        /* converts row-major bits to braille */
        static const uint8_t map[8] = {0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80};
        uint32_t g = 0x2800;
        for (int i = 0; i < 8; i++)
            if (bits & 1U << i) g |= map[i];
        return g;
    }
    if (chars == BT_CHARS_BLOCK) return bits == 3 ? 0x2588 : bits == 1 ? 0x2580 : 0x2584;
    static const char ascii[8] = {' ', '\'', '-', '^', '.', ':', '_', '|'};
    return (uint32_t)ascii[bits & 7];
}

static void flush_dots(dots *d) {
    for (int y = 0; y < d->r.h; y++)
        for (int x = 0; x < d->r.w; x++) {
            size_t i = (size_t)y * (size_t)d->r.w + (size_t)x;
            const unsigned bits = d->bits[i] ? d->bits[i] : d->band[i];
            if (bits)
                bt_canvas_put(d->c, d->r.x + x, d->r.y + y, glyph_of_dots(d->c->chars, bits),
                              (bt_style){.fg = d->color[i]});
        }
}

static bool init_dots(dots *d, bt_canvas *c, bt_rect r) {
    *d = (dots){.c = c,
                .r = r,
                .dx = c->chars == BT_CHARS_BRAILLE ? 2 : 1,
                .dy = c->chars == BT_CHARS_BRAILLE ? 4
                      : c->chars == BT_CHARS_BLOCK ? 2
                                                   : 3};
    d->w = r.w * d->dx;
    d->h = r.h * d->dy;
    const size_t cells = (size_t)r.w * (size_t)r.h;
    d->bits = calloc(cells, 3);
    if (d->bits) d->band = d->bits + cells, d->color = d->band + cells;
    return d->bits != NULL;
}

/* ---- scales and axes ------------------------------------------------------------------------- */

static void widen_range(double v, bool positive_only, double *lo, double *hi) {
    if (!isfinite(v) || (positive_only && v <= 0)) return;
    if (v < *lo) *lo = v;
    if (v > *hi) *hi = v;
}

static scale find_scale(const bt_plot *p, const bt_plot_series *s, size_t n) {
    double x0 = INFINITY, x1 = -INFINITY, y0 = INFINITY, y1 = -INFINITY;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < s[k].n; i++) {
            bool any = s[k].y && isfinite(s[k].y[i]);
            /* Values outside the view do not affect the other axis. */
            if (s[k].x[i] < p->x0 || s[k].x[i] > p->x1) continue;
            if (s[k].y) widen_range(s[k].y[i], p->log_y, &y0, &y1);
            if (s[k].lo && !p->no_bands)
                widen_range(s[k].lo[i], p->log_y, &y0, &y1),
                    widen_range(s[k].hi[i], p->log_y, &y0, &y1), any = any || isfinite(s[k].lo[i]);
            if (any) widen_range(s[k].x[i], p->log_x, &x0, &x1);
        }
    for (size_t i = 0; i < p->n_levels; i++) widen_range(p->levels[i].y, p->log_y, &y0, &y1);
    for (size_t i = 0; i < p->n_points; i++) widen_range(p->points[i].y, p->log_y, &y0, &y1);
    scale r = {isnan(p->x0) ? x0 : p->x0,
               isnan(p->x1) ? x1 : p->x1,
               isnan(p->y0) ? y0 : p->y0,
               isnan(p->y1) ? y1 : p->y1,
               p->log_x,
               p->log_y,
               0,
               0};
    if (!isfinite(r.y0) || !isfinite(r.y1)) r.y0 = p->log_y ? 0.1 : 0, r.y1 = 1;
    if (!isfinite(r.x0) || !isfinite(r.x1)) r.x0 = p->log_x ? 0.1 : 0, r.x1 = 1;
    if (r.x1 <= r.x0) r.x1 = p->log_x ? r.x0 * 10 : r.x0 + 1;
    /* flat except for rounding */
    if (r.y1 - r.y0 <= 1e-9 * fmax(fabs(r.y0), fabs(r.y1))) r.y1 = r.y0;
    bool flat = !(r.y1 > r.y0);
    double pad = flat ? (fabs(r.y0) > 0 ? fabs(r.y0) * 0.05 : 0.5) : (r.y1 - r.y0) * 0.03;
    if (r.log_y) {
        double f = r.y1 > r.y0 ? pow(r.y1 / r.y0, 0.03) : 1.1;
        if (isnan(p->y0)) r.y0 /= f;
        if (isnan(p->y1)) r.y1 *= f;
    } else {
        if (isnan(p->y0)) r.y0 = r.y0 == 0 ? 0 : r.y0 - pad; /* keep zero on the axis */
        if (isnan(p->y1)) r.y1 += pad;
    }
    if (r.y1 <= r.y0) r.y1 = r.y0 + 1;
    if (r.log_y) r.y0_log = log(r.y0), r.y_log = log(r.y1) - r.y0_log;
    return r;
}

static void format_x_label(char *buf, size_t size, const bt_plot *p, double v, double step) {
    if (p->x_is_time)
        bt_duration(buf, size, v);
    else
        bt_plot_label(buf, size, v, p->x_unit, step);
}

static void draw_x_axis(bt_canvas *c, bt_rect area, const bt_plot *p, const scale *s) {
    bt_style faint = {.fg = BT_C_FAINT}, label = {.fg = BT_C_LABEL};
    int y = area.y + area.h, name_w = p->x_name ? bt_canvas_text_width(p->x_name) + 1 : 0;
    for (int x = 0; x < area.w; x++) bt_canvas_put(c, area.x + x, y, 0x2500, faint);
    bt_canvas_put(c, area.x - 1, y, 0x2570, faint);
    double ticks[16];
    size_t n = bt_plot_ticks(s->x0, s->x1,
                             area.w / 14 > 0 ? (size_t)(area.w / 14 > 16 ? 16 : area.w / 14) : 1,
                             p->log_x, ticks);
    int free_from = area.x - 1;
    for (size_t i = 0; i < n; i++) {
        char buf[32];
        /* no half steps */
        if (p->x_unit == BT_UNIT_COUNT && ticks[i] > floor(ticks[i])) continue;
        format_x_label(buf, sizeof buf, p, ticks[i],
                       p->log_x ? ticks[i]
                       : n > 1  ? ticks[1] - ticks[0]
                                : 1);
        int x = area.x + (int)lround(x_as_fraction(s, ticks[i]) * (area.w - 1)),
            w = bt_canvas_text_width(buf);
        bt_canvas_put(c, x, y, 0x252C, faint);
        int at = x - w / 2 < free_from ? free_from : x - w / 2;
        if (at + w > area.x + area.w) at = area.x + area.w - w;
        if (at >= free_from && at + w <= area.x + area.w - name_w) {
            bt_canvas_text(c, at, y + 1, w, label, buf);
            free_from = at + w + 2;
        }
    }
    if (p->x_name) bt_canvas_text_right(c, area.x + area.w, y + 1, area.w, faint, p->x_name);
    for (size_t i = 0; i < p->n_marks; i++) {
        double f = x_as_fraction(s, p->marks[i].x);
        if (f >= 0 && f <= 1)
            bt_canvas_put(c, area.x + (int)lround(f * (area.w - 1)), y, p->marks[i].glyph,
                          (bt_style){.fg = p->marks[i].color});
    }
}

enum { GUTTER_MAX = 9 };

typedef struct y_ticks {
    size_t n;
    double v[16];
    char text[16][16];
    int w;
} y_ticks;

static void find_y_ticks(y_ticks *t, const bt_plot *p, const scale *s, int rows) {
    size_t want = rows >= 12 ? (size_t)rows / 4 : rows >= 5 ? 3 : rows >= 3 ? 2 : 1;
    if (want > 16) want = 16;
    t->n = bt_plot_ticks(s->y0, s->y1, want, s->log_y, t->v);
    t->w = 0;
    const double step = t->n > 1        ? fabs(t->v[1] - t->v[0])
                        : s->y1 > s->y0 ? choose_tick_step(s->y0, s->y1, want)
                                        : 0;
    for (size_t i = 0; i < t->n; i++) {
        bt_plot_label(t->text[i], sizeof t->text[i], t->v[i], p->y_unit, step);
        int w = bt_canvas_text_width(t->text[i]);
        if (w > t->w) t->w = w;
    }
    if (t->w > GUTTER_MAX) t->w = GUTTER_MAX;
}

static int row_of_y(const dots *d, const scale *s, double y) {
    return d->r.y + y_dot(d, s, y) / d->dy;
}

/* Lines are drawn behind the curves, their labels in front. */
static void draw_levels(dots *d, const bt_plot *p, const scale *s, bool words) {
    for (size_t i = 0; i < p->n_levels; i++) {
        if (p->levels[i].y < s->y0 || p->levels[i].y > s->y1) continue;
        int y = row_of_y(d, s, p->levels[i].y);
        for (int x = 0; x < d->r.w && !words; x++)
            bt_canvas_put(d->c, d->r.x + x, y, 0x2504, (bt_style){.fg = BT_C_FAINT});
        if (words && p->levels[i].label)
            bt_canvas_text_right(d->c, d->r.x + d->r.w, y, d->r.w, (bt_style){.fg = BT_C_LABEL},
                                 p->levels[i].label);
    }
}

/* a triangle in each column that has values above or below the axis */
static void mark_values_outside(const dots *d, const scale *s, const bt_plot *p,
                                const bt_plot_series *q) {
    const bool band = q->lo && q->hi && !p->no_bands;
    for (size_t i = 0; i < q->n; i++) {
        const double top = band   ? q->hi[i]
                           : q->y ? q->y[i]
                                  : NAN,
                     low = band   ? q->lo[i]
                           : q->y ? q->y[i]
                                  : NAN;
        const int x = x_dot(d, s, q->x[i]);
        if (x < 0 || x >= d->w) continue;
        const bt_style style = {.fg = q->color, .attr = BT_ATTR_BOLD};
        if (top > s->y1) bt_canvas_put(d->c, d->r.x + x / d->dx, d->r.y, 0x25B2, style);
        if (low < s->y0)
            bt_canvas_put(d->c, d->r.x + x / d->dx, d->r.y + d->r.h - 1, 0x25BC, style);
    }
}

static int count_drawn_cells(const bt_canvas *c, int x, int y, int w) {
    int n = 0;
    for (int i = 0; i < w; i++) {
        uint32_t glyph = c->cells[(size_t)y * (size_t)c->w + (size_t)(x + i)].glyph;
        n += glyph && glyph != ' ';
    }
    return n;
}

/* Finds the position of a label of w cells near the point (x, y), on either side, above or below it, where it hides
 * least. */
static void place_label(const dots *d, int x, int y, int w, int *at, int *row) {
    enum { AWAY = 3 }; /* rows */
    const bt_rect *r = &d->r;
    int least = INT_MAX;
    for (int i = 0; i < 4 * AWAY; i++) {
        const int tx = i & 1 ? x - w : x + 1, rows = i / 4 + 1, ty = i & 2 ? y + rows : y - rows;
        if (tx < r->x || tx + w > r->x + r->w || ty < r->y || ty >= r->y + r->h) continue;
        const int n = count_drawn_cells(d->c, tx, ty, w);
        if (n >= least) continue;
        least = n;
        *at = tx;
        *row = ty;
    }
}

static void draw_points(const dots *d, const scale *s, const bt_plot *p) {
    for (size_t i = 0; i < p->n_points; i++) {
        const bt_plot_point *q = &p->points[i];
        if (!(q->x >= s->x0 && q->x <= s->x1 && q->y >= s->y0 && q->y <= s->y1)) continue;
        const int x = d->r.x + x_dot(d, s, q->x) / d->dx, y = row_of_y(d, s, q->y),
                  w = q->label ? bt_canvas_text_width(q->label) : 0;
        const bt_style style = {.fg = q->color, .attr = BT_ATTR_BOLD};
        if (q->glyph) bt_canvas_put(d->c, x, y, q->glyph, style);
        if (!w) continue;
        int at = x + 2 + w <= d->r.x + d->r.w ? x + 1 : x - w, row = y > d->r.y ? y - 1 : y + 1;
        place_label(d, x, y, w, &at, &row);
        bt_canvas_text(d->c, at, row, w, style, q->label);
    }
}

void bt_plot_draw(bt_canvas *c, bt_rect r, const bt_plot *p, const bt_plot_series *series,
                  size_t n_series) {
    bt_rect old = bt_canvas_clip(c, r);
    scale s = find_scale(p, series, n_series);
    bool axis = r.h >= 4;
    int rows = r.h - (axis ? 2 : 0);
    y_ticks t;
    find_y_ticks(&t, p, &s, rows);
    int gutter = r.w >= 24 ? t.w + 1 : 0;
    bt_rect area = {r.x + gutter, r.y, r.w - gutter, rows};
    dots d;
    if (area.w < 2 || area.h < 1 || !init_dots(&d, c, area)) {
        bt_canvas_unclip(c, old);
        return;
    }
    if (gutter) {
        for (int y = 0; y < area.h; y++)
            bt_canvas_put(c, area.x - 1, area.y + y, 0x2502, (bt_style){.fg = BT_C_FAINT});
        for (size_t i = 0; i < t.n; i++) {
            int y = row_of_y(&d, &s, t.v[i]);
            bt_canvas_text_right(c, area.x - 1, y, t.w, (bt_style){.fg = BT_C_LABEL}, t.text[i]);
            bt_canvas_put(c, area.x - 1, y, 0x2524, (bt_style){.fg = BT_C_FAINT});
        }
    }
    if (axis) draw_x_axis(c, area, p, &s);
    draw_levels(&d, p, &s, false);
    for (size_t k = 0; k < n_series; k++) {
        if (series[k].lo && series[k].hi && !p->no_bands) draw_band(&d, &s, &series[k]);
        if (series[k].y) draw_line(&d, &s, &series[k]);
    }
    flush_dots(&d);
    for (size_t k = 0; k < n_series; k++) mark_values_outside(&d, &s, p, &series[k]);
    draw_levels(&d, p, &s, true);
    draw_points(&d, &s, p);
    if (!isnan(p->cursor_x) && p->cursor_x >= s.x0 && p->cursor_x <= s.x1)
        for (int y = 0; y < area.h; y++)
            bt_canvas_put(c, area.x + x_dot(&d, &s, p->cursor_x) / d.dx, area.y + y, 0x2502,
                          (bt_style){.fg = BT_C_WARN});
    free(d.bits);
    bt_canvas_unclip(c, old);
}
