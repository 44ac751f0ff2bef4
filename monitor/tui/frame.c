/* frame.c - draws the frame around every screen (run, numbers, tabs, status, hints), and the summary for a small
 * terminal. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/base/clock.h"
#include "engine/base/tables/figure.h"
#include "monitor/tui/screens/screens.h"

/* Designed for 80x24; one or two rows less, as under a multiplexer's status line, still fit. */
enum {
    FULL_W = 78,
    FULL_H = 18,
    CHART_W = 36,
    CHART_H = 7
}; /* a summary with at least this much room also shows the loss */

bool bt_top_small(const bt_top *t) {
    int w, h;
    bt_term_size(t->term, &w, &h);
    return w < FULL_W || h < FULL_H;
}

/* ---- texts in a row, of which the least important are dropped first */

typedef struct item {
    char label[24], value[160];
    uint8_t color;
    int importance;
} item;
typedef struct items {
    item it[24];
    int n;
} items;

static void add_frame_item(items *l, int importance, uint8_t color, const char *label,
                           const char *value) {
    if (l->n == 24 || !value[0] || strcmp(value, "-") == 0) return;
    item *i = &l->it[l->n++];
    i->importance = importance;
    i->color = color;
    snprintf(i->label, sizeof i->label, "%s", label);
    snprintf(i->value, sizeof i->value, "%s", value);
}

static int item_width(const item *i) {
    return bt_canvas_text_width(i->label) + bt_canvas_text_width(i->value) + (i->label[0] ? 1 : 0);
}

static void draw_items(bt_canvas *c, int x, int y, int w, const items *l, uint8_t bg) {
    bool keep[24];
    int total = -2;
    for (int i = 0; i < l->n; i++) keep[i] = true, total += item_width(&l->it[i]) + 2;
    while (total > w) {
        int worst = -1;
        for (int i = 0; i < l->n; i++)
            if (keep[i] && (worst < 0 || l->it[i].importance >= l->it[worst].importance)) worst = i;
        if (worst < 0 || l->it[worst].importance == 0) break;
        keep[worst] = false;
        total -= item_width(&l->it[worst]) + 2;
    }
    int end = x + w;
    for (int i = 0; i < l->n && x < end; i++) {
        if (!keep[i]) continue;
        if (l->it[i].label[0])
            x += bt_canvas_text(c, x, y, end - x, (bt_style){.fg = BT_C_LABEL, .bg = bg},
                                l->it[i].label) +
                 1;
        x += bt_canvas_text(c, x, y, end - x,
                            (bt_style){.fg = l->it[i].color, .bg = bg, .attr = BT_ATTR_BOLD},
                            l->it[i].value) +
             2;
    }
}

/* ---- lines one to three ---------------------------------------------------------------------- */

static const char *loss_trend_mark(const bt_view_head *h) {
    return isnan(h->loss_trend) ? "" : h->loss_trend < 0 ? " ▼" : " ▲";
}

/* "███▌░░░░ 44 %" */
static void format_progress_bar(char out[64], double done) {
    enum { CELLS = 8 };
    int eighths = (int)(done * CELLS * 8 + 1e-9), n = 0;
    for (int i = 0; i < CELLS; i++, eighths -= 8) {
        char glyph[5];
        bt_glyph_put(glyph, eighths >= 8  ? 0x2588U
                            : eighths > 0 ? 0x2590U - (uint32_t)eighths
                                          : 0x2591U);
        n += snprintf(out + n, 64 - (size_t)n, "%s", glyph);
    }
    /* Shows 100 % only at the end. */
    snprintf(out + n, 64 - (size_t)n, " %.0f %%", floor(100 * done + 1e-9));
}

