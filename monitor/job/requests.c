/* requests.c - what people and the system ask of a run: keys, `ctl`, signals. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "engine/base/clock.h"
#include "monitor/job/job.h"

static bt_code tell(bt_job *job, bt_ctl_verb verb, double value, bt_err *err) {
    bt_ctl c = {verb, value};
    if (job->restarting || !bt_wire_connected(job->wire)) {
        if (verb != BT_CTL_STOP && verb != BT_CTL_PAUSE && verb != BT_CTL_RESUME)
            return bt_fail(err, BT_BUSY, "no rank is there to be told '%s' (the run is %s)",
                           bt_ctl_name(verb), job->restarting ? "restarting" : "starting");
        job->pending &= ~((1u << BT_CTL_PAUSE) | (1u << BT_CTL_RESUME));
        job->pending |= 1u << verb;
        return BT_OK;
    }
    return bt_wire_send_control(job->wire, &c, err);
}

void bt_job_send_pending(bt_job *job) {
    for (int verb = 1; verb < BT_CTL_COUNT; verb++) {
        bt_ctl c = {(bt_ctl_verb)verb, 0};
        bt_err err = BT_ERR_INIT;
        if (!(job->pending & (1u << verb))) continue;
        if (bt_wire_send_control(job->wire, &c, &err) == BT_OK) job->pending &= ~(1u << verb);
    }
    /* changed after the checkpoint that the ranks began from */
    if (job->lr_factor != job->told_factor) {
        bt_ctl c = {BT_CTL_LR, job->lr_factor};
        bt_err err = BT_ERR_INIT;
        if (bt_wire_send_control(job->wire, &c, &err) != BT_OK)
            bt_job_event(job, "warning", BT_EV_WARN, -1, "%s", err.msg);
        else
            job->told_factor = job->lr_factor;
    }
}

bool bt_job_paused(const bt_job *job) { return job->paused; }

static bt_code set_lr(bt_job *job, double factor, const char *by, bt_err *err) {
    if (!(factor > 0) || !(factor < 1e6))
        return bt_fail(err, BT_ARG, "a learning-rate factor of %g is not between 0 and 1e6",
                       factor);
    BT_TRY(tell(job, BT_CTL_LR, factor, err));
    job->lr_factor = job->told_factor = factor;
    bt_job_event(job, "control", BT_EV_INFO, -1, "learning rate times %.4g asked for by %s", factor,
                 by);
    return BT_OK;
}

void bt_job_multiply_lr(bt_job *job, double factor, const char *by) {
    bt_err err = BT_ERR_INIT;
    if (set_lr(job, job->lr_factor * factor, by, &err) != BT_OK)
        bt_job_event(job, "control", BT_EV_WARN, -1, "refused: %s", err.msg);
}

