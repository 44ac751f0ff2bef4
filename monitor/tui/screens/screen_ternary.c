/* screen_ternary.c - statistics of the ternary weights per layer: shares of -1, 0, +1, flips,
 * scale, entropy. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/tui/screens/screens.h"

#define ZERO_GAUSS 0.310 /* share of zeros for Gaussian latents (absmean threshold) */

enum {
    C_LAYER,
    C_TENSOR,
    C_SHARES,
    C_ZERO,
    C_POS,
    C_NEG,
    C_FLIP,
    C_SIGN,
    C_OSC,
    C_NEAR,
    C_SPARK,
    C_BITS,
    C_SCALE,
    C_GRAD,
    C_UPDATE,
    C_WIRE,
    C_OWED,
    C_COUNT
};
static const bt_list_col columns[C_COUNT] = {{"layer", 5, true, false, 0},
                                             {"tensor", 11, false, false, 0},
                                             {"- 0 +", 12, false, true, 7},
                                             {"zero", 6, true, false, 0},
                                             {"+1", 6, true, false, 5},
                                             {"-1", 6, true, false, 6},
                                             {"flips", 7, true, false, 1},
                                             {"sign", 7, true, false, 2},
                                             {"undone", 7, true, false, 2},
                                             {"near", 6, true, false, 2},
                                             {"zero, flips", 17, false, false, 3},
                                             {"bits", 5, true, false, 4},
                                             {"scale", 9, true, false, 3},
                                             {"grad", 9, true, false, 4},
                                             {"update", 9, true, false, 2},
                                             {"sent", 5, true, false, 8},
                                             {"resid", 6, true, false, 8}};

static double ternary_row_number(bt_top *t, size_t i, int col) {
    const bt_view_layer *x = &t->view->layers.layer[i];
    switch (col) {
    case C_ZERO: return x->value[BT_ML_ZERO];
    case C_POS: return x->value[BT_ML_POS];
    case C_NEG: return x->neg_frac;
    case C_FLIP:
    case C_SPARK: return x->value[BT_ML_FLIP];
    case C_SIGN: return x->value[BT_ML_SIGN_FLIP];
    case C_OSC: return x->value[BT_ML_OSCILLATION];
    case C_NEAR: return x->value[BT_ML_BOUNDARY];
    case C_BITS: return x->entropy_bits;
    case C_SCALE: return x->value[BT_ML_SCALE];
    case C_GRAD: return x->value[BT_ML_GRAD_NORM];
    case C_UPDATE: return x->value[BT_ML_UPDATE];
    case C_WIRE: return x->value[BT_ML_GRAD_BITS];
    case C_OWED: return x->value[BT_ML_RESIDUAL];
    default: return -(double)i;
    }
}

static const char *ternary_row_text(bt_top *t, size_t i, char *buf, size_t size) {
    snprintf(buf, size, "layer %d %s", t->view->layers.layer[i].layer,
             t->view->layers.layer[i].tensor);
    return buf;
}

static void ternary_cell(void *ctx, size_t row, int col, char *buf, size_t size, bt_style *s) {
    bt_top *t = ctx;
    const bt_view_layer *x = &t->view->layers.layer[t->rows[row]];
    double v = ternary_row_number(t, t->rows[row], col);
    switch (col) {
    case C_LAYER:
        snprintf(buf, size, x->layer < 0 ? "-" : "%d", x->layer);
        s->fg = BT_C_LABEL;
        break;
    case C_TENSOR: snprintf(buf, size, "%s", x->tensor); break;
    case C_ZERO:
        snprintf(buf, size, isnan(v) ? "-" : "%.1f %%", 100 * v);
        s->fg = fabs(v - ZERO_GAUSS) > 0.1 ? BT_C_WARN : BT_C_BRIGHT;
        break;
    case C_POS:
    case C_NEG: snprintf(buf, size, isnan(v) ? "-" : "%.1f %%", 100 * v); break;
    case C_NEAR: snprintf(buf, size, isnan(v) ? "-" : "%.1f %%", 100 * v); break;
    case C_SIGN:
    case C_OSC:
    case C_FLIP:
        snprintf(buf, size, isnan(v) ? "-" : v < 0.001 ? "%.3f %%" : "%.2f %%", 100 * v);
        break;
    case C_UPDATE: snprintf(buf, size, isnan(v) ? "-" : v > 0 ? "%.2e" : "0", v); break;
    case C_BITS: snprintf(buf, size, isnan(v) ? "-" : "%.3f", v); break;
    case C_WIRE:
    case C_OWED: snprintf(buf, size, isnan(v) ? "-" : "%.3g", v); break;
    default: bt_fmt(buf, size, v, BT_UNIT_NONE);
    }
}

