/* launch_watch.c - limits the time between the launch of an attempt and the first connection of its ranks, and handles
 * a stop request before the first step.
 *
 * mpirun can hang before it starts a rank (too few file descriptors, a name server without an answer). Then no rank can
 * report the fault or save anything, so the supervisor applies a deadline. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "monitor/job/job.h"
#include "monitor/job/launch/proc.h"

/* NAMED_S: a launch is reported after this time, and ended after DEADLINE times it. STOP_S: a stop waits this long
 * for ranks that may be about to connect or to finish their first step, longer if they hold a state that no
 * checkpoint has. */
static const double NAMED_S = 30, DEADLINE = 4, STOP_S = 0.5, STOP_STEP_S = 1,
                    STOP_WITH_STATE_S = 10;

void bt_job_launch_connected(bt_job *job, int64_t now) {
    job->start_s = fmax(job->start_s, (double)(now - job->started_ns) / 1e9);
    job->asked_ns = 0;
    if (job->launch_named) bt_job_event(job, BT_EVENT_RECOVERED, -1, "the ranks have connected");
    job->launch_named = false;
}

/* Returns mpirun's output, which explains the failed start. */
static const char *mpirun_message(bt_job *job) {
    if (job->child.out >= 0) (void)bt_output_drain(&job->output, job->child.out);
    return job->output.said[0] ? job->output.said : job->output.last_line;
}

/* Ranks that must save a state from memory have time as long as they are active. */
static double seconds_since_stop_request(const bt_job *job, int64_t now) {
    const bool alive = job->from.memory && job->start.alive_ns > job->asked_ns;
    return (double)(now - (alive ? job->start.alive_ns : job->asked_ns)) / 1e9;
}

static void end_start_after_stop_request(bt_job *job, int64_t now) {
    const double patience = job->from.memory ? fmax(STOP_WITH_STATE_S, 4 * job->start_s)
                            : job->connected ? STOP_STEP_S
                                             : STOP_S;
    if (!job->asked_ns) job->asked_ns = now;
    if (job->unstarted || seconds_since_stop_request(job, now) < patience) return;
    bt_job_event(job, BT_EVENT_WARNING, -1, "%s: the run stops, %s",
                 job->connected ? "no step is finished" : "no rank has connected",
                 job->from.memory ? "and the steps after the newest checkpoint are lost"
                                  : "there is nothing to save");
    job->unstarted = true;
    bt_proc_kill_session(job->child.pid, 0);
}

void bt_job_launch_check(bt_job *job, int64_t now) {
    const double waited = (double)(now - job->started_ns) / 1e9,
                 named = fmax(job->s->launch_s > 0 ? job->s->launch_s : NAMED_S, 10 * job->start_s);
    if (job->hung || job->stop_now || job->child.pid <= 0) return;
    if (job->stop_asked && !job->complete && !bt_job_has_stepped(job)) {
        end_start_after_stop_request(job, now);
        return;
    }
    if (job->connected) return;
    if (waited > named && !job->launch_named) {
        const char *words = mpirun_message(job);
        job->launch_named = true;
        bt_job_event(job, BT_EVENT_STALLED, -1,
                     "mpirun (pid %d) has started no rank for %.0f s and is ended after %.0f s%s%s",
                     (int)job->child.pid, waited, DEADLINE * named,
                     words[0] ? "; it printed: " : "", words);
    }
    if (waited <= DEADLINE * named) return;
    bt_job_event(job, BT_EVENT_FAILURE, -1,
                 "mpirun (pid %d) has started no rank for %.0f s: it is ended", (int)job->child.pid,
                 waited);
    job->hung = true;
    bt_proc_kill_session(job->child.pid, 1);
}
