/* chart_parts.c - shared parts of screens: charts, sparklines, phase legends, the sentence of an
 * empty screen. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/tui/screens/top_state.h"

const double bt_top_smooth[BT_TOP_SMOOTHS] = {0, 0.005, 0.01, 0.02, 0.05, 0.1};

static const bt_view_series nothing = {.key = "", .exact = true};

const bt_view_series *bt_top_ts(const bt_top *t, bt_top_series s) {
    return t->view->n_series > (int)s ? &t->view->series[s] : &nothing;
}

static const bt_view_series *baseline_series(const bt_top *t, bt_top_series s) {
    int i = BT_TS_COUNT + (int)s;
    return t->view->n_series > i ? &t->view->series[i] : &nothing;
}

bool bt_top_letters(const bt_top *t) {
    return bt_term_caps_of(t->term).depth == BT_DEPTH_MONO || t->canvas.chars == BT_CHARS_ASCII;
}

bt_style bt_top_title(const bt_top *t, int pane) {
    bool active = bt_top_panes(t) > 1 && t->pane == pane;
    return (bt_style){.fg = active ? BT_C_ACCENT : BT_C_TEXT, .attr = BT_ATTR_BOLD};
}

void bt_top_empty(bt_top *t, bt_rect r, const char *why) {
    if (t->reading) why = "reading ...";
    int w = bt_canvas_text_width(why);
    bt_canvas_text(&t->canvas, r.x + (r.w > w ? (r.w - w) / 2 : 0), r.y + r.h / 2, r.w,
                   (bt_style){.fg = BT_C_LABEL}, why);
}

static double event_x(const bt_top *t, const bt_view_series *s, const bt_view_event *e) {
    if (t->x == BT_X_WALL) return e->time_s;
    if (e->step < 0 || s->n == 0) return NAN;
    for (size_t i = 0; i < s->n; i++)
        if (s->step[i] >= e->step) return s->x[i];
    return NAN;
}

static size_t collect_event_marks(const bt_top *t, const bt_view_series *s, bt_plot_mark *out,
                                  size_t max) {
    size_t n = 0;
    const bt_view_events *e = &t->view->events;
    for (size_t i = 0; i < e->n_marks && n < max; i++) {
        double x = event_x(t, s, &e->mark[i]);
        if (isnan(x)) continue;
        bool bad = e->mark[i].level == BT_EV_ERROR, warn = e->mark[i].level == BT_EV_WARN;
        out[n++] = (bt_plot_mark){x,
                                  bad    ? 0x2717
                                  : warn ? 0x25B2
                                         : 0x25C6,
                                  bad    ? BT_C_BAD
                                  : warn ? BT_C_WARN
                                         : BT_C_LABEL};
    }
    return n;
}

/* Writes "2.4431 · 2.4509 over 4 steps": the newest value, and the smoothed one; or the caller's text. */
static void chart_title(bt_top *t, bt_rect row, const bt_view_series *s, const char *title,
                        const char *figure, bt_style style, double smoothed) {
    char right[240], raw[80], mean[96] = "", zoom[32] = "";
    double steps = bt_top_smooth[t->smooth] * bt_view_steps_shown(s);
    if (figure)
        snprintf(raw, sizeof raw, "%s", figure);
    else
        bt_fmt(raw, sizeof raw, s->n ? s->last[s->n - 1] : NAN, s->unit);
    if (!figure && !isnan(smoothed)) {
        char value[40];
        snprintf(mean, sizeof mean, " · %s over %.0f steps",
                 bt_fmt(value, sizeof value, smoothed, s->unit), steps);
    }
    if (t->y_all)
        snprintf(zoom, sizeof zoom, " · all y");
    else if (t->y_zoom != 0)
        snprintf(zoom, sizeof zoom, " · y x%g", pow(2, t->y_zoom));
    /* parts that do not fit are omitted: first the values, which the chart shows too */
    for (int part = 0; part < 3; part++) {
        snprintf(right, sizeof right, "%s%s%s%s%s%s", part < 2 ? raw : "",
                 part < 2 && s->unit == BT_UNIT_NATS ? " nats" : "", part < 1 ? mean : "", zoom,
                 s->exact ? "" : " · sampled", t->baseline[0] ? " · ghost: baseline" : "");
        if (bt_canvas_text_width(title) + bt_canvas_text_width(right) + 4 <= row.w) break;
    }
    const char *from = strncmp(right, " · ", 4) == 0 ? right + 4 : right;
    bt_canvas_rule(&t->canvas, row, style, title, from);
}

