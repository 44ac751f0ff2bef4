/* supervisor.c - runs attempt after attempt of a run: locks, sockets, and the loop that waits for all events. */
#include "monitor/job/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/os/signal_fd.h"
#include "engine/base/system/hangup.h"
#include "monitor/job/job.h"
#include "monitor/job/launch/proc.h"
#include "monitor/job/launch/remote_cleanup.h"
#include "monitor/job/machine/machine_map.h"
#include "monitor/job/machine/memory_kills.h"
#include "store/read/run_log.h"

/* Viewers, and attacks on them, must not delay the ranks. */
enum { VIEWER_NICE = 10 };
/* A notice to leave reaches all processes of a job in any order. */
static const double NOTICE_S = 1;
static const int64_t HANG_LOOK_NS = 100000000;
static const int64_t TICK_NS = 200000000, KILL_AFTER_NS = 300000000, LAST_WORDS_NS = 2000000000;

/* ---- signals --------------------------------------------------------------------------------- */

static void fill_signal_set(sigset_t *set) {
    sigemptyset(set);
    static const int taken[] = {SIGTERM, SIGINT,  SIGQUIT, SIGCHLD, SIGTSTP,
                                SIGCONT, SIGUSR1, SIGUSR2, SIGXCPU};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) sigaddset(set, taken[i]);
    bt_hangup_add(set);
}

void bt_job_block_signals(void) {
    sigset_t set;
    fill_signal_set(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTOU,
           SIG_IGN); /* writing the status line in the background must not stop this process */
}

static void leave_terminal(bt_job *job) {
    const bt_job_ui *ui = &job->s->ui;
    if (ui->away) ui->away(ui->ctx, true);
    raise(SIGSTOP);
    if (ui->away) ui->away(ui->ctx, false);
    bt_hang_anew(&job->hang);
    /* No records were received while this process was stopped. */
    bt_health_sign(&job->health, bt_now_ns());
}

static void read_job_signals(bt_job *job) {
    for (int sig; (sig = bt_signal_fd_take(job->signals)) > 0;) {
        switch (sig) {
        case SIGTSTP: leave_terminal(job); break;
        case SIGHUP:
            job->no_input = true;
            if (job->s->ui.hangup && job->s->ui.hangup(job->s->ui.ctx))
                bt_job_event(job, BT_EVENT_TERMINAL, -1,
                             "the terminal was closed; training continues");
            else
                bt_job_signal(job, SIGHUP);
            break;
        case SIGQUIT:
            if (!job->result->signal) job->result->signal = SIGQUIT;
            bt_job_stop_now(job);
            break;
        case SIGINT:
        case SIGUSR1: /* the notice of Slurm's --signal=B:USR1@N */
        case SIGUSR2: /* Grid Engine sends this signal before a suspension or the end */
        case SIGXCPU: /* the soft limit of processor time; SIGKILL follows at the hard one */
        case SIGTERM: bt_job_signal(job, sig); break;
        case SIGCONT:
            if (job->s->ui.away) job->s->ui.away(job->s->ui.ctx, false);
            break;
        default: break; /* for CHLD, waitpid is called later */
        }
    }
}

/* ---- one attempt ----------------------------------------------------------------------------- */

static void serve_wire(bt_job *job) {
    bt_err err = BT_ERR_INIT;
    if (bt_wire_serve(job->wire, job->attempt, &job->into, &err) != BT_OK)
        bt_job_event(job, BT_EVENT_WARNING, 0, "%s", err.msg);
    if (!job->connected && bt_wire_connected(job->wire)) {
        job->connected = true;
        bt_job_launch_connected(job, bt_now_ns());
        if (job->paused) job->pending |= BT_PENDING(PAUSE);
        bt_job_send_pending(job);
    }
}

static const char *remote_host_of_rank(const bt_job *job, int rank) {
    for (int i = 0; i < job->n_remote; i++)
        if (job->far[i].rank == rank) return job->far[i].host;
    return "unknown";
}

