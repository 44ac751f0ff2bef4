/* screen_runs.c - every run of the database: the home screen. Marked runs can be compared. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/tui/screens.h"

enum { C_RUN, C_STATE, C_LOSS, C_VAL, C_SPARK, C_STEPS, C_TOKENS, C_SPEED, C_RANKS, C_GOODPUT, C_AGE, C_DURATION, C_NOTE, C_COUNT };
static const bt_list_col columns[C_COUNT] = {
    {"run", 14, false, true, 0}, {"state", 10, false, false, 0}, {"loss", 7, true, false, 0}, {"best val", 8, true, false, 4}, {"", 16, false, false, 5}, {"steps", 8, true, false, 2},
    {"tokens", 8, true, false, 1}, {"tok/s", 7, true, false, 1}, {"ranks", 5, true, false, 3}, {"goodput", 7, true, false, 6}, {"age", 9, true, false, 1}, {"took", 9, true, false, 7}, {"tags, note", 20, false, false, 8}};

static double row_number(bt_top *t, size_t i, int col) {
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

static const char *row_text(bt_top *t, size_t i, char *buf, size_t size) {
    const bt_view_run *x = &t->view->runs.run[i];
    snprintf(buf, size, "%s %s %s %s %s", x->run, bt_run_state_name(x->state), x->host, x->tags, x->note);
    return buf;
}

static bool marked(void *ctx, size_t row) {
    bt_top *t = ctx;
    for (int i = 0; i < t->n_marked; i++)
        if (strcmp(t->marked[i], t->view->runs.run[t->rows[row]].run) == 0) return true;
    return false;
}

static void cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    const bt_view_run *x = &t->view->runs.run[t->rows[row]];
    switch (col) {
    case C_RUN: snprintf(buf, size, "%s", x->run); s->fg = BT_C_BRIGHT; s->attr = BT_ATTR_BOLD; break;
    case C_STATE: snprintf(buf, size, "%s", bt_run_state_name(x->state)); s->fg = bt_state_color(x->state); break;
    case C_LOSS: bt_fmt(buf, size, x->loss, BT_UNIT_NATS); break;
    case C_VAL: bt_fmt(buf, size, x->best_val, BT_UNIT_NATS); break;
    case C_STEPS: bt_fmt_int(buf, size, x->steps); break;
    case C_TOKENS: bt_fmt(buf, size, x->tokens, BT_UNIT_COUNT); break;
    case C_SPEED: bt_fmt(buf, size, x->tokens_per_s, BT_UNIT_COUNT); break;
    case C_RANKS: snprintf(buf, size, "%d", x->ranks); break;
    case C_GOODPUT: bt_fmt_percent(buf, size, x->goodput); break;
    case C_AGE: bt_fmt_age(buf, size, floor(x->age_s)); s->fg = BT_C_LABEL; break;
    case C_DURATION: bt_fmt_age(buf, size, floor(x->duration_s)); s->fg = BT_C_LABEL; break;
    case C_NOTE: snprintf(buf, size, "%s%s%s", x->tags, x->tags[0] && x->note[0] ? " · " : "", x->note); s->fg = BT_C_LABEL; break;
    default: break;
    }
}

static bool paint(void *ctx, bt_canvas *c, bt_rect r, size_t row, int col) {
    bt_top *t = ctx;
    if (col != C_SPARK) return false;
    const bt_view_run *x = &t->view->runs.run[t->rows[row]];
    double cells[64];
    int n = 0, per = (x->n_spark + r.w - 1) / r.w;
    for (int i = 0; per > 0 && i < x->n_spark; i += per) cells[n++] = x->spark[i + per <= x->n_spark ? i + per - 1 : x->n_spark - 1];
    bt_canvas_spark(c, r, cells, (size_t)n, NAN, NAN, (bt_style){.fg = BT_C_ACCENT});
    return true;
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
    bt_top_rows(t, y->n, row_text, row_number, true);
    for (size_t i = 0; i < t->n_rows && t->cursor_run[0]; i++)
        if (strcmp(y->run[t->rows[i]].run, t->cursor_run) == 0) l->selected = (int)i;
    if (t->n_rows > 0) snprintf(t->cursor_run, sizeof t->cursor_run, "%s", y->run[t->rows[l->selected]].run);
    if (y->total > (int64_t)y->n) snprintf(right, sizeof right, "newest %zu of %lld · Enter opens, Space marks, c compares, R new run", y->n, (long long)y->total);
    else snprintf(right, sizeof right, "Enter opens, Space marks, c compares, R new run");
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0), "runs", right);
    if (y->n == 0) {
        bt_top_empty(t, r, "no run yet: press R to start one, or run 'bitrain train'");
        return;
    }
    bt_list_table tab = {.cols = columns, .n_cols = C_COUNT, .n_rows = t->n_rows, .cell = cell, .paint = paint, .marked = marked, .ctx = t, .selected = l->selected,
                    .sort_col = l->sort, .descending = !l->invert};
    t->page = bt_list_draw(&t->canvas, (bt_rect){r.x, r.y + 1, r.w, r.h - 1}, &tab, &l->top);
}
