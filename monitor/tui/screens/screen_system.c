/* screen_system.c - processors and memory per rank, and the current activity of this machine's ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/tui/screens/screens.h"

enum {
    C_RANK,
    C_HOST,
    C_PID,
    C_ISA,
    C_MESH,
    C_THREADS,
    C_CPU,
    C_CPUBAR,
    C_RSS,
    C_PEAK,
    C_FAULTS,
    C_SWITCHES,
    C_DISK,
    C_MICRO,
    C_MONITOR,
    C_COUNT
};
static const bt_list_col columns[C_COUNT] = {
    {"rank", 4, true, false, 0},          {"host", 10, false, false, 2},
    {"pid", 7, true, false, 3},           {"isa", 8, false, false, 4},
    {"pp·dp·sh·tp", 11, false, false, 6}, {"threads", 7, true, false, 4},
    {"cpu", 6, true, false, 1},           {"", 10, false, true, 5},
    {"rss", 9, true, false, 0},           {"peak", 9, true, false, 2},
    {"faults/s", 8, true, false, 3},      {"switches/s", 10, true, false, 4},
    {"disk/s", 9, true, false, 5},        {"micro", 6, true, false, 6},
    {"monitor", 8, true, false, 5}};

/* values of /proc; NaN for a rank of another machine or of an ended run */
static double present_proc_value(const bt_top *t, const bt_view_rank *x, int col) {
    const bt_proc_now *p = t->view->head.live && t->at_step < 0 ? bt_procs_of(&t->procs, x->pid)
                                                                : NULL;
    return !p                  ? NAN
           : col == C_FAULTS   ? p->faults_per_s
           : col == C_SWITCHES ? p->switches_per_s
                               : p->disk_per_s;
}

static double system_row_number(bt_top *t, size_t i, int col) {
    const bt_view_rank *x = &t->view->ranks.rank[i];
    switch (col) {
    case C_FAULTS:
    case C_SWITCHES:
    case C_DISK: return present_proc_value(t, x, col);
    case C_PID: return x->pid;
    case C_THREADS: return x->threads;
    case C_CPU:
    case C_CPUBAR: return x->cpu_frac;
    case C_RSS: return x->mean[BT_MR_RSS];
    case C_PEAK: return x->rss_peak_mib;
    case C_MICRO: return x->mean[BT_MR_MICRO_BATCHES];
    case C_MONITOR: return x->mean[BT_MR_MONITOR];
    default: return -x->rank;
    }
}

static const char *system_row_text(bt_top *t, size_t i, char *buf, size_t size) {
    const bt_view_rank *x = &t->view->ranks.rank[i];
    snprintf(buf, size, "rank %d %s %s %d", x->rank, x->host, x->isa, x->pid);
    return buf;
}

static void system_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    const bt_view_rank *x = &t->view->ranks.rank[t->rows[row]];
    double v = system_row_number(t, t->rows[row], col);
    switch (col) {
    case C_RANK:
        snprintf(buf, size, "%d", x->rank);
        s->fg = BT_C_BRIGHT;
        break;
    case C_HOST: snprintf(buf, size, "%s", x->host); break;
    case C_ISA:
        snprintf(buf, size, "%s", x->isa);
        s->fg = BT_C_LABEL;
        break;
    case C_MESH:
        snprintf(buf, size, "%d·%d·%d·%d", x->pp, x->dp_replicate, x->dp_shard, x->tp);
        s->fg = BT_C_LABEL;
        break;
    case C_PID:
    case C_THREADS:
        if (v > 0) snprintf(buf, size, "%.0f", v);
        break;
    case C_CPU: bt_fmt_percent(buf, size, v); break;
    case C_RSS:
        bt_fmt(buf, size, v, BT_UNIT_MIB);
        s->fg = BT_C_BRIGHT;
        break;
    case C_PEAK: bt_fmt(buf, size, v, BT_UNIT_MIB); break;
    case C_FAULTS:
    case C_SWITCHES:
        if (!isnan(v)) bt_fmt(buf, size, floor(v + 0.5), BT_UNIT_COUNT);
        break;
    case C_DISK:
        if (!isnan(v)) bt_fmt(buf, size, floor(v + 0.5), BT_UNIT_BYTES);
        break;
    case C_MICRO:
        if (!isnan(v)) snprintf(buf, size, "%.1f", v);
        break;
    case C_MONITOR: bt_fmt(buf, size, v, BT_UNIT_MS); break;
    default: break;
    }
}

