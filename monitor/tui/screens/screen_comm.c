/* screen_comm.c - cost of the network: overhead and overlap over time, each kind of exchange
 * compared with the measured links, bytes, bandwidth and lateness per rank, and traffic by
 * sender and receiver. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/tables/derived.h"
#include "monitor/tui/screens/screens.h"

enum {
    C_RANK,
    C_LOGICAL,
    C_WIRE,
    C_RATIO,
    C_BUSY,
    C_EXPOSED,
    C_WAIT,
    C_OVERLAP,
    C_SHARE,
    C_LATE,
    C_RATE,
    C_COUNT
};
static const bt_list_col columns[C_COUNT] = {
    {"rank", 4, true, false, 0},      {"logical", 9, true, false, 3},
    {"wire", 9, true, false, 1},      {"ratio", 5, true, false, 5},
    {"in flight", 9, true, false, 4}, {"exposed", 8, true, false, 1},
    {"wait", 8, true, false, 1},      {"overlap", 7, true, false, 2},
    {"comm+wait", 9, true, false, 2}, {"late p95", 8, true, false, 2},
    {"rate", 10, true, false, 2}};

static double comm_row_number(bt_top *t, size_t i, int col) {
    const double *m = t->view->ranks.rank[i].mean;
    switch (col) {
    case C_LOGICAL: return m[BT_MR_BYTES_LOGICAL];
    case C_WIRE: return m[BT_MR_BYTES_WIRE];
    case C_RATIO: return bt_derived_compression(m[BT_MR_BYTES_LOGICAL], m[BT_MR_BYTES_WIRE]);
    case C_BUSY: return m[BT_MR_COMM_BUSY];
    case C_EXPOSED: return m[BT_MR_COMM_EXPOSED];
    case C_WAIT: return m[BT_MR_WAIT];
    case C_OVERLAP: return bt_derived_overlap(m[BT_MR_COMM_EXPOSED], m[BT_MR_COMM_BUSY]);
    case C_SHARE:
        return bt_derived_comm_overhead(m[BT_MR_COMM_EXPOSED], m[BT_MR_WAIT], m[BT_MR_STEP_TIME]);
    case C_LATE: return t->view->ranks.rank[i].late_p95_ms;
    case C_RATE: return bt_derived_bus_rate(m[BT_MR_BYTES_WIRE], m[BT_MR_COMM_BUSY]);
    default: return -(double)i;
    }
}

static const char *comm_row_text(bt_top *t, size_t i, char *buf, size_t size) {
    snprintf(buf, size, "rank %zu %s", i, t->view->ranks.rank[i].host);
    return buf;
}

static void comm_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    double v = comm_row_number(t, t->rows[row], col);
    switch (col) {
    case C_RANK:
        snprintf(buf, size, "%zu", t->rows[row]);
        s->fg = BT_C_BRIGHT;
        break;
    case C_LOGICAL:
    case C_WIRE: bt_fmt(buf, size, v, BT_UNIT_BYTES); break;
    case C_RATIO: snprintf(buf, size, isnan(v) ? "-" : "%.1fx", v); break;
    case C_OVERLAP:
    case C_SHARE:
        bt_fmt_percent(buf, size, v);
        s->fg = col == C_SHARE && v > 0.3 ? BT_C_WARN : BT_C_TEXT;
        break;
    case C_RATE: {
        char b[32];
        snprintf(buf, size, isnan(v) ? "-" : "%s/s", bt_fmt(b, sizeof b, v, BT_UNIT_BYTES));
        break;
    }
    default: bt_fmt(buf, size, v, BT_UNIT_MS);
    }
}

/* ---- kinds of exchange ----------------------------------------------------------------------- */

