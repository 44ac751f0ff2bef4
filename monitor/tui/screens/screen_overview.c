/* screen_overview.c - one screen with loss, speed, phases of a step, slow ranks and recent events. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/tui/screens/screens.h"
#include "monitor/tui/screens/top_state.h"

/* a hub and an imported run record only some of the metrics */
static bool has_known_mean(const bt_view_series *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!isnan(s->mean[i])) return true;
    return false;
}

static void draw_sparklines(bt_top *t, bt_rect r) {
    static const struct {
        bt_top_series s;
        const char *title;
        uint8_t color;
    } rows[] = {{BT_TS_SPEED, "tokens/s", BT_C_GOOD},
                {BT_TS_GRAD, "grad norm", BT_C_SECOND},
                {BT_TS_LR, "learning rate", BT_C_THIRD},
                {BT_TS_STEP, "step time", BT_C_ACCENT},
                {BT_TS_OVERHEAD, "comm overhead", BT_C_P_COMM_EXPOSED},
                {BT_TS_RSS, "memory, largest rank", BT_C_P_CKPT}};
    enum { N = sizeof rows / sizeof rows[0] };
    bt_pane_size want[N];
    bt_rect out[N];
    int shown[N], n = 0;
    for (int i = 0; i < N; i++) {
        if (!t->reading && !has_known_mean(bt_top_ts(t, rows[i].s))) continue;
        want[n] = (bt_pane_size){.min = 2, .max = 6, .weight = 1, .rank = n};
        shown[n++] = i;
    }
    bt_layout_rows(r, want, n, r.h > 3 * n ? 1 : 0, out);
    for (int i = 0; i < n; i++) {
        const int k = shown[i];
        if (out[i].h > 0) bt_top_spark(t, out[i], rows[k].s, rows[k].title, rows[k].color);
    }
}

static void draw_step_bar(bt_top *t, bt_rect r) {
    const bt_view_ranks *k = &t->view->ranks;
    char right[96], a[40], b[40], c[40];
    if (r.h < 2) return;
    bt_fmt(a, sizeof a, k->mean_ms, BT_UNIT_MS);
    snprintf(right, sizeof right, "%s · steps %s-%s", a, bt_fmt_int(b, sizeof b, k->step0 + 1),
             bt_fmt_int(c, sizeof c, k->step1 + 1));
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 1),
                   k->ranks_most > 1 ? "where a step goes, mean of the ranks" : "where a step goes",
                   k->steps ? right : "");
    if (k->steps == 0) {
        bt_canvas_text(&t->canvas, r.x, r.y + 1, r.w, (bt_style){.fg = BT_C_LABEL},
                       "no rank has reported a step yet");
        return;
    }
    bt_segment seg[BT_PHASE_COUNT];
    for (int p = 0; p < BT_PHASE_COUNT; p++)
        seg[p] = (bt_segment){k->phase_ms[p], bt_phase_color((bt_phase)p), bt_phases[p].letter};
    for (int y = 1; y < (r.h > 3 ? 3 : 2); y++)
        bt_stack_draw(&t->canvas, r.x, r.y + y, r.w, k->mean_ms, seg, BT_PHASE_COUNT,
                      bt_top_letters(t));
    if (r.h >= 3)
        bt_top_phase_legend(t, (bt_rect){r.x, r.y + (r.h > 3 ? 3 : 2), r.w, 1}, k->phase_ms,
                            k->mean_ms);
}

