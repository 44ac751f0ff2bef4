/* view_shape.c - what a figure shows by default: the range of a chart, its smoothing, the scale of
 * a heat map. One definition for all views. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "store/view/view_impl.h"

/* ---- charts ---------------------------------------------------------------------------------- */

double bt_view_keep(double share, double steps) {
    double window = share * steps;
    return window >= 2 ? exp(-1 / window) : 0;
}

double bt_view_steps_shown(const bt_view_series *s) {
    return s->n ? (double)(s->step[s->n - 1] - s->step[0]) + (double)s->count[0] : 0;
}

typedef struct weighed {
    double value, weight;
} weighed;

static int by_value(const void *a, const void *b) {
    double x = ((const weighed *)a)->value, y = ((const weighed *)b)->value;
    return (x > y) - (x < y);
}

/* of sorted values, each of which stands for `weight` steps */
static double quantile_of(const weighed *w, size_t n, double total, double q) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += w[i].weight;
        if (sum >= q * total) return w[i].value;
    }
    return w[n - 1].value;
}

/* known values with their weights, sorted; returns how many */
static size_t weigh(const bt_view_series *s, const double *values, weighed *w, double *total) {
    size_t n = 0;
    *total = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!isfinite(values[i])) continue;
        double weight = s->count[i] > 0 ? (double)s->count[i] : 1;
        w[n++] = (weighed){values[i], weight};
        *total += weight;
    }
    qsort(w, n, sizeof *w, by_value);
    return n;
}

void bt_view_usual_range(const bt_view_series *s, double *low, double *high) {
    double total, newest = NAN;
    weighed *w = s->n ? malloc(s->n * sizeof *w) : NULL;
    *low = *high = NAN;
    if (!w) return;
    size_t n = weigh(s, s->min, w, &total);
    if (n > 0) {
        double q1 = quantile_of(w, n, total, 0.25), q3 = quantile_of(w, n, total, 0.75);
        *low = fmax(w[0].value, fmin(quantile_of(w, n, total, 0.05), q1 - 3 * (q3 - q1)));
        n = weigh(s, s->max, w, &total);
        q1 = quantile_of(w, n, total, 0.25);
        q3 = quantile_of(w, n, total, 0.75);
        *high = fmin(w[n - 1].value, fmax(quantile_of(w, n, total, 0.95), q3 + 3 * (q3 - q1)));
        for (size_t i = 0; i < s->n; i++)
            if (isfinite(s->last[i])) newest = s->last[i];
        if (newest < *low) *low = newest;
        if (newest > *high) *high = newest;
    }
    free(w);
}

/* ---- heat maps ------------------------------------------------------------------------------- */

/* the largest mean of a row: a rank that is slow all the time is no outlier of its own */
static double top_row(const bt_view_heat *h) {
    double top = -INFINITY;
    for (size_t k = 0; k < h->rows; k++) {
        double sum = 0, n = 0;
        for (size_t i = 0; i < h->cols; i++)
            if (!isnan(h->cell[k * h->cols + i])) sum += h->cell[k * h->cols + i], n++;
        if (n > 0) top = fmax(top, sum / n);
    }
    return top;
}

bt_code bt_view_heat_scale(bt_view *v, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_view_heat *h = &v->heat;
    size_t n = 0, cells = h->rows * h->cols;
    h->low = h->high = NAN;
    if (cells == 0) return BT_OK;
    BT_TRY(BT_GROW(m->work, m->cap_work, cells, err));
    for (size_t i = 0; i < cells; i++)
        if (isfinite(h->cell[i])) m->work[n++] = h->cell[i];
    if (n == 0) return BT_OK;
    qsort(m->work, n, sizeof *m->work, bt_compare_doubles);
    const bool ratio = h->against || h->value == BT_HEAT_BUSY;
    const double middle = ratio ? 1 : m->work[n / 2];
    h->low = m->work[n / 50];
    h->high = fmax(m->work[n - 1 - n / 50], top_row(h));
    h->low = fmin(h->low, middle / BT_HEAT_EVEN);
    h->high = fmax(h->high, middle * BT_HEAT_EVEN);
    if (h->against) { /* a scale with a middle, and round ends */
        const double span = m->work[n - 1 - n / 50] - 1, below = 1 - m->work[n / 50];
        double most = fmax(span, below);
        most = most > 0.5 ? 1 : most > BT_HEAT_EVEN - 1 ? 0.5 : BT_HEAT_EVEN - 1;
        h->low = 1 - most;
        h->high = 1 + most;
    }
    if (!(h->high > h->low)) h->high = h->low + 1;
    return BT_OK;
}
