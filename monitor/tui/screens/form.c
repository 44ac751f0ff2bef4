/* form.c - the small form that starts a run: fields become options of `bitrain train`. */
#include <stdio.h>
#include <string.h>

#include "engine/base/tables/start_form.h"
#include "monitor/tui/screens/screens.h"

/* indices of fields: first the rows of start_form.def, then a configuration file and the run's name */
enum { CONFIG = BT_START_FIELDS, NAME, FIELDS };
_Static_assert((int)FIELDS == (int)BT_FORM_FIELDS, "a line for each field");

static bt_start_field field_of_form(int i) {
    static const bt_start_field own[] = {{"config", NULL, "", "",
                                          "a YAML file with more settings; empty: none"},
                                         {"name", NULL, "", "", "empty: one is made up"}};
    return i < CONFIG ? bt_start_fields[i] : own[i - CONFIG];
}

/* Writes the choices of a field ("nano, small, base"), or its help. */
static const char *field_hint(const bt_start_field *f, char *buf, size_t size) {
    if (!f->choices[0]) return f->help;
    size_t n = 0;
    for (const char *c = f->choices; *c && n + 3 < size; c++) {
        buf[n++] = *c == '|' ? ',' : *c;
        if (*c == '|') buf[n++] = ' ';
    }
    buf[n] = 0;
    return buf;
}

void bt_form_open(bt_top *t) {
    if (!t->cfg.actions.start) {
        bt_top_message(t, BT_C_WARN, "runs cannot be started from here");
        return;
    }
    for (int i = 0; i < FIELDS; i++)
        snprintf(t->form[i], sizeof t->form[i], "%s", field_of_form(i).first);
    t->form_field = 0;
    t->form_asks = false;
    t->input = BT_INPUT_FORM;
    t->screen = BT_SCREEN_RUNS;
    t->comparing = false;
    t->dirty = true;
}

static void start_from_form(bt_top *t) {
    const char *argv[2 * FIELDS + 1];
    int n = 0;
    char name[BT_NAME_MAX];
    bt_err err = BT_ERR_INIT;
    snprintf(name, sizeof name, "%.63s", t->form[NAME]);
    if (t->form[CONFIG][0]) argv[n++] = t->form[CONFIG];
    for (int i = 0; i < BT_START_FIELDS; i++) {
        const bt_start_field f = field_of_form(i);
        if (!t->form[i][0]) continue;
        /* Fields that were not changed keep the value of the configuration. */
        if (t->form[CONFIG][0] && strcmp(t->form[i], f.first) == 0) continue;
        argv[n++] = f.flag;
        argv[n++] = t->form[i];
    }
    if (t->cfg.actions.start(t->cfg.actions.ctx, n, argv, name, &err) != BT_OK) {
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
        /* keep the form open so that the user can correct the field */
        return;
    }
    t->input = BT_INPUT_NONE;
    snprintf(t->pending, sizeof t->pending, "%s", name);
    bt_top_message(t, BT_C_GOOD, "run %s is starting", name);
    t->reload = true;
}

void bt_form_key(bt_top *t, int32_t key) {
    t->dirty = true;
    if (t->form_asks) {
        t->form_asks = false;
        /* A key that arrives together with the question was pasted and is not an answer. */
        if ((key == 'y' || key == 'Y') && t->burst != t->asked_burst) start_from_form(t);
    } else if (key == BT_KEY_ESC || key == BT_CTRL('C'))
        t->input = BT_INPUT_NONE;
    else if (key == '\r' || key == '\n')
        t->form_asks = true, t->asked_burst = t->burst;
    else if (key == BT_KEY_UP || key == BT_KEY_BACKTAB)
        t->form_field = (t->form_field + FIELDS - 1) % FIELDS;
    else if (key == BT_KEY_DOWN || key == '\t')
        t->form_field = (t->form_field + 1) % FIELDS;
    else
        bt_line_edit(t->form[t->form_field], sizeof t->form[0], key);
}

void bt_screen_form_draw(bt_top *t, bt_rect r) {
    bt_canvas *c = &t->canvas;
    int w = r.w < 76 ? r.w : 76, h = FIELDS + 5, x = r.x + (r.w - w) / 2,
        y = r.y + (r.h > h ? (r.h - h) / 3 : 0);
    /* keep the active field visible */
    if (r.h < h) y = r.y - (t->form_field + 4 > r.h ? t->form_field + 4 - r.h : 0);
    bt_canvas_box(c, (bt_rect){x, y, w, h}, (bt_style){.fg = BT_C_ACCENT}, "start a run");
    for (int i = 0; i < FIELDS; i++) {
        const bt_start_field f = field_of_form(i);
        char words[120];
        bool on = i == t->form_field;
        int row = y + 2 + i, at = x + 14;
        bt_canvas_text(
            c, x + 3, row, 10,
            (bt_style){.fg = on ? BT_C_ACCENT : BT_C_LABEL, .attr = on ? BT_ATTR_BOLD : 0}, f.name);
        const char *from = t->form[i];
        while (bt_canvas_text_width(from) > w - 18) bt_glyph_next(&from);
        if (t->form[i][0] || on)
            at += bt_canvas_text(c, at, row, w - 17,
                                 (bt_style){.fg = BT_C_BRIGHT, .attr = BT_ATTR_BOLD}, from);
        if (on) bt_canvas_put(c, at++, row, '_', (bt_style){.fg = BT_C_ACCENT});
        if (!t->form[i][0])
            bt_canvas_text(c, at + on, row, x + w - at - 2 - on, (bt_style){.fg = BT_C_FAINT},
                           field_hint(&f, words, sizeof words));
    }
    bt_canvas_text(c, x + 3, y + h - 2, w - 6,
                   (bt_style){.fg = t->form_asks ? BT_C_WARN : BT_C_LABEL},
                   t->form_asks ? "start this training? y to start, any other key to go back"
                                : "Tab next field   Enter start   Esc cancel");
    const char *rest = t->message_color == BT_C_BAD ? t->message : "";
    for (int row = y + h + 1; row < r.y + r.h && *rest; row++) { /* the complete error */
        char line[160];
        size_t n = strlen(rest), cut = n;
        if (n > (size_t)w) {
            for (cut = (size_t)w; cut > 0 && rest[cut] != ' '; cut--) {}
            if (cut == 0) cut = (size_t)w;
        }
        snprintf(line, sizeof line, "%.*s", (int)cut, rest);
        bt_canvas_text(c, x, row, w, (bt_style){.fg = BT_C_BAD}, line);
        rest += cut + strspn(rest + cut, " ");
    }
}