/* Uses the usual range of the drawn values, then the user's zoom and pan. */
static void set_y_range(const bt_top *t, const bt_view_series *const *all, size_t n, bt_plot *p) {
    double low, high, floor = p->y0, range[4][2];
    for (size_t i = 0; i < n; i++) {
        range[i][0] = all[i]->n ? all[i]->low : NAN;
        range[i][1] = all[i]->n ? all[i]->high : NAN;
    }
    bt_view_join_ranges((const double(*)[2])range, n, &low, &high);
    if (t->y_all || isnan(low)) return;
    const bool log_y = p->log_y && low > 0;
    if (p->log_y && !log_y) return;
    if (log_y) low = log(low), high = log(high);
    if (!isnan(floor)) low = fmin(low, floor);
    double room = (high - low) * 0.03;
    /* An axis for values that are all zero ends at one unit: 1 %, 1 ms. */
    if (!(room > 0))
        room = fabs(high) > 0 ? fabs(high) * 0.05 : p->y_unit == BT_UNIT_FRAC ? 0.01 : 1;
    if (isnan(floor) || low < floor) low -= room;
    high += room;
    if (!isnan(p->y1)) high = p->y1;
    const double half = (high - low) / 2 * pow(2, -t->y_zoom),
                 middle = (low + high) / 2 + t->y_pan * (high - low);
    const bool moved = t->y_zoom != 0 || t->y_pan > 0 || t->y_pan < 0;
    p->y0 = moved ? middle - half : low;
    p->y1 = moved ? middle + half : high;
    if (log_y) p->y0 = exp(p->y0), p->y1 = exp(p->y1);
}

/* Marks the best validation, and labels the end of the line. */
static size_t validation_points(const bt_view_series *val, char label[40], bt_plot_point *out) {
    size_t best = val->n, last = val->n, n = 0;
    for (size_t i = 0; i < val->n; i++) {
        if (isnan(val->min[i])) continue;
        last = i;
        if (best == val->n || val->min[i] < val->min[best]) best = i;
    }
    if (last == val->n) return 0;
    snprintf(label, 40, "best val %.3f", val->min[best]);
    if (last != best)
        out[n++] = (bt_plot_point){val->x[last], val->last[last], 0, BT_C_THIRD, "val"};
    out[n++] = (bt_plot_point){val->x[best], val->min[best], 0x2605, BT_C_THIRD, label};
    return n;
}

void bt_top_chart(bt_top *t, bt_rect r, bt_top_series which, const char *title, const char *figure,
                  bool log_y, bool pane_active) {
    if (r.h < 3 || r.w < 12) return;
    const bt_view_series *s = bt_top_ts(t, which), *g = baseline_series(t, which),
                         *val = which == BT_TS_LOSS ? bt_top_ts(t, BT_TS_VAL) : &nothing;
    double keep = bt_view_keep(bt_top_smooth[t->smooth], bt_view_steps_shown(s));
    double *ema = keep > 0 && s->n ? malloc(s->n * sizeof *ema) : NULL;
    if (ema) bt_view_smooth(s, keep, ema);
    bt_style style = {.fg = pane_active ? BT_C_ACCENT : BT_C_TEXT, .attr = BT_ATTR_BOLD};
    chart_title(t, (bt_rect){r.x, r.y, r.w, 1}, s, title, figure, style, ema ? ema[s->n - 1] : NAN);
    bt_rect body = {r.x, r.y + 1, r.w, r.h - 1};
    if (s->n == 0) {
        bt_top_empty(t, body,
                     t->view->head.step < 0 ? "waiting for the first step"
                                            : "not recorded by this run");
        return;
    }
    bt_plot_mark marks[64];
    bt_plot_point points[2];
    char best[40];
    bt_plot p;
    bt_plot_init(&p);
    p.log_y = log_y || t->log_y;
    p.x_unit = bt_x_axis_unit(t->x);
    p.x_is_time = t->x == BT_X_WALL || t->x == BT_X_ACTIVE;
    p.x_name = bt_x_axis_title(t->x);
    p.y_unit = s->unit;
    p.no_bands = bt_term_caps_of(t->term).depth == BT_DEPTH_MONO;
    /* The axis of shares and amounts begins at 0 and, for overlap, ends at 1. */
    if ((s->unit == BT_UNIT_FRAC || s->unit == BT_UNIT_BYTES || s->unit == BT_UNIT_MIB) && !p.log_y)
        p.y0 = 0;
    if (which == BT_TS_OVERLAP && !p.log_y) p.y1 = 1;
    const bt_view_series *drawn[] = {s, val};
    set_y_range(t, drawn, 2, &p);
    p.marks = marks;
    p.n_marks = collect_event_marks(t, s, marks, 64);
    p.points = points;
    p.n_points = validation_points(val, best, points);
    bt_plot_series lines[4];
    size_t n = 0;
    /* A long baseline does not shrink a short run. */
    if (g->n > 0) p.x0 = s->x[0], p.x1 = s->x[s->n - 1];
    if (g->n > 0)
        lines[n++] = (bt_plot_series){
            .name = t->baseline, .x = g->x, .y = g->mean, .n = g->n, .color = BT_C_FAINT};
    if (val->n > 0)
        lines[n++] = (bt_plot_series){
            .name = "validation", .x = val->x, .y = val->last, .n = val->n, .color = BT_C_THIRD};
    lines[n++] = (bt_plot_series){.name = s->key,
                                  .x = s->x,
                                  .y = ema ? ema : s->mean,
                                  .lo = s->min,
                                  .hi = s->max,
                                  .n = s->n,
                                  .color = BT_C_ACCENT,
                                  .band = BT_C_BAND};
    bt_plot_draw(&t->canvas, body, &p, lines, n);
    free(ema);
}

