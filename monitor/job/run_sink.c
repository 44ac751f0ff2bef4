/* run_sink.c - what a run says of itself passes here: the supervisor looks at what it needs (who the
 * ranks are, steps, events), the screen sees steps and events, and the database gets every record as
 * it came. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "monitor/job/job.h"

/* ---- records of the ranks -------------------------------------------------------------------- */

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
}

static void on_result(void *ctx, const char *json) {
    bt_job *job = ctx;
    free(job->result->result_json);
    job->result->result_json = strdup(json);
    job->complete = true;
}

static void on_step(void *ctx, const bt_step_record *r) {
    bt_job *job = ctx;
    job->last_step = r->step;
    bt_health_step(&job->health, bt_now_ns());
    bt_job_alerts_step(job, r);
    if (job->s->ui.step) job->s->ui.step(job->s->ui.ctx, r);
}

static void on_event(void *ctx, const bt_event *e) {
    bt_job *job = ctx;
    bt_health_sign(&job->health, bt_now_ns());
    if (e->kind == BT_EVENT_RANK_LEAVES) job->leaving = e->rank;
    if (e->kind == BT_EVENT_EVALUATION) bt_job_alerts_evaluation(job, e);
    if (job->s->ui.event) job->s->ui.event(job->s->ui.ctx, e);
}

static void on_checkpoint(void *ctx, const bt_ckpt_record *c) {
    bt_job *job = ctx;
    job->saved = c->step;
    bt_health_sign(&job->health, bt_now_ns());
    bt_job_hosts_checkpoint(job);
}

static void to_writer(void *writer, struct bt_record *r) { bt_writer_push(writer, r); }

void bt_job_run_sink(bt_job *job) {
    job->into = (bt_wire_into){.look = {.ctx = job,
                                        .ranks = on_ranks,
                                        .step = on_step,
                                        .event = on_event,
                                        .checkpoint = on_checkpoint,
                                        .result = on_result},
                               .taker = job->s->writer,
                               .take = job->s->writer ? to_writer : NULL};
}

/* ---- events of the supervisor ---------------------------------------------------------------- */

static void tell(bt_job *job, bool record, bool screen, bt_event e) {
    char body[256];
    if (e.kind == BT_EVENT_FAILURE && job->where[0] &&
        !e.body) { /* evidence, for `bitrain autopsy` */
        snprintf(body, sizeof body, "{\"places\":\"%s\"}", job->where);
        e.body = body;
    }
    e.step = job->last_step;
    e.wall_us = bt_wall_us();
    const bt_sink *store = record && job->s->writer ? bt_writer_sink(job->s->writer) : NULL;
    if (store) store->event(store->ctx, &e);
    if (screen && job->s->ui.event) job->s->ui.event(job->s->ui.ctx, &e);
    if (record) bt_job_alerts_event(job, &e);
}

void bt_job_event(bt_job *job, bt_event_kind kind, int rank, const char *fmt, ...) {
    char title[480];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(title, sizeof title, fmt, ap);
    va_end(ap);
    tell(job, true, true, (bt_event){.kind = kind, .rank = rank, .title = title});
}

void bt_job_stalled(bt_job *job, int rank, double silent_s, const char *title) {
    char body[48];
    snprintf(body, sizeof body, "{\"silent_ms\":%.3f}", silent_s * 1e3);
    tell(job, true, true,
         (bt_event){.kind = BT_EVENT_STALLED, .rank = rank, .title = title, .body = body});
}

void bt_job_event_body(bt_job *job, bt_event_kind kind, const char *title, const char *body) {
    tell(job, true, true, (bt_event){.kind = kind, .rank = -1, .title = title, .body = body});
}

void bt_job_show(bt_job *job, bt_event_kind kind, const char *text) {
    tell(job, false, true, (bt_event){.kind = kind, .rank = -1, .title = text});
}

void bt_job_record(bt_job *job, bt_event_kind kind, int rank, const char *title) {
    tell(job, true, false, (bt_event){.kind = kind, .rank = rank, .title = title});
}
