/* pairs.c - traffic by sender and receiver: a matrix rank x rank, as numbers if they fit, else
 * as a heat map. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/tables/derived.h"
#include "monitor/tui/screens/screens.h"

enum { LABEL_W = 9, NUMBER_W = 8 };

static double pair_value(const bt_view_pair *p, bool bytes) {
    return bytes ? p->bytes : p->flight_ms;
}

/* The scale ends at no less than twice its beginning, so that similar values look alike. */
static void pair_scale(const bt_view_comm *c, bool bytes, double *lo, double *hi) {
    *lo = INFINITY;
    *hi = 0;
    for (size_t i = 0; i < c->n_pairs; i++) {
        double v = pair_value(&c->pair[i], bytes);
        if (isnan(v)) continue;
        *lo = fmin(*lo, v);
        *hi = fmax(*hi, v);
    }
    if (isinf(*lo)) *lo = 0;
    *hi = fmax(*hi, 2 * *lo);
}

static void draw_value(bt_top *t, bt_rect cell, double v, double frac, bool bytes) {
    char b[32];
    bt_canvas *c = &t->canvas;
    /* the darkest colours are unreadable as text */
    bt_style s = {.fg = bt_color_heat(cell.w > NUMBER_W ? 0.3 + 0.7 * frac : frac)};
    if (isnan(v)) {
        bt_canvas_put(c, cell.x + cell.w - 2, cell.y, 0xB7, (bt_style){.fg = BT_C_FAINT});
    } else if (cell.w > NUMBER_W) {
        bt_fmt(b, sizeof b, bytes ? floor(v) : v, bytes ? BT_UNIT_BYTES : BT_UNIT_MS);
        bt_canvas_text_right(c, cell.x + cell.w - 1, cell.y, cell.w - 1, s, b);
    } else {
        int level = (int)(frac * 8);
        for (int x = cell.x; x < cell.x + cell.w - (cell.w > 2); x++)
            bt_canvas_put(c, x, cell.y,
                          0x2581U + (uint32_t)(level > 7   ? 7
                                               : level < 0 ? 0
                                                           : level),
                          s);
    }
}

/* median of the messages from one rank (peer >= 0), or from all other ranks (-1 - peer) */
static double median_flight_ms(const bt_view_comm *c, int peer, double *work) {
    size_t n = 0;
    for (size_t i = 0; i < c->n_pairs; i++) {
        bool wanted = peer >= 0 ? c->pair[i].peer == peer : c->pair[i].peer != -1 - peer;
        if (wanted) work[n++] = c->pair[i].flight_ms;
    }
    return bt_median_known(work, n);
}

/* Finds a rank whose messages all take long, because of its link or because it has no processor to send them. */
static void slowest_sender(bt_top *t, bt_rect row) {
    const bt_view_comm *c = &t->view->comm;
    double *work = malloc((c->n_pairs + 1) * sizeof *work), most = 0, others = 0;
    char a[32], b[32];
    int slow = -1;
    for (int p = 0; work && p < c->pair_ranks && c->pair_ranks > 2; p++) {
        double own = median_flight_ms(c, p, work), rest = median_flight_ms(c, -1 - p, work);
        if (own > 1.5 * rest && own > most) slow = p, most = own, others = rest;
    }
    free(work);
    if (slow < 0) return;
    bt_fmt(a, sizeof a, most, BT_UNIT_MS);
    bt_canvas_textf(&t->canvas, row.x, row.y, row.w, (bt_style){.fg = BT_C_WARN},
                    "messages from rank %d take %s, those of other ranks %s", slow, a,
                    bt_fmt(b, sizeof b, others, BT_UNIT_MS));
}

int bt_pairs_height(const bt_top *t) {
    return t->view->comm.n_pairs ? t->view->comm.pair_ranks + 3 : 0;
}

void bt_pairs_draw(bt_top *t, bt_rect r, bt_style title) {
    const bt_view_comm *c = &t->view->comm;
    bool bytes = t->mode % 2;
    char right[120], a[32], b[32];
    double lo, hi;
    pair_scale(c, bytes, &lo, &hi);
    bt_fmt_int(a, sizeof a, c->pair0 + 1);
    bt_fmt_int(b, sizeof b, c->pair1 + 1);
    if (c->n_pairs > 0)
        snprintf(right, sizeof right,
                 r.w >= 100 ? "%s · steps %s to %s · t: %s" : "%s%.0s%.0s · t: %s",
                 bytes ? "bytes a step" : "latency of a gradient message", a, b,
                 bytes ? "time" : "bytes");
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, title,
                   r.w >= 60 ? "traffic by sender and receiver" : "pairs", c->n_pairs ? right : "");
    if (c->n_pairs == 0) {
        bt_top_empty(t, (bt_rect){r.x, r.y + 1, r.w, r.h - 1},
                     "no rank exchanges directly with another, or there are too many");
        return;
    }
    int n = c->pair_ranks, w = (r.w - LABEL_W) / n, rows = r.h - 3 < n ? r.h - 3 : n;
    w = w > 12 ? 12 : w < 1 ? 1 : w;
    bt_canvas_text_right(&t->canvas, r.x + LABEL_W - 1, r.y + 1, LABEL_W,
                         (bt_style){.fg = BT_C_LABEL}, "from");
    for (int p = 0; p < n; p++) {
        char label[16];
        snprintf(label, sizeof label, "%d", p);
        if (w > 2 || p % 2 == 0)
            bt_canvas_text_right(&t->canvas, r.x + LABEL_W + (p + 1) * w - (w > 1), r.y + 1, 2 * w,
                                 (bt_style){.fg = BT_C_LABEL}, label);
    }
    bt_rect old = bt_canvas_clip(&t->canvas, r);
    for (int k = 0; k < rows; k++) {
        char label[24];
        snprintf(label, sizeof label, "to %d", k);
        bt_canvas_text_right(&t->canvas, r.x + LABEL_W - 1, r.y + 2 + k, LABEL_W,
                             (bt_style){.fg = BT_C_LABEL}, label);
        draw_value(t, (bt_rect){r.x + LABEL_W + k * w, r.y + 2 + k, w, 1}, NAN, 0, bytes);
    }
    for (size_t i = 0; i < c->n_pairs; i++) {
        const bt_view_pair *p = &c->pair[i];
        double v = pair_value(p, bytes);
        if (p->rank < rows)
            draw_value(t, (bt_rect){r.x + LABEL_W + p->peer * w, r.y + 2 + p->rank, w, 1}, v,
                       hi > lo ? (v - lo) / (hi - lo) : 0, bytes);
    }
    bt_canvas_unclip(&t->canvas, old);
    slowest_sender(t, (bt_rect){r.x, r.y + 2 + rows, r.w, 1});
}
