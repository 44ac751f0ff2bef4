/* job_attempt.c - begins an attempt, detects its death, clears it away, and starts the next one.
 *
 * Between the death of a rank and the next launch only the resume point is found; records, processes and folders of the
 * previous attempt are handled while the next one starts. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/os/control_group.h"
#include "monitor/job/job.h"
#include "monitor/job/launch/proc.h"
#include "monitor/job/machine/machine_map.h"
#include "monitor/job/machine/memory_kills.h"

void bt_job_attempt_over(bt_job *job) {
    char from[PATH_MAX], to[PATH_MAX];
    job->past.folder = job->folder;
    job->past.session = job->child.pid;
    job->past.recorded = false;
    job->last_fence = job->fence;
    job->child.pid = 0;
    bt_rank_progress_close(&job->places);
    /* The next attempt can then create its own ring before these records are stored. */
    if (bt_job_ring_path(job, BT_JOB_RING, from, sizeof from) &&
        bt_job_ring_path(job, BT_JOB_RING_BEFORE, to, sizeof to))
        (void)rename(from, to);
}

/* Recovers records that rank 0 could not send. */
static void recover_records(bt_job *job) {
    char path[PATH_MAX];
    int64_t steps = 0;
    bt_err err = BT_ERR_INIT;
    if (!bt_job_ring_path(job, BT_JOB_RING_BEFORE, path, sizeof path)) return;
    if (bt_writer_recover(job->s->writer, job->s->run, path, &steps, &err) != BT_OK) {
        bt_job_event(job, BT_EVENT_WARNING, -1,
                     "records that rank 0 left behind remain in '%s': %s", path, err.msg);
        return;
    }
    unlink(path);
}

void bt_job_clear_away(bt_job *job) {
    if (!job->past.session) return;
    if (!job->past.recorded) recover_records(job);
    if (bt_proc_kill_session(job->past.session, 2) > 0)
        bt_job_event(job, BT_EVENT_WARNING, -1, "processes of the ranks do not end");
    bt_job_dirs_attempt_end(&job->scratch, job->past.folder);
    job->past.session = 0;
}

void bt_job_end_record(bt_job *job, const char *state, const char *kind, int status) {
    char path[PATH_MAX];
    bt_err why = BT_ERR_INIT;
    if (!job->s->writer || !bt_job_ring_path(job, BT_JOB_RING_BEFORE, path, sizeof path)) return;
    job->past.recorded = true;
    if (bt_writer_end_later(job->s->writer, state, kind, status, path, &why) != BT_OK)
        bt_job_event(job, BT_EVENT_WARNING, -1,
                     "records that rank 0 left behind remain in '%s': %s", path, why.msg);
}

/* mpirun handles ranks of other hosts. */
void bt_job_watch_ranks(bt_job *job) {
    if (job->s->hosts[0] || job->n_ranks != job->world_size) return;
    if (!bt_rank_watch_open(&job->watch)) return;
    for (int i = 0; i < job->n_ranks; i++)
        bt_rank_watch_add(&job->watch, job->ranks[i].rank, job->ranks[i].pid);
}

/* A failing rank marks its page, reports the cause and calls MPI_Abort, and mpirun kills the other ranks. Its report
 * may arrive after their deaths are detected. */
static bool has_rank_reported(bt_job *job) {
    enum { WORDS_MS = 25 };
    struct pollfd out = {.fd = job->child.out, .events = POLLIN};
    const bool told = job->places.n == job->world_size;
    const bool awaited = !told || bt_rank_progress_failed(&job->places);
    const int64_t until = bt_now_ns() + (awaited ? WORDS_MS * (int64_t)1000000 : 0);
    while (job->child.out >= 0 && !job->output.reported && bt_now_ns() < until) {
        if (poll(&out, 1, (int)((until - bt_now_ns()) / 1000000) + 1) <= 0) break;
        if (!bt_output_drain(&job->output, job->child.out)) break;
    }
    return job->output.reported;
}

/* A rank that was killed from outside reports nothing, so all ranks and mpirun are ended at once. Any other end is
 * reported by the rank or by mpirun. */
