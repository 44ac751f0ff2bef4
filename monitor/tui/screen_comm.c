/* screen_comm.c - what the network costs: overhead and overlap over time, bytes and bandwidth per rank. */
#include <math.h>
#include <stdio.h>

#include "monitor/tui/screens.h"

enum { C_RANK, C_LOGICAL, C_WIRE, C_RATIO, C_BUSY, C_EXPOSED, C_WAIT, C_OVERLAP, C_SHARE, C_RATE, C_COUNT };
static const bt_list_col columns[C_COUNT] = {
    {"rank", 4, true, false, 0},     {"logical", 9, true, false, 3}, {"wire", 9, true, false, 1},    {"ratio", 5, true, false, 5},   {"in flight", 9, true, false, 4},
    {"exposed", 8, true, false, 1}, {"wait", 8, true, false, 1},    {"overlap", 7, true, false, 2}, {"comm+wait", 9, true, false, 2}, {"rate", 10, true, false, 2}};

static double row_number(bt_top *t, size_t i, int col) {
    const double *m = t->view->ranks.rank[i].mean;
    switch (col) {
    case C_LOGICAL: return m[BT_MR_BYTES_LOGICAL];
    case C_WIRE: return m[BT_MR_BYTES_WIRE];
    case C_RATIO: return m[BT_MR_BYTES_WIRE] > 0 ? m[BT_MR_BYTES_LOGICAL] / m[BT_MR_BYTES_WIRE] : NAN;
    case C_BUSY: return m[BT_MR_COMM_BUSY];
    case C_EXPOSED: return m[BT_MR_COMM_EXPOSED];
    case C_WAIT: return m[BT_MR_WAIT];
    case C_OVERLAP: return m[BT_MR_COMM_BUSY] > 0 ? 1 - m[BT_MR_COMM_EXPOSED] / m[BT_MR_COMM_BUSY] : NAN;
    case C_SHARE: return (m[BT_MR_COMM_EXPOSED] + m[BT_MR_WAIT]) / m[BT_MR_STEP_TIME];
    case C_RATE: return m[BT_MR_COMM_BUSY] > 0 ? m[BT_MR_BYTES_WIRE] / (m[BT_MR_COMM_BUSY] / 1e3) : NAN;
    default: return -(double)i;
    }
}

static const char *row_text(bt_top *t, size_t i, char *buf, size_t size) {
    snprintf(buf, size, "rank %zu %s", i, t->view->ranks.rank[i].host);
    return buf;
}

static void cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    double v = row_number(t, t->rows[row], col);
    switch (col) {
    case C_RANK: snprintf(buf, size, "%zu", t->rows[row]); s->fg = BT_C_BRIGHT; break;
    case C_LOGICAL:
    case C_WIRE: bt_fmt(buf, size, v, BT_UNIT_BYTES); break;
    case C_RATIO: snprintf(buf, size, isnan(v) ? "-" : "%.1fx", v); break;
    case C_OVERLAP:
    case C_SHARE: bt_fmt_percent(buf, size, v); s->fg = col == C_SHARE && v > 0.3 ? BT_C_WARN : BT_C_TEXT; break;
    case C_RATE: {
        char b[32];
        snprintf(buf, size, isnan(v) ? "-" : "%s/s", bt_fmt(b, sizeof b, v, BT_UNIT_BYTES));
        break;
    }
    default: bt_fmt(buf, size, v, BT_UNIT_MS);
    }
}

void bt_screen_comm(bt_top *t, bt_rect r) {
    bt_view_ranks *k = &t->view->ranks;
    bt_list *l = &t->list[BT_SCREEN_COMM];
    bt_top_rows(t, k->n, row_text, row_number, true);
    int need = (int)t->n_rows + 2;
    bt_want rows[] = {{.min = 7, .weight = 1, .rank = 1}, {.min = need < 5 ? need : 5, .max = need, .weight = 2, .rank = 0}};
    bt_rect out[2], col[3];
    bt_layout_rows(r, rows, 2, 1, out);
    if (out[0].h > 0) {
        bool wide = r.w > 150;
        bt_want three[] = {{.min = 30, .weight = 1, .rank = 0}, {.min = 30, .weight = 1, .rank = 1}, {.min = wide ? 40 : 1000, .weight = 1, .rank = 2}};
        bt_layout_cols(out[0], three, 3, 2, col);
        bt_top_chart(t, col[0], BT_TS_OVERHEAD, "communication overhead", false, t->pane == 0);
        if (col[1].w > 0) bt_top_chart(t, col[1], t->pane == 2 && !wide ? BT_TS_WIRE : BT_TS_OVERLAP, t->pane == 2 && !wide ? "bytes on the wire" : "overlap", false, t->pane == 1);
        if (col[2].w > 0) bt_top_chart(t, col[2], BT_TS_WIRE, "bytes on the wire", false, t->pane == 2);
    }
    if (out[1].h < 3) return;
    char right[96], b[40];
    snprintf(right, sizeof right, "mean of %s steps", bt_fmt_int(b, sizeof b, (int64_t)k->steps));
    bt_canvas_rule(&t->canvas, (bt_rect){out[1].x, out[1].y, out[1].w, 1}, (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD}, "per rank and step", right);
    if (k->steps == 0) {
        bt_top_empty(t, out[1], "no rank has reported a step yet");
        return;
    }
    bt_list_table tab = {.cols = columns, .n_cols = C_COUNT, .n_rows = t->n_rows, .cell = cell, .ctx = t, .selected = l->selected, .sort_col = l->sort, .descending = !l->invert};
    t->page = bt_list_draw(&t->canvas, (bt_rect){out[1].x, out[1].y + 1, out[1].w, out[1].h - 1}, &tab, &l->top);
}