static void report_delaying_rank(bt_job *job, int64_t now) {
    char what[240];
    int rank;
    double limit = 10 * bt_health_median_s(&job->health);
    if (limit <= 0 || job->health.paused || job->stop_asked) return;
    if (limit < 2) limit = 2;
    if (bt_rank_progress_slow(&job->places, now, limit, what, sizeof what, &rank))
        bt_job_event(job, BT_EVENT_SLOW, rank, "%s", what);
    else if (job->s->hosts[0] &&
             bt_rank_progress_missing(&job->places, now, limit, what, sizeof what, &rank))
        bt_job_event(job, BT_EVENT_SLOW, rank, "%s%s%s%s", what, rank >= 0 ? " (host " : "",
                     rank >= 0 ? remote_host_of_rank(job, rank) : "", rank >= 0 ? ")" : "");
}

/* Ends a hanging rank of this host soon if a restart is allowed (hang_watch.h). */
static void check_hang(bt_job *job, int64_t now) {
    enum { FEW = 3 }; /* number of steps needed to estimate the step time */
    bt_hang hang;
    if (now < job->hang_look_ns) return;
    job->hang_look_ns = now + HANG_LOOK_NS;
    if (job->paused || job->stop_asked || job->resize.wanted || !job->connected ||
        job->health.n == 0 || !(job->s->hang_s > 0) || job->s->max_restarts == 0) {
        bt_hang_anew(&job->hang);
        return;
    }
    const double median = job->health.n < FEW ? 0 : bt_health_median_s(&job->health);
    if (!bt_hang_check(&job->hang, &job->places, now, median, &hang)) return;
    bt_job_event(job, BT_EVENT_FAILURE, hang.rank, "%s (%.1f s are allowed): the ranks are ended",
                 hang.what, hang.limit_s);
    bt_job_end_hung(job);
}

static void check_health(bt_job *job) {
    char who[320], told[480];
    int rank;
    const int64_t now = bt_now_ns();
    bt_job_launch_check(job, now);
    if (!job->hung) bt_job_start_check(job, now);
    report_delaying_rank(job, now);
    bt_job_hosts_check(job, now);
    /* islands.patience limits how long an island waits for its hub. */
    if (job->places.n > 0 && bt_rank_progress_read(&job->places, 0).at == BT_AT_HUB)
        bt_health_sign(&job->health, now);
    if (!job->hung) bt_job_check_stopped(job, now);
    if (!job->hung) check_hang(job, now);
    switch (bt_health_check(&job->health, now, job->stop_asked ? 0 : job->s->hang_s)) {
    case BT_HEALTH_LATE:
        bt_job_name_culprit(job, now, who, sizeof who, &rank);
        snprintf(told, sizeof told, "no step for %.0f s (expected within %.0f s)%s",
                 bt_health_silence_s(&job->health, now), bt_health_limit_s(&job->health), who);
        bt_job_stalled(job, rank, bt_health_silence_s(&job->health, now), told);
        break;
    case BT_HEALTH_RECOVERED: bt_job_event(job, BT_EVENT_RECOVERED, -1, "steps come again"); break;
    case BT_HEALTH_DEAD:
        bt_job_name_culprit(job, now, who, sizeof who, &rank);
        bt_job_event(job, BT_EVENT_FAILURE, rank, "no step for %.0f s: the ranks are ended%s",
                     bt_health_silence_s(&job->health, now), who);
        bt_job_end_hung(job);
        break;
    case BT_HEALTH_FINE: break;
    }
    if (job->stop_now && now - job->stop_ns > KILL_AFTER_NS)
        bt_proc_kill_session(job->child.pid, 0);
}

/* The first line of a viewer is its address with a secret, so its output is written to the screen only. */
static void read_viewer(bt_job *job) {
    bool ended = false;
    for (const char *line; (line = bt_viewer_line(&job->viewer, &ended));)
        bt_job_show(job, BT_EVENT_NOTICE, line);
    if (ended) {
        bt_viewer_stop(&job->viewer);
        bt_job_show(job, BT_EVENT_WARNING, "the dashboard ended; training continues");
    }
}

