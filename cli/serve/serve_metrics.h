/* serve_metrics.h - counters and latencies of a model's server, as Prometheus text.
 *
 * Threads: any; the struct has a lock. Owns: nothing beyond the struct. */
#ifndef BT_CLI_SERVE_SERVE_METRICS_H
#define BT_CLI_SERVE_SERVE_METRICS_H

#include <pthread.h>

#include "engine/base/text.h"
#include "engine/generate/generator.h"

enum { BT_LATENCY_BUCKETS = 12, BT_SERVE_STATUSES = 8 };

typedef struct bt_latency { /* a histogram of seconds */
    uint64_t count[BT_LATENCY_BUCKETS + 1];
    double sum_s;
} bt_latency;

typedef struct bt_serve_metrics {
    pthread_mutex_t lock;
    bt_latency first_token; /* time from a request's arrival to its first generated token */
    bt_latency request;     /* time from a request's arrival to the end of its last text */
    struct {
        int status; /* 0: this row is unused */
        uint64_t n;
    } statuses[BT_SERVE_STATUSES];
} bt_serve_metrics;

void bt_serve_metrics_init(bt_serve_metrics *m);
void bt_serve_metrics_release(bt_serve_metrics *m);
void bt_serve_metrics_first_token(bt_serve_metrics *m, double seconds);
/* Counts a response to a completion, chat completion or tokenization with this HTTP status; seconds < 0: no latency. */
void bt_serve_metrics_request(bt_serve_metrics *m, int status, double seconds);
/* Appends text format 0.0.4. */
void bt_serve_metrics_put(bt_serve_metrics *m, const bt_generator_load *load, bt_text *out);

#endif
