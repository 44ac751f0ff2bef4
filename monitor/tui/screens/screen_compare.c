/* screen_compare.c - overlays the marked runs: loss against tokens, and a table of differences at matched tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/tables/fact.h"
#include "monitor/tui/screens/screens.h"

static const uint8_t colors[BT_COMPARE_MAX] = {BT_C_ACCENT, BT_C_THIRD,          BT_C_P_OPTIM,
                                               BT_C_P_CKPT, BT_C_P_COMM_EXPOSED, BT_C_SECOND};

static bool add_compared_setting(void *ctx, const bt_row *row) {
    bt_top *t = ctx;
    if (t->n_settings == BT_COMPARE_SETTINGS || !row->cells[0]) return false;
    bt_setting *s = &t->setting[t->n_settings++];
    bt_text_plain(s->key, sizeof s->key, row->cells[0]);
    for (int i = 0; i < BT_COMPARE_MAX && i + 1 < row->n; i++) {
        char text[300];
        bt_setting_format(text, sizeof text, row->cells[i + 1]);
        bt_text_plain(s->value[i], sizeof s->value[i], text);
    }
    return true;
}

static bt_code load_differing_settings(bt_top *t, int n, bt_err *err) {
    const char *names[BT_COMPARE_MAX];
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT key");
    for (int i = 0; i < n; i++) {
        names[i] = t->marked[i];
        bt_text_printf(&sql, ", max(CASE WHEN run = ?%d THEN CAST(value AS TEXT) END)", i + 1);
    }
    bt_text_put(&sql, " FROM configs WHERE key NOT LIKE 'run.%' AND run IN (");
    for (int i = 0; i < n; i++) bt_text_printf(&sql, "%s?%d", i ? ", " : "", i + 1);
    bt_text_printf(&sql,
                   ") GROUP BY key HAVING count(DISTINCT CAST(value AS TEXT)) > 1 OR count(*) < %d "
                   "ORDER BY count(*) < %d, key",
                   n, n);
    t->n_settings = 0;
    bt_code code =
        sql.failed
            ? bt_fail(err, BT_NOMEM, "cannot compare %d runs: out of memory", n)
            : bt_db_query(
                  t->cfg.db,
                  &(bt_query){.sql = bt_text_str(&sql), .params = names, .n_params = n, .max_s = 2},
                  add_compared_setting, t, err);
    bt_text_release(&sql);
    return code;
}

static void unmark_removed_runs(bt_top *t) {
    char name[BT_NAME_MAX];
    int kept = 0;
    for (int i = 0; i < t->n_marked; i++) {
        bt_err none = BT_ERR_INIT;
        if (bt_db_run(t->cfg.db, t->marked[i], name, &none) == BT_NOTFOUND) continue;
        if (kept != i) memcpy(t->marked[kept], t->marked[i], sizeof t->marked[0]);
        kept++;
    }
    t->n_marked = kept;
}

bt_code bt_compare_load(bt_top *t, bt_err *err) {
    unmark_removed_runs(t);
    int n = t->n_marked < BT_COMPARE_MAX ? t->n_marked : BT_COMPARE_MAX;
    if (!t->compared) t->compared = calloc(BT_COMPARE_MAX, sizeof *t->compared);
    if (!t->setting) t->setting = calloc(BT_COMPARE_SETTINGS, sizeof *t->setting);
    if (!t->compared || !t->setting)
        return bt_fail(err, BT_NOMEM, "cannot compare %d runs: out of memory", n);
    BT_TRY(load_differing_settings(t, n, err));
    t->n_compared = 0;
    for (int i = 0; i < n; i++) {
        bt_view_request ask;
        bt_view_request_init(&ask);
        ask.parts = BT_VIEW_HEAD | BT_VIEW_SERIES;
        ask.run = t->marked[i];
        ask.columns = BT_COMPARE_POINTS - 2;
        ask.x = BT_X_TOKENS;
        ask.n_series = 1;
        ask.series[0] = (bt_series_request){.rank = -1, .metric = BT_MS_LOSS};
        BT_TRY(bt_view_load(t->view, &ask, err));
        const bt_view_series *s = &t->view->series[0];
        const bt_view_head *h = &t->view->head;
        bt_compared *x = &t->compared[t->n_compared++];
        *x = (bt_compared){.state = h->state,
                           .best_val = h->best_val,
                           .tokens_per_s = h->tokens_per_s,
                           .step_ms = h->step_p50_ms,
                           .overhead = h->comm_overhead,
                           .last_loss = h->loss_ema,
                           .tokens_total = h->tokens};
        snprintf(x->run, sizeof x->run, "%s", t->marked[i]);
        double *ema = t->view->n_series > 0 ? malloc((s->n + 1) * sizeof *ema) : NULL;
        if (!ema) continue;
        bt_view_smooth(s, bt_view_keep(bt_top_smooth[t->smooth], bt_view_steps_shown(s)), ema);
        x->n = s->n < BT_COMPARE_POINTS ? s->n : BT_COMPARE_POINTS;
        memcpy(x->x, s->x, x->n * sizeof *x->x);
        memcpy(x->loss, ema, x->n * sizeof *x->loss);
        free(ema);
    }
    return BT_OK;
}

/* Returns the loss at this number of tokens, linear between points; NaN beyond the run. */
static double loss_at_tokens(const bt_compared *x, double tokens) {
    for (size_t i = 0; i < x->n; i++) {
        if (x->x[i] < tokens) continue;
        if (i == 0 || x->x[i] <= x->x[i - 1]) return x->loss[i];
        double f = (tokens - x->x[i - 1]) / (x->x[i] - x->x[i - 1]);
        return x->loss[i - 1] + f * (x->loss[i] - x->loss[i - 1]);
    }
    return NAN;
}