static void wait_once(bt_job *job, int64_t until_ns) {
    const bt_job_ui *ui = &job->s->ui;
    struct pollfd p[9];
    p[0] = (struct pollfd){job->signals, POLLIN, 0};
    p[1] = (struct pollfd){job->child.out, POLLIN, 0};
    p[2] = (struct pollfd){bt_wire_fd(job->wire), POLLIN, 0};
    p[3] = (struct pollfd){job->control ? bt_control_fd(job->control) : -1, POLLIN, 0};
    p[4] = (struct pollfd){job->no_input ? -1 : ui->input_fd, POLLIN, 0};
    p[5] = (struct pollfd){job->viewer.out, POLLIN, 0};
    p[6] = (struct pollfd){job->watch.epoll, POLLIN, 0};
    const bool spare = job->spare.child.pid > 0;
    p[7] = (struct pollfd){spare ? job->spare.child.out : -1, POLLIN, 0};
    p[8] = (struct pollfd){spare ? job->spare.socket.listen : -1, POLLIN, 0};
    int64_t wait = until_ns - bt_now_ns();
    if (poll(p, 9, wait > 0 ? (int)(wait / 1000000) + 1 : 0) < 0) return;
    if (p[6].revents) bt_job_read_deaths(job);
    if (p[0].revents) read_job_signals(job);
    if (p[1].revents && !bt_output_drain(&job->output, job->child.out)) {
        close(job->child.out);
        job->child.out = -1;
    }
    if (p[2].revents) serve_wire(job);
    /* Ranks that connect while the last output is read are not watched, because the next attempt would take them for
     * its own. */
    if (job->watch.epoll < 0 && job->n_ranks > 0) bt_job_watch_ranks(job);
    if (p[3].revents) bt_control_serve(job->control, bt_job_request, job);
    if (p[5].revents) read_viewer(job);
    if (p[7].revents || p[8].revents) bt_job_spare_serve(job);
    if (p[4].revents & POLLIN && ui->input)
        ui->input(ui->ctx, job);
    else if (p[4].revents)
        job->no_input = true;
}

static void update_screen(bt_job *job, int64_t *next) {
    const int64_t now = bt_now_ns();
    if (now < *next) return;
    *next = now + TICK_NS;
    bt_job_hosts_tick(job, now);
    bt_job_alerts_tick(job, now);
    bt_job_spare_tick(job);
    bt_job_view v;
    bt_job_read_view(job, &v);
    if (job->s->ui.tick) job->s->ui.tick(job->s->ui.ctx, &v);
}

/* Records that the ranks sent before their end are still in the socket. */
static void serve_last_records(bt_job *job) {
    const int64_t until = bt_now_ns() + LAST_WORDS_NS;
    do serve_wire(job);
    while (bt_wire_connected(job->wire) && bt_now_ns() < until && (bt_sleep_ns(1000000), true));
    if (job->child.out >= 0) {
        bt_output_drain(&job->output, job->child.out);
        close(job->child.out);
        job->child.out = -1;
    }
}

/* Uses the pids that the ranks of this host wrote into their pages before they allocated memory. */
static bool was_rank_killed_for_memory(const bt_job *job) {
    int pids[BT_JOB_LOCAL_RANKS];
    size_t n = 0;
    for (int r = 0; r < job->places.n && job->places.slot && n < BT_JOB_LOCAL_RANKS; r++) {
        const int pid = atomic_load(&job->places.slot[r].pid);
        if (pid > 0) pids[n++] = pid;
    }
    return bt_memory_killed(pids, n, job->started_ns, job->memory_kills);
}

