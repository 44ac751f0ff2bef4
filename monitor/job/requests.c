/* requests.c - executes requests of users and of the system: keys, `ctl`, signals. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "engine/base/clock.h"
#include "engine/base/system/json_fields.h"
#include "monitor/job/job.h"
#include "monitor/job/launch/proc.h"
#include "store/wire/control_client.h"

/* limits of the factor on the configured peak */
#define LR_FACTOR_MAX 1e6
#define LR_FACTOR_ASKED 10 /* a larger factor needs a confirmation */

/* Refuses a rate far above the configured peak without a confirmation, because a typing error would destroy the run
 * within a few steps. */
static bt_code check_lr_is_confirmed(const bt_job *job, double factor, bt_err *err) {
    const double peak = job->s->lr;
    if (factor <= LR_FACTOR_ASKED) return BT_OK;
    if (peak > 0)
        return bt_fail(err, BT_BUSY,
                       "a peak learning rate of %.4g is %.4g times the configured %.4g: "
                       "lr=%.4g,force sets it anyway (ctl: --force)",
                       factor * peak, factor, peak, factor * peak);
    return bt_fail(
        err, BT_BUSY,
        "a learning-rate factor of %.4g is above %d: lr_factor=%.4g,force sets it anyway "
        "(ctl: --force)",
        factor, LR_FACTOR_ASKED, factor);
}

static bt_code set_lr(bt_job *job, double factor, bool force, const char *by, bt_err *err) {
    const double peak = job->s->lr, before = job->lr_factor;
    if ((!(factor > 0) || !(factor < LR_FACTOR_MAX)) && peak > 0)
        return bt_fail(
            err, BT_ARG,
            "a peak learning rate of %.4g is not between 0 and %.4g (it was set to %.4g)",
            factor * peak, LR_FACTOR_MAX * peak, peak);
    if (!(factor > 0) || !(factor < LR_FACTOR_MAX))
        return bt_fail(err, BT_ARG, "a learning-rate factor of %g is not between 0 and %g", factor,
                       LR_FACTOR_MAX);
    if (!force) BT_TRY(check_lr_is_confirmed(job, factor, err));
    BT_TRY(bt_job_send_verb(job, BT_VERB_LR, factor, err));
    job->lr_factor = job->told_factor = factor;
    if (peak > 0)
        bt_job_event(job, BT_EVENT_CONTROL, -1, "peak learning rate %.4g -> %.4g (requested by %s)",
                     before * peak, factor * peak, by);
    else
        bt_job_event(job, BT_EVENT_CONTROL, -1,
                     "learning rate factor %.4g -> %.4g (requested by %s)", before, factor, by);
    return BT_OK;
}

void bt_job_multiply_lr(bt_job *job, double factor, const char *by) {
    bt_err err = BT_ERR_INIT;
    if (set_lr(job, job->lr_factor * factor, false, by, &err) != BT_OK)
        bt_job_event(job, BT_EVENT_REFUSED, -1, "refused: %s", err.msg);
}

static bt_code request_setting(bt_job *job, const char *arg, const char *by, bt_err *err) {
    const char *eq = strchr(arg, '=');
    if (!eq || eq == arg)
        return bt_fail(err, BT_ARG, "set takes KEY=VALUE (lr, optim.lr or lr_factor)");
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
    const bool force = strcmp(end, ",force") == 0;
    if (end == eq + 1 || (*end && !force) || !isfinite(value))
        return bt_fail(err, BT_ARG, "'%s' is not a number", eq + 1);
    if (k == 0) return set_lr(job, value, force, by, err);
    if (!(job->s->lr > 0))
        return bt_fail(err, BT_UNSUPPORTED,
                       "the run's peak learning rate is not known: use lr_factor");
    return set_lr(job, value / job->s->lr, force, by, err);
}