enum {
    O_OP,
    O_AXIS,
    O_CALLS,
    O_LOGICAL,
    O_WIRE,
    O_BUSY,
    O_EXPOSED,
    O_WAIT,
    O_OVERLAP,
    O_MODEL,
    O_RATE,
    O_REACHED,
    O_WORST,
    O_COUNT
};
static const bt_list_col op_columns[O_COUNT] = {
    {"exchange", 14, false, false, 0}, {"axis", 9, false, false, 0},
    {"calls", 6, true, false, 4},      {"logical", 9, true, false, 6},
    {"wire", 9, true, false, 2},       {"in flight", 9, true, false, 3},
    {"exposed", 8, true, false, 1},    {"wait", 8, true, false, 1},
    {"overlap", 7, true, false, 3},    {"model", 8, true, false, 2},
    {"rate", 10, true, false, 5},      {"of link", 7, true, false, 4},
    {"lost most", 19, false, false, 7}};

static void exchange_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    const bt_view_op *x = &t->view->comm.op[row];
    char b[32];
    switch (col) {
    case O_OP:
        snprintf(buf, size, "%s", x->op);
        /* the field's spelling: all-reduce */
        for (char *c = buf; *c; c++)
            if (*c == '_') *c = '-';
        s->fg = BT_C_BRIGHT;
        break;
    case O_AXIS:
        snprintf(buf, size, "%s", x->axis);
        s->fg = BT_C_LABEL;
        break;
    case O_CALLS: snprintf(buf, size, x->calls < 9.95 ? "%.1f" : "%.0f", x->calls); break;
    case O_LOGICAL: bt_fmt(buf, size, floor(x->bytes_logical), BT_UNIT_BYTES); break;
    case O_WIRE: bt_fmt(buf, size, floor(x->bytes_wire), BT_UNIT_BYTES); break;
    case O_BUSY: bt_fmt(buf, size, x->busy_ms, BT_UNIT_MS); break;
    case O_EXPOSED: bt_fmt(buf, size, x->exposed_ms, BT_UNIT_MS); break;
    case O_WAIT: bt_fmt(buf, size, x->wait_ms > 0 ? x->wait_ms : NAN, BT_UNIT_MS); break;
    case O_OVERLAP: bt_fmt_percent(buf, size, x->overlap); break;
    case O_MODEL:
        bt_fmt(buf, size, x->model_ms, BT_UNIT_MS);
        s->fg = BT_C_LABEL;
        break;
    case O_REACHED: bt_fmt_percent(buf, size, x->model_frac); break;
    case O_RATE:
        snprintf(buf, size, isnan(x->rate) || x->bytes_wire < 4096 ? "-" : "%s/s",
                 bt_fmt(b, sizeof b, floor(x->rate), BT_UNIT_BYTES));
        break;
    default:
        if (x->lost_rank >= 0)
            snprintf(buf, size, "%s rank %d", bt_fmt(b, sizeof b, x->lost_max_ms, BT_UNIT_MS),
                     x->lost_rank);
        else
            snprintf(buf, size, "-");
        s->fg = BT_C_LABEL;
    }
}

/* Writes the speed of the idle links, on which the column `model` is based; as many as fit. */
static void format_idle_links(const bt_view_comm *c, double load, int room, char *out,
                              size_t size) {
    char one[96], a[32], b[32];
    size_t n = 0;
    out[0] = 0;
    if (load > BT_MEASURED_BUSY && c->n_links > 0)
        n = (size_t)snprintf(out, size, "under load %.2g ", load);
    for (size_t i = 0; i < c->n_links; i++) {
        const bt_view_link *l = &c->link[i];
        if (isnan(l->bytes_per_s))
            snprintf(one, sizeof one, "%s link not measurable · ", l->axis);
        else
            snprintf(one, sizeof one, "%s link %s + %s/s · ", l->axis,
                     bt_fmt(a, sizeof a, l->latency_us / 1e3, BT_UNIT_MS),
                     bt_fmt(b, sizeof b, floor(l->bytes_per_s), BT_UNIT_BYTES));
        if (bt_canvas_text_width(out) + bt_canvas_text_width(one) > room || n + strlen(one) >= size)
            return;
        n += (size_t)snprintf(out + n, size - n, "%s", one);
    }
}

