/* screen_ranks.c - slow ranks, since when and in which phase: heat map rank x time above a
 * table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "monitor/tui/screens/screens.h"

enum {
    C_RANK,
    C_HOST,
    C_BUSY,
    C_EXCESS,
    C_SCORE,
    C_OWN,
    C_BLAME,
    C_BAR,
    C_LOST,
    C_PHASE,
    C_VERDICT,
    C_COUNT
};
static const bt_list_col columns[C_COUNT] = {
    {"rank", 4, true, false, 0},     {"host", 10, false, false, 7},
    {"busy p50", 8, true, false, 1}, {"excess", 8, true, false, 4},
    {"score", 5, true, false, 2},    {"own", 5, true, false, 6},
    {"blame", 6, true, false, 1},    {"", 20, false, false, 8},
    {"lost", 7, true, false, 5},     {"phase", 12, false, false, 3},
    {"verdict", 10, false, false, 2}};

/* ---- heat map -------------------------------------------------------------------------------- */

enum { GROUPS = 256 };

typedef struct heat_ctx {
    const bt_top *t;
    /* rows of the heat map; row k shows ranks start[k] .. start[k + 1] - 1 */
    size_t rows, start[GROUPS + 1];
    bool hosts;               /* each row is a host */
    size_t first_col, repeat; /* columns omitted on the left; cells per column */
} heat_ctx;

/* If a row has several ranks, shows the most extreme value. */
static double heat_value(void *ctx, size_t row, size_t col) {
    const heat_ctx *x = ctx;
    const bt_view_heat *h = &x->t->view->heat;
    double most = NAN;
    for (size_t k = x->start[row]; k < x->start[row + 1]; k++) {
        double v = h->cell[k * h->cols + col / x->repeat + x->first_col];
        if (isnan(v)) continue;
        if (isnan(most) || (h->against ? fabs(v - 1) > fabs(most - 1) : v > most)) most = v;
    }
    if (isnan(most)) return NAN;
    if (h->against) return fmax(-1, fmin(1, (most - 1) / (h->high - 1)));
    return fmax(0, fmin(1, (most - h->low) / (h->high - h->low)));
}

static void heat_label(void *ctx, size_t row, char *buf, size_t size) {
    const heat_ctx *x = ctx;
    size_t a = x->start[row], b = x->start[row + 1] - 1;
    if (x->hosts)
        snprintf(buf, size, "%s", x->t->view->ranks.rank[a].host);
    else if (a == b)
        snprintf(buf, size, "rank %zu", a);
    else
        snprintf(buf, size, "%zu-%zu", a, b);
}

/* Uses a row per rank if there is room, otherwise one per host, otherwise one for as many ranks as necessary. */
static void heat_rows(const bt_top *t, size_t room, heat_ctx *x) {
    const bt_view_ranks *k = &t->view->ranks;
    size_t n = t->reading ? k->n : t->view->heat.rows, hosts = 0;
    if (room > GROUPS) room = GROUPS;
    x->hosts = false;
    if (n > room && n <= k->n) {
        for (size_t i = 0; i < n && hosts <= room; i++)
            if (i == 0 || strcmp(k->rank[i].host, k->rank[i - 1].host) != 0) x->start[hosts++] = i;
        x->hosts = hosts > 1 && hosts <= room;
    }
    size_t group = x->hosts ? 0 : (n + room - 1) / room;
    x->rows = x->hosts ? hosts : (n + group - 1) / group;
    for (size_t i = 0; !x->hosts && i < x->rows; i++) x->start[i] = i * group;
    x->start[x->rows] = n;
}