static void collect_run_items(const bt_top *t, items *l) {
    const bt_view_head *h = &t->view->head;
    char b[64], c[64];
    l->n = 0;
    if (!t->has_run) {
        add_frame_item(l, 0, BT_C_BRIGHT, "", "bitrain");
        snprintf(b, sizeof b, "%lld", (long long)t->view->runs.total);
        add_frame_item(l, 1, BT_C_TEXT, "runs", b);
        return;
    }
    add_frame_item(l, 0, BT_C_BRIGHT, "", t->run);
    snprintf(b, sizeof b, "%s %s", h->live ? "●" : "○", bt_run_states[h->state].id);
    add_frame_item(l, 0, bt_state_color(h->state), "", b);
    if (h->live || h->state == BT_STATE_LOST) {
        snprintf(b, sizeof b, "%s ago", bt_fmt_age(c, sizeof c, h->age_s));
        add_frame_item(l, h->state == BT_STATE_RUNNING ? 6 : 1,
                       h->state == BT_STATE_RUNNING ? BT_C_LABEL : BT_C_WARN, "", b);
    }
    if (h->restarts > 0) {
        snprintf(b, sizeof b, "%d", h->restarts);
        add_frame_item(l, 4, BT_C_TEXT, "restarts", b);
    }
    /* the number of reporting ranks matters for a live run only */
    const bool lacks = h->live && h->ranks_reporting < h->world_size && h->ranks_reporting > 0;
    if (h->live)
        snprintf(b, sizeof b, "%d/%d", h->ranks_reporting, h->world_size);
    else
        snprintf(b, sizeof b, "%d", h->world_size);
    add_frame_item(l, 3, lacks ? BT_C_WARN : BT_C_TEXT, h->hub ? "islands" : "ranks", b);
    if (!isnan(h->progress)) {
        format_progress_bar(b, h->progress);
        add_frame_item(l, 1, BT_C_ACCENT, "", b);
    }
    add_frame_item(l, 5, BT_C_TEXT, "",
                   h->live ? bt_fmt_age(b, sizeof b, floor(h->elapsed_s))
                           : bt_duration(b, sizeof b, h->elapsed_s));
    if (!isnan(h->eta_s)) {
        int n = snprintf(b, sizeof b, "%s", bt_fmt_age(c, sizeof c, floor(h->eta_s)));
        if (h->eta_err_s >= 10)
            snprintf(b + n, sizeof b - (size_t)n, " ±%s",
                     bt_fmt_age(c, sizeof c, fmax(10, h->eta_err_s)));
        add_frame_item(l, 2, BT_C_TEXT, "left", b);
    }
    add_frame_item(l, 7, BT_C_LABEL, "", h->isa);
}

