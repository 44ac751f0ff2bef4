/* simulate.h - simulates clusters that are not available: parses their description and computes the loss from failures.
 *
 * Ranks compute at this machine's rates; links between hosts, memory and failures are inputs. All results are
 * simulations. Pure arithmetic. Threads: no shared state. */
#ifndef BT_ENGINE_PLAN_SIMULATE_H
#define BT_ENGINE_PLAN_SIMULATE_H

#include "engine/plan/layout_search.h"

enum { BT_SIM_RANKS_MOST = 65536, BT_SIM_HOST_RANKS_MOST = 1024 };

/* Parses "512x8": hosts, and ranks on each. BT_ARG also if a job cannot have so many ranks. */
bt_code bt_sim_parse_hosts(const char *text, int *hosts, int *ranks_per_host, bt_err *err)
    BT_MUST_CHECK;
/* Parses "25Gbit,5us": rate of a host's link (bit or B, with k M G T) and latency (ns us ms s). flag: for the error. */
bt_code bt_sim_parse_link(const char *text, const char *flag, double *bytes_per_s,
                          double *latency_s, bt_err *err) BT_MUST_CHECK;
/* Parse "64GiB", and "8h" (s m h d). what: name of the value, for the error. */
bt_code bt_sim_parse_bytes(const char *text, const char *what, double *bytes, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_sim_parse_time(const char *text, const char *what, double *seconds, bt_err *err)
    BT_MUST_CHECK;

/* Checkpoint intervals of a job with a failure every mtbf_s on average, if a checkpoint takes ckpt_s and a restart
 * restart_s. Young 1974: sqrt(2 ckpt mtbf). Daly 2006 (FGCS 22, eq. 37), which is also valid for long checkpoints.
 * frac: useful time over total time at Daly's interval (eq. 20). */
typedef struct bt_goodput {
    double young_s, daly_s, frac;
} bt_goodput;
bt_goodput bt_goodput_of(double ckpt_s, double restart_s, double mtbf_s);
/* Returns useful time over total time at any checkpoint interval. */
double bt_goodput_at(double interval_s, double ckpt_s, double restart_s, double mtbf_s);

/* assumed time from a failure until the new ranks read their checkpoint */
#define BT_SIM_LAUNCH_S 30.0

typedef struct bt_sim_point { /* result for one cluster size */
    int hosts, ranks;
    bt_layout layout; /* the fastest layout that fits; its time includes stragglers */
    size_t legal, fitting;
    /* restart time and time between failures of the whole job; mtbf_s 0: it never fails */
    double restart_s, mtbf_s;
    bt_goodput goodput;
    double tokens_per_s; /* useful tokens only */
    char refused[240];   /* why no layout is possible; "": one is */
    char why[480];       /* why this layout was chosen (layout_why.h) */
} bt_sim_point;

/* Computes one cluster size. search->cluster has hosts, links and memory, search->cfg model and batch. If the cluster
 * cannot hold the model, out->refused states it, and BT_OK is returned. */
bt_code bt_sim_point_of(bt_sim_point *out, const bt_layout_search *search, const bt_rates *r,
                        bt_err *err) BT_MUST_CHECK;

#endif
