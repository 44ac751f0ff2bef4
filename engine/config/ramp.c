/* ramp.c - converts shares of a run to steps. */
#include "engine/config/ramp.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
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
                           "%s '%s' is not a list of ascending shares of the run between 0 and 1, "
                           "such as 0.1,0.3",
                           key, text);
        if (out->n == BT_RAMP_MOST)
            return bt_fail(
                err, BT_ARG,
                "%s '%s' has more than %d values, so that the length would double too often", key,
                text, BT_RAMP_MOST);
        out->at[out->n++] = (int64_t)llround(share * (double)steps);
        before = share;
        at = *end ? end + 1 : end;
    }
    return BT_OK;
}

bt_code bt_ramp_check(const char *key, const char *text, int64_t steps, int64_t seq_len,
                      bt_err *err) {
    bt_ramp r;
    char below[32] = "";
    BT_TRY(bt_ramp_read(&r, key, text, steps, err));
    const int64_t parts = (int64_t)1 << r.n, least = seq_len / parts * parts;
    if (seq_len % parts == 0) return BT_OK;
    if (least) snprintf(below, sizeof below, "%" PRId64 " or ", least);
    return bt_fail(err, BT_ARG,
                   "%s '%s' begins with 1/%" PRId64 " of model.seq_len %" PRId64
                   ", which is not whole tokens (use --seq-len %s%" PRId64 ", or fewer doublings)",
                   key, text, parts, seq_len, below, least + parts);
}

int64_t bt_ramp_first(const char *text, int64_t steps) {
    bt_ramp r;
    bt_err ignored = BT_ERR_INIT;
    return bt_ramp_read(&r, "", text, steps, &ignored) == BT_OK && r.n > 0 ? r.at[0] : -1;
}

int bt_ramp_halvings(const bt_ramp *r, int64_t step) {
    int left = r->n;
    while (left > 0 && step >= r->at[r->n - left]) left--;
    return left;
}
