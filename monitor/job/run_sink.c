/* run_sink.c - what a run says of itself passes here: to the database, to the screen, to the health
 * check. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "monitor/job/job.h"

static const bt_sink *store_of(const bt_job *job) {
    return job->s->writer ? bt_writer_sink(job->s->writer) : NULL;
}

static void on_ranks(void *ctx, const bt_rank_info *ranks, size_t n) {
    bt_job *job = ctx;
    char host[BT_HOST_MAX] = "";
    gethostname(host, sizeof host - 1);
    job->n_ranks = 0;
    job->n_remote = 0;
    for (size_t i = 0; i < n && job->n_remote < BT_JOB_REMOTE_RANKS; i++) {
        if (strcmp(ranks[i].host, host) == 0) continue;
        job->far[job->n_remote].rank = ranks[i].rank;
        snprintf(job->far[job->n_remote++].host, sizeof job->far[0].host, "%s", ranks[i].host);
    }
    for (size_t i = 0; i < n && job->n_ranks < BT_JOB_LOCAL_RANKS; i++) {
        if (strcmp(ranks[i].host, host) != 0) continue;
        job->ranks[job->n_ranks].rank = ranks[i].rank;
        job->ranks[job->n_ranks++].pid = ranks[i].pid;
    }
    const bt_sink *store = store_of(job);
    if (store && store->ranks) store->ranks(store->ctx, ranks, n);
}

static void on_fact(void *ctx, const char *key, const char *value) {
    bt_job *job = ctx;
    if (strcmp(key, "result") == 0) {
        free(job->result->result_json);
        job->result->result_json = strdup(value);
        job->complete = true;
        return;
    }
    const bt_sink *store = store_of(job);
    if (store && store->fact) store->fact(store->ctx, key, value);
}

static void on_step(void *ctx, const bt_step_record *r) {
    bt_job *job = ctx;
    job->last_step = r->step;
    bt_health_step(&job->health, bt_now_ns());
    const bt_sink *store = store_of(job);
    if (store && store->step) store->step(store->ctx, r);
    if (job->s->ui.step) job->s->ui.step(job->s->ui.ctx, r);
}

static void on_layers(void *ctx, const bt_layer_record *r, size_t n) {
    const bt_sink *store = store_of(ctx);
    if (store && store->layers) store->layers(store->ctx, r, n);
}

static void on_comm(void *ctx, const bt_comm_record *r, size_t n) {
    const bt_sink *store = store_of(ctx);
    if (store && store->comm) store->comm(store->ctx, r, n);
}

static void on_pairs(void *ctx, const bt_pair_record *r, size_t n) {
    const bt_sink *store = store_of(ctx);
    if (store && store->pairs) store->pairs(store->ctx, r, n);
}

static void on_event(void *ctx, const bt_event *e) {
    bt_job *job = ctx;
    bt_health_sign(&job->health, bt_now_ns());
    const bt_sink *store = store_of(job);
    if (store && store->event) store->event(store->ctx, e);
    if (job->s->ui.event) job->s->ui.event(job->s->ui.ctx, e);
}

static void on_checkpoint(void *ctx, const bt_ckpt_record *c) {
    bt_job *job = ctx;
    bt_health_sign(&job->health, bt_now_ns());
    const bt_sink *store = store_of(job);
    if (store && store->checkpoint) store->checkpoint(store->ctx, c);
}

void bt_job_run_sink(bt_job *job) {
    job->tap = (bt_sink){.ctx = job,
                         .ranks = on_ranks,
                         .fact = on_fact,
                         .step = on_step,
                         .layers = on_layers,
                         .comm = on_comm,
                         .event = on_event,
                         .checkpoint = on_checkpoint,
                         .pairs = on_pairs};
}

static void tell(bt_job *job, bool screen, const char *kind, bt_event_level level, int rank,
                 const char *title) {
    bt_event e = {.kind = kind,
                  .level = level,
                  .step = job->last_step,
                  .rank = rank,
                  .wall_us = bt_wall_us(),
                  .title = title,
                  .body = NULL};
    const bt_sink *store = store_of(job);
    if (store && store->event) store->event(store->ctx, &e);
    if (screen && job->s->ui.event) job->s->ui.event(job->s->ui.ctx, &e);
}

void bt_job_event(bt_job *job, const char *kind, bt_event_level level, int rank, const char *fmt,
                  ...) {
    char title[480];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(title, sizeof title, fmt, ap);
    va_end(ap);
    tell(job, true, kind, level, rank, title);
}

void bt_job_show(bt_job *job, bt_event_level level, const char *text) {
    const bt_event e = {.kind = "notice",
                        .level = level,
                        .step = job->last_step,
                        .rank = -1,
                        .wall_us = bt_wall_us(),
                        .title = text,
                        .body = NULL};
    if (job->s->ui.event) job->s->ui.event(job->s->ui.ctx, &e);
}

void bt_job_record(bt_job *job, const char *kind, bt_event_level level, int rank,
                   const char *title) {
    tell(job, false, kind, level, rank, title);
}