void bt_top_spark(bt_top *t, bt_rect r, bt_top_series which, const char *title, uint8_t color) {
    if (r.h < 1 || r.w < 8) return;
    const bt_view_series *s = bt_top_ts(t, which);
    char now[32];
    bt_fmt(now, sizeof now, s->n ? s->last[s->n - 1] : NAN, s->unit);
    int w = bt_canvas_text(&t->canvas, r.x, r.y, r.w, (bt_style){.fg = BT_C_LABEL}, title);
    bt_canvas_text_right(&t->canvas, r.x + r.w, r.y, r.w - w - 1,
                         (bt_style){.fg = BT_C_BRIGHT, .attr = BT_ATTR_BOLD}, now);
    if (s->n == 0 || r.h < 2) return;
    /* Draws the whole span in exactly this many columns, each the mean of its buckets. The axis begins at zero, so
     * that small changes look small. */
    double *cells = malloc((size_t)r.w * sizeof *cells);
    if (!cells) return;
    size_t columns = (size_t)r.w;
    for (size_t x = 0; x < columns; x++) {
        size_t a = x * s->n / columns, b = (x + 1) * s->n / columns, k = 0;
        double sum = 0;
        for (size_t j = a; j < (b > a ? b : a + 1); j++)
            if (!isnan(s->mean[j])) sum += s->mean[j], k++;
        cells[x] = k ? sum / (double)k : NAN;
    }
    bt_canvas_spark(&t->canvas, (bt_rect){r.x, r.y + 1, r.w, r.h - 1}, cells, columns, 0, NAN,
                    (bt_style){.fg = color});
    free(cells);
}

/* "data 9.98 ms  fwd ..." or, where that is too long, "data 9.98  fwd ... ms" */
static int format_legend_item(char *item, size_t size, int p, double v, bool with_unit) {
    char num[32];
    bt_fmt(num, sizeof num, v, BT_UNIT_MS);
    char *unit = strstr(num, " ms");
    if (unit && !with_unit) *unit = 0;
    snprintf(item, size, "%s %s", bt_phases[p].name, num);
    return bt_canvas_text_width(item) + (with_unit ? 4 : 3);
}

void bt_top_phase_legend(bt_top *t, bt_rect row, const double *phase_ms, double total_ms) {
    int x = row.x, end = row.x + row.w, need = 0;
    char item[64];
    bool shown[BT_PHASE_COUNT];
    for (int p = 0; p < BT_PHASE_COUNT; p++) {
        double v = phase_ms[p];
        shown[p] = v >= total_ms * 0.0005 && v > 0;
        if (shown[p]) need += format_legend_item(item, sizeof item, p, v, true);
    }
    bool units = need - 2 <= row.w;
    for (int p = 0; p < BT_PHASE_COUNT; p++) {
        if (!shown[p]) continue;
        int w = format_legend_item(item, sizeof item, p, phase_ms[p], units);
        if (x + w - 1 > end) break;
        bt_canvas_put(&t->canvas, x, row.y,
                      bt_top_letters(t) ? (uint32_t)(unsigned char)bt_phases[p].letter : 0x25A0,
                      (bt_style){.fg = bt_phase_color((bt_phase)p)});
        bt_canvas_text(&t->canvas, x + 2, row.y, w, (bt_style){.fg = BT_C_LABEL}, item);
        x += w;
    }
    if (!units && x + 2 <= end)
        bt_canvas_text(&t->canvas, x, row.y, end - x, (bt_style){.fg = BT_C_LABEL}, "ms");
}
