/* balance.h - how many micro-batches of a step each data-parallel rank takes.
 *
 *     even     equal numbers, or as equal as they can be
 *     shares   as given (parallel.balance=3,1): for machines whose speeds are known
 *     auto     by measured speed: every rank's time per micro-batch, smoothed, goes to all ranks
 *              every BT_BALANCE_EVERY steps; all make the same plan from the same numbers, and take
 *              it when it promises BT_BALANCE_GAIN
 * The step's micro-batches stay in order and each rank takes one run of them, so which samples a
 * step has never depends on the plan; gradients and losses are sums over the samples of the whole
 * batch, so their weights do not either. What changes is the order of the sum: the last bits. Pure
 * arithmetic, no communication. Threads: one owner. */
#ifndef BT_ENGINE_PARALLEL_BALANCE_H
#define BT_ENGINE_PARALLEL_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

/* steps between plans; after a start or a change that are not measured */
enum { BT_BALANCE_EVERY = 8, BT_BALANCE_SETTLE = 2 };
#define BT_BALANCE_GAIN 0.05  /* a new plan must shorten the step by this share */
#define BT_BALANCE_MEMORY 0.7 /* weight of the past in a rank's smoothed time */

typedef enum { BT_BALANCE_EVEN, BT_BALANCE_SHARES, BT_BALANCE_AUTO } bt_balance_kind;

/* the kind a setting asks for; shares (may be NULL) gets n relative shares. BT_ARG names what is
 * wrong with the text */
bt_code bt_balance_parse(const char *text, bt_balance_kind *kind, int64_t *shares, size_t n,
                         bt_err *err) BT_MUST_CHECK;

/* at least one for each, n <= total */
void bt_balance_even(int64_t *count, size_t n, int64_t total);
/* total units to n ranks, cost[i] seconds a unit on rank i (> 0, finite): the slowest rank's time
 * is the least possible */
void bt_balance_plan(int64_t *count, const double *cost, size_t n, int64_t total);
/* of the slowest rank */
double bt_balance_time(const int64_t *count, const double *cost, size_t n);
/* true when `next` is enough of a gain over `now` */
bool bt_balance_worth(const int64_t *now, const int64_t *next, const double *cost, size_t n);

typedef struct bt_balance_meter { /* one rank's time per micro-batch */
    double smoothed;              /* seconds; 0: none yet */
    int64_t seen;                 /* steps since the last change */
} bt_balance_meter;

void bt_balance_saw(bt_balance_meter *m, double seconds_per_micro);
/* what was measured stays; the next steps settle */
void bt_balance_changed(bt_balance_meter *m);
/* the same on all ranks: counts steps only */
bool bt_balance_due(const bt_balance_meter *m);

#endif