static void draw_ternary_shares(bt_top *t, bt_rect r, const bt_view_layer *x) {
    bt_segment seg[] = {{x->neg_frac, BT_C_SECOND, '-'},
                        {x->value[BT_ML_ZERO], BT_C_FAINT, '0'},
                        {x->value[BT_ML_POS], BT_C_THIRD, '+'}};
    bt_stack_draw(&t->canvas, r.x, r.y, r.w, 1, seg, 3, bt_top_letters(t));
    bt_stack_thin(&t->canvas, r);
}

/* one scale for all tensors, so that sparklines are comparable */
static double largest_flip_share(const bt_view_layers *l) {
    double most = 0;
    for (size_t i = 0; i < l->n; i++)
        for (int k = 0; k < BT_VIEW_SAMPLES; k++)
            if (l->layer[i].history[BT_ML_FLIP][k] > most)
                most = l->layer[i].history[BT_ML_FLIP][k];
    return most;
}

static bool paint_ternary_cell(void *ctx, bt_canvas *c, bt_rect r, size_t row, int col) {
    bt_top *t = ctx;
    const bt_view_layer *x = &t->view->layers.layer[t->rows[row]];
    if (col == C_SHARES) {
        draw_ternary_shares(t, r, x);
        return true;
    }
    if (col != C_SPARK) return false;
    int w = (r.w - 1) / 2, skip = 32 - w;
    bt_canvas_spark(c, (bt_rect){r.x, r.y, w, 1}, x->history[BT_ML_ZERO] + skip, (size_t)w, 0,
                    2 * ZERO_GAUSS, (bt_style){.fg = BT_C_SECOND});
    bt_canvas_spark(c, (bt_rect){r.x + w + 1, r.y, w, 1}, x->history[BT_ML_FLIP] + skip, (size_t)w,
                    0, largest_flip_share(&t->view->layers), (bt_style){.fg = BT_C_THIRD});
    return true;
}

static void draw_ternary_summary(bt_top *t, bt_rect r) {
    const bt_view_layers *l = &t->view->layers;
    double zero = 0, flip = 0, bits = 0, near = 0;
    size_t n = 0, nf = 0, nn = 0;
    char right[64], b[40], f[24], e[48] = "";
    for (size_t i = 0; i < l->n; i++) {
        if (isnan(l->layer[i].value[BT_ML_ZERO])) continue;
        zero += l->layer[i].value[BT_ML_ZERO];
        bits += l->layer[i].entropy_bits;
        n++;
        if (!isnan(l->layer[i].value[BT_ML_BOUNDARY]))
            near += l->layer[i].value[BT_ML_BOUNDARY], nn++;
        if (!isnan(l->layer[i].value[BT_ML_FLIP])) flip += l->layer[i].value[BT_ML_FLIP], nf++;
    }
    snprintf(right, sizeof right, "step %s · %zu samples · t: %s",
             bt_fmt_int(b, sizeof b, l->step + 1), l->samples,
             t->mode % 2 ? "ternary ones only" : "all tensors");
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0), "ternary weights",
                   right);
    if (n == 0) return;
    snprintf(f, sizeof f, nf ? "%.2f %%" : "-", nf ? 100 * flip / (double)nf : 0);
    if (nn) snprintf(e, sizeof e, " · near %.1f %% (5.9)", 100 * near / (double)nn);
    bt_canvas_textf(&t->canvas, r.x, r.y + 1, r.w, (bt_style){.fg = BT_C_LABEL},
                    "%zu tensors · %.2f bits · flips %s · zero %.1f %% (31.0)%s%s", n,
                    bits / (double)n, f, 100 * zero / (double)n, e,
                    r.w < 112 ? "" : " · in brackets: Gaussian latents");
}

