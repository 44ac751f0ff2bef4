/* proc.c - reads /proc/PID/stat. */
#include "monitor/job/launch/proc.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/system/ascii.h"

bool bt_proc_batch_job(void) {
    const char *id = getenv("SLURM_JOB_ID");
    return id && id[0];
}

/* Format: "pid (comm) state ppid pgrp session ..."; comm may contain spaces and parentheses. */
static int read_stat(const char *pid, bt_proc *p, pid_t *session) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = '\0';
    char *open = strchr(line, '('), *close = strrchr(line, ')');
    int pgrp, sid;
    if (!open || !close || close < open ||
        sscanf(close + 1, " %c %*d %d %d", &p->state, &pgrp, &sid) != 3)
        return 0;
    *close = '\0';
    snprintf(p->name, sizeof p->name, "%.31s", open + 1);
    p->pid = atoi(line);
    *session = sid;
    return 1;
}

bool bt_proc_read(pid_t pid, bt_proc *out) {
    char name[24];
    pid_t session;
    snprintf(name, sizeof name, "%d", (int)pid);
    return read_stat(name, out, &session) != 0;
}

size_t bt_proc_session(pid_t session, bt_proc *out, size_t max) {
    size_t n = 0;
    DIR *d = opendir("/proc");
    if (!d) return 0;
    for (struct dirent *e; n < max && (e = readdir(d));) {
        bt_proc p;
        pid_t sid;
        if (!bt_ascii_digit(e->d_name[0]) || !read_stat(e->d_name, &p, &sid)) continue;
        if (sid == session && p.state != 'Z' && p.state != 'X') out[n++] = p;
    }
    closedir(d);
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