static void collect_number_items(const bt_top *t, items *l) {
    const bt_view_head *h = &t->view->head;
    char b[64], c[64], d[64];
    l->n = 0;
    if (!t->has_run) return;
    if (h->step < 0) {
        add_frame_item(l, 0, BT_C_LABEL, "",
                       h->live ? "waiting for the first step" : "no step was recorded");
        return;
    }
    int n = snprintf(b, sizeof b, "%s", bt_fmt_int(c, sizeof c, h->step + 1));
    if (h->steps_total > h->step)
        snprintf(b + n, sizeof b - (size_t)n, "/%s", bt_fmt_int(d, sizeof d, h->steps_total));
    add_frame_item(l, 0, BT_C_BRIGHT, "step", b);
    add_frame_item(l, 5, BT_C_TEXT, "tokens", bt_fmt(b, sizeof b, h->tokens, BT_UNIT_COUNT));
    snprintf(b, sizeof b, "%s%s", bt_fmt(c, sizeof c, h->loss_ema, BT_UNIT_NATS),
             loss_trend_mark(h));
    add_frame_item(l, 0, BT_C_BRIGHT, bt_figures[BT_FIGURE_LOSS_EMA].brief,
                   isnan(h->loss_ema) ? "-" : b);
    if (!isnan(h->val_loss) || !isnan(h->best_val)) {
        int k = snprintf(b, sizeof b, "%.3f", isnan(h->val_loss) ? h->best_val : h->val_loss);
        if (!isnan(h->best_val)) snprintf(b + k, sizeof b - (size_t)k, " best %.3f", h->best_val);
        add_frame_item(l, 1, BT_C_TEXT, "val", b);
    }
    add_frame_item(l, 3, h->memorising_step >= 0 ? BT_C_WARN : BT_C_TEXT,
                   bt_figures[BT_FIGURE_VAL_GAP].brief,
                   bt_fmt(b, sizeof b, h->val_gap, BT_UNIT_NATS));
    add_frame_item(l, 1, BT_C_BRIGHT, isnan(h->val_accuracy) ? "accuracy" : "val accuracy",
                   bt_fmt_percent(b, sizeof b,
                                  isnan(h->val_accuracy) ? h->accuracy : h->val_accuracy));
    add_frame_item(l, 1, BT_C_TEXT, "F1", bt_fmt_percent(b, sizeof b, h->val_f1));
    add_frame_item(l, 1, BT_C_TEXT, "reward margin",
                   bt_fmt(b, sizeof b, isnan(h->val_margin) ? h->reward_margin : h->val_margin,
                          BT_UNIT_NATS));
    if (!isnan(h->passes)) {
        snprintf(b, sizeof b, h->passes < 10 ? "%.2f" : "%.1f", h->passes);
        add_frame_item(l, 1, BT_C_TEXT, bt_figures[BT_FIGURE_PASSES].brief, b);
    }
    add_frame_item(l, 1, BT_C_BRIGHT, bt_figures[BT_FIGURE_TOKENS_PER_S].brief,
                   bt_fmt(b, sizeof b, h->tokens_per_s, BT_UNIT_COUNT));
    bt_fmt(c, sizeof c, h->step_p50_ms, BT_UNIT_MS);
    if (strstr(c, " ms") && !isnan(h->step_p95_ms) && h->step_p95_ms < 9999) {
        *strstr(c, " ms") = 0;
        snprintf(b, sizeof b, "%.20s/%.20s", c, bt_fmt(d, sizeof d, h->step_p95_ms, BT_UNIT_MS));
    } else {
        snprintf(b, sizeof b, "%s", c);
    }
    add_frame_item(l, 2, BT_C_TEXT, "p50/95", b);
    add_frame_item(l, 4, BT_C_TEXT, bt_figures[BT_FIGURE_OVERLAP].brief,
                   bt_fmt_percent(b, sizeof b, h->overlap));
    add_frame_item(l, 3, h->wait_frac > 0.15 ? BT_C_WARN : BT_C_TEXT, "wait",
                   bt_fmt_percent(b, sizeof b, h->wait_frac));
    add_frame_item(l, 4, h->goodput < 0.8 ? BT_C_WARN : BT_C_TEXT, "goodput",
                   bt_fmt_percent(b, sizeof b, h->goodput));
    if (h->alerts > 0) {
        snprintf(b, sizeof b, "%d", h->alerts);
        add_frame_item(l, 3, h->errors ? BT_C_BAD : BT_C_WARN, "alerts", b);
    }
    add_frame_item(l, 7, BT_C_TEXT, "mfu", bt_fmt_percent(b, sizeof b, h->mfu));
    if (h->loss_scale > 1) { /* fp16 only */
        snprintf(b, sizeof b, "2^%d", ilogb(h->loss_scale));
        add_frame_item(l, 6, BT_C_TEXT, "scale", b);
    }
    add_frame_item(l, 8, BT_C_TEXT, "lr", bt_fmt(b, sizeof b, h->lr, BT_UNIT_NONE));
}

static void draw_tabs(bt_top *t, int y) {
    t->tab_y = y;
    int x = 1, gap = t->canvas.w < 96 ? 1 : 2;
    for (int i = 1; i < BT_SCREEN_COUNT; i++) {
        bool on = (int)t->screen == i;
        t->tab_x[i] = t->tab_end[i] = x;
        if (i == BT_SCREEN_ISLANDS && !on && !t->view->head.hub) continue;
        char digit[4] = {(char)('0' + i % 10), ' ', 0};
        x += bt_canvas_text(
            &t->canvas, x, y, t->canvas.w - x,
            (bt_style){.fg = on ? BT_C_ACCENT : BT_C_FAINT, .attr = on ? BT_ATTR_BOLD : 0}, digit);
        x += bt_canvas_text(&t->canvas, x, y, t->canvas.w - x,
                            (bt_style){.fg = on ? BT_C_ACCENT : BT_C_LABEL,
                                       .attr = on ? BT_ATTR_BOLD | BT_ATTR_UNDERLINE : 0},
                            bt_screens[i].title);
        t->tab_end[i] = x;
        x += gap;
    }
}

