/* balance.h - how many micro-batches of a step each data-parallel rank takes.
 *
 *     even     equal numbers, or as equal as possible
 *     shares   as given (parallel.balance=3,1): for machines of known speed
 *     auto     by measured speed: every BT_BALANCE_EVERY steps all ranks exchange their smoothed time per
 *              micro-batch, compute the same plan, and adopt it if its gain is at least BT_BALANCE_GAIN
 *
 * Each rank takes one contiguous run of the step's micro-batches. So the samples of a step do not depend on the
 * plan, nor do the weights of gradients and losses, which are sums over the samples of the whole batch. Only the
 * order of summation changes: the last bits. Pure arithmetic, no communication. Threads: one owner. */
#ifndef BT_ENGINE_PARALLEL_BALANCE_H
#define BT_ENGINE_PARALLEL_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

/* EVERY: steps between plans; SETTLE: unmeasured steps after a start or a new plan */
enum { BT_BALANCE_EVERY = 8, BT_BALANCE_SETTLE = 2 };
#define BT_BALANCE_GAIN 0.05  /* a new plan must shorten the step by this share */
#define BT_BALANCE_MEMORY 0.7 /* weight of the past in a rank's smoothed time */

typedef enum { BT_BALANCE_EVEN, BT_BALANCE_SHARES, BT_BALANCE_AUTO } bt_balance_kind;

/* Parses a setting into its kind; shares (may be NULL) gets n relative shares. BT_ARG: err describes the fault in
 * the text. */
bt_code bt_balance_parse(const char *text, bt_balance_kind *kind, int64_t *shares, size_t n,
                         bt_err *err) BT_MUST_CHECK;

/* Divides `total` as evenly as possible over n ranks, at least one for each; n <= total */
void bt_balance_even(int64_t *count, size_t n, int64_t total);
/* Distributes `total` units over n ranks so that the slowest rank takes the least possible time. cost[i]: seconds per
 * unit on rank i (> 0, finite). count[i] receives the number of units of rank i. */
void bt_balance_plan(int64_t *count, const double *cost, size_t n, int64_t total);
/* Returns the time of the slowest rank. */
double bt_balance_time(const int64_t *count, const double *cost, size_t n);
/* true if the gain of `next` over `now` is large enough */
bool bt_balance_worth(const int64_t *now, const int64_t *next, const double *cost, size_t n);

typedef struct bt_balance_meter { /* one rank's time per micro-batch */
    double smoothed;              /* seconds; 0: none yet */
    int64_t seen;                 /* number of steps since the last change of the plan */
} bt_balance_meter;

void bt_balance_saw(bt_balance_meter *m, double seconds_per_micro);
/* Announces a new plan: keeps the measurements, but excludes the next steps. */
void bt_balance_changed(bt_balance_meter *m);
/* Returns the same value on all ranks, because it depends only on the number of steps. */
bool bt_balance_due(const bt_balance_meter *m);

#endif
