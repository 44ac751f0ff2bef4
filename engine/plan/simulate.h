/* simulate.h - clusters that are not here: what they are said to be, how often they fail, and what is
 * left of the time.
 *
 * Ranks compute as this machine's do; links between hosts, memory and failures are as given. Every
 * number that comes of it is a simulation. Pure arithmetic. Threads: none shared. */
#ifndef BT_ENGINE_PLAN_SIMULATE_H
#define BT_ENGINE_PLAN_SIMULATE_H

#include "engine/plan/layout_search.h"

enum { BT_SIM_RANKS_MOST = 65536, BT_SIM_HOST_RANKS_MOST = 1024 };

/* "512x8": hosts, ranks of each. BT_ARG also for more ranks than a job can have */
bt_code bt_sim_parse_hosts(const char *text, int *hosts, int *ranks_per_host, bt_err *err)
    BT_MUST_CHECK;
/* "25Gbit,5us": rate of a host's link (bit or B, with k M G T) and latency (ns us ms s); flag: for
 * the message */
bt_code bt_sim_parse_link(const char *text, const char *flag, double *bytes_per_s,
                          double *latency_s, bt_err *err) BT_MUST_CHECK;
/* "64GiB"; "8h" (s m h d); what: for the message */
bt_code bt_sim_parse_bytes(const char *text, const char *what, double *bytes, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_sim_parse_time(const char *text, const char *what, double *seconds, bt_err *err)
    BT_MUST_CHECK;

/* Checkpoints of a job that fails: a checkpoint takes ckpt_s, a start afterwards restart_s, and it
 * fails every mtbf_s on average.
 * Intervals between checkpoints: Young 1974, sqrt(2 ckpt mtbf); Daly 2006 (FGCS 22, eq. 37), which
 * holds for long checkpoints too. frac: useful time over all time at Daly's interval (eq. 20). */
typedef struct bt_goodput {
    double young_s, daly_s, frac;
} bt_goodput;
bt_goodput bt_goodput_of(double ckpt_s, double restart_s, double mtbf_s);
/* useful time over all time at any interval */
double bt_goodput_at(double interval_s, double ckpt_s, double restart_s, double mtbf_s);

#define BT_SIM_LAUNCH_S 30.0 /* from a failure until ranks read their checkpoint: taken to be */

typedef struct bt_sim_point { /* one size of the cluster */
    int hosts, ranks;
    bt_layout layout; /* the fastest that fits; its time with stragglers */
    size_t legal, fitting;
    double restart_s, mtbf_s; /* of the whole job; mtbf 0: it never fails */
    bt_goodput goodput;
    double tokens_per_s; /* useful ones */
    char refused[240];   /* why there is no layout; "" when there is */
    char why[480];       /* what speaks for the layout (layout_why.h) */
} bt_sim_point;

/* search->cluster has hosts, links and memory; search->cfg the model and the batch. mtbf_s: of a host,
 * 0: never. A cluster that cannot hold the model is no error here: *out says so. */
bt_code bt_sim_point_of(bt_sim_point *out, const bt_layout_search *search, const bt_rates *r,
                        bt_err *err) BT_MUST_CHECK;

#endif
