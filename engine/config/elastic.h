/* elastic.h - the layout of a run on another number of ranks than it began with.
 *
 * The global batch, the schedule, the data order and (with train.reproducible) the bits do not depend
 * on the layout, and a checkpoint is read by every layout: a run may go on with whatever is alive. What
 * a layout may be is bt_run_cfg_resolve's word alone; here is only what is tried, and in which order:
 *   1. tensor- and pipeline-parallel sizes as the run was started with, on as many ranks as there are,
 *      then on fewer; data-parallel ranks take what is left. Those sizes are how the model fits and
 *      what its user chose, so an idle rank is the smaller loss.
 *   2. Where the range has no such number: as many ranks as there are, with the divisors of those
 *      sizes that are nearest to them (fewest doublings away; then the smaller model-parallel group).
 * The ZeRO stage stays; its shards are all data-parallel ranks, or, where --dp-replicate was given
 * beside --dp-shard, as many as before if they divide them.
 * Pure. Threads: any. */
#ifndef BT_ENGINE_CONFIG_ELASTIC_H
#define BT_ENGINE_CONFIG_ELASTIC_H

#include "engine/config/run_cfg.h"

typedef struct bt_elastic {
    int min, max; /* ranks; 0, 0: not elastic */
} bt_elastic;

/* "1:4"; "": not elastic. BT_ARG says what is wrong */
bt_code bt_elastic_parse(const char *text, bt_elastic *out, bt_err *err) BT_MUST_CHECK;

typedef struct bt_elastic_host {
    int slots; /* ranks it takes */
    bool alive;
} bt_elastic_host;

/* ranks that the hosts alive can take, at most range->max; 0: fewer than range->min */
int bt_elastic_ranks(const bt_elastic *range, const bt_elastic_host *hosts, size_t n);

typedef struct bt_layout_wish {
    int most, least; /* ranks, 1 <= least <= most */
    int tp, pp;      /* 0: as `given` has them, or the nearest */
    int zero;        /* -1: as `given` has it */
} bt_layout_wish;

/* given: the settings before automatic values were found; settled: after, for the run's first ranks, so
 * that batch, schedule, units and parts stay what they were. out: resolved for out->ranks ranks.
 * BT_ARG: no number in the range makes a layout; the message is of the resolver for the most ranks.
 * out may not be one of the others. */
bt_code bt_elastic_layout(const bt_run_cfg *given, const bt_run_cfg *settled,
                          const bt_layout_wish *w, bt_run_cfg *out, bt_err *err) BT_MUST_CHECK;
/* both are the same ranks in the same places */
bool bt_elastic_same(const bt_run_cfg *a, const bt_run_cfg *b);
/* "4 ranks: tp 2 x dp 2, zero 3"; "1 rank". Returns buf */
const char *bt_elastic_tell(const bt_run_cfg *c, char *buf, size_t size);

#endif
