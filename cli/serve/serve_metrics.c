/* serve_metrics.c - writes the response to `GET /metrics` of a model's server. */
#include "cli/serve/serve_metrics.h"

#include <stdio.h>
#include <string.h>

static const double bounds_s[BT_LATENCY_BUCKETS] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                    1,    2.5,   5,    10,  30,   60};

void bt_serve_metrics_init(bt_serve_metrics *m) {
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
}

void bt_serve_metrics_release(bt_serve_metrics *m) { pthread_mutex_destroy(&m->lock); }

static void record_latency(bt_latency *l, double seconds) {
    size_t i = 0;
    while (i < BT_LATENCY_BUCKETS && seconds > bounds_s[i]) i++;
    l->count[i]++;
    l->sum_s += seconds;
}

void bt_serve_metrics_first_token(bt_serve_metrics *m, double seconds) {
    pthread_mutex_lock(&m->lock);
    record_latency(&m->first_token, seconds);
    pthread_mutex_unlock(&m->lock);
}

void bt_serve_metrics_request(bt_serve_metrics *m, int status, double seconds) {
    pthread_mutex_lock(&m->lock);
    if (seconds >= 0) record_latency(&m->request, seconds);
    for (size_t i = 0; i < BT_SERVE_STATUSES; i++) {
        if (m->statuses[i].status && m->statuses[i].status != status) continue;
        m->statuses[i].status = status;
        m->statuses[i].n++;
        break;
    }
    pthread_mutex_unlock(&m->lock);
}

static void put_metric_head(bt_text *out, const char *name, const char *type, const char *help) {
    bt_text_printf(out, "# HELP bitrain_serve_%s %s\n# TYPE bitrain_serve_%s %s\n", name, help,
                   name, type);
}

static void put_count(bt_text *out, const char *name, const char *type, const char *help,
                      uint64_t n) {
    put_metric_head(out, name, type, help);
    bt_text_printf(out, "bitrain_serve_%s %llu\n", name, (unsigned long long)n);
}

static void put_latency(bt_text *out, const char *name, const char *help, const bt_latency *l) {
    uint64_t n = 0;
    put_metric_head(out, name, "histogram", help);
    for (size_t i = 0; i <= BT_LATENCY_BUCKETS; i++) {
        char bound[32] = "+Inf";
        n += l->count[i];
        if (i < BT_LATENCY_BUCKETS) snprintf(bound, sizeof bound, "%g", bounds_s[i]);
        bt_text_printf(out, "bitrain_serve_%s_bucket{le=\"%s\"} %llu\n", name, bound,
                       (unsigned long long)n);
    }
    bt_text_printf(out, "bitrain_serve_%s_sum %.6f\nbitrain_serve_%s_count %llu\n", name, l->sum_s,
                   name, (unsigned long long)n);
}

static void put_statuses(bt_text *out, const bt_serve_metrics *m) {
    put_metric_head(out, "requests_total", "counter", "Requests for the model, by HTTP status.");
    for (size_t i = 0; i < BT_SERVE_STATUSES && m->statuses[i].status; i++)
        bt_text_printf(out, "bitrain_serve_requests_total{status=\"%d\"} %llu\n",
                       m->statuses[i].status, (unsigned long long)m->statuses[i].n);
}

void bt_serve_metrics_put(bt_serve_metrics *m, const bt_generator_load *l, bt_text *out) {
    pthread_mutex_lock(&m->lock);
    put_statuses(out, m);
    put_latency(out, "time_to_first_token_seconds",
                "From a request's arrival to its first generated token.", &m->first_token);
    put_latency(out, "request_duration_seconds",
                "From a request's arrival to the end of its last text.", &m->request);
    pthread_mutex_unlock(&m->lock);
    put_count(out, "texts_running", "gauge", "Texts that the model is writing.", l->working);
    put_count(out, "texts_waiting", "gauge", "Texts in the queue.", l->waiting);
    put_count(out, "texts_total", "counter", "Finished texts.", l->done);
    put_count(out, "texts_cancelled_total", "counter", "Texts whose client disconnected.",
              l->cancelled);
    put_count(out, "prompt_tokens_total", "counter", "Prompt tokens computed.", l->prompt_tokens);
    put_count(out, "prompt_tokens_cached_total", "counter",
              "Prompt tokens reused from an earlier text.", l->reused);
    put_count(out, "generated_tokens_total", "counter", "Generated tokens.", l->tokens);
    put_count(out, "steps_total", "counter", "Steps of the batch.", l->steps);
    put_metric_head(out, "step_seconds_total", "counter", "Time in steps of the batch.");
    bt_text_printf(out, "bitrain_serve_step_seconds_total %.6f\n", l->seconds);
}