static bt_end watch_attempt(bt_job *job) {
    int status = 0;
    int64_t next = 0;
    while (waitpid(job->child.pid, &status, WNOHANG) == 0) {
        update_screen(job, &next);
        wait_once(job, next < job->hang_look_ns ? next : job->hang_look_ns);
        check_health(job);
    }
    bt_job_end_ranks(job);
    serve_last_records(job);
    const bool oom = was_rank_killed_for_memory(job);
    int behind;
    if (!bt_rank_progress_describe_all(&job->places, bt_now_ns(), job->where, sizeof job->where,
                                       &behind))
        job->where[0] = '\0';
    bt_job_attempt_over(job);
    const bt_end_facts f = {.wait_status = job->ended_by_us ? SIGKILL : status,
                            .hung = job->hung,
                            .lost_host = job->lost_host ? job->lost_host->name : NULL,
                            .lost_node = job->output.node_lost ? job->output.lost_node : NULL,
                            .finished = job->complete,
                            .stop_now = job->stop_now,
                            /* a rank can connect, send and leave within one round of waiting */
                            .started = job->connected || job->last_step >= job->from.step,
                            .oom = oom,
                            .reported = job->output.reported,
                            .code = job->output.code,
                            .rank = job->output.rank,
                            .signal = job->output.signal,
                            .step = job->last_step,
                            .message = job->output.message,
                            .last_line = job->output.said[0] ? job->output.said
                                                             : job->output.last_line};
    bt_end end = bt_end_classify(&f);
    if (job->unstarted) end.kind = BT_END_DONE;
    /* The work is done and saved, so a rank that fails while exiting does not cause a restart. */
    if (job->complete && !f.reported && end.kind != BT_END_DONE && end.kind != BT_END_STOPPED_NOW) {
        bt_job_event(job, BT_EVENT_WARNING, end.rank,
                     "the run was complete, but mpirun then ended with exit code %d (see log.txt)",
                     end.status);
        end.kind = BT_END_DONE;
    }
    return end;
}

/* ---- attempt after attempt ------------------------------------------------------------------- */

/* Returns true if the run is over. */
static bool wait_for_restart(bt_job *job, double delay_s) {
    int64_t next = 0;
    job->restarting = true;
    job->restart_at_ns = bt_now_ns() + (int64_t)(delay_s * 1e9);
    while (!job->stop_asked && bt_now_ns() < job->restart_at_ns) {
        update_screen(job, &next);
        wait_once(job, next < job->restart_at_ns ? next : job->restart_at_ns);
    }
    return job->stop_asked;
}

/* The state in memory is newer than every checkpoint: if a run must stop, its ranks restart once more to save it. */
static bool has_state_to_save(bt_job *job) {
    bt_resume_point p = {.lr_factor = 1};
    bt_text ignored;
    bt_err why = BT_ERR_INIT;
    if (job->stop_now || !job->memory[0]) return false;
    bt_text_init(&ignored);
    const bool memory = job->s->resume_point(job->s->resume_ctx, job->memory, &p, &ignored, &why) ==
                            BT_OK &&
                        p.memory;
    bt_text_release(&ignored);
    if (memory) job->pending |= BT_PENDING(STOP);
    return memory;
}

static bool may_resource_be_granted(bt_code code) {
    return code == BT_IO || code == BT_NOMEM || code == BT_MPI || code == BT_DB ||
           code == BT_BUSY || code == BT_UNSUPPORTED;
}

/* Starts the next attempt, and retries for about an hour if the machine refuses required resources. The state in
 * memory is kept meanwhile. BT_STOPPED: a stop was requested. */
static bt_code start_next_attempt(bt_job *job, const char *reason, const bt_end *end, bt_err *err) {
    for (int tries = 1;; tries++) {
        const bt_code code = bt_job_next_attempt(job, reason, tries == 1 ? end : NULL, err);
        if (code == BT_OK || !may_resource_be_granted(code) || tries >= BT_RESTART_HOUR)
            return code;
        const double delay_s = bt_restart_delay_s(tries);
        bt_job_event(job, BT_EVENT_WARNING, -1, "attempt %d cannot start: %s; next try in %.0f s%s",
                     job->attempt + 1, err->msg, delay_s,
                     job->from.memory ? ", and the state in memory is kept" : "");
        if (wait_for_restart(job, delay_s)) return BT_STOPPED;
    }
}

/* The ranks found the state in memory damaged and dropped it, so the next attempt begins from disk. */
static bool dropped_state_in_memory(const bt_job *job, const bt_end *end) {
    return job->from.memory && end->kind == BT_END_ERROR && end->code == BT_FORMAT &&
           job->last_step < job->from.step;
}

