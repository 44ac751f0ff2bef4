/* elastic.h - chooses the layout of a run for another number of ranks than it began with.
 *
 * Global batch, schedule, data order and (with train.reproducible) bits do not depend on the layout, and every layout
 * can read every checkpoint, so a run can continue on the remaining ranks. bt_run_cfg_resolve decides which layouts are
 * valid. This module tries candidates in this order:
 *   1. the original tensor- and pipeline-parallel sizes, with data-parallel ranks for the rest; first on all ranks,
 *      then on fewer. The model fits these sizes and the user chose them, so an idle rank is preferable to other sizes.
 *   2. if no number in the range permits these sizes: all ranks, with the nearest divisors of the sizes (fewest
 *      halvings; then the smaller model-parallel group).
 * The ZeRO stage does not change. The number of shards equals that of the data-parallel ranks; if --dp-replicate was
 * given with --dp-shard, it keeps its value if that divides them. Pure. Threads: any. */
#ifndef BT_ENGINE_CONFIG_ELASTIC_H
#define BT_ENGINE_CONFIG_ELASTIC_H

#include "engine/config/run_cfg.h"

typedef struct bt_elastic {
    int min, max; /* range of the number of ranks; 0, 0: the run is not elastic */
} bt_elastic;

/* Parses "1:4"; "" means that the run is not elastic. BT_ARG: another text. */
bt_code bt_elastic_parse(const char *text, bt_elastic *out, bt_err *err) BT_MUST_CHECK;

typedef struct bt_elastic_host {
    int slots; /* number of ranks that the host can run */
    bool alive;
} bt_elastic_host;

/* Returns the number of ranks that the live hosts can run, at most range->max; 0 if fewer than range->min. */
int bt_elastic_ranks(const bt_elastic *range, const bt_elastic_host *hosts, size_t n);

typedef struct bt_layout_request {
    int most, least; /* range of the number of ranks, 1 <= least <= most */
    int tp, pp;      /* 0: as in `given`, or the nearest possible */
    int zero;        /* -1: as in `given` */
} bt_layout_request;

/* Writes a layout, resolved for out->ranks ranks. given: settings before automatic values; settled: settings after them
 * for the first ranks of the run, whose batch, schedule, units and parts are kept. BT_ARG: no number of ranks in the
 * range has a layout; the error is the resolver's for the most ranks. out must not alias the inputs. */
bt_code bt_elastic_layout(const bt_run_cfg *given, const bt_run_cfg *settled,
                          const bt_layout_request *w, bt_run_cfg *out, bt_err *err) BT_MUST_CHECK;
/* Returns true if both layouts place the same ranks at the same coordinates. */
bool bt_elastic_same(const bt_run_cfg *a, const bt_run_cfg *b);
/* Returns buf with "4 ranks: tp 2 x dp 2, zero 3", or "1 rank". */
const char *bt_elastic_describe(const bt_run_cfg *c, char *buf, size_t size);

#endif
