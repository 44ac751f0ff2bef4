/* row_filter.c - selects and sorts the rows of a list by the filter and the sort column of the
 * current screen. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/system/ascii.h"
#include "monitor/tui/screens/top_state.h"

bool bt_top_filter_set(bt_top *t, const char *text) {
    if (t->filter_is_re) regfree(&t->filter_re);
    t->filter_on = t->filter_is_re = false;
    snprintf(t->filter, sizeof t->filter, "%s", text);
    if (!text[0]) return true;
    t->filter_on = true;
    /* An invalid expression is searched for literally. */
    t->filter_is_re = regcomp(&t->filter_re, text, REG_EXTENDED | REG_ICASE | REG_NOSUB) == 0;
    return t->filter_is_re;
}

static bool row_matches(const bt_top *t, const char *text) {
    if (!t->filter_on) return true;
    if (t->filter_is_re) return regexec(&t->filter_re, text, 0, NULL, 0) == 0;
    return bt_ascii_find(text, t->filter) != NULL;
}

typedef struct order {
    bt_top *t;
    bt_row_number number;
    int col;
    bool descending;
} order;

static int compare_filtered_rows(const void *a, const void *b, void *ctx) {
    order *o = ctx;
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    double x = o->number(o->t, i, o->col), y = o->number(o->t, j, o->col);
    if (isnan(x) != isnan(y)) return isnan(x) ? 1 : -1; /* unknown values are last in both orders */
    int c = (x > y) - (x < y);
    if (o->descending) c = -c;
    return c ? c : (i > j) - (i < j);
}

size_t bt_top_rows(bt_top *t, size_t n, bt_row_text text, bt_row_number number,
                   bool descending_first) {
    bt_list *l = &t->list[t->screen];
    char buf[512];
    t->n_all = n;
    t->n_rows = 0;
    for (size_t i = 0; i < n && t->n_rows < BT_TOP_ROWS; i++)
        if (!t->filter_on || row_matches(t, text(t, i, buf, sizeof buf))) t->rows[t->n_rows++] = i;
    if (number && l->sort >= 0) {
        order o = {t, number, l->sort, descending_first != l->invert};
        qsort_r(t->rows, t->n_rows, sizeof *t->rows, compare_filtered_rows, &o);
    } else if (l->invert) {
        for (size_t i = 0; i < t->n_rows / 2; i++) {
            size_t x = t->rows[i];
            t->rows[i] = t->rows[t->n_rows - 1 - i];
            t->rows[t->n_rows - 1 - i] = x;
        }
    }
    if (l->selected >= (int)t->n_rows) l->selected = (int)t->n_rows - 1;
    if (l->selected < 0) l->selected = 0;
    return t->n_rows;
}

void bt_top_table(bt_top *t, bt_rect r, bt_list_table table) {
    bt_list *l = &t->list[t->screen];
    table.n_rows = t->n_rows;
    table.ctx = t;
    table.selected = l->selected;
    table.shown = &t->columns;
    if (l->sort >= 0) table.sort_col = l->sort;
    table.descending = !l->invert;
    t->page = bt_list_draw(&t->canvas, r, &table, &l->top);
    t->list_rows = (bt_rect){r.x, r.y + 1, r.w, t->page};
}
