/* ramp.c - shares of a run to steps, and sums over the steps before one. */
#include "engine/config/ramp.h"

#include <math.h>
#include <stdlib.h>

bt_code bt_ramp_read(bt_ramp *out, const char *key, const char *text, int64_t steps, bt_err *err) {
    double before = 0;
    *out = (bt_ramp){0};
    for (const char *at = text; *at;) {
        char *end;
        const double share = strtod(at, &end);
        if (end == at || (*end && *end != ',') || (*end == ',' && !end[1]) || !(share > before) ||
            share >= 1)
            return bt_fail(err, BT_ARG,
                           "%s '%s' is not ascending shares of the run between 0 and 1, such as "
                           "0.1,0.3",
                           key, text);
        if (out->n == BT_RAMP_MOST)
            return bt_fail(err, BT_ARG, "%s '%s' doubles more than %d times", key, text,
                           BT_RAMP_MOST);
        out->at[out->n++] = (int64_t)llround(share * (double)steps);
        before = share;
        at = *end ? end + 1 : end;
    }
    return BT_OK;
}

int bt_ramp_halvings(const bt_ramp *r, int64_t step) {
    int left = r->n;
    while (left > 0 && step >= r->at[r->n - left]) left--;
    return left;
}

int64_t bt_ramp_sum(const bt_ramp *r, int64_t whole, int64_t step) {
    int64_t sum = 0, from = 0;
    for (int i = 0; i <= r->n; i++) {
        const int64_t to = i < r->n && r->at[i] < step ? r->at[i] : step;
        sum += (to - from) * (whole >> (r->n - i));
        from = to;
    }
    return sum;
}

int64_t bt_ramp_origin(const bt_ramp *r, int64_t whole, int64_t step) {
    return bt_ramp_sum(r, whole, step) - step * (whole >> bt_ramp_halvings(r, step));
}

bt_code bt_ramp_steps(int64_t *out, const char *key, const char *text, int64_t whole, int64_t sum,
                      int64_t of, bt_err *err) {
    bt_ramp r;
    int64_t few = 0, enough = (sum + whole - 1) / whole;
    BT_TRY(bt_ramp_read(&r, key, text, of ? of : enough, err));
    while (bt_ramp_sum(&r, whole, enough) < sum) {
        few = enough;
        enough *= 2;
        BT_TRY(bt_ramp_read(&r, key, text, of ? of : enough, err));
    }
    while (enough - few > 1) {
        const int64_t middle = few + (enough - few) / 2;
        BT_TRY(bt_ramp_read(&r, key, text, of ? of : middle, err));
        if (bt_ramp_sum(&r, whole, middle) < sum)
            few = middle;
        else
            enough = middle;
    }
    *out = enough;
    return BT_OK;
}
