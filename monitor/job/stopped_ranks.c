/* stopped_ranks.c - finds ranks that a signal stopped (SIGSTOP, a debugger), and the rank that delays a silent run.
 *
 * MPI does not report a stopped rank, and all other ranks wait for it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/os/process_info.h"
#include "monitor/job/job.h"
#include "monitor/job/launch/proc.h"

/* Time between two searches. Before the first step a search may read all of /proc, so it is less frequent and begins
 * later. */
static const int64_t LOOK_NS = 100000000, LOOK_START_NS = 500000000;
static const double QUIET_S = 0.2, QUIET_START_S = 1, LEAST_S = 2, START_S = 10;

/* Reads the variables of Open MPI and MPICH, because a rank has no other identification before MPI_Init. */
static int rank_in_environment(int pid) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    char rank[16];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (bt_process_variable(pid, names[i], rank, sizeof rank)) return atoi(rank);
    return -1;
}

/* Returns the rank of this process; -1: unknown. */
static int rank_of_process(const bt_job *job, int pid) {
    for (int r = 0; r < job->n_ranks; r++)
        if (job->ranks[r].pid == pid) return job->ranks[r].rank;
    for (int r = 0; job->places.slot && r < job->places.n; r++)
        if (bt_rank_progress_read(&job->places, r).pid == pid) return r;
    return rank_in_environment(pid);
}

static void name_stopped_ranks(const bt_job *job, char *out, size_t size, int *rank) {
    bt_proc list[BT_JOB_LOCAL_RANKS + 1];
    size_t n = 0;
    /* If a rank is unknown, all processes of the session are listed, which takes longer. */
    if (job->n_ranks == job->world_size) {
        for (int r = 0; r < job->n_ranks; r++) n += bt_proc_read(job->ranks[r].pid, &list[n]);
        n += bt_proc_read(job->child.pid, &list[n]);
    } else
        n = bt_proc_session(job->child.pid, list, BT_JOB_LOCAL_RANKS);
    out[0] = '\0';
    *rank = -1;
    for (size_t i = 0; i < n; i++) {
        if (list[i].state != 'T' && list[i].state != 't') continue;
        *rank = rank_of_process(job, (int)list[i].pid);
        if (*rank >= 0)
            snprintf(out, size, "; rank %d (pid %d) is stopped by a signal", *rank,
                     (int)list[i].pid);
        else
            snprintf(out, size, "; pid %d (%s) is stopped by a signal", (int)list[i].pid,
                     list[i].name);
        return;
    }
}

void bt_job_name_culprit(const bt_job *job, int64_t now_ns, char *out, size_t size, int *rank) {
    char where[200];
    int behind;
    name_stopped_ranks(job, out, size, rank);
    if (!bt_rank_progress_describe_all(&job->places, now_ns, where, sizeof where, &behind)) return;
    size_t n = strlen(out);
    snprintf(out + n, size - n, "; %s", where);
    if (*rank < 0) *rank = behind;
}

/* A stopped rank is ended soon if a restart is allowed. Before the first step there is no median step, and START_S
 * is the limit. */
void bt_job_check_stopped(bt_job *job, int64_t now) {
    char who[400];
    int rank;
    const bool begun = bt_job_has_stepped(job);
    const double median = bt_health_median_s(&job->health),
                 quiet = begun ? bt_health_silence_s(&job->health, now)
                               : (double)(now - job->started_ns) / 1e9;
    if (now < job->stopped_look_ns || job->stop_asked || job->paused || job->child.pid <= 0) return;
    /* searches only if no steps arrive */
    if (!job->stopped_ns && quiet < (begun ? fmax(2 * median, QUIET_S) : QUIET_START_S)) return;
    job->stopped_look_ns = now + (begun ? LOOK_NS : LOOK_START_NS);
    name_stopped_ranks(job, who, sizeof who, &rank);
    if (!who[0] || (begun && rank < 0)) {
        if (job->stopped_ns)
            bt_job_event(job, BT_EVENT_RECOVERED, -1, "no rank is stopped any more");
        job->stopped_ns = 0;
        return;
    }
    const double limit = begun                  ? fmax(5 * median, LEAST_S)
                         : job->s->launch_s > 0 ? job->s->launch_s
                                                : START_S;
    const bool ends = job->s->hang_s > 0 && job->s->max_restarts > 0;
    if (!job->stopped_ns) {
        char what[80] = "the run waits for it";
        if (ends) snprintf(what, sizeof what, "the ranks are started again in %.0f s", ceil(limit));
        /* the rank may have been stopped at any time since the newest step */
        job->stopped_ns = now - (int64_t)(fmin(quiet, 0.5) * 1e9);
        bt_job_event(job, BT_EVENT_STALLED, rank, "%s; %s, unless it continues (kill -CONT)",
                     who + 2, what);
    } else if (ends && (double)(now - job->stopped_ns) / 1e9 > limit) {
        bt_job_name_culprit(job, now, who, sizeof who, &rank);
        bt_job_event(job, BT_EVENT_FAILURE, rank, "%s: the ranks are ended after %.0f s",
                     who[0] ? who + 2 : "a rank is stopped", limit);
        bt_job_end_hung(job);
    }
}