/* ---- the last two lines ---------------------------------------------------------------------- */

static void add_time_items(const bt_top *t, items *l) {
    const bt_view_head *h = &t->view->head;
    char b[64], c[64];
    if (t->frozen) add_frame_item(l, 0, BT_C_WARN, "", "FROZEN");
    if (t->at_step >= 0 && t->at_step < h->newest_step) {
        double here = bt_view_time_of(t->view, t->run, h->step),
               there = bt_view_time_of(t->view, t->run, h->newest_step);
        snprintf(b, sizeof b, "%s in the past", bt_fmt_age(c, sizeof c, there - here));
        add_frame_item(l, 0, BT_C_WARN, "view is", b);
    }
    if (h->dropped > 0) {
        snprintf(b, sizeof b, "%lld", (long long)h->dropped);
        add_frame_item(l, 0, BT_C_BAD, "dropped records", b);
    }
    if (h->skipped > 0) {
        snprintf(b, sizeof b, "%lld", (long long)h->skipped);
        add_frame_item(l, 0, BT_C_WARN, "skipped steps", b);
    }
    if (t->filter_on) {
        snprintf(b, sizeof b, "%.30s  %zu of %zu", t->filter, t->n_rows, t->n_all);
        add_frame_item(l, 0, BT_C_ACCENT, "filter", b);
    }
}

static void draw_status(bt_top *t, int y) {
    items l = {.n = 0};
    char right[128], span[32];
    /* The form that starts a run shows errors itself, in full. */
    bool message = bt_now_ns() < t->message_until_ns && t->message[0] &&
                   !(t->input == BT_INPUT_FORM && t->message_color == BT_C_BAD);
    if (message)
        bt_canvas_text(&t->canvas, 1, y, t->canvas.w - 2,
                       (bt_style){.fg = t->message_color, .attr = BT_ATTR_BOLD}, t->message);
    else if (t->has_run)
        add_time_items(t, &l);
    snprintf(span, sizeof span, "%s",
             t->span_s > 0 ? bt_duration(right, sizeof right, t->span_s) : "all");
    snprintf(right, sizeof right, "span %s · x %s%s%s", span, bt_x_axis_name(t->x),
             t->log_y ? " · log y" : "", t->baseline[0] ? " · baseline " : "");
    if (t->baseline[0])
        snprintf(right + strlen(right), sizeof right - strlen(right), "%.40s", t->baseline);
    int w = bt_canvas_text_width(right);
    if (message && bt_canvas_text_width(t->message) + w + 4 > t->canvas.w) return;
    if (t->has_run)
        bt_canvas_text_right(&t->canvas, t->canvas.w - 1, y, w, (bt_style){.fg = BT_C_FAINT},
                             right);
    draw_items(&t->canvas, 1, y, t->canvas.w - w - 4, &l, BT_C_NONE);
}

/* Draws the next hint at x; returns the column after it, or x if it does not fit. */
static int draw_hint(bt_top *t, int x, int y, const char *key, const char *hint) {
    const int w = bt_canvas_text_width(key) + bt_canvas_text_width(hint) + 1;
    if (x + w > t->canvas.w - 1) return x;
    x += bt_canvas_text(&t->canvas, x, y, w, (bt_style){.fg = BT_C_SECOND}, key) + 1;
    return x + bt_canvas_text(&t->canvas, x, y, w, (bt_style){.fg = BT_C_FAINT}, hint) + 2;
}

/* effect of the keys P and S in the state of the run */
static int draw_control_hints(bt_top *t, int x, int y) {
    const bt_view_head *h = &t->view->head;
    if (!t->has_run || !t->cfg.actions.control) return x;
    if (bt_verb_offered(BT_VERB_RESUME, h->state) && !bt_verb_offered(BT_VERB_PAUSE, h->state))
        x = draw_hint(t, x, y, "P", "resume");
    else if (bt_verb_offered(BT_VERB_PAUSE, h->state))
        x = draw_hint(t, x, y, "P", "pause");
    else if (!h->live && h->trouble.resumes)
        x = draw_hint(t, x, y, "P", "resume");
    if (h->live && bt_verb_offered(BT_VERB_STOP, h->state)) x = draw_hint(t, x, y, "S", "stop");
    return x;
}

