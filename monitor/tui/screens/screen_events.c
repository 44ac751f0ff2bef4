/* screen_events.c - shows a timeline of all events above a list of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/tui/screens/screens.h"

static uint8_t level_color(const bt_view_event *e) {
    return e->level == BT_EV_ERROR ? BT_C_BAD : e->level == BT_EV_WARN ? BT_C_WARN : BT_C_LABEL;
}

static uint32_t event_glyph(const bt_view_event *e) {
    if (e->level == BT_EV_ERROR) return 0x2717;
    if (e->level == BT_EV_WARN) return 0x25B2;
    bt_event_kind kind = bt_event_find(e->kind);
    return kind < BT_EVENT_COUNT ? bt_events[kind].glyph : 0x25CF;
}

void bt_event_line(bt_top *t, bt_rect row, const bt_view_event *e, bool with_clock) {
    bt_canvas *c = &t->canvas;
    char b[64], when[40];
    int at = row.x, end = row.x + row.w;
    bt_canvas_put(c, at, row.y, event_glyph(e), (bt_style){.fg = level_color(e)});
    at += 2;
    bt_duration(when, sizeof when, e->time_s);
    at += bt_canvas_textf(c, at, row.y, end - at, (bt_style){.fg = BT_C_LABEL},
                          with_clock ? "%10s" : "%7s", when) +
          2;
    if (with_clock) {
        at += bt_canvas_textf(c, at, row.y, end - at, (bt_style){.fg = BT_C_LABEL}, "%12s",
                              e->step >= 0 ? bt_fmt_int(b, sizeof b, e->step + 1) : "") +
              2;
        /* the kind is shown if there is room, because the title contains it too */
        if (row.w >= 96)
            at += bt_canvas_textf(c, at, row.y, end - at, (bt_style){.fg = BT_C_SECOND}, "%-13s",
                                  e->kind) +
                  1;
        b[0] = 0;
        if (e->rank >= 0) snprintf(b, sizeof b, "rank %d", e->rank);
        at += bt_canvas_textf(c, at, row.y, end - at, (bt_style){.fg = BT_C_LABEL}, "%-8s", b) + 1;
    }
    bt_canvas_text(c, at, row.y, end - at,
                   (bt_style){.fg = e->level == BT_EV_INFO ? BT_C_TEXT : level_color(e)},
                   e->title[0] ? e->title : e->kind);
}

static const char *event_row_text(bt_top *t, size_t i, char *buf, size_t size) {
    const bt_view_event *e = &t->view->events.event[i];
    snprintf(buf, size, "%s %s rank %d", e->kind, e->title, e->rank);
    return buf;
}

static void keep_events_of_level(bt_top *t, bt_event_level least) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->view->events.event[t->rows[i]].level >= least) t->rows[n++] = t->rows[i];
    t->n_rows = n;
    bt_list *l = &t->list[BT_SCREEN_EVENTS];
    if (l->selected >= (int)n) l->selected = n ? (int)n - 1 : 0;
}

static void draw_timeline(bt_top *t, bt_rect r) {
    const bt_view_events *e = &t->view->events;
    double end = fmax(t->view->head.elapsed_s, 1);
    char b[40];
    for (int x = 0; x < r.w; x++)
        bt_canvas_put(&t->canvas, r.x + x, r.y, 0x2500, (bt_style){.fg = BT_C_FAINT});
    /* More severe events are drawn over less severe ones. */
    for (int level = BT_EV_INFO; level <= BT_EV_ERROR; level++)
        for (size_t i = 0; i < e->n; i++) {
            if ((int)e->event[i].level != level) continue;
            int x = (int)(e->event[i].time_s / end * (r.w - 1));
            if (x >= 0 && x < r.w)
                bt_canvas_put(&t->canvas, r.x + x, r.y, event_glyph(&e->event[i]),
                              (bt_style){.fg = level_color(&e->event[i])});
        }
    bt_canvas_text(&t->canvas, r.x, r.y + 1, r.w, (bt_style){.fg = BT_C_LABEL}, "0");
    bt_canvas_text_right(&t->canvas, r.x + r.w, r.y + 1, r.w / 2, (bt_style){.fg = BT_C_LABEL},
                         bt_duration(b, sizeof b, floor(end)));
}

