/* first_page.c - the part of the first page above its charts: configuration, cause and remedy of
 * a problem, samples. */
#include <stdio.h>
#include <string.h>

#include "monitor/tui/screens/screens.h"

/* Values are clear without their names, except for the learning rate. */
static bool shows_chip_name(const bt_view_chip *c, bool named) {
    return named || strcmp(c->name, "lr") == 0;
}

/* Draws whole chips in rows of w columns; c NULL: only counts the rows. */
static int draw_chip_rows(const bt_view_head *h, bt_canvas *c, bt_rect r, bool named) {
    int at = 0, rows = h->n_chips > 0;
    for (int i = 0; i < h->n_chips; i++) {
        const bt_view_chip *x = &h->chip[i];
        const int name_w = shows_chip_name(x, named) ? bt_canvas_text_width(x->name) + 1 : 0,
                  w = name_w + bt_canvas_text_width(x->text);
        if (at > 0 && at + 3 + w > r.w) at = 0, rows++;
        if (at > 0 && c)
            bt_canvas_text(c, r.x + at, r.y + rows - 1, 3, (bt_style){.fg = BT_C_FAINT}, " · ");
        at += at > 0 ? 3 : 0;
        if (c && rows <= r.h) {
            bt_canvas_text(c, r.x + at, r.y + rows - 1, name_w, (bt_style){.fg = BT_C_LABEL},
                           name_w ? x->name : "");
            bt_canvas_text(c, r.x + at + name_w, r.y + rows - 1, r.w - at - name_w,
                           (bt_style){.fg = BT_C_SECOND}, x->text);
        }
        at += w;
    }
    return rows;
}

static bool fit_chip_names(const bt_view_head *h, int w) {
    bt_rect r = {0, 0, w, 2};
    return draw_chip_rows(h, NULL, r, true) <= draw_chip_rows(h, NULL, r, false);
}

enum { REMARK_LINES = 3 };

int bt_chips_height(const bt_top *t, int w) {
    const bt_view_head *h = &t->view->head;
    int rows = draw_chip_rows(h, NULL, (bt_rect){0, 0, w, 2}, fit_chip_names(h, w));
    for (int i = 0; i < h->n_remarks; i++)
        rows += bt_canvas_wrap(NULL, (bt_rect){0, 0, w, REMARK_LINES}, (bt_style){0}, h->remark[i]);
    return rows;
}

void bt_chips_draw(bt_top *t, bt_rect r) {
    const bt_view_head *h = &t->view->head;
    const bool named = fit_chip_names(h, r.w);
    const int chips = draw_chip_rows(h, NULL, (bt_rect){0, 0, r.w, 2}, named);
    draw_chip_rows(h, &t->canvas, (bt_rect){r.x, r.y, r.w, chips < r.h ? chips : r.h}, named);
    for (int i = 0, y = r.y + chips; i < h->n_remarks && y < r.y + r.h; i++) {
        const int left = r.y + r.h - y;
        y += bt_canvas_wrap(&t->canvas,
                            (bt_rect){r.x, y, r.w, left < REMARK_LINES ? left : REMARK_LINES},
                            (bt_style){.fg = BT_C_WARN}, h->remark[i]);
    }
}

typedef struct told {
    const char *label, *text;
    uint8_t color;
    int most; /* maximum number of lines */
} told;

enum { LABEL_W = 7, TOLD = 3 };

static int list_trouble_parts(const bt_view_trouble *x, told out[TOLD]) {
    int n = 0;
    if (x->why[0]) out[n++] = (told){"why", x->why, BT_C_TEXT, 2};
    if (x->advice[0]) out[n++] = (told){"to do", x->advice, BT_C_TEXT, 2};
    if (x->command[0]) out[n++] = (told){"", x->command, BT_C_ACCENT, 2};
    return n;
}

