/* alerts.c - applies alert rules and reports a rule that fires: an event, a command, a webhook. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/system/start_process.h"
#include "engine/base/text.h"
#include "monitor/job/job.h"

static const int64_t DISK_LOOK_NS = 10000000000;

extern char **environ;

/* Starts a program without the terminal and open descriptors; no process waits for it. */
static void run_detached_program(const char *const *argv, char *const *env) {
    pid_t pid;
    (void)bt_process_start(&pid,
                           &(bt_start){.argv = argv, .env = env, .session = true, .orphan = true});
}

static void run_alert_command(const bt_job *job, const char *says) {
    char run[BT_NAME_MAX + 16], alert[480], step[48];
    const char *const argv[] = {"/bin/sh", "-c", job->s->alert.command, NULL};
    size_t n = 0;
    while (environ[n]) n++;
    char **env = calloc(n + 4, sizeof *env);
    if (!env) return;
    memcpy(env, environ, n * sizeof *env);
    snprintf(run, sizeof run, "BITRAIN_RUN=%s", job->s->run);
    snprintf(alert, sizeof alert, "BITRAIN_ALERT=%s", says);
    snprintf(step, sizeof step, "BITRAIN_STEP=%lld", (long long)job->last_step + 1);
    env[n] = run;
    env[n + 1] = alert;
    env[n + 2] = step;
    run_detached_program(argv, env);
    free(env);
}

static void call_webhook(const bt_job *job, const char *says) {
    bt_text body;
    bt_json j;
    bt_text_init(&body);
    bt_json_begin(&j, &body);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "run", job->s->run);
    bt_json_int(&j, "step", job->last_step + 1);
    bt_json_str(&j, "alert", says);
    bt_json_end(&j, '}');
    const char *const argv[] = {job->s->alert.curl,
                                "-sS",
                                "-m",
                                "10",
                                "-H",
                                "Content-Type: application/json",
                                "--data-binary",
                                bt_text_str(&body),
                                "--",
                                job->s->alert.webhook,
                                NULL};
    if (!body.failed) run_detached_program(argv, NULL);
    bt_text_release(&body);
}

static void report_alert(void *ctx, const char *says) {
    bt_job *job = ctx;
    bt_job_event(job, BT_EVENT_ALERT, -1, "%s", says);
    if (job->s->alert.command[0]) run_alert_command(job, says);
    if (job->s->alert.webhook[0]) call_webhook(job, says);
}

void bt_job_alerts_open(bt_job *job) {
    if (job->s->alert.rules) job->alerts = *job->s->alert.rules;
    job->alerts.tell = report_alert;
    job->alerts.ctx = job;
}

/* Counts the pending evaluation, once for each step, because a restart repeats steps with the same bits. */
static void count_evaluation(bt_job *job, double recorded) {
    const int64_t step = job->evaluation.step;
    job->evaluation.waits = false;
    if (job->evaluation.counted_to > step) return;
    job->evaluation.counted_to = step + 1;
    bt_alert_value(&job->alerts, BT_MS_VAL_LOSS, isnan(recorded) ? job->evaluation.loss : recorded,
                   step);
}

void bt_job_alerts_tick(bt_job *job, int64_t now) {
    struct statvfs fs;
    if (job->evaluation.waits && job->evaluation.step <= job->last_step) count_evaluation(job, NAN);
    if (now < job->alert_disk_ns || !bt_alert_has(&job->alerts, BT_ALERT_DISK)) return;
    job->alert_disk_ns = now + DISK_LOOK_NS;
    if (statvfs(job->s->out_dir, &fs) == 0)
        bt_alert_disk(&job->alerts, (double)fs.f_bavail * (double)fs.f_frsize,
                      (double)fs.f_blocks * (double)fs.f_frsize);
}

/* The event of an evaluation precedes the record of its step, which has the exact loss. An alert is therefore decided
 * when that record arrives, or at the next tick if the record arrived first (evaluation in a pause). The body is
 * {"val_loss":2.31,...}; null: the loss is not finite. */
void bt_job_alerts_evaluation(bt_job *job, const bt_event *e) {
    static const char key[] = "\"val_loss\":";
    char *end;
    const char *at = e->body ? strstr(e->body, key) : NULL;
    if (!at) return;
    if (job->evaluation.waits) count_evaluation(job, NAN);
    at += strlen(key);
    const double loss = strtod(at, &end);
    job->evaluation.waits = true;
    job->evaluation.step = e->step;
    job->evaluation.loss = end == at ? NAN : loss;
}

void bt_job_alerts_step(bt_job *job, const bt_step_record *r) {
    double values[BT_MS_COUNT];
    const double val_loss = r->values[BT_MS_VAL_LOSS];
    const bool same_step = job->evaluation.waits && job->evaluation.step == r->step;
    memcpy(values, r->values, sizeof values);
    values[BT_MS_VAL_LOSS] = NAN;
    if (job->evaluation.waits) {
        count_evaluation(job, same_step ? val_loss : NAN);
    } else if (!isnan(val_loss)) {
        job->evaluation.step = r->step;
        job->evaluation.loss = val_loss;
        count_evaluation(job, val_loss);
    }
    bt_alert_step(&job->alerts, values, r->step);
}

void bt_job_alerts_end(bt_job *job) {
    const bt_end *end = &job->result->end;
    char told[640];
    if (job->evaluation.waits) count_evaluation(job, NAN);
    if (job->stop_asked || end->kind == BT_END_STOPPED_NOW) return;
    if (end->kind == BT_END_DONE) {
        snprintf(told, sizeof told, "after step %lld", (long long)job->last_step + 1);
        bt_alert_happened(&job->alerts, BT_ALERT_DONE, told);
        return;
    }
    bt_end_describe(end, told, sizeof told);
    bt_alert_happened(&job->alerts, BT_ALERT_FAILED, told);
}
