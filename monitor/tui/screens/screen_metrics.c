/* screen_metrics.c - shows every metric of a panel (panels.def): the newest value over the rows of its scope, and
 * its history. A new row of metrics.def appears here without further code. */
#include <math.h>
#include <stdio.h>

#include "monitor/tui/screens/screens.h"

enum { C_KEY, C_SCOPE, C_MEAN, C_LEAST, C_MOST, C_ROWS, C_HISTORY, C_COUNT };
static const bt_list_col columns[C_COUNT] = {
    {"metric", 18, false, false, 0}, {"of a", 6, false, false, 0}, {"mean", 9, true, false, 0},
    {"least", 9, true, false, 3},    {"most", 9, true, false, 2},  {"rows", 5, true, false, 4},
    {"history", 12, false, true, 1}};

static const bt_view_metric *panel_metric(const bt_top *t, size_t row) {
    return &t->view->panel.metric[row];
}
static const bt_metric *metric_of_panel_row(const bt_view_metric *x) {
    return &bt_scopes[x->scope].metric[x->metric];
}

static double metric_row_number(bt_top *t, size_t i, int col) {
    const bt_view_metric *x = panel_metric(t, i);
    switch (col) {
    case C_MEAN:
    case C_HISTORY: return x->mean;
    case C_LEAST: return x->least;
    case C_MOST: return x->most;
    case C_ROWS: return (double)x->rows;
    default: return -(double)i;
    }
}

static const char *metric_row_text(bt_top *t, size_t i, char *buf, size_t size) {
    const bt_view_metric *x = panel_metric(t, i);
    snprintf(buf, size, "%s %s", bt_scopes[x->scope].name, metric_of_panel_row(x)->key);
    return buf;
}

static void metric_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    const bt_view_metric *x = panel_metric(t, t->rows[row]);
    switch (col) {
    case C_KEY:
        snprintf(buf, size, "%s", metric_of_panel_row(x)->key);
        s->fg = BT_C_BRIGHT;
        break;
    case C_SCOPE:
        snprintf(buf, size, "%s", bt_scopes[x->scope].name);
        s->fg = BT_C_LABEL;
        break;
    case C_ROWS: snprintf(buf, size, x->step < 0 ? "-" : "%zu", x->rows); break;
    case C_LEAST:
    case C_MOST:
        if (x->rows == 1) { /* the mean is sufficient */
            buf[0] = 0;
            break;
        }
        /* fall through */
    default:
        bt_fmt(buf, size, metric_row_number(t, t->rows[row], col), metric_of_panel_row(x)->unit);
    }
}

static bool paint_metric_cell(void *ctx, bt_canvas *c, bt_rect r, size_t row, int col) {
    bt_top *t = ctx;
    const bt_view_metric *x = panel_metric(t, t->rows[row]);
    if (col != C_HISTORY) return false;
    int w = r.w < BT_VIEW_SAMPLES ? r.w : BT_VIEW_SAMPLES;
    const double *v = x->history + BT_VIEW_SAMPLES - w;
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < w; i++) {
        if (isnan(v[i])) continue;
        low = fmin(low, v[i]);
        high = fmax(high, v[i]);
    }
    if (low <= high)
        bt_canvas_spark(c, (bt_rect){r.x, r.y, w, 1}, v, (size_t)w, low,
                        high > low ? high : low + 1, (bt_style){.fg = BT_C_SECOND});
    return true;
}

static void draw_panel_list(bt_top *t, bt_rect r) {
    int x = r.x;
    for (int p = 0; p < BT_PANEL_COUNT; p++) {
        bool on = (bt_metric_panel)p == t->view->panel.panel;
        x += bt_canvas_text(&t->canvas, x, r.y, r.x + r.w - x,
                            (bt_style){.fg = on ? BT_C_ACCENT : BT_C_LABEL,
                                       .attr = on ? BT_ATTR_BOLD : 0},
                            bt_panel_title((bt_metric_panel)p)) +
             2;
    }
    bt_canvas_text(&t->canvas, x, r.y, r.x + r.w - x, (bt_style){.fg = BT_C_FAINT},
                   "t: next panel");
}

static void draw_metric_meaning(bt_top *t, int x, int y, int w) {
    const bt_list *l = &t->list[BT_SCREEN_METRICS];
    if ((size_t)l->selected >= t->n_rows) return;
    const bt_view_metric *m = panel_metric(t, t->rows[l->selected]);
    char step[32];
    bt_canvas_textf(&t->canvas, x, y, w, (bt_style){.fg = BT_C_TEXT}, "%s: %s",
                    metric_of_panel_row(m)->key, metric_of_panel_row(m)->help);
    bt_canvas_textf(&t->canvas, x, y + 1, w, (bt_style){.fg = BT_C_FAINT},
                    "one row for each %s, in the view %s · the newest are of step %s",
                    bt_scopes[m->scope].per, bt_scopes[m->scope].view,
                    m->step < 0 ? "-" : bt_fmt_int(step, sizeof step, m->step + 1));
}

void bt_screen_metrics(bt_top *t, bt_rect r) {
    bt_list *l = &t->list[BT_SCREEN_METRICS];
    const bt_view_panel *p = &t->view->panel;
    bt_top_rows(t, p->n, metric_row_text, metric_row_number, true);
    if (l->selected >= (int)t->n_rows) l->selected = t->n_rows ? (int)t->n_rows - 1 : 0;
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0),
                   bt_panel_title(p->panel), bt_panel_query(p->panel));
    draw_panel_list(t, (bt_rect){r.x, r.y + 1, r.w, 1});
    const bt_list_table table = {.cols = columns,
                                 .n_cols = C_COUNT,
                                 .cell = metric_cell,
                                 .paint = paint_metric_cell,
                                 .sort_col = -1};
    bt_top_table(t, (bt_rect){r.x, r.y + 3, r.w, r.h - 6}, table);
    draw_metric_meaning(t, r.x + 1, r.y + r.h - 2, r.w - 2);
}
