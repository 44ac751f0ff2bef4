/* settings_table.c - every setting and recorded fact of a run as a table that the filter searches. */
#include <stdio.h>

#include "monitor/tui/screens/screens.h"

enum { C_KEY, C_VALUE, C_FROM, C_COUNT };
static const bt_list_col columns[C_COUNT] = {
    {"setting", 22, false, false, 0}, {"value", 12, false, true, 0}, {"from", 14, false, false, 1}};

static const char *setting_row_text(bt_top *t, size_t i, char *buf, size_t size) {
    const bt_view_setting *s = &t->view->settings.row[i];
    snprintf(buf, size, "%s %s %s", s->key, s->value, s->from);
    return buf;
}

static void setting_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    const bt_top *t = ctx;
    const bt_view_setting *x = &t->view->settings.row[t->rows[row]];
    snprintf(buf, size, "%s", col == C_KEY ? x->key : col == C_VALUE ? x->value : x->from);
    s->fg = col == C_KEY ? BT_C_TEXT : col == C_VALUE ? BT_C_BRIGHT : BT_C_LABEL;
}

void bt_settings_table_draw(bt_top *t, bt_rect r, bool active) {
    char right[48];
    bt_list *l = &t->list[BT_SCREEN_SYSTEM], kept = *l;
    if (!active) l->sort = -1, l->invert = false;
    size_t n = bt_top_rows(t, t->view->settings.n, setting_row_text, NULL, true);
    if (!active) *l = kept;
    if (t->filter_on)
        snprintf(right, sizeof right, "%zu of %zu match", n, t->view->settings.n);
    else
        snprintf(right, sizeof right, "/ searches all %zu", t->view->settings.n);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 1), "settings", right);
    bt_list_table table = {
        .cols = columns, .n_cols = C_COUNT, .cell = setting_cell, .sort_col = -1};
    bt_rect body = {r.x, r.y + 1, r.w, r.h - 1};
    if (active) {
        bt_top_table(t, body, table);
        return;
    }
    int top = 0;
    table.n_rows = n;
    table.ctx = t;
    table.selected = -1;
    bt_list_draw(&t->canvas, body, &table, &top);
}
