/* elastic.h - chooses the layout of a run for another number of ranks than it began with.
 *
 * The global batch, the schedule, the data order and (with train.reproducible) the bits do not depend on the layout,
 * and every layout reads every checkpoint, so a run may continue on the remaining ranks. bt_run_cfg_resolve decides
 * which layouts are legal; this module tries candidates in this order:
 *   1. the original tensor- and pipeline-parallel sizes, on as many ranks as there are, then on fewer; data-parallel
 *      ranks fill the rest. The model fits with these sizes and the user chose them, so an idle rank costs less.
 *   2. if the range has no such number: as many ranks as there are, with the nearest divisors of those sizes (fewest
 *      halvings; then the smaller model-parallel group).
 * The ZeRO stage is kept. Its shards are all data-parallel ranks or, if --dp-replicate was given with --dp-shard, as
 * many as before if these divide them.
 * Pure. Threads: any. */
#ifndef BT_ENGINE_CONFIG_ELASTIC_H
#define BT_ENGINE_CONFIG_ELASTIC_H

#include "engine/config/run_cfg.h"

typedef struct bt_elastic {
    int min, max; /* range of ranks; 0, 0 if not elastic */
} bt_elastic;

/* Parses "1:4"; "" is not elastic. Fails with BT_ARG. */
bt_code bt_elastic_parse(const char *text, bt_elastic *out, bt_err *err) BT_MUST_CHECK;

typedef struct bt_elastic_host {
    int slots; /* ranks that it can run */
    bool alive;
} bt_elastic_host;

/* Ranks that the live hosts can run, at most range->max; 0 if fewer than range->min. */
int bt_elastic_ranks(const bt_elastic *range, const bt_elastic_host *hosts, size_t n);

typedef struct bt_layout_request {
    int most, least; /* ranks, 1 <= least <= most */
    int tp, pp;      /* 0: as in `given`, or the nearest */
    int zero;        /* -1: as in `given` */
} bt_layout_request;

/* Writes a layout, resolved for out->ranks ranks. given: the settings before automatic values; settled: the settings
 * after them for the first ranks of the run, from which batch, schedule, units and parts are kept. Fails with BT_ARG
 * and the resolver's message for the most ranks if no number in the range has a layout. out may not alias the
 * inputs. */
bt_code bt_elastic_layout(const bt_run_cfg *given, const bt_run_cfg *settled,
                          const bt_layout_request *w, bt_run_cfg *out, bt_err *err) BT_MUST_CHECK;
/* true if both have the same ranks in the same places */
bool bt_elastic_same(const bt_run_cfg *a, const bt_run_cfg *b);
/* "4 ranks: tp 2 x dp 2, zero 3"; "1 rank". Returns buf */
const char *bt_elastic_describe(const bt_run_cfg *c, char *buf, size_t size);

#endif
