/* screen_runs.c - every run of the database: the home screen. Marked runs can be compared. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "monitor/tui/screens/screens.h"

enum {
    C_RUN,
    C_STATE,
    C_LOSS,
    C_VAL,
    C_SPARK,
    C_STEPS,
    C_TOKENS,
    C_SPEED,
    C_RANKS,
    C_GOODPUT,
    C_AGE,
    C_DURATION,
    C_NOTE,
    C_COUNT
};
static const bt_list_col columns[C_COUNT] = {
    {"run", 14, false, true, 0},        {"state", 10, false, false, 0},
    {"loss", 7, true, false, 0},        {"best val", 8, true, false, 4},
    {"", 16, false, false, 5},          {"steps", 8, true, false, 2},
    {"tokens", 8, true, false, 1},      {"tok/s", 7, true, false, 1},
    {"ranks", 5, true, false, 3},       {"goodput", 7, true, false, 6},
    {"age", 9, true, false, 1},         {"took", 9, true, false, 7},
    {"tags, note", 20, false, false, 8}};

static double run_row_number(bt_top *t, size_t i, int col) {
    const bt_view_run *x = &t->view->runs.run[i];
    switch (col) {
    case C_STATE: return -(double)x->state;
    case C_LOSS: return -x->loss;
    case C_VAL: return -x->best_val;
    case C_STEPS: return (double)x->steps;
    case C_TOKENS: return x->tokens;
    case C_SPEED: return x->tokens_per_s;
    case C_RANKS: return x->ranks;
    case C_GOODPUT: return x->goodput;
    case C_AGE: return -x->age_s;
    case C_DURATION: return x->duration_s;
    default: return NAN;
    }
}

static const char *run_row_text(bt_top *t, size_t i, char *buf, size_t size) {
    const bt_view_run *x = &t->view->runs.run[i];
    snprintf(buf, size, "%s %s %s %s %s", x->run, bt_run_states[x->state].id, x->host, x->tags,
             x->note);
    return buf;
}

static bool is_marked_run(void *ctx, size_t row) {
    bt_top *t = ctx;
    for (int i = 0; i < t->n_marked; i++)
        if (strcmp(t->marked[i], t->view->runs.run[t->rows[row]].run) == 0) return true;
    return false;
}

static void run_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    const bt_view_run *x = &t->view->runs.run[t->rows[row]];
    switch (col) {
    case C_RUN:
        snprintf(buf, size, "%s", x->run);
        s->fg = BT_C_BRIGHT;
        s->attr = BT_ATTR_BOLD;
        break;
    case C_STATE:
        snprintf(buf, size, "%s", bt_run_states[x->state].id);
        s->fg = bt_state_color(x->state);
        break;
    case C_LOSS: bt_fmt(buf, size, x->loss, BT_UNIT_NATS); break;
    case C_VAL: bt_fmt(buf, size, x->best_val, BT_UNIT_NATS); break;
    case C_STEPS: bt_fmt_int(buf, size, x->steps); break;
    case C_TOKENS: bt_fmt(buf, size, x->tokens, BT_UNIT_COUNT); break;
    case C_SPEED: bt_fmt(buf, size, x->tokens_per_s, BT_UNIT_COUNT); break;
    case C_RANKS: snprintf(buf, size, "%d", x->ranks); break;
    case C_GOODPUT: bt_fmt_percent(buf, size, x->goodput); break;
    case C_AGE:
        bt_fmt_age(buf, size, floor(x->age_s));
        s->fg = BT_C_LABEL;
        break;
    case C_DURATION:
        bt_duration(buf, size, x->duration_s);
        s->fg = BT_C_LABEL;
        break;
    case C_NOTE:
        snprintf(buf, size, "%s%s%s", x->tags, x->tags[0] && x->note[0] ? " · " : "", x->note);
        s->fg = BT_C_LABEL;
        break;
    default: break;
    }
}

static bool paint_run_cell(void *ctx, bt_canvas *c, bt_rect r, size_t row, int col) {
    bt_top *t = ctx;
    if (col != C_SPARK) return false;
    const bt_view_run *x = &t->view->runs.run[t->rows[row]];
    double cells[64];
    int n = 0, per = (x->n_spark + r.w - 1) / r.w;
    for (int i = 0; per > 0 && i < x->n_spark; i += per)
        cells[n++] = x->spark[i + per <= x->n_spark ? i + per - 1 : x->n_spark - 1];
    bt_canvas_spark(c, r, cells, (size_t)n, NAN, NAN, (bt_style){.fg = BT_C_ACCENT});
    return true;
}

static int draw_run_fact(bt_top *t, bt_rect r, int row, const char *label, const char *value) {
    if (row >= r.h || !value[0] || strcmp(value, "-") == 0) return row;
    bt_canvas_text(&t->canvas, r.x, r.y + row, 10, (bt_style){.fg = BT_C_LABEL}, label);
    bt_canvas_text(&t->canvas, r.x + 11, r.y + row, r.w - 11, (bt_style){.fg = BT_C_TEXT}, value);
    return row + 1;
}

static void draw_run_facts(bt_top *t, bt_rect r, const bt_view_run *x) {
    char b[64], many[16] = "", started[40];
    time_t at = (time_t)x->started_s;
    struct tm tm;
    if (x->attempts > 1) snprintf(many, sizeof many, "%d", x->attempts);
    strftime(started, sizeof started, "%Y-%m-%d %H:%M",
             t->cfg.now_us ? gmtime_r(&at, &tm) : localtime_r(&at, &tm));
    int row = draw_run_fact(t, r, 0, "best val", bt_fmt(b, sizeof b, x->best_val, BT_UNIT_NATS));
    row = draw_run_fact(t, r, row, "goodput", bt_fmt_percent(b, sizeof b, x->goodput));
    row = draw_run_fact(t, r, row, "comm+wait",
                        bt_fmt_percent(b, sizeof b, x->ranks > 1 ? x->comm_overhead : NAN));
    row = draw_run_fact(t, r, row, "step", bt_fmt(b, sizeof b, x->step_ms, BT_UNIT_MS));
    row = draw_run_fact(t, r, row, "mfu", bt_fmt_percent(b, sizeof b, x->mfu));
    row = draw_run_fact(t, r, row, "memory", bt_fmt(b, sizeof b, x->rss_mib, BT_UNIT_MIB));
    row = draw_run_fact(t, r, row, "attempts", many);
    row = draw_run_fact(t, r, row, "started", started);
    row = draw_run_fact(t, r, row, "took", bt_duration(b, sizeof b, x->duration_s));
    row = draw_run_fact(t, r, row, "tags", x->tags);
    draw_run_fact(t, r, row, "note", x->note);
}

/* point i of the run's small curve covers the steps [i, i + 1) * 2^k */
static void draw_run_curve(bt_top *t, bt_rect r, const bt_view_run *x) {
    double steps[64], stride = 1;
    while ((double)(x->steps - 1) >= 64 * stride) stride *= 2;
    for (int i = 0; i < x->n_spark; i++) steps[i] = fmin(stride * (i + 1), (double)x->steps);
    bt_plot p;
    bt_plot_init(&p);
    p.x_unit = BT_UNIT_COUNT;
    p.x_name = "step";
    p.y_unit = BT_UNIT_NATS;
    const bt_plot_series line = {
        .name = "loss", .x = steps, .y = x->spark, .n = (size_t)x->n_spark, .color = BT_C_ACCENT};
    if (x->n_spark > 0)
        bt_plot_draw(&t->canvas, r, &p, &line, 1);
    else
        bt_top_empty(t, r, "no step yet");
}