static void draw_hints(bt_top *t, int y) {
    int x = draw_control_hints(t, 1, y);
    for (size_t i = 0; i < bt_binds_n; i++) {
        if (!bt_binds[i].hint[0]) continue;
        char key[16];
        size_t n = strcspn(bt_binds[i].keys, " ");
        snprintf(key, sizeof key, "%.*s", (int)n, bt_binds[i].keys);
        const int end = draw_hint(t, x, y, key, bt_binds[i].hint);
        if (end == x) break;
        x = end;
    }
}

static void draw_input(bt_top *t, int y) {
    bt_canvas *c = &t->canvas;
    bt_canvas_fill(c, (bt_rect){0, y, c->w, 1}, ' ', (bt_style){.bg = BT_C_BAR});
    bt_style s = {.fg = BT_C_BRIGHT, .bg = BT_C_BAR, .attr = BT_ATTR_BOLD};
    if (t->input == BT_INPUT_CONFIRM) {
        const char *what = t->confirm == BT_DO_CHECKPOINT  ? "write a checkpoint now"
                           : t->confirm == BT_DO_STOP      ? "checkpoint and stop"
                           : t->confirm == BT_DO_EVALUATE  ? "evaluate the validation split"
                           : t->confirm == BT_DO_REMOVE    ? "remove its records for good"
                           : t->view->head.trouble.resumes ? "resume the training"
                           : t->view->head.state == BT_STATE_PAUSED ? "resume"
                                                                    : "pause";
        bt_canvas_textf(c, 1, y, c->w - 2,
                        (bt_style){.fg = BT_C_WARN, .bg = BT_C_BAR, .attr = BT_ATTR_BOLD},
                        t->confirm == BT_DO_REMOVE
                            ? "%s: %s?  y yes, keep checkpoints   c also checkpoints   n no"
                            : "%s: %s?  y yes   n no",
                        t->run, what);
        return;
    }
    int x = 1 + bt_canvas_text(c, 1, y, c->w - 2, s,
                               t->input == BT_INPUT_FILTER     ? "/"
                               : t->input == BT_INPUT_NOTE     ? "note: "
                               : t->input == BT_INPUT_RATE     ? "peak learning rate: "
                               : t->input == BT_INPUT_TAGS     ? "tags (+add -drop): "
                               : t->input == BT_INPUT_PROMPT   ? "write on from: "
                               : t->input == BT_INPUT_RUN_NOTE ? "note of the run: "
                               : t->input == BT_INPUT_RENAME   ? "new name: "
                                                               : ":");
    int w = bt_canvas_text_width(t->line), room = c->w - x - 2;
    const char *from = t->line;
    /* Keeps the end visible. */
    while (w > room && *from) bt_glyph_next(&from), w = bt_canvas_text_width(from);
    x += bt_canvas_text(c, x, y, room, s, from);
    bt_canvas_put(c, x, y, '_', (bt_style){.fg = BT_C_ACCENT, .bg = BT_C_BAR});
}

/* ---- a small terminal ------------------------------------------------------------------------ */

static bool summary_chart_fits(const bt_top *t) {
    int w, h;
    bt_term_size(t->term, &w, &h);
    return w >= CHART_W && h >= 9 + CHART_H;
}

unsigned bt_top_small_parts(const bt_top *t) {
    if (t->screen == BT_SCREEN_RUNS) return BT_VIEW_HEAD | BT_VIEW_RUNS;
    return BT_VIEW_HEAD | (summary_chart_fits(t) ? (unsigned)BT_VIEW_SERIES : 0);
}

/* In a line the value needs no label, in a column it needs one. */
static const char *column_label(const item *x) {
    if (x->label[0] || x->importance == 0) return x->label;
    return strstr(x->value, " ago") ? "seen"
           : x->importance == 5     ? "for"
           : x->importance == 7     ? "isa"
                                    : "";
}

