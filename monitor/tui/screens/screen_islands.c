/* screen_islands.c - islands of a hub's run: progress and updates of each, age of the updates,
 * and events (joined, left, late, refused). */
#include <math.h>
#include <stdio.h>

#include "monitor/tui/screens/screens.h"

enum {
    C_NAME,
    C_HOST,
    C_STATE,
    C_STEPS,
    C_BAR,
    C_BEHIND,
    C_UPDATES,
    C_LEFT_OUT,
    C_TOKENS,
    C_BYTES,
    C_STALE,
    C_BATCH,
    C_LOSS
};
static const bt_list_col columns[] = {
    {"island", 14, false, false, 0},  {"host", 12, false, false, 8},
    {"state", 6, false, false, 2},    {"steps", 9, true, false, 0},
    {"", 12, false, true, 5},         {"behind", 7, true, false, 2},
    {"updates", 8, true, false, 4},   {"left out", 8, true, false, 2},
    {"tokens", 9, true, false, 5},    {"bytes", 9, true, false, 1},
    {"staleness", 9, true, false, 3}, {"sequences", 9, true, false, 6},
    {"loss", 8, true, false, 1}};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static const bt_view_islands *islands_of_view(const bt_top *t) { return &t->view->islands; }
static const double *island_values(const bt_top *t, size_t row) {
    return islands_of_view(t)->island[row].value;
}

static double island_row_number(bt_top *t, size_t i, int col) {
    const double *v = island_values(t, i);
    switch (col) {
    case C_STATE: return v[BT_MI_TRAINS];
    case C_STEPS:
    case C_BAR: return v[BT_MI_CLOCK];
    case C_BEHIND: return islands_of_view(t)->fastest - v[BT_MI_CLOCK];
    case C_UPDATES: return v[BT_MI_UPDATES];
    case C_LEFT_OUT: return v[BT_MI_LEFT_OUT];
    case C_TOKENS: return v[BT_MI_TOKENS];
    case C_BYTES: return v[BT_MI_BYTES];
    case C_STALE: return v[BT_MI_STALENESS];
    case C_BATCH: return v[BT_MI_BATCH];
    case C_LOSS: return v[BT_MI_LOSS];
    default: return -(double)i;
    }
}

static const char *island_row_text(bt_top *t, size_t i, char *buf, size_t size) {
    snprintf(buf, size, "%s %s", islands_of_view(t)->island[i].name,
             islands_of_view(t)->island[i].host);
    return buf;
}

static void island_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    const size_t i = t->rows[row];
    const double x = island_row_number(t, i, col);
    switch (col) {
    case C_NAME:
        snprintf(buf, size, "%s", islands_of_view(t)->island[i].name);
        s->fg = BT_C_BRIGHT;
        break;
    case C_HOST: snprintf(buf, size, "%s", islands_of_view(t)->island[i].host); break;
    case C_STATE:
        snprintf(buf, size, "%s", x > 0 ? "training" : "away");
        s->fg = x > 0 ? BT_C_GOOD : BT_C_WARN;
        break;
    case C_STEPS:
    case C_BEHIND:
    case C_UPDATES:
    case C_LEFT_OUT:
    case C_STALE:
    case C_BATCH:
        if (col == C_LEFT_OUT && x > 0) s->fg = BT_C_WARN;
        if (isnan(x))
            snprintf(buf, size, "-");
        else
            bt_fmt_int(buf, size, (int64_t)x);
        break;
    default:
        bt_fmt(buf, size, x,
               col == C_BYTES  ? BT_UNIT_BYTES
               : col == C_LOSS ? BT_UNIT_NATS
                               : BT_UNIT_COUNT);
    }
}

static bool paint_island_cell(void *ctx, bt_canvas *c, bt_rect r, size_t row, int col) {
    bt_top *t = ctx;
    if (col != C_BAR) return false;
    const double most = islands_of_view(t)->fastest,
                 x = island_row_number(t, t->rows[row], C_STEPS);
    if (most > 0) bt_canvas_bar(c, r.x, r.y, r.w, fmin(1, x / most), (bt_style){.fg = BT_C_SECOND});
    return true;
}

static void draw_islands_summary(bt_top *t, bt_rect r) {
    const bt_view_islands *l = islands_of_view(t);
    char a[40], b[40], c[40];
    bt_canvas_textf(&t->canvas, r.x, r.y, r.w, (bt_style){.fg = BT_C_LABEL},
                    "%.0f of %zu training · steps %s to %s · effective batch %s tokens per update "
                    "· %s received",
                    l->training, l->n, bt_fmt(a, sizeof a, l->slowest, BT_UNIT_COUNT),
                    bt_fmt(b, sizeof b, l->fastest, BT_UNIT_COUNT),
                    bt_fmt(c, sizeof c, l->tokens_per_update, BT_UNIT_COUNT),
                    bt_fmt((char[40]){0}, 40, l->bytes, BT_UNIT_BYTES));
    bt_canvas_textf(&t->canvas, r.x, r.y + 1, r.w,
                    (bt_style){.fg = l->lost || l->late || l->refused ? BT_C_WARN : BT_C_LABEL},
                    "%lld joined · %lld left · %lld lost · %lld late · %lld refused · %.0f updates "
                    "not applied",
                    (long long)l->joined, (long long)l->left, (long long)l->lost,
                    (long long)l->late, (long long)l->refused, l->left_out);
}