static void format_scale_ends(const bt_view_heat *h, char low[40], char high[40]) {
    bt_unit unit = h->value == BT_HEAT_RSS    ? BT_UNIT_MIB
                   : h->value == BT_HEAT_LOSS ? BT_UNIT_NATS
                                              : BT_UNIT_MS;
    if (h->against)
        snprintf(low, 40, "-%.0f %%", 100 * (h->high - 1)),
            snprintf(high, 40, "+%.0f %%", 100 * (h->high - 1));
    else if (h->value == BT_HEAT_BUSY)
        snprintf(low, 40, "%.2gx", h->low), snprintf(high, 40, "%.3gx median", h->high);
    else
        bt_fmt(low, 40, h->low, unit), bt_fmt(high, 40, h->high, unit);
}

static void draw_heat_footer(bt_top *t, bt_rect row, const heat_ctx *x, size_t shown) {
    const bt_view_heat *h = &t->view->heat;
    char a[40], b[40], low[40], high[40];
    format_scale_ends(h, low, high);
    int at = row.x + 9;
    bt_fmt_int(a, sizeof a, h->step[x->first_col] + 1);
    bt_fmt_int(b, sizeof b, t->view->head.step + 1);
    at += bt_canvas_textf(&t->canvas, at, row.y, 40, (bt_style){.fg = BT_C_LABEL}, "step %s", a);
    int end = row.x + 9 + (int)shown, w = bt_canvas_text_width(b);
    if (end - w > at + 2)
        bt_canvas_text(&t->canvas, end - w, row.y, w, (bt_style){.fg = BT_C_LABEL}, b);
    int lw = bt_canvas_text_width(low) + bt_canvas_text_width(high) + 10,
        mid = at + (end - w - at - lw) / 2;
    if (mid > at + 1) bt_heat_legend(&t->canvas, mid, row.y, lw, low, high, h->against);
}

static void heat_title(const bt_top *t, char *out, size_t size) {
    const bt_view_heat *h = &t->view->heat;
    const char *value = h->value == BT_HEAT_BUSY && !h->against ? "busy / median of the step"
                                                                : bt_heat_value_name(h->value);
    char base[BT_NAME_MAX + 32] = "";
    if (h->against)
        snprintf(base, sizeof base, " against %s, same steps", t->baseline);
    else if (t->baseline[0])
        snprintf(base, sizeof base, " (%.40s has no such steps)", t->baseline);
    snprintf(out, size, "%s%s%s · v: another value", value, base, h->exact ? "" : " · sampled");
}

static void draw_rank_heat_map(bt_top *t, bt_rect r) {
    const bt_view_heat *h = &t->view->heat;
    char right[200];
    heat_title(t, right, sizeof right);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0), "ranks x time",
                   right);
    if (h->rows == 0 || h->cols == 0) {
        bt_top_empty(t, (bt_rect){r.x, r.y + 1, r.w, r.h - 1}, "no rank has reported a step yet");
        return;
    }
    size_t room = r.h > 3 ? (size_t)(r.h - 2) : 1, width = (size_t)(r.w - 9),
           shown = h->cols < width ? h->cols : width;
    heat_ctx x = {
        .t = t, .first_col = h->cols - shown, .repeat = width / shown < 8 ? width / shown : 8};
    heat_rows(t, room, &x);
    int sel = -1, tall = (int)(room / x.rows);
    const bt_list *l = &t->list[BT_SCREEN_RANKS];
    for (size_t i = 0; i < x.rows && t->n_rows > 0 && l->selected < (int)t->n_rows; i++)
        if (t->rows[l->selected] >= x.start[i] && t->rows[l->selected] < x.start[i + 1])
            sel = (int)i;
    bt_heat map = {.rows = x.rows,
                   .cols = shown * x.repeat,
                   .value = heat_value,
                   .label = heat_label,
                   .ctx = &x,
                   .label_w = 9,
                   .row_h = tall < 4 ? tall : 4,
                   .diverging = h->against,
                   .cursor_col = -1,
                   .selected_row = sel};
    bt_heat_draw(&t->canvas, (bt_rect){r.x, r.y + 1, r.w, r.h - 2}, &map);
    draw_heat_footer(t, (bt_rect){r.x, r.y + 1 + (int)x.rows * map.row_h, r.w, 1}, &x,
                     shown * x.repeat);
}