static bt_code run_attempts(bt_job *job, bt_err *err) {
    const bt_job_setup *s = job->s;
    bt_code code = BT_OK;
    BT_TRY(bt_job_start_attempt(job, err));
    bt_job_show_attempt(job);
    while (code == BT_OK) {
        char told[640];
        job->result->attempts++;
        bt_end end = watch_attempt(job);
        job->result->end = end;
        if (bt_job_ended_to_resize(job, &end)) {
            bt_job_end_record(job, "stopped", "resized", 0);
            code = start_next_attempt(job, NULL, NULL, err);
            job->result->resizes += code == BT_OK;
            continue;
        }
        if (bt_job_left_unasked(job, &end)) {
            /* Among several machines, a notice to one is for that machine only. */
            const bool without_it = bt_job_hosts_left(job);
            if (!without_it && wait_for_restart(job, NOTICE_S)) return BT_OK;
            bt_job_end_record(job, "stopped", "signal", 0);
            code = start_next_attempt(
                job, without_it ? NULL : "a signal stopped the ranks, but not the run", NULL, err);
            job->result->restarts += code == BT_OK;
            continue;
        }
        if (end.kind != BT_END_DONE) bt_remote_sweep(s->hosts, job->scratch.shm, false);
        if (end.kind == BT_END_DONE || end.kind == BT_END_STOPPED_NOW) return BT_OK;
        bt_end_describe(&end, told, sizeof told);
        bt_restart r = bt_restart_decide(&job->history, &end, job->from.step, s->max_restarts);
        if (dropped_state_in_memory(job, &end)) r = (bt_restart){.again = s->max_restarts > 0};
        if (bt_job_hosts_ended(job, &end)) r = bt_restart_elsewhere(&job->history);
        if (r.again) bt_job_event(job, BT_EVENT_FAILURE, end.rank, "%s", told);
        /* the caller reports the end */
        else
            bt_job_record(job, BT_EVENT_FAILURE, end.rank, told);
        if (!r.again || job->stop_asked) {
            snprintf(job->result->why_not_again, sizeof job->result->why_not_again, "%s",
                     job->stop_asked ? "a stop was requested" : r.why);
            return BT_OK;
        }
        const bool at_once = !(r.delay_s > 0);
        if (!at_once) {
            bt_job_end_record(job, "failed", bt_end_name(end.kind), end.status);
            bt_job_clear_away(job);
        }
        if (wait_for_restart(job, r.delay_s) && !has_state_to_save(job))
            code = BT_STOPPED;
        else
            code = start_next_attempt(job, told, at_once ? &end : NULL, err);
        job->result->restarts += code == BT_OK;
    }
    if (code != BT_STOPPED) return code;
    snprintf(job->result->why_not_again, sizeof job->result->why_not_again, "a stop was requested");
    return BT_OK;
}

static void take_rank_warning(void *ctx, const char *text) {
    bt_job *job = ctx;
    job->stacks += strncmp(text, "stack of rank ", strlen("stack of rank ")) == 0;
    bt_job_event(job, BT_EVENT_WARNING, -1, "%s", text);
}

static void record_output_line(void *ctx, const char *text) {
    bt_job_record(ctx, BT_EVENT_OUTPUT, bt_run_log_rank(text), text);
}