/* Draws a bar for each staleness, as many as there are rows; the last bar is the sum of the remaining ones. */
static void draw_staleness_histogram(bt_top *t, bt_rect r) {
    const bt_view_islands *l = islands_of_view(t);
    char right[64], b[40];
    double most = 0, rest = 0;
    snprintf(right, sizeof right, "%s updates · mean %.2f",
             bt_fmt_int(b, sizeof b, (int64_t)l->updates), l->mean_staleness);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, (bt_style){.fg = BT_C_LABEL},
                   "staleness of updates", right);
    const size_t rows = r.h > 1 ? (size_t)r.h - 1 : 0, n = l->n_stale <= rows ? l->n_stale
                                                           : rows             ? rows - 1
                                                                              : 0;
    for (size_t i = n; i < l->n_stale; i++) rest += l->stale[i].updates;
    for (size_t i = 0; i < n; i++) most = fmax(most, l->stale[i].updates);
    most = fmax(most, rest);
    for (size_t i = 0; i < n + (rest > 0 && rows > 0); i++) {
        const double x = i < n ? l->stale[i].updates : rest;
        const int y = r.y + 1 + (int)i;
        bt_canvas_textf(&t->canvas, r.x, y, r.w, (bt_style){.fg = BT_C_TEXT}, "%4lld%s",
                        (long long)l->stale[i].staleness, i < n ? "" : "+");
        bt_canvas_textf(&t->canvas, r.x + 6, y, r.w, (bt_style){.fg = BT_C_LABEL}, "%9s %6s",
                        bt_fmt_int(b, sizeof b, (int64_t)x),
                        bt_fmt_percent((char[40]){0}, 40, x / l->updates));
        if (r.w > 26)
            bt_canvas_bar(&t->canvas, r.x + 24, y, r.w - 25, x / most,
                          (bt_style){.fg = BT_C_THIRD});
    }
}

static bool is_island_event(const bt_view_event *e) {
    const bt_event_kind k = bt_event_find(e->kind);
    return k == BT_EVENT_ISLAND_JOINED || k == BT_EVENT_ISLAND_LEFT || k == BT_EVENT_ISLAND_LOST ||
           k == BT_EVENT_ISLAND_LATE || k == BT_EVENT_REFUSED;
}

/* Newest first. */
static void draw_event_counts(bt_top *t, bt_rect r) {
    const bt_view_events *e = &t->view->events;
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, (bt_style){.fg = BT_C_LABEL},
                   "joins, losses, late updates, refusals", "6: all events");
    int row = 1;
    for (size_t i = e->n; i-- > 0 && row < r.h;) {
        if (!is_island_event(&e->event[i])) continue;
        bt_event_line(t, (bt_rect){r.x, r.y + row, r.w, 1}, &e->event[i], false);
        row++;
    }
}

void bt_screen_islands(bt_top *t, bt_rect r) {
    const bt_view_islands *l = islands_of_view(t);
    char right[64] = "", b[40];
    bt_top_rows(t, l->n, island_row_text, island_row_number, true);
    if (l->step >= 0)
        snprintf(right, sizeof right, "update %s", bt_fmt_int(b, sizeof b, l->step + 1));
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0), "islands", right);
    if (l->n == 0) {
        bt_top_empty(t, r,
                     t->view->head.hub ? "no update of an island has been applied yet"
                                       : "this run is not a hub of islands ('bitrain hub')");
        return;
    }
    draw_islands_summary(t, (bt_rect){r.x, r.y + 1, r.w, 1});
    bt_pane_size rows[] = {{.min = 3, .max = (int)t->n_rows + 2, .weight = 3, .rank = 0},
                           {.min = 3, .max = (int)l->n_stale + 1, .weight = 2, .rank = 1},
                           {.min = 3, .weight = 1, .rank = 2}};
    bt_rect out[3];
    bt_layout_rows((bt_rect){r.x, r.y + 4, r.w, r.h - 4}, rows, 3, 1, out);
    const bt_list_table table = {.cols = columns,
                                 .n_cols = N_COLUMNS,
                                 .cell = island_cell,
                                 .paint = paint_island_cell,
                                 .sort_col = -1};
    bt_top_table(t, out[0], table);
    if (out[1].h > 1) draw_staleness_histogram(t, out[1]);
    if (out[2].h > 1) draw_event_counts(t, out[2]);
}
