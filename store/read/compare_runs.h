/* compare_runs.h - two runs side by side: a metric at matched progress with its noise, the first
 * step that differs, a gate.
 *
 * Value at x: mean of the newest `window` recorded values at or before x; noise: standard error of
 *             that mean around the
 * window's linear trend (a falling loss is not noise). With fewer than 4 values the noise is
 * unknown (NaN). */
#ifndef BT_STORE_READ_COMPARE_RUNS_H
#define BT_STORE_READ_COMPARE_RUNS_H

#include "store/store.h"

typedef enum { BT_AT_TOKENS, BT_AT_STEP, BT_AT_TIME } bt_at_axis;
/* x NaN: last point that both runs reached */
typedef struct bt_at {
    bt_at_axis axis;
    double x;
} bt_at;

/* x: position of the newest value used */
typedef struct bt_level {
    double value, noise, x;
    int n;
} bt_level;

/* metric: a column of `steps`, or else of `runs`, for which `at` and `window` are ignored. */
bt_code bt_db_level(bt_db *db, const char *run, const char *metric, const bt_at *at, int window,
                    bt_level *out, bt_err *err) BT_MUST_CHECK;
/* Returns the end of the shorter run on this axis. */
bt_code bt_db_common_end(bt_db *db, const char *const *runs, size_t n, bt_at_axis axis, double *out,
                         bt_err *err) BT_MUST_CHECK;

typedef struct bt_first_difference {
    /* common: number of steps with a recorded loss in both runs; step: first step whose losses differ in any bit, or
     * that only one run recorded; -1: none */
    int64_t common, step;
    double a, b; /* losses at that step */
} bt_first_difference;
bt_code bt_db_first_difference(bt_db *db, const char *a, const char *b, bt_first_difference *out,
                               bt_err *err) BT_MUST_CHECK;

/* Condition that makes a comparison fail: "loss > +0.5% @ tokens=2M", "tokens_per_s < -5%", "best_val > 2.3". */
typedef struct bt_gate {
    char metric[64];
    bool greater, relative, percent; /* relative: the limit is a difference from the base run */
    double limit;                    /* percentage as entered: 0.5 for "+0.5%" */
    bt_at at;
} bt_gate;
bt_code bt_gate_parse(const char *text, bt_gate *out, bt_err *err) BT_MUST_CHECK;

typedef enum { BT_GATE_HOLDS, BT_GATE_NOISE, BT_GATE_FAILS } bt_gate_result;
/* NOISE: beyond the limit, but the difference to the base is less than twice its noise. base may be
 *        NULL for absolute limits. */
bt_gate_result bt_gate_check(const bt_gate *g, const bt_level *run, const bt_level *base);

#endif