int bt_trouble_height(const bt_top *t, int w) {
    const bt_view_trouble *x = &t->view->head.trouble;
    told part[TOLD];
    int rows = 1, n = list_trouble_parts(x, part);
    if (!x->any) return 0;
    for (int i = 0; i < n; i++)
        rows += bt_canvas_wrap(NULL, (bt_rect){0, 0, w - LABEL_W, part[i].most}, (bt_style){0},
                               part[i].text);
    return rows;
}

void bt_trouble_draw(bt_top *t, bt_rect r) {
    const bt_view_trouble *x = &t->view->head.trouble;
    const bool bad = x->level == BT_EV_ERROR, warn = x->level == BT_EV_WARN;
    const uint8_t color = bad ? BT_C_BAD : warn ? BT_C_WARN : BT_C_ACCENT;
    bt_canvas *c = &t->canvas;
    told part[TOLD];
    char key[40] = "", what[200];
    int y = r.y, n = list_trouble_parts(x, part);
    bt_canvas_put(c, r.x, y, bad ? 0x2717 : warn ? 0x25B2 : 0x25CF, (bt_style){.fg = color});
    int w = bt_canvas_text(c, r.x + 2, y, r.w - 2, (bt_style){.fg = color, .attr = BT_ATTR_BOLD},
                           bt_view_trouble_line(x, what, sizeof what));
    if ((x->resumes || x->verb < BT_VERB_COUNT) && bt_term_caps_of(t->term).keys)
        snprintf(key, sizeof key, "press %s to %s", x->verb == BT_VERB_STOP ? "S" : "P",
                 x->verb == BT_VERB_STOP ? "stop" : "resume");
    if (w + 4 + bt_canvas_text_width(key) < r.w)
        bt_canvas_text_right(c, r.x + r.w, y, r.w, (bt_style){.fg = BT_C_SECOND}, key);
    y++;
    for (int i = 0; i < n && y < r.y + r.h; i++) {
        bt_canvas_text(c, r.x, y, LABEL_W, (bt_style){.fg = BT_C_LABEL}, part[i].label);
        const int left = r.y + r.h - y;
        y += bt_canvas_wrap(c,
                            (bt_rect){r.x + LABEL_W, y, r.w - LABEL_W,
                                      part[i].most < left ? part[i].most : left},
                            (bt_style){.fg = part[i].color}, part[i].text);
    }
}

/* Writes the text after "the beginning of the prompt...". */
static void quote_prompt(char *out, size_t size, const char *prompt) {
    const char *end = prompt;
    while (*end && end - prompt < 40) bt_glyph_next(&end); /* whole characters */
    snprintf(out, size, "after \"%.*s%s\"", (int)(end - prompt), prompt, *end ? "..." : "");
}

static void draw_sample_text(bt_top *t, bt_rect r, const bt_view_text *x, const char *when) {
    char title[64], b[32], prompt[80];
    snprintf(title, sizeof title, "%s, step %s", when, bt_fmt_int(b, sizeof b, x->step + 1));
    quote_prompt(prompt, sizeof prompt, x->prompt);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1},
                   (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD}, title,
                   r.w > 60 && x->prompt[0] ? prompt : "");
    bt_canvas_wrap(&t->canvas, (bt_rect){r.x, r.y + 1, r.w, r.h - 1}, (bt_style){.fg = BT_C_TEXT},
                   x->text + strspn(x->text, " \n\t"));
}

void bt_texts_draw(bt_top *t, bt_rect r) {
    const bt_view_events *e = &t->view->events;
    bt_pane_size two[] = {{.min = 30, .weight = 1, .rank = 0},
                          {.min = 30, .weight = e->n_texts > 1, .rank = 1}};
    bt_rect col[2];
    bt_layout_cols(r, two, e->n_texts > 1 ? 2 : 1, 2, col);
    draw_sample_text(t, col[0], &e->text[0], "the model writes");
    if (e->n_texts > 1 && col[1].w > 0) draw_sample_text(t, col[1], &e->text[1], "before");
}
