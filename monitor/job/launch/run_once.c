/* run_once.c - starts mpirun, polls its pipes and the clock, and reports its end. */
#include "monitor/job/launch/run_once.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/system/start_process.h"
#include "monitor/job/health/restart.h"
#include "monitor/job/launch/job_dirs.h"
#include "monitor/job/launch/launch.h"
#include "monitor/job/launch/output.h"
#include "monitor/job/launch/proc.h"

static volatile sig_atomic_t told;
static void note_run_signal(int signal) { told = signal; }

/* output of the ranks */
typedef struct hearing {
    const bt_run_once *once;
    bt_output output; /* parser of error lines */
    bt_text heard;    /* complete lines for the log, without progress */
    bt_text rest;     /* incomplete line */
    bt_text *result;
} hearing;

/* Returns the text of a line after its mark; NULL if it does not begin with this mark. */
static const char *text_after_mark(const char *line, const char *mark) {
    const size_t n = strlen(mark);
    return strncmp(line, mark, n) == 0 ? line + n : NULL;
}

static void classify_output_line(hearing *h, char *line, size_t n) {
    if (n > 0 && line[n - 1] == '\r') n--; /* mpirun gives the ranks a terminal */
    line[n] = '\0';
    const char *progress = text_after_mark(line, BT_RUN_ONCE_PROGRESS),
               *result = text_after_mark(line, BT_RUN_ONCE_RESULT);
    if (progress) {
        if (h->once->heard) h->once->heard(h->once->heard_ctx, progress);
        return;
    }
    if (result) {
        bt_text_clear(h->result);
        bt_text_put(h->result, result);
    }
    bt_output_feed(&h->output, line, n);
    bt_output_feed(&h->output, "\n", 1);
    bt_text_put(&h->heard, line);
    bt_text_put(&h->heard, "\n");
}

static void read_output_lines(hearing *h, bool ended) {
    size_t at = 0;
    char *line = h->rest.data, *end;
    while (line && (end = memchr(line + at, '\n', h->rest.len - at)) != NULL) {
        const size_t next = (size_t)(end + 1 - line);
        classify_output_line(h, line + at, (size_t)(end - line) - at);
        at = next;
    }
    if (ended && at < h->rest.len) {
        classify_output_line(h, line + at, h->rest.len - at);
        at = h->rest.len;
    }
    if (at == 0) return;
    memmove(line, line + at, h->rest.len - at);
    h->rest.len -= at;
    line[h->rest.len] = '\0';
}

/* Reads until the output ends or a signal arrives; returns false on a signal. */
static bool read_rank_output(int fd, hearing *h) {
    char buf[4096];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (told) return false;
        if (poll(&p, 1, 200) < 0 && errno != EINTR) return true;
        if (h->once->heard) h->once->heard(h->once->heard_ctx, NULL);
        if (!(p.revents & (POLLIN | POLLHUP))) continue;
        ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return true;
        bt_text_putn(&h->rest, buf, (size_t)n);
        read_output_lines(h, false);
    }
}

static bt_code run_once_failure(int status, const bt_output *o, const bt_text *heard, bt_err *err) {
    const bt_end_facts f = {.wait_status = status,
                            .started = true,
                            .reported = o->reported,
                            .code = o->code,
                            .rank = o->rank,
                            .signal = o->signal,
                            .step = -1,
                            .message = o->message,
                            .last_line = o->said[0] ? o->said : o->last_line};
    bt_end end = bt_end_classify(&f);
    char text[480];
    if (end.kind == BT_END_ERROR) {
        bt_code code = bt_fail(err, end.code == BT_OK ? BT_IO : end.code, "%s", end.message);
        if (err) err->rank = end.rank;
        return code;
    }
    if (!o->said[0]) bt_log(BT_LOG_WARN, "the ranks and mpirun printed: %s", bt_text_str(heard));
    return bt_fail(err, BT_IO, "%.460s", bt_end_describe(&end, text, sizeof text));
}

static bt_code watch_run_once(const bt_run_once *o, bt_child *child, bt_text *result, bt_err *err) {
    hearing h = {.once = o, .result = result};
    int status = 0;
    bt_text_init(&h.heard);
    bt_text_init(&h.rest);
    bt_output_open(&h.output, "/dev/null", 1);
    bool ended = read_rank_output(child->out, &h);
    if (!ended) (void)bt_proc_kill_session(child->pid, 5);
    read_output_lines(&h, true);
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {}
    close(child->out);
    bt_code code = BT_OK;
    if (!ended)
        code = bt_fail(err, BT_STOPPED, "stopped by signal %d", (int)told);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        code = run_once_failure(status, &h.output, &h.heard, err);
    else if (result->len == 0)
        code = bt_fail(err, BT_IO, "the ranks ended without a result");
    bt_output_close(&h.output);
    bt_text_release(&h.heard);
    bt_text_release(&h.rest);
    return code;
}

bt_code bt_run_once_run(const bt_run_once *o, bt_text *result, bt_err *err) {
    char program[PATH_MAX], tmp[280], shm[280];
    bt_job_dirs scratch = {.lock = -1, .shm_lock = -1};
    bt_child child = {.out = -1};
    BT_TRY(bt_own_program(program, sizeof program, err));
    struct sigaction act = {.sa_handler = note_run_signal}, old_int, old_term;
    told = 0; /* a signal that ended an earlier run must not end this one */
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, &old_int);
    sigaction(SIGTERM, &act, &old_term);
    bt_job_dirs_sweep();
    bt_code code = bt_job_dirs_create(&scratch, o->ranks, err);
    if (code == BT_OK) {
        code = bt_job_dirs_attempt(&scratch, o->ranks, 1, tmp, shm, err);
        if (code == BT_OK) {
            bt_launch l = {.ranks = o->ranks,
                           .hosts = o->hosts,
                           .mpirun_args = o->mpirun_args,
                           .tmp = tmp,
                           .shm = shm,
                           .program = program,
                           .words = o->words,
                           .n_words = o->n_words};
            const int keep[] = {scratch.lock, scratch.shm_lock};
            for (size_t i = 0; i < 2; i++)
                if (keep[i] >= 0) l.inherit[l.n_inherit++] = keep[i];
            code = bt_launch_start(&l, &child, err);
        }
        if (code == BT_OK) code = watch_run_once(o, &child, result, err);
        bt_job_dirs_attempt_end(&scratch, 1);
        bt_job_dirs_remove(&scratch);
    }
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
    return code;
}
