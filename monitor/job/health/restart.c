/* restart.c - the table of ends.
 *
 * mpirun's exit code alone proves little: mpirun of Open MPI 5 exits with 0 after it lost a host, and with codes
 * above 128 for errors of its own. A run is done when rank 0 has sent its result, and a code above 128 is a signal
 * only where mpirun or this machine reported the death of a rank. */
#include "monitor/job/health/restart.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static const struct {
    const char *name;
    bool again;
} kinds[] = {
    [BT_END_DONE] = {"done", false},
    [BT_END_ERROR] = {"error", false}, /* IO and MPI errors may restart, see bt_restart_decide */
    [BT_END_SIGNAL] = {"signal", true},
    [BT_END_OOM] = {"out of memory", false}, /* restarts after progress, see bt_restart_decide */
    [BT_END_NODE_LOST] = {"node lost", true},
    [BT_END_HUNG] = {"hung", true},
    [BT_END_LAUNCH] = {"launch", false},
    [BT_END_STOPPED_NOW] = {"stopped now", false},
    [BT_END_OTHER] = {"unknown", true},
};

const char *bt_end_name(bt_end_kind kind) {
    return (unsigned)kind <= BT_END_OTHER ? kinds[kind].name : "?";
}

/* Open MPI 4.1: the exit codes after a lost daemon and after --timeout; 128 + SIGKILL */
enum { EX_NODE_LOST = 205, EX_TIMEOUT = 110, EX_KILLED = 137 };

bt_end bt_end_classify(const bt_end_facts *f) {
    bt_end e;
    memset(&e, 0, sizeof e);
    const bool by_signal = WIFSIGNALED(f->wait_status);
    e.status = by_signal ? 128 + WTERMSIG(f->wait_status) : WEXITSTATUS(f->wait_status);
    e.rank = f->rank;
    e.signal = f->signal;
    e.code = f->code;
    e.step = f->step;
    e.started = f->started;
    if (f->message && f->message[0])
        snprintf(e.message, sizeof e.message, "%s", f->message);
    else if (f->last_line)
        snprintf(e.message, sizeof e.message, "%s", f->last_line);
    const char *lost = f->lost_host ? f->lost_host : f->lost_node;
    if (lost) snprintf(e.host, sizeof e.host, "%s", lost);
    if (!e.signal && by_signal) e.signal = WTERMSIG(f->wait_status); /* of mpirun itself */

    if (f->stop_now)
        e.kind = BT_END_STOPPED_NOW;
    else if (f->lost_host)
        e.kind = BT_END_NODE_LOST;
    else if (f->hung)
        e.kind = BT_END_HUNG;
    else if (e.status == 0 && f->finished)
        e.kind = BT_END_DONE;
    else if (f->reported)
        e.kind = BT_END_ERROR;
    else if ((f->lost_node && f->started) || e.status == EX_NODE_LOST)
        e.kind = BT_END_NODE_LOST;
    else if (f->oom && (e.signal == SIGKILL || e.status == EX_KILLED))
        e.kind = BT_END_OOM;
    else if (e.signal)
        e.kind = BT_END_SIGNAL;
    else if (!f->started)
        e.kind = BT_END_LAUNCH;
    else if (e.status == EX_TIMEOUT)
        e.kind = BT_END_HUNG;
    else
        e.kind = BT_END_OTHER;
    return e;
}

const char *bt_end_describe(const bt_end *e, char *buf, size_t size) {
    char when[48] = "before the first step", who[32] = "a rank";
    if (e->step >= 0) snprintf(when, sizeof when, "after step %lld", (long long)e->step + 1);
    if (e->rank >= 0) snprintf(who, sizeof who, "rank %d", e->rank);
    switch (e->kind) {
    case BT_END_DONE: snprintf(buf, size, "done"); break;
    case BT_END_ERROR: snprintf(buf, size, "%s failed %s: %s", who, when, e->message); break;
    case BT_END_SIGNAL:
        snprintf(buf, size, "%s was ended by signal %d (%s) %s", who, e->signal,
                 strsignal(e->signal), when);
        break;
    case BT_END_OOM:
        snprintf(buf, size,
                 "%s was killed %s because its memory ran out (limit of its group or of the "
                 "machine; a smaller --micro-batch or --recompute full needs less)",
                 who, when);
        break;
    case BT_END_NODE_LOST:
        snprintf(buf, size, "%s%s was lost %s", e->host[0] ? "node " : "a node", e->host, when);
        break;
    case BT_END_HUNG:
        if (e->started || e->step >= 0)
            snprintf(buf, size, "no progress %s", when);
        else
            snprintf(buf, size, "mpirun did not start the ranks in time%s%s",
                     e->message[0] ? ": " : "", e->message);
        break;
    case BT_END_LAUNCH:
        snprintf(buf, size, "mpirun could not start the ranks (exit code %d): %s", e->status,
                 e->message);
        break;
    case BT_END_STOPPED_NOW: snprintf(buf, size, "stopped at once on request %s", when); break;
    case BT_END_OTHER:
        snprintf(buf, size, "mpirun ended with exit code %d %s%s%s%s", e->status, when,
                 e->status ? "" : ", before rank 0 had finished the run", e->message[0] ? ": " : "",
                 e->message);
        break;
    }
    return buf;
}

