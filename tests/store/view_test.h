/* view_test.h - helpers for tests of the view model: opening a view, requesting all parts, a run with a known slow
 * rank. */
#ifndef BT_TESTS_VIEW_TEST_H
#define BT_TESTS_VIEW_TEST_H

#include "store/view/view.h"
#include "store/view/view_impl.h"
#include "store_test.h"
#include "synth_run.h"

static inline void near(double got, double want, double tolerance, const char *what) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %.12g instead of %.12g", what, got, want);
}
#define NEAR(got, want) near(got, want, 1e-6, #got)

static inline bt_view *open_view(const char *path, bt_db **db) {
    bt_view *v = NULL;
    OK(bt_db_open(db, path, err));
    OK(bt_view_open(&v, *db, err));
    return v;
}

static inline bt_view_request ask_all(const char *run) {
    bt_view_request a;
    bt_view_request_init(&a);
    a.run = run;
    a.parts = BT_VIEW_ALL;
    a.n_series = 3;
    a.series[0] = (bt_series_request){.rank = -1, .metric = BT_MS_LOSS};
    a.series[1] = (bt_series_request){.rank = -1, .metric = BT_MS_VAL_LOSS};
    a.series[2] = (bt_series_request){.rank = 2, .metric = BT_MR_WAIT};
    return a;
}

/* Eight ranks, of which rank 5 loads data 20 % longer (2 of 10 ms); a failure after 120 steps, 20 repeated steps, 5 s
 * of downtime. */
static inline bt_synth slow_five(void) {
    bt_synth s = bt_synth_default("s");
    s.ranks = 8;
    s.straggler = 5;
    s.excess = 0.2;
    s.fail_at = 120;
    s.resume_from = 100;
    s.down_s = 5;
    return s;
}

#endif
