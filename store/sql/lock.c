/* lock.c - FILE.lock, which grants the right to write or checkpoint the database. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "store/sql/sql.h"

static const int64_t NAMED_NS = 2000000000; /* after this time the holder is named */

static bt_code open_lock_file(bt_lock *l, bt_err *err) {
    l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot open lock file '%s'", l->path);
    /* any process that can read the file can lock it; older versions created it with 0644 */
    (void)!fchmod(l->fd, 0600);
    return BT_OK;
}

bt_code bt_lock_open(bt_lock *l, const char *db_path, bt_err *err) {
    char host[64] = "";
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "localhost");
    snprintf(l->me, sizeof l->me, "pid %ld on %s", (long)getpid(), host);
    snprintf(l->path, sizeof l->path, "%s.lock", db_path);
    return open_lock_file(l, err);
}

/* A lock belongs to the inode, so a lock on a removed or replaced file excludes no process. */
static bool is_same_file(const bt_lock *l) {
    struct stat a, b;
    return fstat(l->fd, &a) == 0 && stat(l->path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

static void write_lock_owner(const bt_lock *l) {
    char text[sizeof l->me] = "";
    size_t n = strlen(l->me);
    ssize_t got = pread(l->fd, text, sizeof text - 1, 0);
    if (got == (ssize_t)n && memcmp(text, l->me, n) == 0) return;
    /* On a full disk the holder is not named, but the lock is valid. */
    if (ftruncate(l->fd, 0) != 0 || pwrite(l->fd, l->me, n, 0) < 0) return;
}

static void read_lock_holder(const bt_lock *l, char *out, size_t size) {
    char text[128] = "";
    ssize_t got = pread(l->fd, text, sizeof text - 1, 0);
    bt_text_plain(out, size, got > 0 ? text : "another process");
}

bt_code bt_lock_take(bt_lock *l, double wait_s, bt_err *err) {
    const int64_t began = bt_now_ns(), deadline = began + (int64_t)(wait_s * 1e9);
    int64_t pause = 100000;
    bool named = false;
    for (;;) {
        if (l->fd < 0) BT_TRY(open_lock_file(l, err));
        if (flock(l->fd, LOCK_EX | LOCK_NB) == 0) {
            if (is_same_file(l)) {
                write_lock_owner(l);
                return BT_OK;
            }
            bt_lock_close(l);
            continue;
        }
        if (errno != EWOULDBLOCK && errno != EINTR)
            return bt_fail_errno(err, BT_IO, errno, "cannot lock '%s'", l->path);
        char who[128];
        if (!named && bt_now_ns() - began > NAMED_NS) {
            named = true;
            read_lock_holder(l, who, sizeof who);
            bt_log(BT_LOG_WARN, "waiting for the metrics database, which %s holds: at most %.3g s",
                   who, wait_s);
        }
        if (bt_now_ns() >= deadline) {
            read_lock_holder(l, who, sizeof who);
            return bt_fail(err, BT_BUSY,
                           "metrics database is being written by %s: '%s' was locked for %.3g s",
                           who, l->path, wait_s);
        }
        bt_sleep_ns(pause);
        if (pause < 5000000) pause *= 2;
    }
}

void bt_lock_drop(bt_lock *l) {
    if (l->fd >= 0) flock(l->fd, LOCK_UN);
}

void bt_lock_close(bt_lock *l) {
    /* Keeps the file, because removing it would race with waiting processes. */
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}
