/* screen_step.c - shows the phases of a step as one stacked bar per rank: absolute, percent, or excess over the
 * median. */
#include <math.h>
#include <stdio.h>

#include "monitor/tui/screens/screens.h"

enum { MODE_ABSOLUTE, MODE_PERCENT, MODE_EXCESS, MODES };
enum { C_RANK, C_BAR, C_P50, C_P95, C_P99, C_MAX, C_BUSY, C_COUNT };
static const bt_list_col columns[C_COUNT] = {
    {"rank", 5, true, false, 0}, {"", 24, false, true, 0},   {"p50", 8, true, false, 1},
    {"p95", 8, true, false, 3},  {"p99", 8, true, false, 5}, {"max", 8, true, false, 4},
    {"busy", 8, true, false, 2}};

static const char *step_row_text(bt_top *t, size_t i, char *buf, size_t size) {
    const bt_view_rank *x = &t->view->ranks.rank[i];
    snprintf(buf, size, "rank %d %s", x->rank, x->host);
    return buf;
}

static double step_row_number(bt_top *t, size_t i, int col) {
    const bt_view_rank *x = &t->view->ranks.rank[i];
    switch (col) {
    case C_P50: return x->step_p50_ms;
    case C_P95: return x->step_p95_ms;
    case C_P99: return x->step_p99_ms;
    case C_MAX: return x->step_max_ms;
    case C_BUSY: return x->busy_p50_ms;
    default: return -x->rank;
    }
}

static double compute_bar_scale(const bt_view_ranks *k, int mode, const bt_view_rank *x) {
    double most = 0;
    for (size_t i = 0; i < k->n; i++) {
        double sum = 0;
        for (int p = 0; p < BT_PHASE_COUNT; p++) {
            double v = k->rank[i].mean[bt_phases[p].metric],
                   m = mode == MODE_EXCESS ? k->median[bt_phases[p].metric] : 0;
            if (mode == MODE_EXCESS && p == BT_PH_WAIT) continue;
            if (v - m > 0) sum += v - m;
        }
        if (mode != MODE_PERCENT || x == &k->rank[i]) most = fmax(most, sum);
    }
    return most;
}

static bool paint_step_cell(void *ctx, bt_canvas *c, bt_rect r, size_t row, int col) {
    bt_top *t = ctx;
    const bt_view_ranks *k = &t->view->ranks;
    if (col != C_BAR) return false;
    const bt_view_rank *x = &k->rank[t->rows[row]];
    int mode = t->mode % MODES;
    bt_segment seg[BT_PHASE_COUNT];
    for (int p = 0; p < BT_PHASE_COUNT; p++) {
        double v = x->mean[bt_phases[p].metric] -
                   (mode == MODE_EXCESS ? k->median[bt_phases[p].metric] : 0);
        seg[p] = (bt_segment){isnan(v) || v < 0 || (mode == MODE_EXCESS && p == BT_PH_WAIT) ? 0 : v,
                              bt_phase_color((bt_phase)p), bt_phases[p].letter};
    }
    bt_stack_draw(c, r.x, r.y, r.w, compute_bar_scale(k, mode, x), seg, BT_PHASE_COUNT,
                  bt_top_letters(t));
    bt_stack_thin(c, r);
    return true;
}

static void step_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    const bt_view_rank *x = &t->view->ranks.rank[t->rows[row]];
    if (col == C_RANK) {
        snprintf(buf, size, "%d", x->rank);
        s->fg = BT_C_BRIGHT;
        return;
    }
    double v = step_row_number(t, t->rows[row], col);
    bt_fmt(buf, size, v, BT_UNIT_MS);
    if (col == C_MAX && v > 2 * x->step_p50_ms) s->fg = BT_C_WARN;
}

/* Shows the measured phases, and the planner's predictions below them. */
static void draw_phases_table(bt_top *t, bt_rect r) {
    enum { LABEL = 6 };
    const bt_view_ranks *k = &t->view->ranks;
    const bt_predicted *p = &t->view->head.predicted;
    char total[64], ms[32];
    if (r.h < 2 || isnan(p->step_ms)) {
        bt_top_phase_legend(t, r, k->phase_ms, k->mean_ms);
        return;
    }
    const bt_style label = {.fg = BT_C_LABEL};
    bt_canvas_text(&t->canvas, r.x, r.y, LABEL, label, "now");
    bt_top_phase_legend(t, (bt_rect){r.x + LABEL, r.y, r.w - LABEL, 1}, k->phase_ms, k->mean_ms);
    bt_canvas_text(&t->canvas, r.x, r.y + 1, LABEL, label, "plan");
    bt_top_phase_legend(t, (bt_rect){r.x + LABEL, r.y + 1, r.w - LABEL, 1}, p->phase_ms,
                        p->step_ms);
    if (r.h < 3) return;
    bt_fmt(ms, sizeof ms, p->step_ms, BT_UNIT_MS);
    int n = snprintf(total, sizeof total, "predicted %s a step", ms);
    bt_fmt(ms, sizeof ms, p->tried_ms, BT_UNIT_MS);
    if (isfinite(p->tried_ms)) snprintf(total + n, sizeof total - (size_t)n, ", tried %s", ms);
    bt_canvas_text(&t->canvas, r.x + LABEL, r.y + 2, r.w - LABEL, label, total);
}

void bt_screen_step(bt_top *t, bt_rect r) {
    static const char *const modes[] = {"milliseconds", "percent of the step",
                                        "excess over the ranks' median"};
    bt_view_ranks *k = &t->view->ranks;
    bt_list *l = &t->list[BT_SCREEN_STEP];
    /* Selects the slowest rank until the user chooses another. */
    if (!l->touched && k->n > 0) l->selected = k->order[0];
    bt_top_rows(t, k->n, step_row_text, step_row_number, true);
    bt_pane_size rows[] = {{.min = 10, .weight = 2, .max = r.h > 30 ? r.h / 2 : 0, .rank = 0},
                           {.min = isnan(t->view->head.predicted.step_ms) ? 1 : 3, .rank = 1},
                           {.min = 6, .weight = 3, .rank = 3},
                           {.min = r.w < 120 ? 2 : 1, .rank = 2}};
    int need = (int)t->n_rows + 2;
    if (need < rows[0].min) rows[0].min = need > 3 ? need : 3;
    if (rows[0].max == 0 || rows[0].max > need) rows[0].max = need > 3 ? need : 3;
    bt_rect out[4];
    bt_layout_rows(r, rows, 4, 0, out);
    char right[96];
    snprintf(right, sizeof right, "%s · t: another measure", modes[t->mode % MODES]);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0),
                   "where each rank's step goes", right);
    if (k->steps == 0) {
        bt_top_empty(t, out[0], "no rank has reported a step yet");
        return;
    }
    const bt_list_table table = {.cols = columns,
                                 .n_cols = C_COUNT,
                                 .cell = step_cell,
                                 .paint = paint_step_cell,
                                 .sort_col = -1};
    bt_top_table(t, (bt_rect){out[0].x, out[0].y + 1, out[0].w, out[0].h - 1}, table);
    draw_phases_table(t, out[1]);
    if (out[2].h >= 4) bt_top_chart(t, out[2], BT_TS_STEP, "step time", NULL, false, false);
    if (out[3].h > 0 && t->n_rows > 0) bt_what_if_line(t, out[3], &k->rank[t->rows[l->selected]]);
}
