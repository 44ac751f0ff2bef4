/* balance.c - assigns unit after unit to the rank that would finish it first. */
#include "engine/parallel/schedule/balance.h"

#include <stdlib.h>
#include <string.h>

enum { SHARE_MOST = 1000000 };

bt_code bt_balance_parse(const char *text, bt_balance_kind *kind, int64_t *shares, size_t n,
                         bt_err *err) {
    if (strcmp(text, "even") == 0 || strcmp(text, "auto") == 0) {
        *kind = text[0] == 'e' ? BT_BALANCE_EVEN : BT_BALANCE_AUTO;
        return BT_OK;
    }
    *kind = BT_BALANCE_SHARES;
    size_t found = 0;
    for (const char *p = text;; p++) {
        char *end;
        long long v = strtoll(p, &end, 10);
        if (end == p || *p < '0' || *p > '9' || v < 1 || v > SHARE_MOST ||
            (*end != ',' && *end != '\0')) {
            return bt_fail(err, BT_ARG,
                           "parallel.balance '%.64s' must be even, auto, or one share for each "
                           "data-parallel rank such as 3,1",
                           text);
        }
        if (found < n && shares) shares[found] = v;
        found++;
        p = end;
        if (*end == '\0') break;
    }
    if (found != n)
        return bt_fail(
            err, BT_ARG,
            "parallel.balance '%.64s' has %zu shares, but there %s %zu data-parallel rank%s", text,
            found, n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    return BT_OK;
}

void bt_balance_even(int64_t *count, size_t n, int64_t total) {
    for (size_t i = 0; i < n; i++)
        count[i] = total * (int64_t)(i + 1) / (int64_t)n - total * (int64_t)i / (int64_t)n;
}

/* Assigns one unit at a time to the rank that would finish it first; ties go to the lower rank. Greedy
 * is optimal here: a rank's time only grows with its count. */
void bt_balance_plan(int64_t *count, const double *cost, size_t n, int64_t total) {
    for (size_t i = 0; i < n; i++) count[i] = 1;
    for (int64_t left = total - (int64_t)n; left > 0; left--) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if ((double)(count[i] + 1) * cost[i] < (double)(count[best] + 1) * cost[best]) best = i;
        count[best]++;
    }
}

double bt_balance_time(const int64_t *count, const double *cost, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if ((double)count[i] * cost[i] > most) most = (double)count[i] * cost[i];
    return most;
}

bool bt_balance_worth(const int64_t *now, const int64_t *next, const double *cost, size_t n) {
    return bt_balance_time(next, cost, n) <= (1 - BT_BALANCE_GAIN) * bt_balance_time(now, cost, n);
}

void bt_balance_saw(bt_balance_meter *m, double s) {
    m->seen++;
    if (m->seen <= BT_BALANCE_SETTLE || !(s > 0)) return;
    m->smoothed = m->smoothed > 0 ? BT_BALANCE_MEMORY * m->smoothed + (1 - BT_BALANCE_MEMORY) * s
                                  : s;
}

void bt_balance_changed(bt_balance_meter *m) { m->seen = 0; }

bool bt_balance_due(const bt_balance_meter *m) {
    return m->seen > BT_BALANCE_SETTLE && m->seen % BT_BALANCE_EVERY == 0;
}
