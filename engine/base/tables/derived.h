/* derived.h - metrics computed from others, as defined by derived.def. All users share these definitions: the
 * engine, the view model, SQL (store/sql/expand.h) and through them every screen, page and command.
 *
 *     double bt_derived_overlap(double exposed, double inflight);        one function a row
 *
 * Unknown is NaN. Any thread. */
#ifndef BT_ENGINE_BASE_TABLES_DERIVED_H
#define BT_ENGINE_BASE_TABLES_DERIVED_H

#include <math.h>
#include <stddef.h>

/* Operators as in SQL: max and min are unknown if an operand is unknown; ifnull replaces an unknown first operand. */
static inline double bt_known_max(double a, double b) {
    return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}
static inline double bt_known_min(double a, double b) {
    return isnan(a) || isnan(b) ? NAN : fmin(a, b);
}
static inline double bt_known_or(double a, double b) { return isnan(a) ? b : a; }

#define BT_OF2(a, b) double a, double b
#define BT_OF3(a, b, c) double a, double b, double c
#define max bt_known_max
#define min bt_known_min
#define ifnull bt_known_or
#define BT_DERIVED(id, name, of, known, formula, help) \
    static inline double bt_derived_##name(of) { return (known) ? (formula) : (double)NAN; }
#include "engine/base/tables/derived.def"
#undef BT_DERIVED
#undef BT_OF2
#undef BT_OF3
#undef max
#undef min
#undef ifnull

enum { BT_DERIVED_ARGS = 3 };
typedef struct bt_derived_row {
    const char *name, *arg[BT_DERIVED_ARGS]; /* "overlap", "exposed", "inflight" */
    const char *known, *formula;             /* known "1": always known */
    const char *help;
} bt_derived_row;
extern const bt_derived_row bt_derived[];
extern const size_t bt_derived_n;

/* A figure of the newest steps (span RECENT of figures.def) covers this number of recorded steps. */
#define BT_RECENT_STEPS 128
/* A validation loss is compared with the mean of the training losses in this number of steps before the evaluation. */
#define BT_GAP_STEPS 64
/* Returns the median of the known values among n; NaN: none is known. Reorders v. */
double bt_median_known(double *v, size_t n);
/* Returns the mean of a share over several steps, weighted by step time, without unknown values; NaN: none is known. */
double bt_share_of_time(const double *share, const double *time, size_t n);

#endif
