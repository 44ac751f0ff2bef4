/* scatter.c - draws the listed runs as points below the list: a setting on the x axis, a result on the y axis. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/tui/screens/screens.h"

static const struct {
    const char *name, *title;
    bt_unit unit;
} results[] = {{"loss", "loss", BT_UNIT_NATS},
               {"best_val", "best validation", BT_UNIT_NATS},
               {"tokens_per_s", "tokens/s", BT_UNIT_COUNT},
               {"steps", "steps", BT_UNIT_COUNT},
               {"goodput", "goodput", BT_UNIT_FRAC}};
enum { RESULTS = sizeof results / sizeof results[0], LOG_FROM = 20 };

static double scatter_result(const bt_view_run *x, int result) {
    switch (result) {
    case 1: return x->best_val;
    case 2: return x->tokens_per_s;
    case 3: return (double)x->steps;
    case 4: return x->goodput;
    default: return x->loss;
    }
}

bool bt_scatter_choose(bt_top *t, const char *setting, const char *result) {
    int found = result ? -1 : t->scatter.result;
    for (int i = 0; result && i < RESULTS; i++)
        if (strcmp(results[i].name, result) == 0) found = i;
    if (found < 0) {
        bt_top_message(t, BT_C_WARN,
                       "no result '%s' (loss, best_val, tokens_per_s, steps, goodput)", result);
        return false;
    }
    t->scatter.result = found;
    snprintf(t->scatter.wanted, sizeof t->scatter.wanted, "%s", setting ? setting : "");
    t->screen = BT_SCREEN_RUNS;
    t->comparing = false;
    t->mode |= 1;
    return true;
}

static bool read_scatter_setting(void *ctx, const bt_row *row) {
    bt_text_plain(ctx, sizeof((bt_scatter *)0)->setting, row->cells[0] ? row->cells[0] : "");
    return false;
}

static bool read_point_value(void *ctx, const bt_row *row) {
    bt_scatter *s = ctx;
    if (s->n == BT_SCATTER_MAX) return false;
    bt_setting_of *v = &s->value[s->n++];
    bt_text_plain(v->run, sizeof v->run, row->cells[0] ? row->cells[0] : "");
    v->value = row->nums[1];
    return true;
}

/* Selects the learning rate if runs differ in it, or else the number with the most values. */
static bt_code find_x_setting(bt_top *t, bt_err *err) {
    return bt_db_query(
        t->cfg.db,
        &(bt_query){.sql = "SELECT key FROM configs WHERE key NOT LIKE 'run.%' AND typeof(value) "
                           "IN ('integer', 'real') GROUP BY key HAVING count(DISTINCT value) > 1 "
                           "ORDER BY key = 'optim.lr' DESC, count(DISTINCT value) DESC, key "
                           "LIMIT 1",
                    .max_rows = 1,
                    .max_s = 2},
        read_scatter_setting, t->scatter.setting, err);
}

bt_code bt_scatter_load(bt_top *t, bt_err *err) {
    bt_scatter *s = &t->scatter;
    const char *key = s->setting;
    if (t->mode % 2 == 0) return BT_OK;
    if (!s->value) s->value = calloc(BT_SCATTER_MAX, sizeof *s->value);
    if (!s->value) return bt_fail(err, BT_NOMEM, "no memory for the settings of the runs");
    snprintf(s->setting, sizeof s->setting, "%s", s->wanted);
    s->n = 0;
    if (!s->wanted[0]) BT_TRY(find_x_setting(t, err));
    if (!s->setting[0]) return BT_OK;
    return bt_db_query(t->cfg.db,
                       &(bt_query){.sql = "SELECT run, CAST(value AS REAL) FROM configs WHERE "
                                          "key = ?1 AND typeof(value) IN ('integer', 'real')",
                                   .params = &key,
                                   .n_params = 1,
                                   .max_rows = BT_SCATTER_MAX,
                                   .max_s = 2},
                       read_point_value, s, err);
}

static double scatter_setting(const bt_scatter *s, const char *run) {
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->value[i].run, run) == 0) return s->value[i].value;
    return NAN;
}

/* margin beside the outermost points, so that none touches the frame */
static void widen_scatter_range(double *low, double *high, bool log_x) {
    if (log_x) {
        const double room = pow(*high / *low, 0.06);
        *low /= room;
        *high *= room;
    } else {
        const double room = *high > *low ? 0.06 * (*high - *low) : fmax(fabs(*high) * 0.1, 0.5);
        *low -= room;
        *high += room;
    }
}

void bt_scatter_draw(bt_top *t, bt_rect r) {
    const bt_scatter *s = &t->scatter;
    const bt_list *l = &t->list[BT_SCREEN_RUNS];
    static bt_plot_point point[BT_SCATTER_MAX]; /* one caller (top.h) */
    char right[120];
    bt_plot p;
    bt_plot_init(&p);
    double low = INFINITY, high = -INFINITY;
    size_t n = 0, chosen = SIZE_MAX;
    for (size_t i = 0; i < t->n_rows && n < BT_SCATTER_MAX; i++) {
        const bt_view_run *x = &t->view->runs.run[t->rows[i]];
        const double across = scatter_setting(s, x->run), up = scatter_result(x, s->result);
        if (!isfinite(across) || !isfinite(up)) continue;
        if ((int)i == l->selected) chosen = n;
        point[n++] = (bt_plot_point){across, up, 0x25CF, BT_C_ACCENT, NULL};
        low = fmin(low, across);
        high = fmax(high, across);
    }
    snprintf(right, sizeof right, "%zu of %zu runs%s", n, t->n_rows,
             r.w >= 90 ? " · :scatter SETTING RESULT · t: the run's curve" : "");
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1},
                   (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD}, results[s->result].title,
                   right);
    if (n == 0) {
        bt_top_empty(t, (bt_rect){r.x, r.y + 1, r.w, r.h - 1},
                     s->setting[0] ? "no listed run has a number in both"
                                   : "the runs differ in no number: ':scatter SETTING'");
        return;
    }
    if (chosen < n) { /* the run under the cursor, drawn last */
        const bt_plot_point last = point[n - 1];
        point[n - 1] = point[chosen];
        if (chosen != n - 1) point[chosen] = last;
        point[n - 1].color = BT_C_WARN;
        point[n - 1].label = t->view->runs.run[t->rows[l->selected]].run;
    }
    p.log_x = low > 0 && high / low >= LOG_FROM;
    widen_scatter_range(&low, &high, p.log_x);
    p.x0 = low;
    p.x1 = high;
    p.x_name = s->setting;
    p.y_unit = results[s->result].unit;
    p.log_y = t->log_y;
    p.points = point;
    p.n_points = n;
    bt_plot_draw(&t->canvas, (bt_rect){r.x, r.y + 1, r.w, r.h - 1}, &p, NULL, 0);
}
