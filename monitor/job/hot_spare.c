/* hot_spare.c - a second job of the same ranks waits beside the run (launch.hot_spare), initialised as far as
 * possible without the state. When the training ranks die, the second job reads the state and continues without
 * starting processes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/process_usage.h"
#include "monitor/job/job.h"
#include "monitor/job/launch/proc.h"

/* FOLDERS: number of the first folder of a spare, larger than the number of any attempt. TRIES: maximum number of
 * consecutive spares that end by themselves. */
enum { FOLDERS = 1000000, TRIES = 2 };

void bt_job_spare_end(bt_job *job) {
    bt_job_spare *s = &job->spare;
    if (s->child.pid <= 0) return;
    bt_spare_close(&s->socket); /* its ranks then exit */
    (void)bt_proc_kill_session(s->child.pid, 2);
    (void)waitpid(s->child.pid, NULL, 0);
    if (s->child.out >= 0) close(s->child.out);
    s->child = (bt_child){.out = -1};
    bt_rank_progress_close(&s->places);
    bt_job_dirs_attempt_end(&job->scratch, s->folder);
    s->told = false;
}

static void start_spare(bt_job *job) {
    bt_job_spare *s = &job->spare;
    char path[300];
    bt_err why = BT_ERR_INIT;
    s->folder = FOLDERS + s->started++;
    s->ranks = job->world_size;
    s->output = (bt_output){.log = -1};
    bt_output_reset(&s->output, job->attempt);
    snprintf(path, sizeof path, "%s/spare-%d", job->scratch.tmp, s->started);
    bt_code code = bt_spare_listen(&s->socket, path, &why);
    if (code == BT_OK) {
        const bt_job_ranks how = {.folder = s->folder, .spare = path};
        code = bt_job_launch(job, &how, &s->child, &s->places, &why);
    }
    if (code == BT_OK) return;
    bt_spare_close(&s->socket);
    s->failed = TRIES;
    bt_job_event(job, BT_EVENT_WARNING, -1, "no hot spare: %s", why.msg);
}

static double resident_mib(const bt_spare_socket *s) {
    double sum = 0;
    for (int i = 0; i < s->n; i++) {
        size_t all, resident;
        const pid_t pid = bt_spare_pid(s, i);
        if (pid > 0 && bt_process_memory(pid, &all, &resident)) sum += (double)resident / 1048576;
    }
    return sum;
}

static void on_spare_exit(bt_job *job, int status) {
    bt_job_spare *s = &job->spare;
    if (s->child.out >= 0) (void)bt_output_drain(&s->output, s->child.out);
    const char *said = s->output.reported ? s->output.message : s->output.last_line;
    s->failed++;
    bt_job_event(job, BT_EVENT_WARNING, -1, "the hot spare has ended (mpirun's exit code %d): %s%s",
                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), said,
                 s->failed < TRIES ? "" : "; no other is started");
    bt_job_spare_end(job);
}

void bt_job_spare_serve(bt_job *job) {
    bt_job_spare *s = &job->spare;
    if (s->child.pid <= 0) return;
    if (s->child.out >= 0 && !bt_output_drain(&s->output, s->child.out)) {
        close(s->child.out);
        s->child.out = -1;
    }
    if (s->socket.listen >= 0) (void)bt_spare_accept(&s->socket);
    if (s->told || s->socket.n < s->ranks) return;
    s->told = true;
    bt_job_event(job, BT_EVENT_SPARE, -1, "a hot spare waits: %d rank%s, %.0f MiB", s->ranks,
                 s->ranks == 1 ? "" : "s", resident_mib(&s->socket));
}

void bt_job_spare_tick(bt_job *job) {
    bt_job_spare *s = &job->spare;
    int status = 0;
    if (s->child.pid > 0 && waitpid(s->child.pid, &status, WNOHANG) == s->child.pid)
        on_spare_exit(job, status);
    /* A job that has not trained yet gets no spare, because it may be unable to train. */
    if (!job->s->hot_spare || s->child.pid > 0 || s->failed >= TRIES || job->child.pid <= 0 ||
        job->last_step < job->from.step + 1 || job->stop_asked || job->complete ||
        job->resize.wanted || job->world_size > BT_SPARE_RANKS)
        return;
    start_spare(job);
}

bool bt_job_spare_take(bt_job *job) {
    bt_job_spare *s = &job->spare;
    if (s->child.pid <= 0) return false;
    bt_spare_go go = {.attempt = job->attempt, .fence = bt_job_next_fence(job)};
    bt_job_spare_serve(job);
    snprintf(go.resume_from, sizeof go.resume_from, "%s", job->from.dir);
    if (!s->told || s->ranks != job->world_size || !bt_spare_send(&s->socket, &go)) {
        bt_job_spare_end(job);
        return false;
    }
    bt_spare_close(&s->socket);
    job->child = s->child;
    job->places = s->places;
    job->folder = s->folder;
    s->child = (bt_child){.out = -1};
    s->places = (bt_rank_progress){0};
    s->told = false;
    s->failed = 0;
    return true;
}
