/* health.h - is the attempt getting on? Fed with times by the supervisor, keeps no clock of its
 * own.
 *
 * A stopped or hung rank is never reported by MPI: progress is the only sign. The limit knows the
 * run: max(30 s, 10 x the median step, 3 x the longest gap seen so far), so that evaluations and
 * checkpoints, which come as gaps, raise no alarm twice. Before the first step (data is prepared,
 * memory taken) and while paused nothing is due. */
#ifndef BT_MONITOR_JOB_HEALTH_HEALTH_H
#define BT_MONITOR_JOB_HEALTH_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

enum { BT_HEALTH_WINDOW = 64 };

typedef struct bt_health {
    double gaps[BT_HEALTH_WINDOW]; /* seconds between records */
    int n, at;
    double longest_s;
    int64_t last_ns; /* of the newest sign of progress, 0: none yet */
    bool paused, warned;
} bt_health;

typedef enum {
    BT_HEALTH_FINE,
    BT_HEALTH_LATE,
    BT_HEALTH_RECOVERED,
    BT_HEALTH_DEAD
} bt_health_verdict;

void bt_health_start(bt_health *h);                /* of an attempt */
void bt_health_step(bt_health *h, int64_t now_ns); /* a step record came */
/* another sign of life (an event): the wait begins anew */
void bt_health_sign(bt_health *h, int64_t now_ns);
void bt_health_pause(bt_health *h, bool paused, int64_t now_ns);
/* between records; 0: fewer than two yet */
double bt_health_median_s(const bt_health *h);
double bt_health_limit_s(const bt_health *h);
double bt_health_silence_s(const bt_health *h, int64_t now_ns);
/* LATE once when the limit passes, RECOVERED once when a step came after that, DEAD when deadline_s
 * (> 0) passes, which may be below 30 s but never below what this run has shown to be usual */
bt_health_verdict bt_health_check(bt_health *h, int64_t now_ns, double deadline_s);

#endif