static void draw_selected_rank_curve(bt_top *t, bt_rect r) {
    const bt_view_heat *h = &t->view->heat;
    size_t rank = t->rows[t->list[BT_SCREEN_RANKS].selected];
    char title[40], right[200];
    heat_title(t, right, sizeof right);
    *strstr(right, " · v:") = 0;
    snprintf(title, sizeof title, "rank %zu", rank);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1},
                   (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD}, title, right);
    double *x = malloc(h->cols * sizeof *x);
    if (!x) return;
    for (size_t i = 0; i < h->cols; i++) x[i] = (double)h->step[i];
    const bt_plot_level even = {1, h->against ? "baseline" : "median"};
    bt_plot p;
    bt_plot_init(&p);
    p.x_unit = BT_UNIT_COUNT;
    p.x_name = "step";
    p.y_unit = h->against || h->value == BT_HEAT_BUSY ? BT_UNIT_NONE
               : h->value == BT_HEAT_RSS              ? BT_UNIT_MIB
               : h->value == BT_HEAT_LOSS             ? BT_UNIT_NATS
                                                      : BT_UNIT_MS;
    p.levels = &even;
    p.n_levels = h->against || h->value == BT_HEAT_BUSY;
    const bt_plot_series line = {
        .name = title, .x = x, .y = h->cell + rank * h->cols, .n = h->cols, .color = BT_C_ACCENT};
    bt_plot_draw(&t->canvas, (bt_rect){r.x, r.y + 1, r.w, r.h - 1}, &p, &line, 1);
    free(x);
}

/* ---- table ----------------------------------------------------------------------------------- */

static const char *rank_row_text(bt_top *t, size_t i, char *buf, size_t size) {
    const bt_view_rank *x = &t->view->ranks.rank[i];
    snprintf(buf, size, "rank %d %s %s %s %s", x->rank, x->host, bt_verdict_name(x->verdict),
             x->fault < BT_PHASE_COUNT ? bt_phases[x->fault].name : "", x->isa);
    return buf;
}

static double rank_row_number(bt_top *t, size_t i, int col) {
    const bt_view_rank *x = &t->view->ranks.rank[i];
    switch (col) {
    case C_RANK: return -x->rank;
    case C_BUSY: return x->busy_p50_ms;
    case C_EXCESS: return x->excess_ms;
    case C_SCORE: return -x->score;
    case C_OWN: return -x->score_own;
    case C_LOST:
    case C_BLAME: return x->lost_s;
    case C_PHASE: return x->fault;
    case C_VERDICT: return x->verdict;
    default: return NAN;
    }
}

static void rank_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    const bt_view_rank *x = &t->view->ranks.rank[t->rows[row]];
    switch (col) {
    case C_RANK:
        snprintf(buf, size, "%d", x->rank);
        s->fg = BT_C_BRIGHT;
        break;
    case C_HOST:
        snprintf(buf, size, "%s", x->host);
        s->fg = BT_C_LABEL;
        break;
    case C_BUSY:
        bt_fmt(buf, size, x->busy_p50_ms, BT_UNIT_MS);
        s->fg = BT_C_BRIGHT;
        break;
    case C_EXCESS:
        if (x->excess_ms > 0)
            snprintf(buf, size, "+"), bt_fmt(buf + 1, size - 1, x->excess_ms, BT_UNIT_MS);
        break;
    case C_SCORE:
        snprintf(buf, size, isnan(x->score) ? "-" : "%.2f", x->score);
        s->fg = bt_score_color(x->score);
        break;
    case C_OWN:
        snprintf(buf, size, isnan(x->score_own) ? "-" : "%.2f", x->score_own);
        s->fg = bt_score_color(x->score_own);
        break;
    case C_BLAME:
        if (x->lost_s > 0) bt_fmt_percent(buf, size, x->blame_frac);
        break;
    case C_LOST:
        if (x->lost_s > 0) bt_fmt(buf, size, x->lost_s * 1e3, BT_UNIT_MS);
        break;
    case C_PHASE:
        if (x->fault < BT_PHASE_COUNT) {
            char p[24];
            snprintf(buf, size, "%s %s", bt_phases[x->fault].name,
                     bt_fmt_percent(p, sizeof p, x->fault_frac));
            s->fg = bt_phase_color(x->fault);
        }
        break;
    case C_VERDICT:
        snprintf(buf, size, "%s", bt_verdict_name(x->verdict));
        s->fg = x->verdict == BT_VERDICT_OK ? BT_C_GOOD
                : x->verdict == BT_VERDICT_RECOVERING || x->verdict == BT_VERDICT_CROWDED
                    ? BT_C_WARN
                    : BT_C_BAD;
        break;
    default: break;
    }
}