void bt_job_read_deaths(bt_job *job) {
    char line[200], host[BT_HOST_MAX] = "";
    for (int rank, signal; (rank = bt_rank_watch_next(&job->watch, &signal)) >= 0;) {
        if (signal != SIGKILL) job->died_otherwise = true;
        if (job->died_otherwise || job->ended_by_us || job->hung || job->stop_now || job->complete)
            continue;
        if (has_rank_reported(job)) continue;
        bt_rank_watch_kill(&job->watch);
        kill(job->child.pid, SIGKILL);
        job->ended_by_us = true;
        gethostname(host, sizeof host - 1);
        if (job->child.out >= 0) (void)bt_output_drain(&job->output, job->child.out);
        /* written like a message of mpirun, which output.c parses */
        int n = snprintf(
            line, sizeof line,
            "\nbitrain train: process rank %d with PID %d on node %s exited on signal %d\n", rank,
            (int)bt_rank_watch_pid(&job->watch, rank), host, signal);
        bt_output_feed(&job->output, line, (size_t)n);
    }
}

/* Makes the ranks of this host print their call stacks (cli/train/rank/rank_stack.h). WAIT_MS suffices for ranks that
 * share their processors with other programs, so only an unresponsive rank exceeds it. */
static void request_stacks(bt_job *job) {
    enum { WAIT_MS = 2000 };
    const int64_t until = bt_now_ns() + WAIT_MS * INT64_C(1000000);
    job->stacks = 0;
    const int asked = bt_rank_watch_signal(&job->watch, SIGUSR2);
    (void)bt_rank_watch_signal(&job->watch,
                               SIGCONT); /* a stopped rank prints its stack when it continues */
    while (job->stacks < asked && bt_now_ns() < until && job->child.out >= 0) {
        struct pollfd p = {job->child.out, POLLIN, 0};
        if (poll(&p, 1, 10) == 1 && !bt_output_drain(&job->output, job->child.out)) return;
    }
}

void bt_job_end_hung(bt_job *job) {
    request_stacks(job);
    job->hung = true;
    bt_proc_kill_session(job->child.pid, 1);
}

void bt_job_end_ranks(bt_job *job) {
    /* Searching the session's processes is slow, so they are ended only if a rank is alive or unknown. */
    const bool known = job->watch.n > 0 && job->watch.n == (size_t)job->world_size;
    bt_rank_watch_kill(&job->watch);
    if ((bt_rank_watch_wait(&job->watch, 2) > 0 || !known) &&
        bt_proc_kill_session(job->child.pid, 2) > 0)
        bt_job_event(job, BT_EVENT_WARNING, -1, "processes of the ranks do not end");
    bt_rank_watch_close(&job->watch);
}

/* The longest activities and the number of hangs are kept for the whole run. */
static void watch_for_hangs(bt_job *job) {
    bt_hang_watch *h = &job->hang;
    bt_err why = BT_ERR_INIT;
    job->hang_look_ns = 0;
    if (h->n == job->world_size) {
        bt_hang_anew(h);
        return;
    }
    const int found = h->found;
    bt_hang_close(h);
    if (job->s->hosts[0]) return; /* ranks of other hosts are invisible here */
    if (bt_hang_open(h, job->world_size, bt_rank_load_read, NULL, &why) != BT_OK)
        bt_log(BT_LOG_DEBUG, "%s", why.msg);
    h->found = found;
}

static void reset_observations(bt_job *job) {
    job->where[0] = '\0';
    job->last_step = job->leaving = -1;
    job->n_ranks = job->n_remote = 0;
    job->connected = job->complete = job->hung = job->restarting = job->ended_by_us =
        job->died_otherwise = job->unstarted = false;
    job->stopped_ns = job->stopped_look_ns = 0;
    job->launch_named = false;
    memset(&job->start, 0, sizeof job->start);
    job->start.first_step = job->start.awaited = -1;
    job->memory_kills = bt_group_memory_kills();
    job->started_ns = bt_now_ns();
    bt_health_start(&job->health);
    watch_for_hangs(job);
}

