/* plan_islands.h - `bitrain plan --simulate ... --islands N`: jobs around a hub that are not here. */
#ifndef BT_CLI_PLAN_PLAN_ISLANDS_H
#define BT_CLI_PLAN_PLAN_ISLANDS_H

#include "engine/base/text.h"
#include "engine/plan/simulate.h"
#include "engine/plan/simulate_islands.h"

typedef struct bt_islands_words {
    int64_t n;                             /* 0: no islands */
    double hub_bytes_per_s, hub_latency_s; /* of the hub's link; rate 0: as an island's */
    int64_t shared_cores; /* of one machine, for all islands and the hub; 0: each has its own */
} bt_islands_words;

enum { BT_ISLANDS_ROWS = 16 };

typedef struct bt_islands_plan { /* 1, 2, 4 .. n islands */
    bt_islands_sim asked;        /* of all of them */
    double alone_per_s;          /* tokens of an island by itself, as it trains without a hub */
    double step_tokens;
    double disk_per_s; /* of the hub: as this machine's */
    size_t rows;
    int n[BT_ISLANDS_ROWS];
    bt_islands_time time[BT_ISLANDS_ROWS];
} bt_islands_plan;

/* cfg: settings as read, with mode, inner, codec and so on; cluster and island: of one island */
bt_code bt_islands_plan_of(bt_islands_plan *out, const bt_islands_words *w, const bt_run_cfg *cfg,
                           const bt_cluster *cluster, const bt_sim_point *island,
                           const bt_rates *rates, bt_err *err) BT_MUST_CHECK;
/* of all islands together, at the full number */
double bt_islands_tokens_per_s(const bt_islands_plan *p);
void bt_islands_put_text(const bt_islands_plan *p, const bt_run_cfg *cfg, bt_text *out);
void bt_islands_put_json(const bt_islands_plan *p, bt_json *j); /* the field "islands" */

#endif
