/* health.h - detects an attempt without progress. Functions receive the time as an argument.
 *
 * MPI does not report a stopped or hanging rank, so missing progress is the only sign. The limit is max(30 s, 10 x the
 * median step, 3 x the longest gap so far), so that evaluations and checkpoints, which are gaps too, do not alarm
 * twice.
 * There is no limit before the first step, while data and memory are prepared, and during a pause. */
#ifndef BT_MONITOR_JOB_HEALTH_HEALTH_H
#define BT_MONITOR_JOB_HEALTH_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

enum { BT_HEALTH_WINDOW = 64 };

typedef struct bt_health {
    double gaps[BT_HEALTH_WINDOW]; /* seconds between records */
    int n, at;
    double longest_s;
    int64_t last_ns; /* time of the newest progress, 0: none yet */
    bool paused, warned;
} bt_health;

typedef enum {
    BT_HEALTH_FINE,
    BT_HEALTH_LATE,
    BT_HEALTH_RECOVERED,
    BT_HEALTH_DEAD
} bt_health_verdict;

void bt_health_start(bt_health *h);
void bt_health_step(bt_health *h, int64_t now_ns);
/* Records other progress (an event): the wait restarts. */
void bt_health_sign(bt_health *h, int64_t now_ns);
void bt_health_pause(bt_health *h, bool paused, int64_t now_ns);
/* Returns the median time between records; 0 for fewer than two. */
double bt_health_median_s(const bt_health *h);
double bt_health_limit_s(const bt_health *h);
double bt_health_silence_s(const bt_health *h, int64_t now_ns);
/* Returns LATE once when the limit is exceeded, RECOVERED once at the next step, DEAD when deadline_s (> 0) is
 * exceeded. The deadline may be below 30 s but not below the usual gaps of this run. */
bt_health_verdict bt_health_check(bt_health *h, int64_t now_ns, double deadline_s);

#endif