enum {
    C_RUN,
    C_MATCHED,
    C_DELTA,
    C_LAST,
    C_VAL,
    C_TOKENS,
    C_SPEED,
    C_STEP,
    C_OVERHEAD,
    C_STATE,
    C_COUNT
};
static const bt_list_col columns[C_COUNT] = {
    {"run", 16, false, true, 0},      {"loss at", 8, true, false, 0},
    {"delta", 8, true, false, 0},     {"10-step loss", 12, true, false, 3},
    {"best val", 8, true, false, 3},  {"tokens", 8, true, false, 2},
    {"tok/s", 8, true, false, 1},     {"step", 8, true, false, 2},
    {"comm+wait", 9, true, false, 4}, {"state", 10, false, false, 1}};

typedef struct compare_ctx {
    const bt_top *t;
    double tokens;
} compare_ctx;

static void compare_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    const compare_ctx *x = ctx;
    const bt_compared *r = &x->t->compared[row];
    double mine = loss_at_tokens(r, x->tokens),
           base = loss_at_tokens(&x->t->compared[0], x->tokens), d = (mine - base) / base;
    switch (col) {
    case C_RUN:
        snprintf(buf, size, "%s", r->run);
        *s = (bt_style){.fg = colors[row % BT_COMPARE_MAX], .attr = BT_ATTR_BOLD};
        break;
    case C_MATCHED:
        bt_fmt(buf, size, mine, BT_UNIT_NATS);
        s->fg = BT_C_BRIGHT;
        break;
    case C_DELTA:
        if (row > 0 && !isnan(d))
            snprintf(buf, size, "%+.2f %%", 100 * d), s->fg = d > 0.002    ? BT_C_WARN
                                                              : d < -0.002 ? BT_C_GOOD
                                                                           : BT_C_TEXT;
        break;
    case C_LAST: bt_fmt(buf, size, r->last_loss, BT_UNIT_NATS); break;
    case C_VAL: bt_fmt(buf, size, r->best_val, BT_UNIT_NATS); break;
    case C_TOKENS: bt_fmt(buf, size, r->tokens_total, BT_UNIT_COUNT); break;
    case C_SPEED: bt_fmt(buf, size, r->tokens_per_s, BT_UNIT_COUNT); break;
    case C_STEP: bt_fmt(buf, size, r->step_ms, BT_UNIT_MS); break;
    case C_STATE:
        snprintf(buf, size, "%s", bt_run_states[r->state].id);
        s->fg = bt_state_color(r->state);
        break;
    case C_OVERHEAD: bt_fmt_percent(buf, size, r->overhead); break;
    default: break;
    }
}