static bool paint_rank_cell(void *ctx, bt_canvas *c, bt_rect r, size_t row, int col) {
    bt_top *t = ctx;
    if (col != C_BAR) return false;
    const bt_view_rank *x = &t->view->ranks.rank[t->rows[row]];
    if (x->lost_s > 0)
        bt_canvas_bar(c, r.x, r.y, r.w, x->blame_frac, (bt_style){.fg = bt_phase_color(x->fault)});
    return true;
}

/* "rank 5", or "ranks 3, 5" when several are marked */
static void marked_ranks_text(const bt_top *t, int rank, char *out, size_t size) {
    int n = snprintf(out, size, t->n_marked_ranks > 1 ? "ranks " : "rank ");
    if (t->n_marked_ranks == 0) snprintf(out + n, size - (size_t)n, "%d", rank);
    for (int i = 0; i < t->n_marked_ranks && n < (int)size - 12; i++)
        n += snprintf(out + n, size - (size_t)n, "%s%d", i ? ", " : "", t->marked_rank[i]);
}

static bool is_rank_marked(void *ctx, size_t row) {
    const bt_top *t = ctx;
    for (int i = 0; i < t->n_marked_ranks; i++)
        if ((size_t)t->marked_rank[i] == t->rows[row]) return true;
    return false;
}

void bt_what_if_line(bt_top *t, bt_rect r, const bt_view_rank *x) {
    const bt_view_ranks *k = &t->view->ranks;
    char a[40], b[40], p[24], more[40], who[64], line[240];
    double after = t->n_marked_ranks
                       ? bt_view_what_if(t->view, t->marked_rank, (size_t)t->n_marked_ranks)
                       : x->what_if_ms;
    double gain = k->step_ms > 0 ? (k->step_ms - after) / k->step_ms : NAN;
    if (r.h > 0 && k->crowded[0] && k->n > 1) {
        /* An overloaded machine is reported before its ranks. */
        int n = bt_canvas_wrap(&t->canvas, (bt_rect){r.x, r.y, r.w, r.h > 1 ? r.h - 1 : 1},
                               (bt_style){.fg = BT_C_WARN}, k->crowded);
        r.y += n, r.h -= n;
    }
    if (r.h <= 0 || isnan(gain) || k->n < 2) return;
    marked_ranks_text(t, x->rank, who, sizeof who);
    if (gain < 0.001) {
        snprintf(line, sizeof line, "without %s the step would take as long", who);
    } else {
        bt_fmt(more, sizeof more, k->tokens_per_s * (k->step_ms / after - 1) * 86400,
               BT_UNIT_COUNT);
        snprintf(line, sizeof line, "without %s: %s → %s (-%s), +%s tokens a day", who,
                 bt_fmt(a, sizeof a, k->step_ms, BT_UNIT_MS),
                 bt_fmt(b, sizeof b, after, BT_UNIT_MS), bt_fmt_percent(p, sizeof p, gain), more);
    }
    bt_style bright = {.fg = gain < 0.001 ? BT_C_LABEL : BT_C_BRIGHT};
    int w = bt_canvas_text_width(line), says = bt_canvas_text_width(x->says);
    if (x->says[0] && says + w + 3 <= r.w) { /* both on one line */
        bt_canvas_text(&t->canvas, r.x, r.y, says, (bt_style){.fg = BT_C_WARN}, x->says);
        bt_canvas_text(&t->canvas, r.x + says + 3, r.y, w, bright, line);
        return;
    }
    if (x->says[0] && r.h > 1)
        bt_canvas_text(&t->canvas, r.x, r.y++, r.w, (bt_style){.fg = BT_C_WARN}, x->says);
    bt_canvas_text(&t->canvas, r.x, r.y, r.w, bright, line);
}