static bt_code set(bt_job *job, const char *arg, const char *by, bt_err *err) {
    const char *eq = strchr(arg, '=');
    if (!eq || eq == arg)
        return bt_fail(err, BT_ARG, "set wants KEY=VALUE (lr, optim.lr or lr_factor)");
    char key[48], *end = NULL;
    snprintf(key, sizeof key, "%.*s", (int)(eq - arg) < 47 ? (int)(eq - arg) : 47, arg);
    static const char *const keys[] = {"lr_factor", "lr", "optim.lr"};
    size_t k = 0;
    while (k < 3 && strcmp(key, keys[k]) != 0) k++;
    if (k == 3) {
        const char *near = bt_nearest(key, keys, 3);
        return bt_fail(
            err, BT_BUSY,
            "'%s' cannot change while the run is live%s%s%s (lr, optim.lr, lr_factor can)", key,
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    double value = strtod(eq + 1, &end);
    if (end == eq + 1 || *end || !isfinite(value))
        return bt_fail(err, BT_ARG, "'%s' is not a number", eq + 1);
    if (k == 0) return set_lr(job, value, by, err);
    if (!(job->s->lr > 0))
        return bt_fail(err, BT_UNSUPPORTED,
                       "the run's peak learning rate is not known: use lr_factor");
    return set_lr(job, value / job->s->lr, by, err);
}

bt_code bt_job_ask(bt_job *job, const char *verb, const char *arg, const char *by, bt_err *err) {
    static const char *const verbs[] = {"pause", "resume", "checkpoint", "stop",
                                        "eval",  "set",    "status"};
    static const bt_ctl_verb ctls[] = {BT_CTL_PAUSE, BT_CTL_RESUME, BT_CTL_CHECKPOINT, BT_CTL_STOP,
                                       BT_CTL_EVAL};
    size_t i = 0;
    while (i < 7 && strcmp(verb, verbs[i]) != 0) i++;
    if (i == 7) {
        const char *near = bt_nearest(verb, verbs, 7);
        return bt_fail(err, BT_ARG,
                       "unknown verb '%s'%s%s%s (pause resume checkpoint stop eval set status)",
                       verb, near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    if (i == 5) return set(job, arg, by, err);
    if (i > 5) return BT_OK;
    if (arg[0]) return bt_fail(err, BT_ARG, "'%s' takes no value ('%s')", verb, arg);
    if (job->stop_asked && ctls[i] != BT_CTL_STOP)
        return bt_fail(err, BT_BUSY, "the run is stopping");
    if (ctls[i] == BT_CTL_PAUSE && job->paused)
        return bt_fail(err, BT_BUSY, "the run is paused already");
    if (ctls[i] == BT_CTL_RESUME && !job->paused)
        return bt_fail(err, BT_BUSY, "the run is not paused");
    BT_TRY(tell(job, ctls[i], 0, err));
    if (ctls[i] == BT_CTL_PAUSE || ctls[i] == BT_CTL_RESUME) {
        job->paused = ctls[i] == BT_CTL_PAUSE;
        bt_health_pause(&job->health, job->paused, bt_now_ns());
    }
    if (ctls[i] == BT_CTL_STOP) job->stop_asked = true;
    bt_job_event(job, "control", BT_EV_INFO, -1, "%s asked for by %s", verb, by);
    return BT_OK;
}

void bt_job_stop_now(bt_job *job) {
    if (job->stop_now) return;
    job->stop_now = job->stop_asked = true;
    job->stop_ns = bt_now_ns();
    bt_job_event(job, "control", BT_EV_WARN, -1, "stopping at once, without a checkpoint");
    /* with our flags the ranks are gone in 20 ms */
    if (job->child.pid > 0) kill(job->child.pid, SIGTERM);
}

void bt_job_signal(bt_job *job, int sig) {
    bt_err err = BT_ERR_INIT;
    if (job->stop_asked) {
        bt_job_stop_now(job);
        if (!job->result->signal) job->result->signal = sig;
        return;
    }
    job->result->signal = sig;
    if (bt_job_ask(job, "stop", "",
                   sig == SIGINT    ? "Ctrl-C"
                   : sig == SIGTERM ? "SIGTERM"
                                    : "SIGHUP",
                   &err) != BT_OK) {
        job->stop_asked = true;
        job->pending |= 1u << BT_CTL_STOP;
        bt_job_event(job, "control", BT_EV_WARN, -1, "stop could not be told: %s", err.msg);
    }
}

static const char *state_name(const bt_job *job) {
    if (job->restarting) return "restarting";
    if (job->stop_asked) return "stopping";
    if (job->paused) return "paused";
    return job->last_step < job->from.step ? "starting" : "running";
}

void bt_job_look(const bt_job *job, bt_job_view *v) {
    const int64_t now = bt_now_ns();
    *v = (bt_job_view){.state = state_name(job),
                       .attempt = job->attempt,
                       .ranks = job->s->ranks,
                       .restarts = job->history.restarts,
                       .step = job->last_step,
                       .from_step = job->from.step,
                       .committed_step = job->s->writer ? bt_writer_committed_step(job->s->writer)
                                                        : -1,
                       .silence_s = bt_health_silence_s(&job->health, now),
                       .dropped = job->s->writer ? bt_writer_dropped(job->s->writer) : 0,
                       .late = job->health.warned};
    if (job->restarting && job->restart_at_ns > now)
        v->restart_in_s = (double)(job->restart_at_ns - now) / 1e9;
}

bt_code bt_job_request(void *ctx, const char *verb, const char *arg, const char *who,
                       bt_text *answer, bt_err *err) {
    bt_job *job = ctx;
    char by[32];
    bt_text_plain(by, sizeof by, who);
    BT_TRY(bt_job_ask(job, verb, arg, by, err));
    if (strcmp(verb, "status") != 0) {
        bt_text_printf(answer, "%s%s%s", verb, arg[0] ? " " : "", arg);
        return BT_OK;
    }
    bt_job_view v;
    bt_job_look(job, &v);
    bt_json j;
    bt_json_begin(&j, answer);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "run", job->s->run);
    bt_json_str(&j, "state", v.state);
    bt_json_int(&j, "attempt", v.attempt);
    bt_json_int(&j, "ranks", v.ranks);
    bt_json_int(&j, "restarts", v.restarts);
    bt_json_int(&j, "step", v.step);
    bt_json_int(&j, "from_step", v.from_step);
    bt_json_int(&j, "committed_step", v.committed_step);
    bt_json_num(&j, "silence_s", v.silence_s);
    bt_json_int(&j, "dropped", (int64_t)v.dropped);
    bt_json_bool(&j, "late", v.late);
    bt_json_end(&j, '}');
    return BT_OK;
}
