/* mpirun.c - finds mpirun in PATH and beside the linked MPI library, and queries the MPI it belongs to. */
#include "monitor/job/machine/mpirun.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/own_process.h"
#include "engine/base/system/ascii.h"
#include "engine/base/system/start_process.h"
#include "engine/base/text.h"

/* Copies the first number with a dot at or after `at`. */
static void copy_version_number(const char *at, char *out, int size) {
    out[0] = '\0';
    for (; *at; at++) {
        const size_t n = strspn(at, "0123456789.");
        if (bt_ascii_digit(*at) && memchr(at, '.', n)) {
            snprintf(out, (size_t)size, "%.*s", (int)n, at);
            return;
        }
        if (n > 1) at += n - 1;
    }
}

void bt_mpirun_owner(const char *version, char *out, int size) {
    static const struct {
        const char *word, *owner;
    } known[] = {
        {"Spectrum MPI", "IBM Spectrum MPI"},
        {"Open MPI", "Open MPI"},
        {"OpenRTE", "Open MPI"},
        {"MVAPICH", "MVAPICH"},
        {"Intel(R) MPI", "Intel MPI"},
        {"HYDRA", "MPICH"},
        {"MPICH", "MPICH"},
    };
    char number[24], plain[60];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *at = bt_ascii_find(version, known[i].word);
        if (!at) continue;
        const char *after = bt_ascii_find(at, "version");
        copy_version_number(after ? after : at, number, sizeof number);
        snprintf(out, (size_t)size, "%s%s%s", known[i].owner, number[0] ? " " : "", number);
        return;
    }
    char line[60];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(version, "\n"), version);
    bt_text_plain(plain, sizeof plain, line);
    snprintf(out, (size_t)size, "%s", plain);
}

/* Reads the first KiB that `path --version` prints within two seconds. */
static void query_mpirun_version(const char *path, char *out, size_t size) {
    const char *const argv[] = {path, "--version", NULL};
    const int64_t end = bt_now_ns() + 2000000000;
    int fd[2];
    size_t n = 0;
    pid_t pid;
    out[0] = '\0';
    if (pipe2(fd, O_CLOEXEC) != 0) return;
    const bt_start s = {.argv = argv, .out = fd[1], .err = fd[1], .session = true};
    const int failed = bt_process_start(&pid, &s);
    close(fd[1]);
    while (!failed && n + 1 < size) {
        struct pollfd p = {.fd = fd[0], .events = POLLIN};
        const int left_ms = (int)((end - bt_now_ns()) / 1000000);
        if (left_ms <= 0 || poll(&p, 1, left_ms) == 0) break;
        const ssize_t k = read(fd[0], out + n, size - 1 - n);
        if (k <= 0 && errno != EINTR) break;
        if (k > 0) n += (size_t)k;
    }
    out[n] = '\0';
    close(fd[0]);
    if (failed) return;
    kill(-pid, SIGKILL); /* mpirun has printed its version, or the time is over */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
}

/* The monitor is not built with MPI, but the program is linked with it. */
static int find_library_major(void) {
    int (*version)(char *, int *) = NULL, n = 0;
    static char text[8192]; /* at least MPI_MAX_LIBRARY_VERSION_STRING of any MPI */
    char owner[80];
    *(void **)&version = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
    if (!version || version(text, &n) != 0) return 0;
    bt_mpirun_owner(text, owner, sizeof owner);
    return strncmp(owner, "Open MPI ", 9) == 0 ? atoi(owner + 9) : 0;
}

static void query_mpirun_owner(const char *path, char *out, int size) {
    char text[1024];
    query_mpirun_version(path, text, sizeof text);
    bt_mpirun_owner(text, out, size);
}

static bool is_executable(const char *path) { return access(path, X_OK) == 0; }

static bool find_in_path(const char *program, char *out, size_t size) {
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/usr/bin:/bin"; *p;) {
        const size_t n = strcspn(p, ":");
        const int k = snprintf(out, size, "%.*s/%s", (int)(n ? n : 1), n ? p : ".", program);
        if (k > 0 && (size_t)k < size && is_executable(out)) return true;
        p += n + (p[n] == ':');
    }
    out[0] = '\0';
    return false;
}

/* Finds PREFIX/bin/mpirun for a library in a folder below PREFIX. On Debian, Open MPI's program is mpirun.openmpi. */
static bool find_mpirun_of_library(const char *library, char *out, size_t size) {
    static const char *const names[] = {"mpirun.openmpi", "mpirun"};
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", library);
    for (char *end; (end = strrchr(folder, '/'));) {
        *end = '\0';
        for (size_t i = 0; i < 2; i++) {
            const int k = snprintf(out, size, "%s/bin/%s", folder, names[i]);
            if (k > 0 && (size_t)k < size && is_executable(out)) return true;
        }
    }
    out[0] = '\0';
    return false;
}

