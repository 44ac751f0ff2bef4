/* mcp_call.c - starts this program with its output in two pipes, and reads both until they end. */
#include "cli/mcp/mcp_call.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/system/start_process.h"

enum { MOST_WORDS = 260 };

/* Reads the available bytes; closes *fd at the end of its data. Returns false if there are more than BT_MCP_OUTPUT
 * bytes. */
static bool read_pipe(int *fd, bt_text *to) {
    char buf[8192];
    const ssize_t n = read(*fd, buf, sizeof buf);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n <= 0) {
        close(*fd);
        *fd = -1;
        return true;
    }
    bt_text_putn(to, buf, (size_t)n);
    return !to->failed && to->len <= BT_MCP_OUTPUT;
}

static bool read_both_pipes(int fd[2], bt_text *out, bt_text *said) {
    while (fd[0] >= 0 || fd[1] >= 0) {
        struct pollfd p[2] = {{.fd = fd[0], .events = POLLIN}, {.fd = fd[1], .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) return false;
        if (p[0].revents && !read_pipe(&fd[0], out)) return false;
        if (p[1].revents && !read_pipe(&fd[1], said)) return false;
    }
    return true;
}

static bt_code run_program(const char *const *argv, bt_text *out, bt_text *said, int *status,
                           bt_err *err) {
    int from[2], also[2];
    pid_t pid;
    if (pipe2(from, O_CLOEXEC) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot create a pipe");
    if (pipe2(also, O_CLOEXEC) != 0) {
        const int code = errno;
        close(from[0]), close(from[1]);
        return bt_fail_errno(err, BT_IO, code, "cannot create a pipe");
    }
    const bt_start s = {.argv = argv, .out = from[1], .err = also[1], .parent_signal = SIGTERM};
    const int failed = bt_process_start(&pid, &s);
    close(from[1]), close(also[1]);
    int fd[2] = {from[0], also[0]};
    if (failed) {
        close(fd[0]), close(fd[1]);
        return bt_fail_errno(err, BT_IO, failed, "cannot start '%s'", argv[0]);
    }
    const bool whole = read_both_pipes(fd, out, said);
    if (!whole) kill(pid, SIGTERM);
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) close(fd[i]);
    while (waitpid(pid, status, 0) < 0 && errno == EINTR) {}
    *status = WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
    return whole ? BT_OK
                 : bt_fail(err, BT_IO, "its output is longer than %d MiB (select less)",
                           BT_MCP_OUTPUT >> 20);
}

bt_code bt_mcp_call(char *const *words, const char *store, bt_text *out, bt_text *said, int *status,
                    bt_err *err) {
    char program[PATH_MAX];
    const char *argv[MOST_WORDS] = {program};
    size_t n = 1;
    BT_TRY(bt_own_program(program, sizeof program, err));
    for (size_t i = 0; words[i] && n + 2 < MOST_WORDS; i++) argv[n++] = words[i];
    bt_text database = {0};
    if (*store && strcmp(words[0], "help") != 0) {
        bt_text_printf(&database, "--store=%s", store);
        argv[n++] = bt_text_str(&database);
    }
    const bt_code code = database.failed ? bt_fail(err, BT_NOMEM, "no memory to start a command")
                                         : run_program(argv, out, said, status, err);
    bt_text_release(&database);
    return code;
}
