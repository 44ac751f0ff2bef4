/* run_sink.c - distributes the records of a run: to the supervisor, the screen (steps, events, facts) and, unchanged,
 * the database. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "monitor/job/job.h"

static void job_on_ranks(void *ctx, const bt_rank_info *ranks, size_t n) {
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

static void job_on_result(void *ctx, const char *json) {
    bt_job *job = ctx;
    free(job->result->result_json);
    job->result->result_json = strdup(json);
    job->complete = true;
}

static void job_on_step(void *ctx, const bt_step_record *r) {
    bt_job *job = ctx;
    job->last_step = r->step;
    bt_health_step(&job->health, bt_now_ns());
    bt_job_alerts_step(job, r);
    if (job->s->ui.step) job->s->ui.step(job->s->ui.ctx, r);
}

static void job_on_event(void *ctx, const bt_event *e) {
    bt_job *job = ctx;
    bt_health_sign(&job->health, bt_now_ns());
    if (e->kind == BT_EVENT_RANK_LEAVES) job->leaving = e->rank;
    if (e->kind == BT_EVENT_EVALUATION) bt_job_alerts_evaluation(job, e);
    if (job->s->ui.event) job->s->ui.event(job->s->ui.ctx, e);
}

static void job_on_fact(void *ctx, const char *key, const char *value) {
    const bt_job *job = ctx;
    if (job->s->ui.fact) job->s->ui.fact(job->s->ui.ctx, key, value);
}

static void job_on_checkpoint(void *ctx, const bt_ckpt_record *c) {
    bt_job *job = ctx;
    job->saved = c->step;
    bt_health_sign(&job->health, bt_now_ns());
    bt_job_hosts_checkpoint(job);
}

static void pass_to_writer(void *writer, struct bt_record *r) { bt_writer_push(writer, r); }

void bt_job_run_sink(bt_job *job) {
    job->into = (bt_wire_into){.look = {.ctx = job,
                                        .ranks = job_on_ranks,
                                        .step = job_on_step,
                                        .event = job_on_event,
                                        .checkpoint = job_on_checkpoint,
                                        .fact = job_on_fact,
                                        .result = job_on_result},
                               .taker = job->s->writer,
                               .take = job->s->writer ? pass_to_writer : NULL};
}