static void draw_exchanges(bt_top *t, bt_rect r, bt_style title) {
    const bt_view_comm *c = &t->view->comm;
    char right[256], link[160], a[32], b[32];
    int top = 0;
    bt_fmt_int(a, sizeof a, c->step0 + 1);
    bt_fmt_int(b, sizeof b, c->step1 + 1);
    format_idle_links(c, t->view->head.measured_load, r.w - 72, link, sizeof link);
    snprintf(right, sizeof right, "%smean of the ranks, steps %s to %s", link, a, b);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, title, "by kind of exchange, per step",
                   right);
    bt_list_table tab = {.cols = op_columns,
                         .n_cols = O_COUNT,
                         .n_rows = c->n,
                         .cell = exchange_cell,
                         .ctx = t,
                         .selected = -1,
                         .sort_col = -1};
    bt_list_draw(&t->canvas, (bt_rect){r.x, r.y + 1, r.w, r.h - 1}, &tab, &top);
}

static void draw_comm_ranks(bt_top *t, bt_rect r, bt_style title) {
    const bt_view_ranks *k = &t->view->ranks;
    char right[160], a[40], b[40], d[40], skew[40] = "", c[32];
    if (!isnan(k->skew_p95_ms))
        snprintf(skew, sizeof skew, "arrival skew p95 %s · ",
                 bt_fmt(c, sizeof c, k->skew_p95_ms, BT_UNIT_MS));
    bt_fmt_int(a, sizeof a, k->step0 + 1);
    bt_fmt_int(b, sizeof b, k->step1 + 1);
    snprintf(right, sizeof right, "%smean of %s steps, %s to %s", skew,
             bt_fmt_int(d, sizeof d, (int64_t)k->steps), a, b);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, title, "per rank and step", right);
    if (k->steps == 0) {
        bt_top_empty(t, r, "no rank has reported a step yet");
        return;
    }
    const bt_list_table table = {
        .cols = columns, .n_cols = C_COUNT, .cell = comm_cell, .sort_col = -1};
    bt_top_table(t, (bt_rect){r.x, r.y + 1, r.w, r.h - 1}, table);
}

/* ---- the screen ------------------------------------------------------------------------------ */

enum { PANE_OVERHEAD, PANE_OVERLAP, PANE_WIRE, PANE_KINDS, PANE_RANKS, PANE_PAIRS };

/* The value in a chart's heading covers the same steps and ranks as the rows of the table "per rank and step". */
static const char *format_chart_figure(const bt_top *t, int pane, char *out, size_t size) {
    const bt_view_ranks *k = &t->view->ranks;
    double exposed = 0, busy = 0, wait = 0, step = 0, wire = 0;
    char value[40], a[32], b[32];
    if (k->steps == 0) return NULL;
    for (size_t i = 0; i < k->n; i++) {
        const double *m = k->rank[i].mean;
        exposed += m[BT_MR_COMM_EXPOSED], busy += m[BT_MR_COMM_BUSY], wait += m[BT_MR_WAIT];
        step += m[BT_MR_STEP_TIME], wire += m[BT_MR_BYTES_WIRE];
    }
    if (pane == PANE_WIRE)
        bt_fmt(value, sizeof value, floor(wire), BT_UNIT_BYTES);
    else
        bt_fmt_percent(value, sizeof value,
                       pane == PANE_OVERLAP ? bt_derived_overlap(exposed, busy)
                                            : bt_derived_comm_overhead(exposed, wait, step));
    snprintf(out, size, "%s, steps %s to %s", value, bt_fmt_int(a, sizeof a, k->step0 + 1),
             bt_fmt_int(b, sizeof b, k->step1 + 1));
    return out;
}

