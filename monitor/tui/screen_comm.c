/* screen_comm.c - what the network costs: overhead and overlap over time, each kind of exchange, bytes and bandwidth per rank. */
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

/* ---- kinds of exchange -------------------------------------------------------------------------------------------------------- */

enum { O_OP, O_AXIS, O_CALLS, O_LOGICAL, O_WIRE, O_BUSY, O_EXPOSED, O_WAIT, O_OVERLAP, O_RATE, O_WORST, O_COUNT };
static const bt_list_col op_columns[O_COUNT] = {
    {"exchange", 14, false, false, 0}, {"axis", 9, false, false, 0},  {"calls", 6, true, false, 4},   {"logical", 9, true, false, 6}, {"wire", 9, true, false, 2}, {"in flight", 9, true, false, 3},
    {"exposed", 8, true, false, 1},    {"wait", 8, true, false, 1},   {"overlap", 7, true, false, 3}, {"rate", 10, true, false, 5},   {"lost most", 19, false, false, 7}};

static void op_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    const bt_view_op *x = &t->view->comm.op[row];
    char b[32];
    switch (col) {
    case O_OP:
        snprintf(buf, size, "%s", x->op);
        for (char *c = buf; *c; c++) if (*c == '_') *c = '-';       /* the field's spelling: all-reduce */
        s->fg = BT_C_BRIGHT;
        break;
    case O_AXIS: snprintf(buf, size, "%s", x->axis); s->fg = BT_C_LABEL; break;
    case O_CALLS: snprintf(buf, size, x->calls < 9.95 ? "%.1f" : "%.0f", x->calls); break;
    case O_LOGICAL: bt_fmt(buf, size, floor(x->bytes_logical), BT_UNIT_BYTES); break;
    case O_WIRE: bt_fmt(buf, size, floor(x->bytes_wire), BT_UNIT_BYTES); break;
    case O_BUSY: bt_fmt(buf, size, x->busy_ms, BT_UNIT_MS); break;
    case O_EXPOSED: bt_fmt(buf, size, x->exposed_ms, BT_UNIT_MS); break;
    case O_WAIT: bt_fmt(buf, size, x->wait_ms > 0 ? x->wait_ms : NAN, BT_UNIT_MS); break;
    case O_OVERLAP: bt_fmt_percent(buf, size, x->overlap); break;
    case O_RATE: snprintf(buf, size, isnan(x->rate) || x->bytes_wire < 4096 ? "-" : "%s/s", bt_fmt(b, sizeof b, floor(x->rate), BT_UNIT_BYTES)); break;
    default:
        if (x->lost_rank >= 0) snprintf(buf, size, "%s rank %d", bt_fmt(b, sizeof b, x->lost_max_ms, BT_UNIT_MS), x->lost_rank);
        else snprintf(buf, size, "-");
        s->fg = BT_C_LABEL;
    }
}

static void exchanges(bt_top *t, bt_rect r) {
    const bt_view_comm *c = &t->view->comm;
    char right[96], a[32], b[32];
    int top = 0;
    bt_fmt_int(a, sizeof a, c->step0 + 1);
    bt_fmt_int(b, sizeof b, c->step1 + 1);
    snprintf(right, sizeof right, "mean of the ranks, steps %s to %s", a, b);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD}, "by kind of exchange, per step", right);
    bt_list_table tab = {.cols = op_columns, .n_cols = O_COUNT, .n_rows = c->n, .cell = op_cell, .ctx = t, .selected = -1, .sort_col = -1};
    bt_list_draw(&t->canvas, (bt_rect){r.x, r.y + 1, r.w, r.h - 1}, &tab, &top);
}

void bt_screen_comm(bt_top *t, bt_rect r) {
    bt_view_ranks *k = &t->view->ranks;
    bt_list *l = &t->list[BT_SCREEN_COMM];
    bt_top_rows(t, k->n, row_text, row_number, true);
    int need = (int)t->n_rows + 2;
    int kinds = (int)t->view->comm.n, few = kinds > 3 ? 3 : kinds;
    bt_want rows[] = {{.min = 6, .weight = 1, .rank = 2}, {.min = kinds ? few + 2 : 1000, .max = kinds + 2, .weight = 2, .rank = 1}, {.min = need < 4 ? need : 4, .max = need, .weight = 2, .rank = 0}};
    if (kinds == 0) rows[1].rank = 9;
    bt_rect out[3], col[3];
    bt_layout_rows(r, rows, 3, 1, out);
    if (out[0].h > 0) {
        bool wide = r.w > 150;
        bt_want three[] = {{.min = 30, .weight = 1, .rank = 0}, {.min = 30, .weight = 1, .rank = 1}, {.min = wide ? 40 : 1000, .weight = 1, .rank = 2}};
        bt_layout_cols(out[0], three, 3, 2, col);
        bt_top_chart(t, col[0], BT_TS_OVERHEAD, "communication overhead", false, t->pane == 0);
        if (col[1].w > 0) bt_top_chart(t, col[1], t->pane == 2 && !wide ? BT_TS_WIRE : BT_TS_OVERLAP, t->pane == 2 && !wide ? "bytes on the wire" : "overlap", false, t->pane == 1);
        if (col[2].w > 0) bt_top_chart(t, col[2], BT_TS_WIRE, "bytes on the wire", false, t->pane == 2);
    }
    if (out[1].h > 2) exchanges(t, out[1]);
    if (out[2].h < 3) return;
    char right[96], b[40];
    snprintf(right, sizeof right, "mean of %s steps", bt_fmt_int(b, sizeof b, (int64_t)k->steps));
    bt_canvas_rule(&t->canvas, (bt_rect){out[2].x, out[2].y, out[2].w, 1}, (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD}, "per rank and step", right);
    if (k->steps == 0) {
        bt_top_empty(t, out[2], "no rank has reported a step yet");
        return;
    }
    bt_list_table tab = {.cols = columns, .n_cols = C_COUNT, .n_rows = t->n_rows, .cell = cell, .ctx = t, .selected = l->selected, .sort_col = l->sort, .descending = !l->invert};
    t->page = bt_list_draw(&t->canvas, (bt_rect){out[2].x, out[2].y + 1, out[2].w, out[2].h - 1}, &tab, &l->top);
}
