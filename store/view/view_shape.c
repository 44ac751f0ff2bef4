/* view_shape.c - defaults of charts, shared by all views: y range, smoothing, colour scale of a heat map. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "store/view/view_impl.h"

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

static int compare_weighted_values(const void *a, const void *b) {
    double x = ((const weighed *)a)->value, y = ((const weighed *)b)->value;
    return (x > y) - (x < y);
}

/* Quantile of sorted values, each weighted by its number of steps. */
static double weighted_quantile(const weighed *w, size_t n, double total, double q) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += w[i].weight;
        if (sum >= q * total) return w[i].value;
    }
    return w[n - 1].value;
}

/* Sorts the known values with their weights; returns their number. */
static size_t sort_weighted_values(const bt_view_series *s, const double *values, weighed *w,
                                   double *total) {
    size_t n = 0;
    *total = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!isfinite(values[i])) continue;
        double weight = s->count[i] > 0 ? (double)s->count[i] : 1;
        w[n++] = (weighed){values[i], weight};
        *total += weight;
    }
    qsort(w, n, sizeof *w, compare_weighted_values);
    return n;
}

/* A value beyond this multiple of the quartiles is of another order of magnitude and does not affect the range. */
static const double OTHER_ORDER = 20;

/* Returns `bound` if the quantile beyond it is of another order of magnitude, otherwise the farther of both. */
static double limit_range_end(double quantile, double bound, double q1, double q3) {
    const double size = fmax(fabs(q1), fabs(q3));
    if (size > 0 && fabs(quantile - bound) > OTHER_ORDER * size) return bound;
    return bound > q3 ? fmax(quantile, bound) : bound < q1 ? fmin(quantile, bound) : quantile;
}

void bt_view_usual_range(const bt_view_series *s, double *low, double *high) {
    double total;
    weighed *w = s->n ? malloc(s->n * sizeof *w) : NULL;
    *low = *high = NAN;
    if (!w) return;
    size_t n = sort_weighted_values(s, s->min, w, &total);
    if (n > 0) {
        double q1 = weighted_quantile(w, n, total, 0.25), q3 = weighted_quantile(w, n, total, 0.75);
        *low = fmax(w[0].value, limit_range_end(weighted_quantile(w, n, total, 0.05),
                                                q1 - 3 * (q3 - q1), q1, q3));
        n = sort_weighted_values(s, s->max, w, &total);
        q1 = weighted_quantile(w, n, total, 0.25);
        q3 = weighted_quantile(w, n, total, 0.75);
        *high = fmin(w[n - 1].value, limit_range_end(weighted_quantile(w, n, total, 0.95),
                                                     q3 + 3 * (q3 - q1), q1, q3));
    }
    free(w);
}

void bt_view_join_ranges(const double (*range)[2], size_t n, double *low, double *high) {
    size_t narrow = n;
    *low = *high = NAN;
    /* The reference is the line with the lower median of the widths. */
    for (size_t i = 0; i < n; i++) {
        size_t narrower = 0, known = 0;
        if (isnan(range[i][0]) || isnan(range[i][1])) continue;
        const double width = range[i][1] - range[i][0];
        for (size_t k = 0; k < n; k++) {
            if (isnan(range[k][0]) || isnan(range[k][1])) continue;
            const double other = range[k][1] - range[k][0];
            known++;
            narrower += other < width || (k < i && !(other > width));
        }
        if (narrower == (known - 1) / 2) narrow = i;
    }
    if (narrow == n) return;
    const double *of = range[narrow], room = OTHER_ORDER * fmax(fabs(of[0]), fabs(of[1]));
    *low = of[0];
    *high = of[1];
    for (size_t i = 0; i < n; i++) {
        const double from = range[i][0], to = range[i][1];
        if (isnan(from) || isnan(to)) continue;
        if (!(room > 0) || from >= of[0] - room) *low = fmin(*low, from);
        if (!(room > 0) || to <= of[1] + room) *high = fmax(*high, to);
    }
}

enum { BAND_ROWS = 16 };

/* Limits the value to the range around bucket i: of its rows, or of its neighbours' if it has fewer than BAND_ROWS. */
static double limit_to_band(const bt_view_series *s, size_t i, double value) {
    double low = s->min[i], high = s->max[i];
    int64_t rows = s->count[i] > 0 ? s->count[i] : 1;
    for (size_t d = 1; rows < BAND_ROWS && (d <= i || i + d < s->n); d++)
        for (int side = 0; side < 2; side++) {
            if (side == 0 ? d > i : i + d >= s->n) continue;
            const size_t k = side == 0 ? i - d : i + d;
            if (isnan(s->min[k])) continue;
            low = fmin(low, s->min[k]);
            high = fmax(high, s->max[k]);
            rows += s->count[k] > 0 ? s->count[k] : 1;
        }
    return fmin(fmax(value, low), high);
}

/* number of steps of bucket i, since the previous bucket */
static double bucket_steps(const bt_view_series *s, size_t i) {
    if (i > 0) return (double)(s->step[i] - s->step[i - 1]);
    return s->count[0] > 0 ? (double)s->count[0] : 1;
}

void bt_view_smooth(const bt_view_series *s, double keep, double *out) {
    double *later = s->n ? malloc(2 * s->n * sizeof *later) : NULL, sum = 0, weight = 0;
    if (!later) {
        for (size_t i = 0; i < s->n; i++) out[i] = s->mean[i];
        return;
    }
    /* Adds the contribution of the buckets after each bucket, then of those before it. */
    for (size_t i = s->n; i-- > 0;) {
        const double k = pow(keep, bucket_steps(s, i));
        later[2 * i] = sum;
        later[2 * i + 1] = weight;
        sum *= k;
        weight *= k;
        if (isnan(s->mean[i])) continue;
        sum += (1 - k) * s->mean[i];
        weight += 1 - k;
    }
    sum = weight = 0;
    for (size_t i = 0; i < s->n; i++) {
        const double k = pow(keep, bucket_steps(s, i)), half = sqrt(k);
        out[i] = NAN;
        if (!isnan(s->mean[i])) {
            const double own = 2 * (1 - half);
            out[i] = limit_to_band(s, i,
                                   (half * (sum + later[2 * i]) + own * s->mean[i]) /
                                       (half * (weight + later[2 * i + 1]) + own));
        }
        sum *= k;
        weight *= k;
        if (isnan(s->mean[i])) continue;
        sum += (1 - k) * s->mean[i];
        weight += 1 - k;
    }
    free(later);
}

/* Returns the largest mean of a row, because a rank that is always slow is not an outlier of its own row. */
static double largest_row_mean(const bt_view_heat *h) {
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
    h->high = fmax(m->work[n - 1 - n / 50], largest_row_mean(h));
    h->low = fmin(h->low, middle / BT_HEAT_EVEN);
    h->high = fmax(h->high, middle * BT_HEAT_EVEN);
    if (h->against) { /* a scale around 1 with round ends */
        const double span = m->work[n - 1 - n / 50] - 1, below = 1 - m->work[n / 50];
        double most = fmax(span, below);
        most = most > 0.5 ? 1 : most > BT_HEAT_EVEN - 1 ? 0.5 : BT_HEAT_EVEN - 1;
        h->low = 1 - most;
        h->high = 1 + most;
    }
    if (!(h->high > h->low)) h->high = h->low + 1;
    return BT_OK;
}