static void straggler_line(bt_top *t, bt_rect row, const bt_view_rank *x) {
    const bt_view_ranks *k = &t->view->ranks;
    bt_canvas *c = &t->canvas;
    char b[40], d[40], line[160];
    int at = row.x, end = row.x + row.w;
    snprintf(line, sizeof line, "rank %-4d", x->rank);
    at += bt_canvas_text(c, at, row.y, end - at,
                         (bt_style){.fg = bt_score_color(x->score), .attr = BT_ATTR_BOLD}, line);
    snprintf(line, sizeof line, "%8s", bt_fmt(b, sizeof b, x->busy_p50_ms, BT_UNIT_MS));
    at += bt_canvas_text(c, at, row.y, end - at, (bt_style){.fg = BT_C_TEXT}, line) + 2;
    if (x->fault == BT_PHASE_COUNT || !(x->lost_s > 0)) return;
    snprintf(line, sizeof line, "%5s of the blame", bt_fmt_percent(b, sizeof b, x->blame_frac));
    if (row.w < 60) line[strcspn(line, "%") + 1] = 0;
    at += bt_canvas_text(c, at, row.y, end - at, (bt_style){.fg = BT_C_LABEL}, line) + 1;
    at += bt_canvas_text(c, at, row.y, end - at, (bt_style){.fg = bt_phase_color(x->fault)},
                         bt_phases[x->fault].name) +
          2;
    double gain = k->step_ms > 0 ? (k->step_ms - x->what_if_ms) / k->step_ms : 0;
    if (gain < 0.005) return;
    bt_fmt_percent(d, sizeof d, gain);
    snprintf(line, sizeof line, row.w >= 46 ? "without: -%s" : "-%s", d);
    if (row.w >= 72)
        snprintf(line, sizeof line, "without: %s (-%s)",
                 bt_fmt(b, sizeof b, x->what_if_ms, BT_UNIT_MS), d);
    /* Omits text that does not fit completely. */
    if (bt_canvas_text_width(line) <= end - at)
        bt_canvas_text(c, at, row.y, end - at, (bt_style){.fg = BT_C_TEXT}, line);
}

static void draw_stragglers(bt_top *t, bt_rect r) {
    const bt_view_ranks *k = &t->view->ranks;
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 2), "slowest ranks",
                   "by delay caused");
    if (k->steps == 0) return;
    int y = r.y + 1, end = r.y + r.h;
    /* An overloaded machine is reported before its ranks. */
    if (k->crowded[0] && y < end)
        y += bt_canvas_wrap(&t->canvas, (bt_rect){r.x, y, r.w, end - y < 3 ? 1 : 3},
                            (bt_style){.fg = BT_C_WARN}, k->crowded);
    for (int i = 0; y < end && (size_t)i < k->n && i < (r.h > 8 ? 8 : 4); i++)
        straggler_line(t, (bt_rect){r.x, y++, r.w, 1}, &k->rank[k->order[i]]);
}

static void island_line(bt_top *t, bt_rect row, const bt_view_island *x) {
    bt_canvas *c = &t->canvas;
    const bool trains = x->value[BT_MI_TRAINS] > 0;
    char a[40], b[40], d[40];
    int at = row.x, end = row.x + row.w;
    at += bt_canvas_textf(c, at, row.y, end - at,
                          (bt_style){.fg = BT_C_BRIGHT, .attr = BT_ATTR_BOLD}, "%-12.24s", x->name);
    at += bt_canvas_text(c, at, row.y, end - at, (bt_style){.fg = trains ? BT_C_GOOD : BT_C_WARN},
                         trains ? " trains " : " away   ");
    bt_canvas_textf(c, at, row.y, end - at, (bt_style){.fg = BT_C_TEXT}, "step %s  loss %s  %s in",
                    bt_fmt(a, sizeof a, x->value[BT_MI_CLOCK], BT_UNIT_COUNT),
                    bt_fmt(b, sizeof b, x->value[BT_MI_LOSS], BT_UNIT_NATS),
                    bt_fmt(d, sizeof d, x->value[BT_MI_BYTES], BT_UNIT_BYTES));
}

/* A hub has no ranks, so its islands replace the slowest ranks. */
static void draw_islands(bt_top *t, bt_rect r) {
    const bt_view_islands *l = &t->view->islands;
    char right[64];
    snprintf(right, sizeof right, "%.0f of %zu train", l->training, l->n);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 2), "islands",
                   l->n > 0 ? right : "");
    for (int i = 0; i < r.h - 1 && (size_t)i < l->n; i++)
        island_line(t, (bt_rect){r.x, r.y + 1 + i, r.w, 1}, &l->island[i]);
}