static bt_code open_job(bt_job *job, bt_err *err) {
    char path[PATH_MAX];
    char clock_name[BT_CLOCK_NAME];
    sigset_t set;
    /* The ranks of this machine use the clock of this process for records. */
    if (bt_clock_name(clock_name)[0]) setenv("BITRAIN_CLOCK", clock_name, 1);
    fill_signal_set(&set);
    job->signals = bt_signal_fd_create(&set);
    if (job->signals < 0) return bt_fail_errno(err, BT_IO, errno, "cannot take signals");
    bt_rank_watch_adopt();
    bt_job_dirs_sweep();
    bt_remote_sweep(job->s->hosts, "", false);
    BT_TRY(bt_job_hosts_open(job, err));
    const bt_job_setup *s = job->s;
    const int most = s->elastic_max;
    BT_TRY(bt_job_dirs_create(&job->scratch, most > s->ranks ? most : s->ranks, err));
    /* The folder of states in memory belongs to the run: an attempt reads the states of the previous attempt. */
    snprintf(job->memory, sizeof job->memory, "%s/states", job->scratch.shm);
    if (mkdir(job->memory, 0700) != 0) job->memory[0] = '\0';
    snprintf(job->map, sizeof job->map, "%s/machine.xml", job->scratch.tmp);
    if (job->s->hosts[0] || !bt_machine_map_write(job->map)) job->map[0] = '\0';
    snprintf(path, sizeof path, "%s/wire", job->scratch.tmp);
    BT_TRY(bt_wire_listen(&job->wire, path, err));
    snprintf(path, sizeof path, "%s/control", job->scratch.tmp);
    BT_TRY(bt_control_listen(&job->control, path, err));
    bt_control_announce(job->s->out_dir, path);
    snprintf(path, sizeof path, "%s/log.txt", job->s->out_dir);
    bt_output_open(&job->output, path, job->attempt);
    if (job->output.log < 0)
        bt_job_event(job, BT_EVENT_WARNING, -1,
                     "'%s' cannot be written: the output of ranks and mpirun is not kept", path);
    job->output.note = take_rank_warning;
    job->output.on_line = record_output_line;
    job->output.note_ctx = job;
    bt_err why = BT_ERR_INIT;
    if (job->s->viewer && bt_viewer_start(&job->viewer, job->s->viewer, &why) != BT_OK)
        bt_job_show(job, BT_EVENT_WARNING, why.msg);
    if (job->viewer.pid > 0) setpriority(PRIO_PROCESS, (id_t)job->viewer.pid, VIEWER_NICE);
    return BT_OK;
}

static void close_job(bt_job *job) {
    bt_viewer_stop(&job->viewer);
    bt_job_spare_end(job);
    bt_hosts_close(&job->hosts);
    bt_rank_progress_close(&job->places);
    bt_hang_close(&job->hang);
    if (job->control) bt_control_withdraw(job->s->out_dir);
    bt_control_close(job->control);
    bt_wire_server_close(job->wire);
    bt_output_close(&job->output);
    /* Ranks that exited in order removed their states. */
    if (job->memory[0] && job->result->end.kind != BT_END_DONE)
        bt_remote_sweep(job->s->hosts, job->scratch.shm, true);
    bt_job_dirs_remove(&job->scratch);
    if (job->signals >= 0) close(job->signals);
}

bt_code bt_job_run(const bt_job_setup *s, bt_job_result *out, bt_err *err) {
    bt_job *job = calloc(1, sizeof *job);
    memset(out, 0, sizeof *out);
    if (!job) return bt_fail(err, BT_NOMEM, "cannot allocate the supervisor");
    job->s = s;
    job->result = out;
    job->signals = job->viewer.out = job->output.log = job->scratch.lock = job->scratch.shm_lock =
        -1;
    job->watch.epoll = job->child.out = job->spare.socket.listen = job->spare.child.out = -1;
    job->attempt = s->attempt;
    job->world_size = s->ranks;
    job->settings = s->settings;
    job->from = s->from;
    job->last_step = -1;
    if (!(job->from.lr_factor > 0)) job->from.lr_factor = 1;
    job->lr_factor = job->told_factor = job->from.lr_factor;
    bt_job_run_sink(job);
    bt_job_alerts_open(job);
    bt_code code = open_job(job, err);
    if (code == BT_OK) code = run_attempts(job, err);
    if (code == BT_OK) bt_job_alerts_end(job);
    bt_job_clear_away(job);
    out->stopped = job->stop_asked && !job->stop_now && out->end.kind == BT_END_DONE;
    close_job(job);
    free(job);
    return code;
}

void bt_job_result_release(bt_job_result *r) {
    free(r->result_json);
    r->result_json = NULL;
}