bt_code bt_job_start_attempt(bt_job *job, bt_err *err) {
    char ring[PATH_MAX];
    /* An earlier run of this name may have left a ring file, whose useful records were recovered. */
    if (bt_job_ring_path(job, BT_JOB_RING, ring, sizeof ring)) unlink(ring);
    reset_observations(job);
    if (bt_job_spare_take(job)) return BT_OK;
    job->folder = job->attempt;
    const bt_job_ranks how = {.folder = job->folder,
                              .attempt = job->attempt,
                              .fence = bt_job_next_fence(job),
                              .resume_from = job->from.dir,
                              .spare = ""};
    return bt_job_launch(job, &how, &job->child, &job->places, err);
}

void bt_job_show_attempt(const bt_job *job) {
    const bt_job_ui *ui = &job->s->ui;
    if (ui->attempt) ui->attempt(ui->ctx, job->attempt, job->from.step);
}

static void end_cancelled_attempt(bt_job *job) {
    if (job->child.pid <= 0) return;
    (void)bt_proc_kill_session(job->child.pid, 2);
    (void)waitpid(job->child.pid, NULL, 0);
    if (job->child.out >= 0) close(job->child.out);
    job->child = (bt_child){.out = -1};
    bt_rank_progress_close(&job->places);
    bt_job_dirs_attempt_end(&job->scratch, job->folder);
}

/* Writes the record of the attempt that was just launched; the database may store it later. */
static bt_code record_attempt_begin(bt_job *job, const char *reason, bt_err *err) {
    bt_run_start start = job->s->start;
    if (!job->s->writer) return BT_OK;
    start.resume = true;
    start.from_step = job->from.step;
    start.reason = reason;
    start.world_size = job->world_size;
    return bt_writer_begin_later(job->s->writer, &start, job->attempt, err);
}

static bt_code find_resume_point(bt_job *job, bt_text *why, bt_err *err) {
    const bt_job_setup *s = job->s;
    bt_code code = s->resume_point(s->resume_ctx, job->memory, &job->from, why, err);
    /* an unmounted folder may be mounted again later, so this is retried */
    if (code == BT_NOTFOUND && job->saved > 0)
        return bt_fail(err, BT_IO, "the checkpoint after step %lld is not in '%.200s' any more",
                       (long long)job->saved, s->out_dir);
    if (code ==
        BT_NOTFOUND) { /* no checkpoint: the attempt begins where the run's first attempt began */
        job->from = s->from;
        if (!(job->from.lr_factor > 0)) job->from.lr_factor = 1;
        code = BT_OK;
    }
    job->told_factor = job->from.lr_factor;
    return code;
}

static void announce_next_attempt(bt_job *job, const bt_text *why, const char *reason) {
    for (const char *line = bt_text_str(why), *end; *line; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        bt_job_event(job, BT_EVENT_CKPT_DAMAGED, -1, "%.*s", (int)(end - line), line);
    }
    if (job->folder != job->attempt)
        bt_job_event(job, BT_EVENT_SPARE, -1, "attempt %d is that of the hot spare", job->attempt);
    if (job->last_step < job->from.step - 1) job->last_step = job->from.step - 1;
    if (reason)
        bt_job_event(job, BT_EVENT_RESTARTED, -1, "attempt %d continues after step %lld: %s",
                     job->attempt, (long long)job->from.step, reason);
}

bt_code bt_job_next_attempt(bt_job *job, const char *reason, const bt_end *end, bt_err *err) {
    bt_text why;
    bt_text_init(&why);
    bt_code code = find_resume_point(job, &why, err);
    char layout[480] = "";
    const int ranks_before = job->world_size;
    bt_job_hosts_begin(job);
    const bool other = code == BT_OK && bt_job_take_layout(job, layout, sizeof layout);
    if (other) bt_job_spare_end(job); /* the spare has the previous layout */
    job->attempt++;
    bt_output_reset(&job->output, job->attempt);
    if (code == BT_OK) code = bt_job_start_attempt(job, err);
    if (end) bt_job_end_record(job, "failed", bt_end_name(end->kind), end->status);
    if (code == BT_OK) code = record_attempt_begin(job, other ? layout : reason, err);
    if (code == BT_OK) {
        announce_next_attempt(job, &why, reason);
        if (other) bt_job_resized_event(job, ranks_before, layout);
        bt_job_show_attempt(job);
    } else {
        end_cancelled_attempt(job);
        job->attempt--; /* the next try has the same number */
    }
    bt_text_release(&why);
    bt_job_clear_away(job);
    return code;
}
