/* run_lock.c - an exclusive flock on a file that contains PID and host of its holder. */
#include "monitor/job/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/system/pid.h"

enum { WHO = 128 };

static void write_owner_signature(char out[WHO], long pid) {
    char host[64] = "";
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "localhost");
    snprintf(out, WHO, "pid %ld on %s", pid, host);
}

/* True if the supervisor that wrote the lock is alive, so that no rank is about to exit. */
static bool is_lock_holder_alive(int fd, char who[WHO]) {
    long pid = 0;
    char here[WHO];
    ssize_t n = pread(fd, who, WHO - 1, 0);
    who[n > 0 ? n : 0] = '\0';
    who[strcspn(who, "\n")] = '\0';
    if (sscanf(who, "pid %ld on ", &pid) != 1 || pid <= 0) return false;
    write_owner_signature(here, pid);
    return strcmp(here, who) == 0 && bt_pid_lives(pid);
}

static void write_lock_holder(int fd, const char *out_dir) {
    char who[WHO];
    write_owner_signature(who, (long)getpid());
    strcat(who, "\n");
    if (ftruncate(fd, 0) != 0 || pwrite(fd, who, strlen(who), 0) < 0)
        bt_log(BT_LOG_DEBUG, "the lock of '%s' could not be signed", out_dir);
}

bt_code bt_run_lock(int *out, const char *out_dir, const char *run, double wait_s, bt_err *err) {
    char path[PATH_MAX], who[WHO] = "";
    *out = -1;
    if (snprintf(path, sizeof path, "%s/run.lock", out_dir) >= (int)sizeof path)
        return bt_fail(err, BT_ARG, "folder '%s' is too long", out_dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot write to '%s'", out_dir);
    /* Any process that can read the file can lock it; older versions created it with mode 0644. */
    (void)!fchmod(fd, 0600);
    const int64_t began = bt_now_ns();
    bool told = false;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) { /* the file system has no locks */
            close(fd);
            return BT_OK;
        }
        const bool lives = is_lock_holder_alive(fd, who);
        const double waited = (double)(bt_now_ns() - began) / 1e9;
        if (lives || waited > wait_s) {
            close(fd);
            return bt_fail(err, BT_BUSY, "run '%s' is being trained by %s in '%s'", run,
                           who[0] ? who : "another process", out_dir);
        }
        if (waited > 1 && !told) {
            told = true;
            bt_log(
                BT_LOG_WARN,
                "waiting for the ranks of run '%s' that lost their supervisor: they save and end",
                run);
        }
        bt_sleep_ns(20000000);
    }
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_nlink == 0) { /* removed between open and flock */
        close(fd);
        return bt_fail(
            err, BT_BUSY,
            "run '%s' was given up by another process in '%s' at this moment (try again)", run,
            out_dir);
    }
    write_lock_holder(fd, out_dir);
    *out = fd;
    return BT_OK;
}
