/* job_events.c - sends events of the supervisor to the database, the screen and the alert rules. */
#include <stdarg.h>
#include <stdio.h>

#include "engine/base/clock.h"
#include "monitor/job/job.h"

/* Applies the rules that an event of the supervisor can fire. */
static void apply_alert_rules(bt_job *job, const bt_event *e) {
    if (e->kind == BT_EVENT_FAILURE || e->kind == BT_EVENT_HOST_LOST)
        bt_alert_happened(&job->alerts, BT_ALERT_RANK_LOST, e->title);
    if (e->kind == BT_EVENT_STALLED) bt_alert_happened(&job->alerts, BT_ALERT_STALLED, e->title);
}

static void publish_event(bt_job *job, bool record, bool screen, bt_event e) {
    char body[256];
    if (e.kind == BT_EVENT_FAILURE && job->where[0] &&
        !e.body) { /* evidence for `bitrain autopsy` */
        snprintf(body, sizeof body, "{\"places\":\"%s\"}", job->where);
        e.body = body;
    }
    e.step = job->last_step;
    e.wall_us = bt_wall_us();
    const bt_sink *store = record && job->s->writer ? bt_writer_sink(job->s->writer) : NULL;
    if (store) store->event(store->ctx, &e);
    if (screen && job->s->ui.event) job->s->ui.event(job->s->ui.ctx, &e);
    if (record) apply_alert_rules(job, &e);
}

void bt_job_event(bt_job *job, bt_event_kind kind, int rank, const char *fmt, ...) {
    char title[480];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(title, sizeof title, fmt, ap);
    va_end(ap);
    publish_event(job, true, true, (bt_event){.kind = kind, .rank = rank, .title = title});
}

void bt_job_stalled(bt_job *job, int rank, double silent_s, const char *title) {
    char body[48];
    snprintf(body, sizeof body, "{\"silent_ms\":%.3f}", silent_s * 1e3);
    publish_event(job, true, true,
                  (bt_event){.kind = BT_EVENT_STALLED, .rank = rank, .title = title, .body = body});
}

void bt_job_event_body(bt_job *job, bt_event_kind kind, const char *title, const char *body) {
    publish_event(job, true, true,
                  (bt_event){.kind = kind, .rank = -1, .title = title, .body = body});
}

void bt_job_show(bt_job *job, bt_event_kind kind, const char *text) {
    publish_event(job, false, true, (bt_event){.kind = kind, .rank = -1, .title = text});
}

void bt_job_record(bt_job *job, bt_event_kind kind, int rank, const char *title) {
    publish_event(job, true, false, (bt_event){.kind = kind, .rank = rank, .title = title});
}