static void draw_comm_chart(bt_top *t, bt_rect r, int pane, bool active) {
    static const struct {
        bt_top_series s;
        const char *title;
    } all[] = {{BT_TS_OVERHEAD, "communication overhead"},
               {BT_TS_OVERLAP, "overlap"},
               {BT_TS_WIRE, "bytes on the wire"}};
    char figure[120];
    bt_top_chart(t, r, all[pane].s, all[pane].title,
                 format_chart_figure(t, pane, figure, sizeof figure), false, active);
}

static void draw_comm_charts(bt_top *t, bt_rect r) {
    bool wide = r.w > 150;
    bt_pane_size want[] = {{.min = 30, .weight = 1, .rank = 0},
                           {.min = 30, .weight = 1, .rank = 1},
                           {.min = wide ? 40 : 1000, .weight = 1, .rank = 2}};
    bt_rect col[3];
    bt_layout_cols(r, want, 3, 2, col);
    for (int i = 0; i < 3; i++) {
        /* If only two charts fit, the third one replaces the second when it is selected. */
        int pane = i == PANE_OVERLAP && t->pane == PANE_WIRE && !wide ? PANE_WIRE : i;
        if (col[i].w > 0) draw_comm_chart(t, col[i], pane, t->pane == pane);
    }
}

static void draw_expanded_pane(bt_top *t, bt_rect r) {
    switch (t->pane) {
    case PANE_OVERHEAD:
    case PANE_OVERLAP:
    case PANE_WIRE: draw_comm_chart(t, r, t->pane, true); break;
    case PANE_KINDS: draw_exchanges(t, r, bt_top_title(t, PANE_KINDS)); break;
    case PANE_RANKS: draw_comm_ranks(t, r, bt_top_title(t, PANE_RANKS)); break;
    default: bt_pairs_draw(t, r, bt_top_title(t, PANE_PAIRS));
    }
}

void bt_screen_comm(bt_top *t, bt_rect r) {
    bt_top_rows(t, t->view->ranks.n, comm_row_text, comm_row_number, true);
    if (t->expanded) {
        draw_expanded_pane(t, r);
        return;
    }
    int need = (int)t->n_rows + 2, kinds = (int)t->view->comm.n, few = kinds > 3 ? 3 : kinds,
        pairs = bt_pairs_height(t);
    /* If charts and matrix do not fit together, the selected matrix replaces the charts. */
    bool instead = t->pane == PANE_PAIRS && pairs > 0 &&
                   r.h < 6 + few + 3 + (need < 4 ? need : 4) + 1 + pairs + 1;
    bt_pane_size rows[] = {
        {.min = instead ? pairs : 6, .max = instead ? pairs : 0, .weight = 1, .rank = 2},
        {.min = kinds ? few + 2 : 1000, .max = kinds + 2, .weight = 2, .rank = 1},
        {.min = need < 4 ? need : 4, .max = need, .weight = 2, .rank = 0},
        {.min = instead || pairs == 0 ? 1000 : pairs, .max = pairs, .rank = 3}};
    if (instead) rows[0].min = pairs < r.h - need - 1 ? pairs : 6;
    if (kinds == 0) rows[1].rank = 9;
    if (instead || pairs == 0) rows[3].rank = 10;
    bt_rect out[4];
    bt_layout_rows(r, rows, 4, 1, out);
    if (out[0].h > 0 && instead)
        bt_pairs_draw(t, out[0], bt_top_title(t, PANE_PAIRS));
    else if (out[0].h > 0)
        draw_comm_charts(t, out[0]);
    if (out[1].h > 2) draw_exchanges(t, out[1], bt_top_title(t, PANE_KINDS));
    if (out[2].h >= 3) draw_comm_ranks(t, out[2], bt_top_title(t, PANE_RANKS));
    if (out[3].h >= 4) bt_pairs_draw(t, out[3], bt_top_title(t, PANE_PAIRS));
}