static void draw_settings(bt_top *t, bt_rect r) {
    bt_canvas *c = &t->canvas;
    char right[40] = "";
    if (t->n_settings > r.h - 1) snprintf(right, sizeof right, "%d of %d", r.h - 1, t->n_settings);
    bt_canvas_rule(c, (bt_rect){r.x, r.y, r.w, 1},
                   (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD},
                   t->n_settings ? "settings that differ" : "no setting differs", right);
    int w = (r.w - 24) / (t->n_compared ? t->n_compared : 1);
    if (w > 24) w = 24;
    for (int i = 0; i < t->n_settings && i < r.h - 1; i++) {
        bt_canvas_text(c, r.x + 1, r.y + 1 + i, 21, (bt_style){.fg = BT_C_LABEL},
                       t->setting[i].key);
        for (int k = 0; k < t->n_compared; k++)
            bt_canvas_text(c, r.x + 24 + k * w, r.y + 1 + i, w - 2, (bt_style){.fg = colors[k]},
                           t->setting[i].value[k]);
    }
}

void bt_screen_compare_draw(bt_top *t, bt_rect r) {
    char title[80] = "compare: loss", right[96], b[40];
    compare_ctx x = {t, INFINITY};
    for (int i = 0; i < t->n_compared; i++)
        x.tokens = fmin(x.tokens,
                        t->compared[i].n ? t->compared[i].x[t->compared[i].n - 1] : INFINITY);
    snprintf(right, sizeof right, "matched at %s tokens · Esc: back to the runs",
             bt_fmt(b, sizeof b, isinf(x.tokens) ? NAN : x.tokens, BT_UNIT_COUNT));
    const double smooth = bt_top_smooth[t->smooth];
    if (smooth > 0)
        snprintf(title, sizeof title, "compare: loss, smoothed over %g %% of each run",
                 100 * smooth);
    if (smooth > 0 && bt_canvas_text_width(title) + bt_canvas_text_width(right) + 4 > r.w)
        snprintf(title, sizeof title, "compare: loss, smoothed");
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1},
                   (bt_style){.fg = BT_C_ACCENT, .attr = BT_ATTR_BOLD}, title, right);
    if (t->n_compared == 0) {
        bt_top_empty(t, r, "mark runs with Space first");
        return;
    }
    int settings = t->n_settings + 1 < 5 ? t->n_settings + 1 : 5;
    bt_pane_size rows[] = {{.min = 8, .weight = 3, .rank = 0},
                           {.min = t->n_compared + 1, .rank = 1},
                           {.min = settings, .max = t->n_settings + 1, .weight = 1, .rank = 2}};
    bt_rect out[3];
    bt_layout_rows((bt_rect){r.x, r.y + 1, r.w, r.h - 1}, rows, 3, r.h > 22, out);
    bt_plot p;
    bt_plot_init(&p);
    p.log_y = t->log_y;
    p.x_unit = BT_UNIT_COUNT;
    p.x_name = "tokens";
    p.y_unit = BT_UNIT_NATS;
    bt_plot_series lines[BT_COMPARE_MAX];
    for (int i = 0; i < t->n_compared; i++) {
        /* the first run is drawn last, on top */
        int k = t->n_compared - 1 - i;
        lines[i] = (bt_plot_series){.name = t->compared[k].run,
                                    .x = t->compared[k].x,
                                    .y = t->compared[k].loss,
                                    .n = t->compared[k].n,
                                    .color = colors[k]};
    }
    bt_plot_draw(&t->canvas, out[0], &p, lines, (size_t)t->n_compared);
    bt_list_table tab = {.cols = columns,
                         .n_cols = C_COUNT,
                         .n_rows = (size_t)t->n_compared,
                         .cell = compare_cell,
                         .ctx = &x,
                         .selected = -1,
                         .sort_col = -1};
    int top = 0;
    if (out[1].h > 1) bt_list_draw(&t->canvas, out[1], &tab, &top);
    if (out[2].h > 0) draw_settings(t, out[2]);
}
