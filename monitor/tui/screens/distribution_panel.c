/* distribution_panel.c - shows the distributions of one tensor's latent weights and gradients
 * over the samples: two heat maps with bins as rows and samples as columns. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/tui/screens/screens.h"

enum { LABEL = 9, LEAST_W = 36, REPEAT_MOST = 12 };

typedef struct bins {
    const double (*of)[BT_HIST_BINS]; /* (samples) */
    bool weights;
    int low, high;     /* visible bins */
    int group, repeat; /* bins per row, columns per sample */
    double most;       /* the largest share of a row */
} bins;

/* Returns the lowest bin of a row; the first row has the highest bins. */
static int lowest_bin_of_row(const bins *x, size_t row) {
    const int rows = (x->high - x->low) / x->group;
    return x->low + (rows - (int)row) * x->group;
}

static double row_share(const bins *x, size_t row, int sample) {
    const int from = lowest_bin_of_row(x, row);
    return bt_view_share(x->of[sample], from, from + x->group);
}

static double relative_row_share(void *ctx, size_t row, size_t col) {
    const bins *x = ctx;
    const double v = row_share(x, row, (int)col / x->repeat);
    return v > 0 && x->most > 0 ? v / x->most : 0;
}

static void distribution_label(void *ctx, size_t row, char *buf, size_t size) {
    const bins *x = ctx;
    const int bin = lowest_bin_of_row(x, row);
    if (bin == 0)
        snprintf(buf, size, "below");
    else if (x->weights)
        snprintf(buf, size, "%+.2f", (double)(bin - BT_HIST_MIDDLE) / BT_HIST_PER_SCALE);
    else
        snprintf(buf, size, "2^%d", bin + BT_HIST_OCTAVE);
}

/* Returns false if all samples are empty. */
static bool find_bins(const bt_view_distribution *d, bins *x, int rows) {
    x->low = BT_HIST_BINS, x->high = -1;
    for (int s = 0; s < d->samples; s++)
        for (int b = 0; b < BT_HIST_BINS; b++) {
            if (!(x->of[s][b] > 0)) continue;
            if (b < x->low) x->low = b;
            if (b > x->high) x->high = b;
        }
    if (x->high < 0 || rows < 1) return false;
    x->group = (x->high - x->low) / rows + 1;
    /* Each row covers `group` bins and begins at a multiple of `group`, so that a threshold is at the edge of a row if
     * possible. */
    x->low -= x->low % x->group;
    while ((x->high - x->low) / x->group + 1 > rows) {
        x->group++;
        x->low -= x->low % x->group;
    }
    x->most = 0;
    const size_t n = (size_t)((x->high - x->low) / x->group + 1);
    for (int s = 0; s < d->samples; s++)
        for (size_t row = 0; row < n; row++) {
            const double v = row_share(x, row, s);
            if (v > x->most) x->most = v;
        }
    return true;
}

static void draw_distribution_footer(bt_top *t, bt_rect row, const bt_view_distribution *d,
                                     const bins *x) {
    char text[120], a[32], b[32], most[24];
    snprintf(text, sizeof text, "step %s to %s", bt_fmt_int(a, sizeof a, d->sampled[0] + 1),
             bt_fmt_int(b, sizeof b, d->sampled[d->samples - 1] + 1));
    const int at = row.x + LABEL +
                   bt_canvas_text(&t->canvas, row.x + LABEL, row.y, row.w - LABEL,
                                  (bt_style){.fg = BT_C_LABEL}, text);
    snprintf(most, sizeof most, "%.1f %%", 100 * x->most);
    if (row.x + row.w - at > 24)
        bt_heat_legend(&t->canvas, at + 2, row.y, row.x + row.w - at - 2, "0", most, false);
}

static void draw_distribution(bt_top *t, bt_rect r, bool weights) {
    const bt_view_distribution *d = &t->view->distribution;
    const bt_view_tensor *tensor = &d->tensor[d->at];
    char name[60];
    bins x = {.of = weights ? d->weights : d->gradients, .weights = weights};
    snprintf(name, sizeof name, tensor->layer < 0 ? "%s" : "%s, layer %d", tensor->tensor,
             tensor->layer);
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1},
                   (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD},
                   !weights    ? "gradients"
                   : r.w >= 56 ? "weights / scale, rounded at ±0.5"
                               : "weights / scale",
                   name);
    if (!find_bins(d, &x, r.h - 2)) {
        bt_top_empty(t, (bt_rect){r.x, r.y + 1, r.w, r.h - 1},
                     weights ? "no ternary tensor" : "no gradients");
        return;
    }
    const int width = r.w - LABEL;
    x.repeat = width / d->samples;
    x.repeat = x.repeat < 1 ? 1 : x.repeat > REPEAT_MOST ? REPEAT_MOST : x.repeat;
    const bt_heat map = {.rows = (size_t)((x.high - x.low) / x.group + 1),
                         .cols = (size_t)(d->samples * x.repeat),
                         .value = relative_row_share,
                         .label = distribution_label,
                         .ctx = &x,
                         .label_w = LABEL,
                         .cursor_col = -1,
                         .selected_row = -1};
    bt_heat_draw(&t->canvas, (bt_rect){r.x, r.y + 1, r.w, r.h - 2}, &map);
    draw_distribution_footer(t, (bt_rect){r.x, r.y + 1 + (int)map.rows, r.w, 1}, d, &x);
}

int bt_distribution_least(const bt_top *t) { return t->view->distribution.samples > 0 ? 8 : 0; }

void bt_distribution_draw(bt_top *t, bt_rect r) {
    const bt_view_distribution *d = &t->view->distribution;
    if (r.h < 4 || r.w < 20) return;
    if (d->samples == 0 || d->at >= d->n) {
        bt_top_empty(t, r, "no distributions recorded (train.distributions sets how often)");
        return;
    }
    const bt_pane_size half = {.min = LEAST_W, .weight = 1, .rank = 0};
    bt_rect part[2];
    if (r.w >= 2 * LEAST_W + 2) {
        bt_layout_cols(r, (const bt_pane_size[]){half, half}, 2, 2, part);
    } else {
        part[0] = (bt_rect){r.x, r.y, r.w, r.h / 2};
        part[1] = (bt_rect){r.x, r.y + r.h / 2, r.w, r.h - r.h / 2};
    }
    draw_distribution(t, part[0], true);
    draw_distribution(t, part[1], false);
}
