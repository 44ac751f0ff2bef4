/* start_watch.c - watches the time between the first connection of an attempt's ranks and its first step.
 *
 * A rank can hang while it prepares data, loads weights or takes part in the first exchange. No step time is known yet
 * from which a limit could be computed, and reading a large checkpoint takes minutes. Ranks must therefore show
 * activity:
 * entering another position, beginning an exchange, reading or writing a file. Without activity, the rank that delays
 * the others is named after WAITED_S, all positions after NAMED_S, and the ranks are ended after launch.hang_s.
 * Activity of ranks on other hosts is not visible, so the deadline is longer with them. */
#include <stdio.h>

#include "engine/base/os/process_usage.h"
#include "monitor/job/job.h"

static const double WAITED_S = 2, NAMED_S = 30, UNSEEN = 6;
static const int64_t LOOK_NS = 200000000;

bool bt_job_has_stepped(const bt_job *job) { return job->health.last_ns > 0 || job->start.stepped; }

/* Returns the bytes that a process has read and written, in units of 64 KiB; messages of an idle process are
 * smaller. */
static uint64_t count_file_blocks(int pid) {
    bt_process_io io;
    return bt_process_io_read(pid, &io) ? (io.read + io.written + io.disk_read) >> 16 : 0;
}

static void check_step_progress(bt_job *job, const bt_rank_seen *first) {
    const bool in_step = first->at >= BT_AT_DATA && first->at <= BT_AT_OPTIMIZER;
    if (!in_step) return;
    if (job->start.first_step < 0) job->start.first_step = first->step;
    /* A run that is not recorded sends no steps. */
    job->start.stepped = first->step > job->start.first_step;
}

/* Returns true if a rank of this host has made progress since the previous check. */
static bool has_start_activity(bt_job *job) {
    uint64_t seen = 14695981039346656037u;
    bool waits_for_hub = false;
    for (int r = 0; job->places.slot && r < job->places.n; r++) {
        const bt_rank_seen s = bt_rank_progress_read(&job->places, r);
        const uint64_t facts[] = {(uint64_t)s.at, (uint64_t)s.since_ns, (uint64_t)s.exchanges,
                                  count_file_blocks(s.pid)};
        for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
            seen = (seen ^ facts[i]) * 1099511628211u;
        if (r == 0) check_step_progress(job, &s);
        waits_for_hub |= s.at == BT_AT_HUB; /* islands.patience limits that */
    }
    const bool changed = seen != job->start.seen;
    job->start.seen = seen;
    return changed || waits_for_hub || job->paused || job->start.alive_ns == 0;
}

static double start_deadline_s(const bt_job *job) {
    return job->s->hang_s * (job->s->hosts[0] ? UNSEEN : 1);
}

static void report_inactive_start(bt_job *job, double silent, const char *who, int rank) {
    char then[80] = "";
    if (job->s->hang_s > 0)
        snprintf(then, sizeof then, "; the ranks are ended after %.0f s (launch.hang_s)",
                 start_deadline_s(job));
    bt_job_event(job, BT_EVENT_STALLED, rank,
                 "the ranks have done nothing for %.0f s before the "
                 "first step%s%s%s",
                 silent, who[0] ? ": " : "", who, then);
    job->start.stalled = true;
}

static void end_inactive_start(bt_job *job, double silent, const char *who, int rank) {
    bt_job_event(job, BT_EVENT_FAILURE, rank,
                 "the ranks have done nothing for %.0f s before the first step (launch.hang_s): "
                 "they are ended%s%s",
                 silent, who[0] ? "; " : "", who);
    bt_job_end_hung(job);
}

void bt_job_start_check(bt_job *job, int64_t now) {
    char who[240];
    int rank;
    if (!job->connected || job->child.pid <= 0 || now < job->start.look_ns) return;
    if (bt_job_has_stepped(job)) {
        if (job->start.stalled) bt_job_event(job, BT_EVENT_RECOVERED, -1, "the first step is done");
        job->start.stalled = false;
        return;
    }
    job->start.look_ns = now + LOOK_NS;
    if (has_start_activity(job)) job->start.alive_ns = now;
    const double silent = (double)(now - job->start.alive_ns) / 1e9,
                 named = job->s->launch_s > 0 ? job->s->launch_s : NAMED_S;
    if (silent < WAITED_S && silent < named) return;
    const bool known = bt_rank_progress_awaited(&job->places, now, who, sizeof who, &rank);
    if (silent >= WAITED_S && known && rank >= 0 && rank != job->start.awaited &&
        !job->stopped_ns) {
        job->start.awaited = rank;
        bt_job_event(job, BT_EVENT_SLOW, rank, "%s", who);
    }
    if (silent >= named && !job->start.stalled && !job->stopped_ns)
        report_inactive_start(job, silent, known ? who : "", rank);
    if (job->s->hang_s > 0 && silent > start_deadline_s(job) && !job->stop_asked)
        end_inactive_start(job, silent, known ? who : "", rank);
}