static void collect_frame_items(const bt_top *t, items *all) {
    const bt_view_ranks *k = &t->view->ranks;
    items a, b;
    all->n = 0;
    collect_run_items(t, &a);
    collect_number_items(t, &b);
    const bt_view_rank *late = k->steps > 0 && k->n > 1 ? &k->rank[k->order[0]] : NULL;
    if (late && late->verdict != BT_VERDICT_OK && late->fault < BT_PHASE_COUNT) {
        char says[80];
        snprintf(says, sizeof says, "rank %d %s: %s %.0f %%", late->rank,
                 bt_verdict_name(late->verdict), bt_phases[late->fault].name,
                 100 * late->fault_frac);
        add_frame_item(&b, 3, BT_C_WARN, "", says);
    }
    const bt_view_trouble *x = &t->view->head.trouble;
    if (x->any && x->level != BT_EV_INFO)
        add_frame_item(&b, 1, x->level == BT_EV_ERROR ? BT_C_BAD : BT_C_WARN, "", x->why);
    /* Shows the most important items, as many as fit. */
    for (int level = 0; level < 10; level++) {
        for (int i = 0; i < a.n && all->n < 24; i++)
            if (a.it[i].importance == level) all->it[all->n++] = a.it[i];
        for (int i = 0; i < b.n && all->n < 24; i++)
            if (b.it[i].importance == level) all->it[all->n++] = b.it[i];
    }
}

static void draw_numbers(bt_top *t, bt_rect r) {
    bt_canvas *c = &t->canvas;
    items all;
    collect_frame_items(t, &all);
    int head = bt_canvas_text_width(all.it[0].value), columns = r.w >= 52 ? 2 : 1, from = 1;
    bt_canvas_text(c, r.x, r.y, r.w, (bt_style){.fg = all.it[0].color, .attr = BT_ATTR_BOLD},
                   all.it[0].value);
    /* name and state share a line */
    if (all.n > 1 && head + 1 + bt_canvas_text_width(all.it[1].value) <= r.w) {
        bt_canvas_text(c, r.x + head + 1, r.y, r.w - head - 1,
                       (bt_style){.fg = all.it[1].color, .attr = BT_ATTR_BOLD}, all.it[1].value);
        from = 2;
    }
    int lines = (all.n - from + columns - 1) / columns,
        chart = summary_chart_fits(t) && t->has_run ? CHART_H : 0;
    if (lines > r.h - 1 - chart) lines = r.h - 1 - chart;
    for (int i = 0; i < lines * columns && from + i < all.n; i++) {
        const item *x = &all.it[from + i];
        int at = r.x + i / lines * (r.w / columns),
            end = i / lines + 1 < columns ? r.x + r.w / columns - 1 : r.x + r.w,
            y = r.y + 1 + i % lines;
        if (column_label(x)[0])
            at += bt_canvas_text(c, at, y, end - at, (bt_style){.fg = BT_C_LABEL},
                                 column_label(x)) +
                  1;
        bt_canvas_text(c, at, y, end - at, (bt_style){.fg = x->color, .attr = BT_ATTR_BOLD},
                       x->value);
    }
    if (chart)
        bt_top_chart(t, (bt_rect){r.x, r.y + 1 + lines, r.w, r.h - 1 - lines},
                     t->metric == BT_MS_LOSS ? BT_TS_LOSS : BT_TS_CHOSEN,
                     bt_step_metrics[t->metric].key, NULL, false, false);
}

/* Draws one run per line: name and state, then the loss. */
static void draw_names(bt_top *t, bt_rect r) {
    const bt_view_runs *y = &t->view->runs;
    if (y->n == 0)
        bt_canvas_text(&t->canvas, r.x, r.y, r.w, (bt_style){.fg = BT_C_LABEL}, "no run yet");
    for (int i = 0; i < r.h && (size_t)i < y->n; i++) {
        int at = r.x +
                 bt_canvas_text(&t->canvas, r.x, r.y + i, r.w, (bt_style){.fg = BT_C_BRIGHT},
                                y->run[i].run) +
                 1;
        bt_canvas_text(&t->canvas, at, r.y + i, r.x + r.w - at,
                       (bt_style){.fg = bt_state_color(y->run[i].state)},
                       bt_run_states[y->run[i].state].id);
    }
}

