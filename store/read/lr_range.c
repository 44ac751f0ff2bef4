/* lr_range.c - evaluates a range test, and reads its steps from the database. */
#include "store/read/lr_range.h"
#include "engine/base/system/json_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct window {
    size_t from, to; /* `to`: one past the last */
} window;

static window window_around(const bt_lr_range *r, size_t i) {
    const size_t half = r->n / 40 > 2 ? r->n / 40 : 2;
    return (window){i > half ? i - half : 0, i + half + 1 < r->n ? i + half + 1 : r->n};
}

static double window_mean(const bt_lr_range *r, window w) {
    double sum = 0;
    for (size_t i = w.from; i < w.to; i++) sum += r->loss[i];
    return sum / (double)(w.to - w.from);
}

/* slope of the least-squares line through loss over ln(rate) */
static double window_slope(const bt_lr_range *r, window w) {
    const double n = (double)(w.to - w.from), y0 = window_mean(r, w);
    double x0 = 0, xy = 0, xx = 0;
    for (size_t i = w.from; i < w.to; i++) x0 += log(r->lr[i]) / n;
    for (size_t i = w.from; i < w.to; i++) {
        const double x = log(r->lr[i]) - x0;
        xy += x * (r->loss[i] - y0);
        xx += x * x;
    }
    return xx > 0 ? xy / xx : 0;
}

static void drop_after_nonfinite(bt_lr_range *r) {
    for (size_t i = 0; i < r->n; i++) {
        if (isfinite(r->loss[i]) && r->lr[i] > 0) continue;
        r->diverged = r->lr[i];
        r->n = i;
    }
}

static size_t smooth_and_find_least(bt_lr_range *r) {
    size_t least = 0;
    for (size_t i = 0; i < r->n; i++) {
        r->smooth[i] = window_mean(r, window_around(r, i));
        if (r->smooth[i] < r->smooth[least]) least = i;
    }
    return least;
}

void bt_lr_range_evaluate(bt_lr_range *r) {
    r->suggested = r->steepest = r->least = r->diverged = r->top = NAN;
    r->step = -1;
    r->nothing = NULL;
    drop_after_nonfinite(r);
    if (r->n < BT_LR_RANGE_LEAST) {
        r->nothing = "too few steps have a loss";
        return;
    }
    const size_t least = smooth_and_find_least(r);
    const double lost_half = r->smooth[least] + 0.5 * (r->smooth[0] - r->smooth[least]);
    size_t steepest = 0;
    double descent = 0;
    if (least == 0) { /* no loss is below the first */
        r->nothing = "the loss falls at no rate of the range: begin lower";
        return;
    }
    for (size_t i = 0; i <= least; i++) {
        const double s = window_slope(r, window_around(r, i));
        if (s < descent) descent = s, steepest = i;
    }
    r->top = r->smooth[0] + 0.3 * (r->smooth[0] - r->smooth[least]);
    r->least = r->lr[least];
    r->steepest = r->lr[steepest];
    for (size_t i = least; i < r->n; i++) {
        if (r->smooth[i] < lost_half) continue;
        r->diverged = r->lr[i];
        break;
    }
    const double most = (isnan(r->diverged) ? r->least : r->diverged) / 10;
    r->suggested = fmin(r->steepest, most);
    if (r->suggested < r->lr[0]) {
        r->nothing = "a tenth of where the loss diverges is below the range: begin lower";
        r->suggested = NAN;
        return;
    }
    r->step = 0;
    while ((size_t)r->step + 1 < r->n && r->lr[r->step] < r->suggested) r->step++;
}

static bool add_range_step(void *ctx, const bt_row *row) {
    bt_lr_range *r = ctx;
    const double lr = row->nums[0];
    /* A step whose rate does not rise is a repeated one. */
    if (isnan(lr) || (r->n && !(lr > r->lr[r->n - 1]))) return true;
    r->lr[r->n] = lr;
    r->loss[r->n++] = row->nums[1];
    return r->n < BT_LR_RANGE_MOST;
}

bt_code bt_db_lr_range(bt_db *db, const char *run, bool *is, bt_lr_range *out, bt_err *err) {
    double range = 0;
    out->n = 0;
    BT_TRY(bt_db_value(db,
                       "SELECT count(*) FROM configs WHERE run = ?1 AND key = 'optim.schedule' AND "
                       "value = 'range'",
                       run, &range, err));
    *is = range > 0;
    if (*is)
        BT_TRY(bt_db_query(db,
                           &(bt_query){.sql = "SELECT lr, loss FROM steps WHERE run = ?1 ORDER "
                                              "BY step",
                                       .params = &run,
                                       .n_params = 1,
                                       .max_rows = BT_LR_RANGE_MOST,
                                       .max_s = 5},
                           add_range_step, out, err));
    bt_lr_range_evaluate(out);
    return BT_OK;
}

void bt_lr_range_json(const bt_lr_range *r, bt_json *j) {
    const struct {
        const char *key;
        const double *values;
    } lists[] = {{"lr", r->lr}, {"loss", r->loss}, {"smooth", r->smooth}};
    BT_JSON_FIELDS(j, r, F(suggested), F(steepest), F(least), F(diverged), F(top), F(step),
                   F(nothing));
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        bt_json_array(j, lists[k].key);
        for (size_t i = 0; i < r->n; i++) bt_json_rounded(j, NULL, lists[k].values[i], 6);
        bt_json_end(j, ']');
    }
}
