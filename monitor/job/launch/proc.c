/* proc.c - selects processes by their session. */
#include "monitor/job/launch/proc.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/os/process_info.h"

bool bt_proc_batch_job(void) {
    const char *id = getenv("SLURM_JOB_ID");
    return id && id[0];
}

bool bt_proc_read(pid_t pid, bt_proc *out) {
    bt_process_info info;
    if (!bt_process_info_read(pid, &info)) return false;
    *out = (bt_proc){.pid = pid, .state = info.state};
    memcpy(out->name, info.name, sizeof out->name);
    return true;
}

size_t bt_proc_session(pid_t session, bt_proc *out, size_t max) {
    size_t n = 0;
    bt_process_scan scan = {NULL};
    bt_process_info info;
    for (pid_t pid; n < max && (pid = bt_process_scan_next(&scan)) > 0;) {
        if (!bt_process_info_read(pid, &info) || info.session != session) continue;
        if (info.state != 'Z' && info.state != 'X') n += bt_proc_read(pid, &out[n]);
    }
    bt_process_scan_end(&scan);
    return n;
}

size_t bt_proc_kill_session(pid_t session, double wait_s) {
    enum { MAX = 256 };
    bt_proc list[MAX];
    const int64_t until = bt_now_ns() + (int64_t)(wait_s * 1e9);
    for (;;) {
        size_t n = bt_proc_session(session, list, MAX);
        if (n == 0) return 0;
        for (size_t i = 0; i < n; i++) kill(list[i].pid, SIGKILL);
        if (bt_now_ns() >= until) return n;
        bt_sleep_ns(2000000);
    }
}