/* Removes norms and embeddings, which have full precision; key `t` shows them. */
static void keep_ternary_tensors(bt_top *t) {
    size_t n = 0;
    bt_list *l = &t->list[BT_SCREEN_TERNARY];
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->mode % 2 || !isnan(t->view->layers.layer[t->rows[i]].value[BT_ML_ZERO]))
            t->rows[n++] = t->rows[i];
    t->n_rows = n;
    if (l->selected >= (int)n) l->selected = n ? (int)n - 1 : 0;
}

void bt_ternary_choose(bt_top *t) {
    const bt_list *l = &t->list[BT_SCREEN_TERNARY];
    if (t->n_rows == 0 || (size_t)l->selected >= t->n_rows ||
        t->rows[l->selected] >= t->view->layers.n)
        return;
    const bt_view_layer *x = &t->view->layers.layer[t->rows[l->selected]];
    if (t->tensor_layer == x->layer && strcmp(t->tensor, x->tensor) == 0) return;
    /* At first nothing is selected, and the first ternary tensor was loaded. */
    const bool first = !t->tensor[0] && l->selected == 0;
    t->tensor_layer = x->layer;
    snprintf(t->tensor, sizeof t->tensor, "%s", x->tensor);
    if (!first) t->reload = true;
}

/* Returns the rows of the distribution below the table, the rest of a high screen. */
static int distribution_rows(const bt_top *t, int h) {
    const int left = h - 4 - ((int)t->n_rows + 1), least = bt_distribution_least(t);
    /* a table of many tensors may be cut to half the screen */
    const int rows = left > h / 2 - 2 ? left : h / 2 - 2;
    if (least == 0 || rows < least || h < 30) return 0;
    return rows > BT_HIST_BINS + 2 ? BT_HIST_BINS + 2 : rows;
}

void bt_screen_ternary(bt_top *t, bt_rect r) {
    const bt_view_layers *y = &t->view->layers;
    bt_top_rows(t, y->n, ternary_row_text, ternary_row_number, true);
    keep_ternary_tensors(t);
    if (y->n == 0) {
        bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, bt_top_title(t, 0),
                       "ternary weights", "");
        bt_top_empty(t, r, "no ternary statistics yet (train.stats_every sets how often)");
        return;
    }
    bt_ternary_choose(t);
    draw_ternary_summary(t, r);
    if (t->expanded) {
        bt_distribution_draw(t, (bt_rect){r.x, r.y + 2, r.w, r.h - 2});
        return;
    }
    const int below = distribution_rows(t, r.h);
    if (below > 0) {
        bt_distribution_draw(t, (bt_rect){r.x, r.y + r.h - below, r.w, below});
        r.h -= below;
    }
    const bt_list_table table = {.cols = columns,
                                 .n_cols = C_COUNT,
                                 .cell = ternary_cell,
                                 .paint = paint_ternary_cell,
                                 .sort_col = -1};
    /* With enough room, the terms are explained below the table. */
    bool room = (int)t->n_rows + 3 < r.h - 2;
    bt_top_table(t, (bt_rect){r.x, r.y + 2, r.w, r.h - (room ? 4 : 2)}, table);
    if (!room) return;
    bt_canvas_text(
        &t->canvas, r.x + 1, r.y + r.h - 1, r.w - 2, (bt_style){.fg = BT_C_FAINT},
        r.w < 112
            ? "since the last sample: flips, sign flips, undone flips · near: near threshold"
            : "since the last sample: flips, sign flips, undone flips (as two samples ago) · near: "
              "latents within 0.05 scale of a threshold · update: relative to the weights");
}