/* Shows the largest part first; omits parts without time or without room. */
static void draw_goodput_line(bt_top *t, bt_rect row) {
    const bt_view_head *h = &t->view->head;
    char b[40], text[64];
    bool told[BT_TIME_PARTS] = {false};
    bt_style s = {.fg = BT_C_LABEL};
    int at = row.x + bt_canvas_textf(&t->canvas, row.x, row.y, row.w, s, "goodput %s",
                                     bt_fmt_percent(b, sizeof b, h->goodput));
    for (int n = 0; n < BT_TIME_PARTS; n++) {
        int most = -1;
        for (int p = 0; p < BT_TIME_PARTS; p++)
            if (!told[p] && (most < 0 || h->time_s[p] > h->time_s[most])) most = p;
        told[most] = true;
        snprintf(text, sizeof text, " · %s %s", bt_times[most].title,
                 bt_duration(b, sizeof b, h->time_s[most]));
        int w = bt_canvas_text_width(text);
        if (h->time_s[most] >= 0.05 && at + w <= row.x + row.w)
            at += bt_canvas_text(&t->canvas, at, row.y, w, s, text);
    }
}

void bt_screen_events(bt_top *t, bt_rect r) {
    static const char *const levels[] = {"all", "warnings and errors", "errors"};
    const bt_view_events *e = &t->view->events;
    bt_list *l = &t->list[BT_SCREEN_EVENTS];
    char right[96];
    int level = t->mode % 3;
    l->invert = !l->invert; /* newest first unless inverted */
    bt_top_rows(t, e->n, event_row_text, NULL, false);
    l->invert = !l->invert;
    keep_events_of_level(t, (bt_event_level)level);
    if (e->total > (int64_t)e->n)
        snprintf(right, sizeof right, "newest %zu of %lld · %s · t: level", e->n,
                 (long long)e->total, levels[level]);
    else
        snprintf(right, sizeof right, "%zu · %s · t: level", e->n, levels[level]);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0), "events", right);
    if (e->n == 0) {
        bt_top_empty(t, r, "nothing has happened yet");
        return;
    }
    draw_timeline(t, (bt_rect){r.x, r.y + 1, r.w, 1});
    draw_goodput_line(t, (bt_rect){r.x, r.y + 3, r.w, 1});
    bt_pane_size rows[] = {
        {.min = 4, .max = t->log.n ? (int)t->n_rows + 1 : 0, .weight = 2, .rank = 0},
        {.min = t->log.n ? 5 : 0, .max = t->log.n + 1, .weight = t->log.n > 0, .rank = 1}};
    if (t->expanded && t->log.n)
        rows[t->pane].min = r.h - 4, rows[t->pane].max = 0, rows[t->pane].rank = -1;
    bt_rect out[2], list;
    bt_layout_rows((bt_rect){r.x, r.y + 4, r.w, r.h - 4}, rows, 2, 1, out);
    if (out[1].h > 1) bt_top_log_draw(t, out[1], (bt_event_level)level, bt_top_title(t, 1));
    list = out[0];
    t->page = list.h;
    if (l->selected < l->top) l->top = l->selected;
    if (l->selected >= l->top + list.h) l->top = l->selected - list.h + 1;
    for (int i = 0; i < list.h && (size_t)(l->top + i) < t->n_rows; i++) {
        bt_event_line(t, (bt_rect){list.x + 1, list.y + i, list.w - 1, 1},
                      &e->event[t->rows[l->top + i]], true);
        if (l->top + i == l->selected)
            bt_canvas_restyle(&t->canvas, (bt_rect){list.x, list.y + i, list.w, 1}, 0, BT_C_BAR);
    }
}