/* Verbs without a later effect are not deferred for ranks that connect later. */
static bt_code send_text_verb(bt_job *job, bt_verb verb, const char *text, bt_err *err) {
    if (job->stop_asked) return bt_fail(err, BT_BUSY, "the run is stopping");
    if (bt_job_waits_for_ranks(job))
        return bt_fail(err, BT_BUSY, "no rank can receive '%s' yet (the run %s)",
                       bt_verbs[verb].word, job->restarting ? "is restarting" : "is starting");
    return bt_wire_send_control(job->wire, &(bt_ctl){verb, 0, text}, err);
}

static bt_code request_mixture(bt_job *job, const char *weights, const char *by, bt_err *err) {
    if (!weights[0] || strlen(weights) > BT_PROMPT_MAX ||
        strspn(weights, "0123456789.:") != strlen(weights))
        return bt_fail(
            err, BT_ARG,
            "mixture takes one weight for each source of data.path, such as 3:1 ('%.40s')",
            weights);
    BT_TRY(send_text_verb(job, BT_VERB_MIXTURE, weights, err));
    bt_job_event(job, BT_EVENT_CONTROL, -1, "mixture %s requested by %s", weights, by);
    return BT_OK;
}

static bt_code request_sample(bt_job *job, const char *word, const char *by, bt_err *err) {
    char prompt[BT_PROMPT_MAX + 1], shown[64];
    bt_control_unword(prompt, sizeof prompt, word);
    bt_text_plain(shown, sizeof shown, prompt);
    if (!prompt[strspn(prompt, " \t\r\n")])
        return bt_fail(err, BT_ARG, "sample takes a prompt: the text to continue");
    BT_TRY(send_text_verb(job, BT_VERB_SAMPLE, prompt, err));
    bt_job_event(job, BT_EVENT_CONTROL, -1, "sample after '%s' requested by %s", shown, by);
    return BT_OK;
}

static bt_code fail_unknown_verb(const char *word, bt_err *err) {
    const char *words[BT_VERB_COUNT];
    char list[160];
    for (int v = 0; v < BT_VERB_COUNT; v++) words[v] = bt_verbs[v].word;
    const char *near = bt_nearest(word, words, BT_VERB_COUNT);
    return bt_fail(err, BT_ARG, "unknown verb '%s'%s%s%s (%s)", word,
                   near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "",
                   bt_verb_list(list, sizeof list, " ", false));
}

/* Applies the effect of a verb on the supervisor itself. */
static void apply_to_supervisor(bt_job *job, bt_verb verb) {
    if (verb == BT_VERB_PAUSE || verb == BT_VERB_RESUME) {
        job->paused = verb == BT_VERB_PAUSE;
        bt_health_pause(&job->health, job->paused, bt_now_ns());
    }
    if (verb == BT_VERB_STOP) job->stop_asked = true;
}

bt_code bt_job_execute_verb(bt_job *job, const char *word, const char *arg, const char *by,
                            bt_err *err) {
    bt_verb verb = bt_verb_find(word);
    if (verb == BT_VERB_COUNT) return fail_unknown_verb(word, err);
    if (verb == BT_VERB_RESIZE) return bt_job_request_resize(job, arg, by, err);
    if (!bt_verbs[verb].ranks) return BT_OK;
    if (verb == BT_VERB_LR) return request_setting(job, arg, by, err);
    if (verb == BT_VERB_SAMPLE) return request_sample(job, arg, by, err);
    if (verb == BT_VERB_MIXTURE) return request_mixture(job, arg, by, err);
    if (arg[0]) return bt_fail(err, BT_ARG, "'%s' takes no value ('%s')", word, arg);
    if (job->stop_asked && !bt_verb_offered(verb, BT_STATE_STOPPING))
        return bt_fail(err, BT_BUSY, "the run is stopping");
    if (verb == BT_VERB_PAUSE && job->paused)
        return bt_fail(err, BT_BUSY, "the run is paused already");
    if (verb == BT_VERB_RESUME && !job->paused)
        return bt_fail(err, BT_BUSY, "the run is not paused");
    BT_TRY(bt_job_send_verb(job, verb, 0, err));
    apply_to_supervisor(job, verb);
    bt_job_event(job, BT_EVENT_CONTROL, -1, "%s requested by %s", word, by);
    return BT_OK;
}

