/* query_process.c - sends the statement to the child's standard input and reads the result from its output. */
#include "web/api/query_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/system/start_process.h"

enum { IN, OUT, ERR, ENDS };
static const double GRACE_S =
    0.5; /* additional time for the start, and for the child to report its own time limit */

typedef struct child {
    pid_t pid;
    int fd[ENDS];      /* this process's ends; -1: closed */
    const char *input; /* input that was not sent yet */
    size_t n_input;
} child;

static void close_socket_end(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Uses sockets, because writing to the pipe of an ended child would raise a signal. */
static bt_code start_query_process(child *c, const bt_query_process *q, bt_err *err) {
    char rows[32], seconds[32], memory[32];
    snprintf(rows, sizeof rows, "%lld", (long long)q->rows);
    snprintf(seconds, sizeof seconds, "%.3f", q->seconds);
    snprintf(memory, sizeof memory, "%lld", (long long)q->memory_mib);
    const char *const argv[] = {q->program, "query",     "-",     "--json-table", "--limit",
                                rows,       "--timeout", seconds, "--memory",     memory,
                                "--store",  q->store,    NULL};
    int theirs[ENDS] = {-1, -1, -1};
    bt_code code = BT_OK;
    for (int i = 0; i < ENDS; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
            code = bt_fail_errno(err, BT_IO, errno, "cannot start a query");
            break;
        }
        c->fd[i] = pair[0], theirs[i] = pair[1];
        fcntl(c->fd[i], F_SETFL, O_NONBLOCK);
    }
    if (code == BT_OK) {
        const bt_start s = {.argv = argv, .in = theirs[IN], .out = theirs[OUT], .err = theirs[ERR]};
        const int e = bt_process_start(&c->pid, &s);
        if (e) code = bt_fail_errno(err, BT_IO, e, "cannot start '%s' for a query", q->program);
    }
    for (int i = 0; i < ENDS; i++) close_socket_end(&theirs[i]);
    return code;
}

static void send_query_text(child *c) {
    ssize_t n = send(c->fd[IN], c->input, c->n_input, MSG_NOSIGNAL);
    if (n > 0) c->input += n, c->n_input -= (size_t)n;
    if ((n < 0 && errno != EAGAIN && errno != EINTR) || c->n_input == 0)
        close_socket_end(&c->fd[IN]);
}

/* Returns false if there are more than `most` bytes. */
static bool read_available(int *fd, bt_text *to, size_t most) {
    char buf[16384];
    ssize_t n = read(*fd, buf, sizeof buf);
    if (n > 0) bt_text_putn(to, buf, (size_t)n);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) close_socket_end(fd);
    return to->len <= most;
}

/* Exchanges data until the child has closed its output and error streams. Returns false if the time `until` has passed
 * or a result is too long. */
static bool exchange_with_child(child *c, int64_t until, size_t bytes, bt_text *out,
                                bt_text *said) {
    while (c->fd[OUT] >= 0 || c->fd[ERR] >= 0) {
        int64_t left = until - bt_now_ns();
        if (left <= 0) return false;
        struct pollfd p[ENDS] = {
            {c->fd[IN], POLLOUT, 0}, {c->fd[OUT], POLLIN, 0}, {c->fd[ERR], POLLIN, 0}};
        if (poll(p, ENDS, (int)(left / 1000000) + 1) < 0 && errno != EINTR) return false;
        if (p[IN].revents) send_query_text(c);
        if (p[OUT].revents && !read_available(&c->fd[OUT], out, bytes)) return false;
        if (p[ERR].revents && !read_available(&c->fd[ERR], said, 4096)) return false;
    }
    return true;
}

/* Returns the last line of the child's error output, without "bitrain query: ". */
static const char *last_error_line(bt_text *said) {
    static const char prefix[] = "bitrain query: ";
    while (said->len && said->data[said->len - 1] == '\n') said->data[--said->len] = 0;
    const char *s = bt_text_str(said), *line = strrchr(s, '\n');
    line = line ? line + 1 : s;
    return strncmp(line, prefix, sizeof prefix - 1) == 0 ? line + sizeof prefix - 1 : line;
}

/* late: the child had not ended by its time limit, so this process stopped it. */
static bt_code fail_query_process(int status, bool late, bt_text *said, const bt_query_process *q,
                                  bt_err *err) {
    const char *why = last_error_line(said);
    if (late)
        return bt_fail(err, BT_BUSY, "query took longer than %.3g s and was stopped", q->seconds);
    if (!WIFEXITED(status))
        return bt_fail(err, BT_BUSY,
                       "query took too much time or memory (%g s, %lld MiB) and was stopped",
                       q->seconds, (long long)q->memory_mib);
    if (WEXITSTATUS(status) == bt_exit_code(BT_ARG)) return bt_fail(err, BT_ARG, "%s", why);
    if (WEXITSTATUS(status) == bt_exit_code(BT_BUSY)) return bt_fail(err, BT_BUSY, "%s", why);
    if (WEXITSTATUS(status) == bt_exit_code(BT_NOTFOUND))
        return bt_fail(err, BT_NOTFOUND, "%s", why);
    return bt_fail(err, BT_IO, "%s", *why ? why : "the query's process failed");
}

bt_code bt_query_process_run(const bt_query_process *q, bt_text *out, bt_err *err) {
    child c = {.fd = {-1, -1, -1}, .input = q->sql, .n_input = strlen(q->sql)};
    bt_text said;
    int status = 0;
    bool late = false;
    bt_text_init(&said);
    bt_code code = start_query_process(&c, q, err);
    if (code == BT_OK) {
        int64_t until = bt_now_ns() + (int64_t)((q->seconds + GRACE_S) * 1e9);
        if (!exchange_with_child(&c, until, q->bytes, out, &said)) {
            late = bt_now_ns() >= until;
            kill(c.pid, SIGKILL);
        }
        while (waitpid(c.pid, &status, 0) < 0 && errno == EINTR) {}
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            code = fail_query_process(status, late, &said, q, err);
    }
    for (int i = 0; i < ENDS; i++) close_socket_end(&c.fd[i]);
    bt_text_release(&said);
    return code;
}