static void draw_last_events(bt_top *t, bt_rect r) {
    const bt_view_events *e = &t->view->events;
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 3), "events", "");
    size_t room = (size_t)(r.h - 1), n = e->n < room ? e->n : room;
    for (size_t i = 0; i < n; i++)
        bt_event_line(t, (bt_rect){r.x, r.y + 1 + (int)i, r.w, 1}, &e->event[e->n - 1 - i], false);
}

void bt_screen_overview(bt_top *t, bt_rect r) {
    bt_top_series chart = t->metric == BT_MS_LOSS ? BT_TS_LOSS : BT_TS_CHOSEN;
    const char *title = bt_step_metrics[t->metric].key;
    if (t->expanded && bt_lr_chart_shown(t)) {
        bt_lr_chart_draw(t, r, true);
        return;
    }
    if (t->expanded) {
        bt_top_chart(t, r, chart, title, NULL, false, true);
        return;
    }
    const int trouble = bt_trouble_height(t, r.w), chips = bt_chips_height(t, r.w),
              texts = t->view->events.n_texts > 0 ? 3 : 0;
    bt_pane_size rows[] = {{.min = trouble, .max = trouble, .rank = 0},
                           {.min = chips, .max = chips, .rank = 2},
                           {.min = 7, .weight = 4, .rank = 1},
                           {.min = t->view->head.hub ? 0 : 3,
                            .max = t->view->head.hub ? 0 : 4,
                            .weight = r.h > 28 && !t->view->head.hub,
                            .rank = 4},
                           {.min = 4, .max = 12, .weight = 1, .rank = 3},
                           {.min = texts, .max = texts ? 12 : 0, .weight = texts > 0, .rank = 5}};
    bt_pane_size cols[] = {{.min = 44, .weight = 5, .rank = 0},
                           {.min = 22, .max = 44, .weight = 2, .rank = 1}};
    enum { TROUBLE, CHIPS, CHART, STEP, LISTS, TEXTS, ROWS };
    bt_rect row[ROWS], col[2], low[2];
    bt_layout_rows(r, rows, ROWS, 0, row);
    if (row[TROUBLE].h > 0) bt_trouble_draw(t, row[TROUBLE]);
    if (row[CHIPS].h > 0) bt_chips_draw(t, row[CHIPS]);
    bt_layout_cols(row[CHART], cols, 2, 2, col);
    if (bt_lr_chart_shown(t))
        bt_lr_chart_draw(t, col[0], t->pane == 0);
    else
        bt_top_chart(t, col[0], chart, title, NULL, false, t->pane == 0);
    if (col[1].h > 0 && col[1].w > 0) {
        const bt_view_head *h = &t->view->head;
        const bool past = t->at_step >= 0 && t->at_step < h->newest_step;
        bt_canvas_rule(&t->canvas, (bt_rect){col[1].x, col[1].y, col[1].w, 1},
                       (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD},
                       past      ? "then"
                       : h->live ? "now"
                                 : "at the end",
                       "");
        draw_sparklines(t, (bt_rect){col[1].x, col[1].y + 1, col[1].w, col[1].h - 1});
    }
    if (row[STEP].h > 0) draw_step_bar(t, row[STEP]);
    if (row[LISTS].h > 0) {
        bt_pane_size two[] = {{.min = 30, .weight = 1, .rank = 0},
                              {.min = 30, .weight = 1, .rank = 1}};
        bt_layout_cols(row[LISTS], two, 2, 2, low);
        if (t->view->head.hub)
            draw_islands(t, low[0]);
        else
            draw_stragglers(t, low[0]);
        if (low[1].w > 0) draw_last_events(t, low[1]);
    }
    if (row[TEXTS].h > 0) bt_texts_draw(t, row[TEXTS]);
}
