/* ramp.c - converts shares of a run to steps. */
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