static bool is_same_inode(const char *a, const char *b) {
    char real_a[PATH_MAX], real_b[PATH_MAX];
    return realpath(a, real_a) && realpath(b, real_b) && strcmp(real_a, real_b) == 0;
}

static bool is_open_mpi(const char *owner) { return strncmp(owner, "Open MPI", 8) == 0; }
/* False for an mpirun of unknown origin, because it may be a script that starts Open MPI's. */
static bool belongs_to_other_mpi(const char *owner) {
    static const char *const others[] = {"MPICH", "MVAPICH", "Intel MPI", "IBM Spectrum MPI"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(owner, others[i], strlen(others[i])) == 0) return true;
    return false;
}

/* True for "Open MPI 4.1.4" and "Open MPI 4.1.6". */
static bool is_same_mpi_series(const char *a, const char *b) {
    const char *dot = strchr(a, '.');
    const size_t n = dot ? (size_t)(dot - a) + 1 + strspn(dot + 1, "0123456789") : strlen(a);
    return strncmp(a, b, n) == 0 && !bt_ascii_digit(b[n]);
}

static bt_code fail_foreign_mpirun(const bt_mpirun *m, const char *remedy, bt_err *err) {
    return bt_fail(err, BT_UNSUPPORTED,
                   "'%.160s' belongs to %s, and bitrain is linked with Open MPI ('%.100s'): %s",
                   m->path, m->owner, m->library[0] ? m->library : "libmpi", remedy);
}

static bt_code read_explicit_mpirun(bt_mpirun *m, const char *given, bool ask, bt_err *err) {
    snprintf(m->command, sizeof m->command, "%s", given);
    if (strchr(given, '/'))
        snprintf(m->path, sizeof m->path, "%s", is_executable(given) ? given : "");
    else
        (void)find_in_path(given, m->path, sizeof m->path);
    if (!m->path[0])
        return bt_fail(
            err, BT_UNSUPPORTED,
            "cannot start '%.200s': not found (BITRAIN_MPIRUN; Debian: install openmpi-bin)",
            given);
    if (ask) query_mpirun_owner(m->path, m->owner, sizeof m->owner);
    if (belongs_to_other_mpi(m->owner))
        return fail_foreign_mpirun(m, "set BITRAIN_MPIRUN to that one's mpirun", err);
    return BT_OK;
}

static bt_code choose_mpirun(bt_mpirun *m, bt_err *err) {
    char beside[PATH_MAX], own[sizeof m->owner] = "";
    const bool has_own = m->library[0] && find_mpirun_of_library(m->library, beside, sizeof beside);
    snprintf(m->command, sizeof m->command, "mpirun");
    if (!find_in_path("mpirun", m->path, sizeof m->path)) {
        if (!has_own)
            return bt_fail(err, BT_UNSUPPORTED,
                           "cannot start 'mpirun': not found (Debian: install openmpi-bin)");
        snprintf(m->passed_over, sizeof m->passed_over, "there is no mpirun in PATH");
    } else {
        if (has_own && is_same_inode(m->path, beside)) return BT_OK;
        query_mpirun_owner(m->path, m->owner, sizeof m->owner);
        if (has_own) query_mpirun_owner(beside, own, sizeof own);
        const bool same = !has_own || !is_open_mpi(own) || is_same_mpi_series(own, m->owner);
        if (!belongs_to_other_mpi(m->owner) && (!is_open_mpi(m->owner) || same)) return BT_OK;
        if (!has_own || !is_open_mpi(own))
            return fail_foreign_mpirun(
                m, "put that one's mpirun first in PATH, or set BITRAIN_MPIRUN to it", err);
        snprintf(m->passed_over, sizeof m->passed_over,
                 "'%.120s', the first mpirun in PATH, belongs to %.60s, and bitrain is linked with "
                 "%.60s",
                 m->path, m->owner, own);
        snprintf(m->owner, sizeof m->owner, "%s", own);
    }
    snprintf(m->command, sizeof m->command, "%s", beside);
    snprintf(m->path, sizeof m->path, "%s", beside);
    return BT_OK;
}

bt_code bt_mpirun_find(bt_mpirun *out, bool ask, bt_err *err) {
    const char *given = getenv("BITRAIN_MPIRUN");
    memset(out, 0, sizeof *out);
    (void)bt_loaded_library("/libmpi.so", out->library, sizeof out->library);
    out->major = find_library_major();
    if (given && given[0]) return read_explicit_mpirun(out, given, ask, err);
    BT_TRY(choose_mpirun(out, err));
    if (ask && !out->owner[0]) query_mpirun_owner(out->path, out->owner, sizeof out->owner);
    return BT_OK;
}
