/* drill_faults.c - injects the faults. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/drill/drill.h"
#include "engine/base/clock.h"
#include "store/wire/control_client.h"

static bt_code send_fault_signal(pid_t pid, int signal, const char *who, bt_err *err) {
    if (pid <= 1) return bt_fail(err, BT_CHECK, "the process id of %s is not known", who);
    return kill(pid, signal) == 0 ? BT_OK
                                  : bt_fail_errno(err, BT_CHECK, errno, "cannot signal %s", who);
}

/* Returns any rank except the first, if there are several. */
static int draw_rank_to_hurt(bt_drill_run *r) {
    const int n = bt_drill_ranks(r);
    return n > 1 ? 1 + (int)bt_drill_draw(r, (uint64_t)(n - 1)) : 0;
}

static bt_code do_kill_rank(bt_drill_run *r, const char *arg, bt_err *err) {
    (void)arg;
    return send_fault_signal(bt_drill_rank(r, draw_rank_to_hurt(r)), SIGKILL, "a rank", err);
}

static bt_code do_kill_resized(bt_drill_run *r, const char *arg, bt_err *err) {
    return do_kill_rank(r, arg, err);
}

static bt_code do_kill_rank0(bt_drill_run *r, const char *arg, bt_err *err) {
    (void)arg;
    return send_fault_signal(bt_drill_rank(r, 0), SIGKILL, "rank 0", err);
}

static bt_code do_kill_mpirun(bt_drill_run *r, const char *arg, bt_err *err) {
    (void)arg;
    return send_fault_signal(bt_drill_mpirun(r), SIGKILL, "mpirun", err);
}

static bt_code do_stop_rank(bt_drill_run *r, const char *arg, bt_err *err) {
    (void)arg;
    return send_fault_signal(bt_drill_rank(r, draw_rank_to_hurt(r)), SIGSTOP, "a rank", err);
}

static bt_code do_kill_supervisor(bt_drill_run *r, const char *arg, bt_err *err) {
    (void)arg;
    BT_TRY(send_fault_signal(r->pid, SIGKILL, "the supervisor", err));
    bt_drill_wait_end(r, 5);
    return BT_OK;
}

/* Repeats the request until the wire is connected and the ranks receive it. */
static bt_code request_resize(bt_drill_run *r, const char *to, bt_err *err) {
    char request[64], reply[BT_CONTROL_LINE];
    const int64_t until = bt_now_ns() + 5000000000;
    snprintf(request, sizeof request, "resize %.32s #drill", to);
    for (;;) {
        bt_db *db = NULL;
        bt_code code = bt_db_open(&db, r->store, err);
        if (code == BT_OK)
            code = bt_control_request(db, r->name, request, reply, sizeof reply, err);
        bt_db_close(db);
        if (code == BT_OK || code == BT_ARG || bt_now_ns() > until) return code;
        bt_sleep_ns(20000000);
    }
}

static bt_code do_resize_up(bt_drill_run *r, const char *arg, bt_err *err) {
    return request_resize(r, arg ? arg : "4,tp=2", err);
}

static bt_code do_resize_down(bt_drill_run *r, const char *arg, bt_err *err) {
    return request_resize(r, arg ? arg : "2", err);
}

static void limit_file_sizes(bt_drill_run *r, rlim_t bytes) {
    const int n = bt_drill_ranks(r);
    for (int i = 0; i < n; i++) {
        struct rlimit l;
        const pid_t pid = bt_drill_rank(r, i);
        if (pid <= 0 || prlimit(pid, RLIMIT_FSIZE, NULL, &l) != 0) continue;
        l.rlim_cur = bytes;
        prlimit(pid, RLIMIT_FSIZE, &l, NULL);
    }
}

/* Makes every write of a checkpoint fail as on a full disk, for these processes only: their file sizes are limited to
 * 4 KiB for a while. */
static bt_code do_no_space(bt_drill_run *r, const char *arg, bt_err *err) {
    static const char failed[] = "SELECT count(*) FROM events WHERE run = ?1 AND kind = "
                                 "'checkpoint_failed'";
    (void)arg;
    const double before = bt_drill_value(r, failed);
    const int64_t until = bt_now_ns() + 20000000000;
    struct rlimit own;
    const pid_t rank = bt_drill_rank(r, 0);
    if (rank <= 0 || prlimit(rank, RLIMIT_FSIZE, NULL, &own) != 0)
        return bt_fail_errno(err, BT_NOTFOUND, errno,
                             "limits of other processes cannot be set here");
    limit_file_sizes(r, 4096);
    while (bt_drill_alive(r) && bt_drill_value(r, failed) <= before && bt_now_ns() < until)
        bt_sleep_ns(5000000);
    limit_file_sizes(r, own.rlim_cur);
    return bt_drill_value(r, failed) > before
               ? BT_OK
               : bt_fail(err, BT_CHECK, "a checkpoint that could not be written was not reported");
}

/* Flips a bit in the data of the newest checkpoint; the ranks have ended. */
static bt_code flip_a_bit(bt_drill_run *r, bt_err *err) {
    char pattern[PATH_MAX + 64];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/step-*/data-*", r->out);
    bt_code code = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0
                       ? BT_OK
                       : bt_fail(err, BT_CHECK, "no checkpoint in '%s'", r->out);
    /* names sort by step */
    const int fd = code == BT_OK ? open(found.gl_pathv[found.gl_pathc - 1], O_RDWR | O_CLOEXEC)
                                 : -1;
    if (code == BT_OK) {
        unsigned char byte = 0;
        const off_t at = fd >= 0 ? lseek(fd, 0, SEEK_END) / 2 : 0;
        if (fd < 0 || pread(fd, &byte, 1, at) != 1) code = BT_IO;
        byte ^= 0x10;
        if (code == BT_OK && pwrite(fd, &byte, 1, at) != 1) code = BT_IO;
        if (code != BT_OK) bt_fail_errno(err, code, errno, "cannot damage '%s'", found.gl_pathv[0]);
    }
    if (fd >= 0) close(fd);
    globfree(&found);
    return code;
}

static bt_code do_damage(bt_drill_run *r, const char *arg, bt_err *err) {
    BT_TRY(do_kill_supervisor(r, arg, err));
    bt_drill_kill_all(r);
    return flip_a_bit(r, err);
}

#define BT_FAULT(id, how, title) {#id, title, BT_BACK_##how, do_##id},
const bt_fault bt_faults[] = {
#include "cli/drill/faults.def"
};
#undef BT_FAULT
const size_t bt_faults_n = sizeof bt_faults / sizeof bt_faults[0];

const bt_fault *bt_fault_find(const char *id) {
    for (size_t i = 0; i < bt_faults_n; i++)
        if (strcmp(bt_faults[i].id, id) == 0) return &bt_faults[i];
    return NULL;
}
