/* simulate.h - clusters that do not exist here: parses their description and computes the loss from failures.
 *
 * Ranks compute at this machine's rates; links between hosts, memory and failures are given. All results are
 * simulations. Pure arithmetic. Threads: no shared state. */
#ifndef BT_ENGINE_PLAN_SIMULATE_H
#define BT_ENGINE_PLAN_SIMULATE_H

#include "engine/plan/layout_search.h"

enum { BT_SIM_RANKS_MOST = 65536, BT_SIM_HOST_RANKS_MOST = 1024 };

/* Parses "512x8": hosts and ranks of each. Fails with BT_ARG also if the job would have too many ranks. */
bt_code bt_sim_parse_hosts(const char *text, int *hosts, int *ranks_per_host, bt_err *err)
    BT_MUST_CHECK;
/* Parses "25Gbit,5us": rate of a host's link (bit or B, with k M G T) and latency (ns us ms s). flag is named in the
 * message. */
bt_code bt_sim_parse_link(const char *text, const char *flag, double *bytes_per_s,
                          double *latency_s, bt_err *err) BT_MUST_CHECK;
/* Parse "64GiB" and "8h" (s m h d). what: name of the value, which the error contains. */
bt_code bt_sim_parse_bytes(const char *text, const char *what, double *bytes, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_sim_parse_time(const char *text, const char *what, double *seconds, bt_err *err)
    BT_MUST_CHECK;

/* Checkpoint intervals of a job that fails every mtbf_s on average, where a checkpoint takes ckpt_s and a restart
 * restart_s: Young 1974, sqrt(2 ckpt mtbf); Daly 2006 (FGCS 22, eq. 37), which holds for long checkpoints too. frac:
 * useful time over total time at Daly's interval (eq. 20). */
typedef struct bt_goodput {
    double young_s, daly_s, frac;
} bt_goodput;
bt_goodput bt_goodput_of(double ckpt_s, double restart_s, double mtbf_s);
/* Returns the ratio of useful time to total time at any checkpoint interval. */
double bt_goodput_at(double interval_s, double ckpt_s, double restart_s, double mtbf_s);

#define BT_SIM_LAUNCH_S 30.0 /* assumed time from a failure until ranks read their checkpoint */

typedef struct bt_sim_point { /* one size of the cluster */
    int hosts, ranks;
    bt_layout layout; /* the fastest that fits; its time includes stragglers */
    size_t legal, fitting;
    double restart_s, mtbf_s; /* values of the whole job; mtbf_s 0 if it never fails */
    bt_goodput goodput;
    double tokens_per_s; /* useful tokens only */
    char refused[240];   /* reason why there is no layout, else "" */
    char why[480];       /* reasons for the layout (layout_why.h) */
} bt_sim_point;

/* Computes one size. search->cluster contains hosts, links and memory, search->cfg the model and the batch. A
 * cluster that cannot hold the model is reported in out->refused, not as an error. */
bt_code bt_sim_point_of(bt_sim_point *out, const bt_layout_search *search, const bt_rates *r,
                        bt_err *err) BT_MUST_CHECK;

#endif