/* True for signals that a process does not send to itself. */
static bool is_external_signal(const bt_end *e) {
    static const int sent[] = {SIGKILL, SIGTERM, SIGHUP,  SIGINT,
                               SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
    for (size_t i = 0; e->kind == BT_END_SIGNAL && i < sizeof sent / sizeof *sent; i++) {
        if (e->signal == sent[i]) return true;
    }
    return false;
}

/* True if the machine refused a resource that a restart needs, before the attempt made progress. */
static bool refused_at_start(const bt_restart_history *h, const bt_end *e, bool progress) {
    return h->alive && !progress && e->kind == BT_END_ERROR &&
           (e->code == BT_IO || e->code == BT_MPI || e->code == BT_DB || e->code == BT_NOMEM);
}

static bool may_restart_help_after_oom(const bt_restart_history *h, const bt_end *e,
                                       bool progress) {
    enum { STEPS_APART = 100 }; /* in steps */
    return progress && (!h->any_oom || e->step - h->oom_step >= STEPS_APART);
}

static bool may_restart_help(const bt_restart_history *h, const bt_end *e, bool progress) {
    if (e->kind == BT_END_ERROR)
        return e->code == BT_DAMAGED || refused_at_start(h, e, progress) ||
               (progress && (e->code == BT_IO || e->code == BT_MPI || e->code == BT_DB));
    if (e->kind == BT_END_OOM) return may_restart_help_after_oom(h, e, progress);
    return kinds[e->kind].again || (e->kind == BT_END_LAUNCH && h->alive);
}

/* The recorded step of an end may be outdated; the message of a failed rank contains its own step. */
static bool is_same_failure(const bt_restart_history *h, const bt_end *e) {
    const bool same_message = e->kind == BT_END_ERROR && e->message[0] &&
                              strcmp(h->last.message, e->message) == 0;
    return h->any && h->last.kind == e->kind && (h->last.step == e->step || same_message) &&
           h->last.signal == e->signal && h->last.code == e->code;
}

/* Maximum number of consecutive restarts without a new step after this end; 0: max_restarts applies. */
static int restarts_in_time_limit(const bt_restart_history *h, const bt_end *e, bool progress) {
    enum { SIX_MINUTES = 12 }; /* delays 1, 2, 4, 8, 16, 32, 60, 60 ... s */
    const bool launch = e->kind == BT_END_LAUNCH ||
                        (e->kind == BT_END_HUNG && !e->started && h->alive);
    if (refused_at_start(h, e, progress)) return BT_RESTART_HOUR;
    return e->kind == BT_END_NODE_LOST || launch || is_external_signal(e) ? SIX_MINUTES : 0;
}

double bt_restart_delay_s(int n) { return n < 1 ? 0 : n > 6 ? 60 : (double)(1 << (n - 1)); }

bt_restart bt_restart_decide(bt_restart_history *h, const bt_end *e, int64_t from_step,
                             int64_t max_restarts) {
    bt_restart r;
    memset(&r, 0, sizeof r);
    if (!h->any) h->furthest = from_step - 1;
    const bool progress = e->step >= from_step, new_ground = e->step > h->furthest,
               oom = e->kind == BT_END_OOM;
    const int in_time = restarts_in_time_limit(h, e, progress);
    const bool same = !in_time && !oom && is_same_failure(h, e);
    if (new_ground) h->furthest = e->step, h->without_new_step = 0;
    const bool longer = max_restarts > 0 && max_restarts < in_time;
    const int64_t most = longer ? in_time : max_restarts;
    r.again = false;
    if (!may_restart_help(h, e, progress))
        snprintf(r.why, sizeof r.why, "%s",
                 oom && progress ? "the memory ran out twice within 100 steps"
                 : e->kind == BT_END_ERROR && e->code == BT_IO ? "it failed before any progress"
                                                               : "a restart would not help");
    else if (same)
        snprintf(r.why, sizeof r.why, "the same failure came twice at the same step");
    else if (h->without_new_step >= most)
        snprintf(r.why, sizeof r.why,
                 longer ? "%lld restarts in a row brought no new step"
                 : most ? "%lld restarts in a row brought no new step (launch.max_restarts)"
                        : "%lld restarts are allowed (launch.max_restarts)",
                 (long long)most);
    else
        r.again = true;
    h->last = *e;
    h->any = true;
    h->alive |= e->started;
    if (oom) h->any_oom = true, h->oom_step = e->step;
    if (r.again) {
        h->restarts++;
        h->without_new_step++;
        /* The process that took the memory may need time to release it. */
        if (!new_ground || oom) r.delay_s = bt_restart_delay_s(h->without_new_step);
    }
    return r;
}

bt_restart bt_restart_elsewhere(bt_restart_history *h) {
    h->without_new_step = 0;
    return (bt_restart){.again = true};
}

int bt_end_exit_code(const bt_end *e) {
    switch (e->kind) {
    case BT_END_DONE: return 0;
    case BT_END_ERROR: return bt_exit_code(e->code);
    default: return 1;
    }
}