static bool paint_system_cell(void *ctx, bt_canvas *c, bt_rect r, size_t row, int col) {
    bt_top *t = ctx;
    if (col != C_CPUBAR) return false;
    bt_canvas_bar(c, r.x, r.y, r.w, t->view->ranks.rank[t->rows[row]].cpu_frac,
                  (bt_style){.fg = BT_C_GOOD});
    return true;
}

static void ranks_table(bt_top *t, bt_rect r, bool active, bool here) {
    bt_list_col shown[C_COUNT];
    memcpy(shown, columns, sizeof shown);
    if (!here) shown[C_FAULTS].w = shown[C_SWITCHES].w = shown[C_DISK].w = 0;
    bt_list_table table = {.cols = shown,
                           .n_cols = C_COUNT,
                           .cell = system_cell,
                           .paint = paint_system_cell,
                           .sort_col = -1};
    if (active) {
        bt_top_table(t, r, table);
        return;
    }
    int top = 0;
    table.n_rows = t->n_rows;
    table.ctx = t;
    table.selected = -1;
    bt_list_draw(&t->canvas, r, &table, &top);
}

/* Draws the ranks' table above two charts and the settings. The filter applies to both tables, and keys to that of
 * the active pane (the settings if no rank matches). */
void bt_screen_system(bt_top *t, bt_rect r) {
    bt_view_ranks *k = &t->view->ranks;
    bt_list *l = &t->list[BT_SCREEN_SYSTEM], kept = *l;
    if (t->expanded && t->pane == 1) {
        bt_settings_table_draw(t, r, true);
        return;
    }
    bt_top_rows(t, k->n, system_row_text, system_row_number, true);
    bool settings = t->pane == 1 || (t->filter_on && t->n_rows == 0);
    if (settings) *l = kept;
    if (k->n == 0) {
        bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0),
                       "processors and memory", "");
        bt_top_empty(t, (bt_rect){r.x, r.y, r.w, 4}, "no rank has sent its identity yet");
        if (r.h > 8) bt_settings_table_draw(t, (bt_rect){r.x, r.y + 4, r.w, r.h - 4}, true);
        return;
    }
    int need = (int)t->n_rows + 2;
    bool here = t->procs.n > 0 && t->view->head.live;
    const int panel = bt_machine_height(t, r.w);
    bt_pane_size rows[] = {{.min = need < 6 ? need : 6, .max = need, .weight = 2, .rank = 0},
                           {.min = 6, .weight = 1, .rank = 2},
                           {.min = here, .max = panel, .weight = panel > 1, .rank = 1}};
    bt_rect out[3], col[2], chart[2];
    bt_layout_rows(r, rows, 3, 1, out);
    if (here && out[2].h > 0) { /* directly below the table */
        out[2].y = out[0].y + out[0].h;
        out[1].y += out[2].h + 1;
        bt_machine_draw(t, out[2]);
    }
    char right[96], many[40];
    double params = strtod(t->view->head.params, NULL);
    snprintf(right, sizeof right, "%s%s%s",
             params > 0 ? bt_fmt(many, sizeof many, params, BT_UNIT_COUNT) : "",
             params > 0 ? " parameters · " : "", "mean of the newest steps");
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0),
                   "processors and memory", right);
    bt_rect table = {out[0].x, out[0].y + 1, out[0].w, out[0].h - 1};
    /* keys apply to the table drawn last */
    if (settings) ranks_table(t, table, false, here);
    if (out[1].h >= 4) {
        bt_pane_size two[] = {{.min = 34, .weight = 1, .rank = 1},
                              {.min = 36, .weight = 1, .rank = 0}};
        bt_pane_size pair[] = {{.min = 5, .weight = 1, .rank = 0},
                               {.min = 5, .weight = 1, .rank = 1}};
        bt_layout_cols(out[1], two, 2, 2, col);
        if (col[0].w > 0) {
            bt_layout_rows(col[0], pair, 2, 0, chart);
            bt_top_chart(t, chart[0], BT_TS_RSS, "memory of the largest rank", NULL, false, false);
            const double load = t->view->head.measured_load;
            char title[80] = "model FLOP/s of the bf16 peak";
            if (load > BT_MEASURED_BUSY)
                snprintf(title + strlen(title), sizeof title - strlen(title),
                         ", measured under load %.2g", load);
            if (chart[1].h > 0) bt_top_chart(t, chart[1], BT_TS_MFU, title, NULL, false, false);
        }
        bt_settings_table_draw(t, col[1], settings);
    }
    if (settings) return;
    bt_top_rows(t, k->n, system_row_text, system_row_number, true);
    ranks_table(t, table, true, here);
}
