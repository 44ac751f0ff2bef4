/* list_widget.c - draws the columns that fit and the visible rows. */
#include "monitor/tui/draw/list_widget.h"

#include <stdio.h>

static int fit_columns(const bt_list_table *t, int width, int *w) {
    int gap = 2, shown, total;
    for (int i = 0; i < t->n_cols; i++) w[i] = t->cols[i].w;
    for (;;) {
        shown = total = 0;
        for (int i = 0; i < t->n_cols; i++)
            if (w[i] > 0) total += w[i] + gap, shown++;
        if (total - gap <= width || shown <= 1) break;
        int worst = -1;
        for (int i = 0; i < t->n_cols; i++)
            if (w[i] > 0 && (worst < 0 || t->cols[i].importance >= t->cols[worst].importance))
                worst = i;
        w[worst] = 0;
    }
    for (int i = 0; i < t->n_cols; i++)
        if (w[i] > 0 && t->cols[i].grow && total - gap < width) {
            w[i] += width - (total - gap);
            break;
        }
    return gap;
}

static void draw_list_cell(bt_canvas *c, bt_rect cell, const bt_list_table *t, size_t row,
                           int col) {
    bt_style s = {.fg = BT_C_TEXT};
    char buf[256] = "";
    if (t->paint && t->paint(t->ctx, c, cell, row, col)) return;
    t->cell(t->ctx, row, col, buf, sizeof buf, &s);
    if (t->cols[col].right)
        bt_canvas_text_right(c, cell.x + cell.w, cell.y, cell.w, s, buf);
    else
        bt_canvas_text(c, cell.x, cell.y, cell.w, s, buf);
}

static void draw_column_titles(bt_canvas *c, bt_rect r, const bt_list_table *t, const int *w,
                               int gap) {
    int x = r.x + 1;
    for (int i = 0; i < t->n_cols; i++) {
        if (w[i] == 0) continue;
        char title[64];
        bool sorted = i == t->sort_col;
        /* in ASCII a space precedes the arrow, because "blamev" would be unclear */
        snprintf(title, sizeof title, "%s%s", t->cols[i].title,
                 !sorted                      ? ""
                 : c->chars == BT_CHARS_ASCII ? (t->descending ? " v" : " ^")
                 : t->descending              ? "▾"
                                              : "▴");
        bt_style s = {.fg = sorted ? BT_C_ACCENT : BT_C_LABEL};
        if (t->cols[i].right)
            bt_canvas_text_right(c, x + w[i], r.y, w[i] + gap, s, title);
        else
            bt_canvas_text(c, x, r.y, w[i], s, title);
        x += w[i] + gap;
    }
}

int bt_list_draw(bt_canvas *c, bt_rect r, const bt_list_table *t, int *top) {
    int w[BT_LIST_COLUMNS], rows = r.h - 1;
    if (rows < 1 || r.w < 4) return 0;
    int gap = fit_columns(t, r.w - 2, w);
    for (int i = 0; t->shown && i < t->n_cols; i++)
        if (w[i] > 0 && t->cols[i].title[0]) *t->shown |= UINT32_C(1) << i;
    bt_rect old = bt_canvas_clip(c, r);
    draw_column_titles(c, r, t, w, gap);
    if (t->selected >= 0 && t->selected < *top) *top = t->selected;
    if (t->selected >= *top + rows) *top = t->selected - rows + 1;
    if (*top > (int)t->n_rows - rows) *top = (int)t->n_rows - rows;
    if (*top < 0) *top = 0;
    for (int i = 0; i < rows && (size_t)(*top + i) < t->n_rows; i++) {
        size_t row = (size_t)(*top + i);
        int x = r.x + 1, y = r.y + 1 + i;
        for (int k = 0; k < t->n_cols; k++) {
            if (w[k] == 0) continue;
            draw_list_cell(c, (bt_rect){x, y, w[k], 1}, t, row, k);
            x += w[k] + gap;
        }
        if (t->marked && t->marked(t->ctx, row))
            bt_canvas_put(c, r.x, y, 0x25CF, (bt_style){.fg = BT_C_ACCENT});
        if ((int)row == t->selected) {
            bt_canvas_restyle(c, (bt_rect){r.x, y, r.w, 1}, 0, BT_C_BAR);
            bt_canvas_put(c, r.x, y, 0x25B8, (bt_style){.fg = BT_C_ACCENT, .bg = BT_C_BAR});
        }
    }
    /* an empty list shows its own text */
    if (t->n_rows == 0)
        bt_canvas_text(c, r.x + 1, r.y + 1, r.w - 1, (bt_style){.fg = BT_C_LABEL},
                       "no row matches");
    if (*top > 0) bt_canvas_put(c, r.x + r.w - 1, r.y + 1, 0x25B4, (bt_style){.fg = BT_C_LABEL});
    if (*top + rows < (int)t->n_rows)
        bt_canvas_put(c, r.x + r.w - 1, r.y + r.h - 1, 0x25BE, (bt_style){.fg = BT_C_LABEL});
    bt_canvas_unclip(c, old);
    return rows;
}