void bt_screen_ranks(bt_top *t, bt_rect r) {
    bt_view_ranks *k = &t->view->ranks;
    bt_list *l = &t->list[BT_SCREEN_RANKS];
    bool by_order = l->sort < 0;
    if (by_order) l->sort = C_BLAME;
    bt_top_rows(t, k->n, rank_row_text, rank_row_number, true);
    if (by_order) l->sort = -1;
    int ranks = (int)(t->reading ? t->view->ranks.n : t->view->heat.rows),
        list = (int)t->n_rows + 2, spare = r.h - list - 4;
    int most = r.h - 8 < r.h * 3 / 5 ? r.h - 8 : r.h * 3 / 5,
        foot = (r.w < 120 ? 2 : 1) + (k->crowded[0] ? 2 : 0), tall = 1;
    while (ranks > 0 && tall < 4 && ranks * (tall + 1) <= spare && ranks * (tall + 1) + 2 <= most)
        tall++;
    heat_ctx x;
    if (ranks > 0) heat_rows(t, most > 3 ? (size_t)(most - 2) : 1, &x);
    int heat_h = ranks > 0 ? (int)x.rows * tall + 2 : 5,
        left = r.h - heat_h - (list > 6 ? list : 6) - foot;
    bool curve = left >= 9 && ranks > 0 && t->n_rows > 0 && !t->expanded;
    bt_pane_size rows[] = {
        {.min = heat_h < most ? heat_h : most, .rank = 1},
        {.min = curve && list > 4 ? list : 4, .max = list > 4 ? list : 4, .weight = 1, .rank = 0},
        {.min = foot, .rank = 2},
        {.min = curve ? 9 : 0, .weight = 2 * curve, .max = 26, .rank = 3}};
    if (t->expanded && t->pane == 0)
        rows[0] = (bt_pane_size){.min = r.h - 1, .rank = 0},
        rows[1] = (bt_pane_size){.min = 1, .rank = 3};
    if (t->expanded && t->pane == 1)
        rows[0] = (bt_pane_size){.min = 1, .max = 1, .rank = 9}, rows[1].min = r.h - 1;
    bt_rect out[4];
    bt_layout_rows(r, rows, 4, 0, out);
    if (out[0].h >= 3) draw_rank_heat_map(t, out[0]);
    if (out[1].h >= 3) {
        bt_canvas_rule(&t->canvas, (bt_rect){out[1].x, out[1].y, out[1].w, 1}, bt_top_title(t, 1),
                       "stragglers", "busy = step - wait · score: best / own");
        const bt_list_table table = {.cols = columns,
                                     .n_cols = C_COUNT,
                                     .cell = rank_cell,
                                     .paint = paint_rank_cell,
                                     .marked = is_rank_marked,
                                     .sort_col = C_BLAME};
        bt_top_table(t, (bt_rect){out[1].x, out[1].y + 1, out[1].w, out[1].h - 1}, table);
    }
    if (out[2].h > 0 && t->n_rows > 0 && k->steps > 0)
        bt_what_if_line(t, out[2], &k->rank[t->rows[l->selected]]);
    if (out[3].h >= 8 && t->rows[l->selected] < t->view->heat.rows)
        draw_selected_rank_curve(t, (bt_rect){out[3].x, out[3].y + 1, out[3].w, out[3].h - 1});
}
