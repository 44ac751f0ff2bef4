/* alert_rules.h - alert rules that are applied to a running training.
 *
 *   METRIC < NUMBER [for N]     a step metric was below NUMBER in N consecutive values (1)
 *   METRIC > NUMBER [for N]     ... above it; a value that is not a number counts as above
 *   METRIC not better for N     N values without a new minimum (val_loss: N evaluations)
 *   disk < NUMBER %             free share of the run's file system; disk < NUMBER GiB
 *   rank lost, run stalled, run failed, run done
 * A rule fires once, and again only after its condition was false in between.
 * Order: parse -> (step | value | disk | happened)*. Threads: one caller. */
#ifndef BT_MONITOR_JOB_HEALTH_ALERT_RULES_H
#define BT_MONITOR_JOB_HEALTH_ALERT_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/tables/metric.h"

typedef enum {
    BT_ALERT_BELOW,
    BT_ALERT_ABOVE,
    BT_ALERT_NOT_BETTER,
    BT_ALERT_DISK,
    BT_ALERT_RANK_LOST,
    BT_ALERT_STALLED,
    BT_ALERT_FAILED,
    BT_ALERT_DONE
} bt_alert_kind;

enum { BT_ALERT_RULES = 16, BT_ALERT_TEXT = 96 };

typedef struct bt_alert_rule {
    char text[BT_ALERT_TEXT]; /* as written */
    bt_alert_kind kind;
    int metric;   /* bt_step_metric */
    double limit; /* in the metric's unit; disk: a fraction, or bytes if `bytes` */
    bool bytes;
    int64_t n;
    int64_t count, best_step; /* consecutive values; step of the smallest value */
    double best;
    bool reported;
} bt_alert_rule;

typedef struct bt_alert_rules {
    bt_alert_rule rule[BT_ALERT_RULES];
    int n;
    /* Receives the message, for example "val_loss not better for 5: the best is 2.31, of step 200". */
    void (*tell)(void *ctx, const char *says);
    void *ctx;
} bt_alert_rules;

/* list: rules separated by '
 * ', "" for none. BT_ARG: a rule is invalid; the message names it and the valid forms. The caller sets tell and ctx. */
bt_code bt_alert_parse(bt_alert_rules *r, const char *list, bt_err *err) BT_MUST_CHECK;
/* values: step metrics [BT_MS_COUNT]; NaN: not recorded at this step, except for the loss */
void bt_alert_step(bt_alert_rules *r, const double *values, int64_t step);
void bt_alert_value(bt_alert_rules *r, int metric, double value, int64_t step);
void bt_alert_disk(bt_alert_rules *r, double free_bytes, double total_bytes);
/* RANK_LOST, STALLED, FAILED or DONE; what: a phrase for the message */
void bt_alert_happened(bt_alert_rules *r, bt_alert_kind kind, const char *what);
bool bt_alert_has(const bt_alert_rules *r, bt_alert_kind kind);

#endif