static void draw_run_preview(bt_top *t, bt_rect r, const bt_view_run *x) {
    char right[160];
    bt_rect col[2];
    if (t->mode % 2) {
        bt_scatter_draw(t, r);
        return;
    }
    const bt_pane_size want[] = {{.min = 30, .weight = 3, .rank = 0},
                                 {.min = 32, .max = 60, .weight = 1, .rank = 1}};
    snprintf(right, sizeof right, "%d rank%s%s%s", x->ranks, x->ranks == 1 ? "" : "s",
             x->host[0] ? " · " : "", x->host);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1},
                   (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD}, x->run, right);
    bt_layout_cols((bt_rect){r.x, r.y + 1, r.w, r.h - 1}, want, 2, 2, col);
    draw_run_curve(t, col[0], x);
    if (col[1].w > 0) draw_run_facts(t, col[1], x);
}

void bt_screen_runs(bt_top *t, bt_rect r) {
    const bt_view_runs *y = &t->view->runs;
    bt_list *l = &t->list[BT_SCREEN_RUNS];
    if (t->input == BT_INPUT_FORM) {
        bt_screen_form_draw(t, r);
        return;
    }
    if (t->comparing) {
        bt_screen_compare_draw(t, r);
        return;
    }
    char right[128];
    bt_top_rows(t, y->n, run_row_text, run_row_number, true);
    for (size_t i = 0; i < t->n_rows && t->cursor_run[0]; i++)
        if (strcmp(y->run[t->rows[i]].run, t->cursor_run) == 0) l->selected = (int)i;
    if (t->n_rows > 0)
        snprintf(t->cursor_run, sizeof t->cursor_run, "%s", y->run[t->rows[l->selected]].run);
    if (y->total > (int64_t)y->n)
        snprintf(right, sizeof right,
                 "newest %zu of %lld · Enter opens, Space marks, c compares, R new run", y->n,
                 (long long)y->total);
    else
        snprintf(right, sizeof right, "Enter opens, Space marks, c compares, R new run");
    if (t->expanded && t->n_rows > 0) {
        draw_run_preview(t, r, &y->run[t->rows[l->selected]]);
        return;
    }
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0), "runs", right);
    if (y->n == 0) {
        bt_top_empty(t, r, "no run yet: press R to start one, or run 'bitrain train'");
        return;
    }
    const bt_list_table table = {.cols = columns,
                                 .n_cols = C_COUNT,
                                 .cell = run_cell,
                                 .paint = paint_run_cell,
                                 .marked = is_marked_run,
                                 .sort_col = -1};
    /* A long list leaves a third of a tall screen to the preview. */
    int spare = r.h - 2 - (int)t->n_rows, below = spare >= 9  ? (spare - 1 < 20 ? spare - 1 : 20)
                                                  : r.h >= 30 ? 12
                                                              : 0;
    bt_top_table(t, (bt_rect){r.x, r.y + 1, r.w, r.h - 1 - (below ? below + 1 : 0)}, table);
    /* directly below a short list */
    int top = spare > below ? r.y + 3 + (int)t->n_rows : r.y + r.h - below;
    if (below && t->n_rows > 0)
        draw_run_preview(t, (bt_rect){r.x, top, r.w, below}, &y->run[t->rows[l->selected]]);
}