static void draw_small_terminal(bt_top *t) {
    bt_canvas *c = &t->canvas;
    bt_rect r = {0, 0, c->w, c->h};
    bool message = t->message[0] && bt_now_ns() < t->message_until_ns, list = r.w >= 30 && r.h >= 5;
    if (t->input != BT_INPUT_NONE && t->input != BT_INPUT_FORM)
        draw_input(t, --r.h);
    else if (message && r.h > 1)
        bt_canvas_text(c, 0, --r.h, r.w, (bt_style){.fg = t->message_color}, t->message);
    bt_rect old = bt_canvas_clip(c, r);
    t->page = r.h - 1;
    /* Without a run only the list of runs can be drawn. */
    if (!t->has_run) t->screen = BT_SCREEN_RUNS;
    if (t->help && list)
        bt_screen_help_draw(t, r);
    else if (t->screen == BT_SCREEN_RUNS && list)
        bt_screen_runs(t, r);
    else if (t->screen == BT_SCREEN_RUNS)
        draw_names(t, r);
    else
        draw_numbers(t, r);
    bt_canvas_unclip(c, old);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void draw_screen_with_frame(bt_top *t) {
    bt_canvas *c = &t->canvas;
    items l;
    bt_canvas_fill(c, (bt_rect){0, 0, c->w, 1}, ' ', (bt_style){.bg = BT_C_BAR});
    collect_run_items(t, &l);
    char clock_text[32];
    time_t now = (time_t)(t->cfg.now_us ? t->cfg.now_us / 1000000 : bt_wall_us() / 1000000);
    struct tm tm;
    strftime(clock_text, sizeof clock_text, "%H:%M:%S",
             t->cfg.now_us ? gmtime_r(&now, &tm) : localtime_r(&now, &tm));
    bt_canvas_text_right(c, c->w - 1, 0, 10, (bt_style){.fg = BT_C_LABEL, .bg = BT_C_BAR},
                         clock_text);
    draw_items(c, 1, 0, c->w - 12, &l, BT_C_BAR);
    collect_number_items(t, &l);
    draw_items(c, 1, 1, c->w - 2, &l, BT_C_NONE);
    bool keys = bt_term_caps_of(t->term).keys;
    if (keys) draw_tabs(t, 2);
    bt_rect body = {1, 3, c->w - 2, c->h - (keys ? 5 : 4)};
    bt_rect old = bt_canvas_clip(c, body);
    t->page = body.h - 2;
    if (t->help)
        bt_screen_help_draw(t, body);
    else if (t->load_error.code != BT_OK && t->view->head.run[0] == 0 &&
             t->screen != BT_SCREEN_RUNS)
        bt_top_empty(t, body, t->load_error.msg);
    else if (!t->has_run && t->screen != BT_SCREEN_RUNS)
        bt_top_empty(t, body, "no run is chosen: press 7 for the list of runs");
    else
        bt_screens[t->screen].draw(t, body);
    bt_canvas_unclip(c, old);
    draw_status(t, c->h - (keys ? 2 : 1));
    if (!keys) return;
    if (t->input == BT_INPUT_NONE || t->input == BT_INPUT_FORM)
        draw_hints(t, c->h - 1);
    else
        draw_input(t, c->h - 1);
}

bt_code bt_top_draw(bt_top *t, bt_err *err) {
    int w, h;
    bt_term_size(t->term, &w, &h);
    if (!t->canvas.cells || t->canvas.w != w || t->canvas.h != h) {
        bt_canvas_release(&t->canvas);
        BT_TRY(bt_canvas_init(&t->canvas, w, h, bt_term_caps_of(t->term).chars, err));
    }
    bt_canvas_clear(&t->canvas);
    /* a list screen names its contents */
    t->n_rows = t->n_all = 0, t->columns = 0;
    t->tab_y = -1;
    t->list_rows = (bt_rect){0, 0, 0, 0};
    if (bt_top_small(t))
        draw_small_terminal(t);
    else
        draw_screen_with_frame(t);
    t->dirty = false;
    return BT_OK;
}