void bt_job_stop_now(bt_job *job) {
    if (job->stop_now) return;
    job->stop_now = job->stop_asked = true;
    job->stop_ns = bt_now_ns();
    bt_job_event(job, BT_EVENT_WARNING, -1, "stopping at once, without a checkpoint");
    /* mpirun ignores SIGTERM (launch.c). */
    if (job->child.pid > 0) bt_proc_kill_session(job->child.pid, 0);
}

static const int64_t TOGETHER_NS = 1000000000, PRESSES_NS = 100000000;

void bt_job_signal(bt_job *job, int sig) {
    bt_err err = BT_ERR_INIT;
    const int64_t now = bt_now_ns();
    /* `timeout` signals this process and then its process group, so two signals within TOGETHER_NS are one request.
     * A user's second Ctrl-C follows at least a tenth of a second after the first. */
    const int64_t together = sig == SIGINT ? PRESSES_NS : TOGETHER_NS;
    if (job->signal_ns && now - job->signal_ns < together) return;
    if (!job->signal_ns) job->signal_ns = now;
    /* Beyond the soft limit of processor time the kernel repeats the signal each second. */
    if (sig == SIGXCPU && job->stop_asked) return;
    /* A batch system sends SIGTERM before and at the time limit: saving may take until SIGKILL. */
    if (sig == SIGTERM && job->result->signal && bt_proc_batch_job()) return;
    if (job->stop_asked) {
        bt_job_stop_now(job);
        if (!job->result->signal) job->result->signal = sig;
        return;
    }
    job->result->signal = sig;
    if (bt_job_execute_verb(job, bt_verbs[BT_VERB_STOP].word, "",
                            sig == SIGINT    ? "Ctrl-C"
                            : sig == SIGTERM ? "SIGTERM"
                            : sig == SIGUSR1 ? "SIGUSR1"
                            : sig == SIGUSR2 ? "SIGUSR2"
                            : sig == SIGXCPU ? "SIGXCPU (limit of processor time)"
                                             : "SIGHUP",
                            &err) != BT_OK) {
        job->stop_asked = true;
        job->pending |= BT_PENDING(STOP);
        bt_job_event(job, BT_EVENT_WARNING, -1, "the stop request could not be sent: %s", err.msg);
    }
}

bool bt_job_paused(const bt_job *job) { return job->paused; }

static bt_run_state state_of_job(const bt_job *job) {
    if (job->restarting) return BT_STATE_RESTARTING;
    if (job->stop_asked) return BT_STATE_STOPPING;
    if (job->paused) return BT_STATE_PAUSED;
    return job->last_step < job->from.step ? BT_STATE_STARTING : BT_STATE_RUNNING;
}

void bt_job_read_view(const bt_job *job, bt_job_view *v) {
    const int64_t now = bt_now_ns();
    *v = (bt_job_view){.state = state_of_job(job),
                       .attempt = job->attempt,
                       .ranks = job->world_size,
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
    BT_TRY(bt_job_execute_verb(job, verb, arg, by, err));
    if (bt_verb_find(verb) == BT_VERB_LR && job->s->lr > 0) {
        bt_text_printf(answer, "set %s: the peak learning rate is %.4g, it began as %.4g", arg,
                       job->lr_factor * job->s->lr, job->s->lr);
        return BT_OK;
    }
    if (bt_verb_find(verb) == BT_VERB_SAMPLE) {
        bt_text_put(answer, "sample requested: it is written at the end of this step");
        return BT_OK;
    }
    if (bt_verb_find(verb) != BT_VERB_STATUS) {
        bt_text_printf(answer, "%s%s%s", verb, arg[0] ? " " : "", arg);
        return BT_OK;
    }
    bt_job_view v;
    bt_job_read_view(job, &v);
    bt_json j;
    bt_json_begin(&j, answer);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "run", job->s->run);
    bt_json_str(&j, "state", bt_run_states[v.state].name);
    BT_JSON_FIELDS(&j, &v, F(attempt), F(ranks), F(restarts), F(step), F(from_step),
                   F(committed_step), F(silence_s), F(dropped), F(late));
    bt_json_end(&j, '}');
    return BT_OK;
}
