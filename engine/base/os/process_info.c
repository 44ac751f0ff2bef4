/* process_info.c - reads /proc/PID and /proc/net. */
#include "engine/base/os/process_info.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/system/ascii.h"

enum { STATE_LISTEN = 0x0a };

static FILE *open_process_file(pid_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%.20s", (int)pid, name);
    return pid > 0 ? fopen(path, "re") : NULL;
}

static size_t read_process_file(pid_t pid, const char *name, char *out, size_t size) {
    FILE *f = open_process_file(pid, name);
    const size_t n = f ? fread(out, 1, size - 1, f) : 0;
    if (f) fclose(f);
    out[n] = '\0';
    return n;
}

/* Format: "pid (name) state parent group session ... status"; the name may contain spaces and parentheses. */
bool bt_process_info_read(pid_t pid, bt_process_info *out) {
    char line[1024];
    unsigned long minor, major, user, system;
    *out = (bt_process_info){.pid = pid};
    if (read_process_file(pid, "stat", line, sizeof line) == 0) return false;
    char *open = strchr(line, '('), *close = strrchr(line, ')');
    if (!open || !close || close < open ||
        sscanf(close + 1, " %c %d %*d %d %*d %*d %*u %lu %*u %lu %*u %lu %lu", &out->state,
               &out->parent, &out->session, &minor, &major, &user, &system) != 7)
        return false;
    if (out->state == 'Z') out->end_status = (int)strtol(strrchr(line, ' '), NULL, 10);
    *close = '\0';
    snprintf(out->name, sizeof out->name, "%.31s", open + 1);
    out->page_faults = (double)minor + (double)major;
    out->cpu_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    return true;
}

pid_t bt_process_scan_next(bt_process_scan *s) {
    if (!s->folder) s->folder = opendir("/proc");
    for (const struct dirent *e; s->folder && (e = readdir(s->folder));)
        if (bt_ascii_digit(e->d_name[0])) return (pid_t)atoi(e->d_name);
    return 0;
}

void bt_process_scan_end(bt_process_scan *s) {
    if (s->folder) closedir(s->folder);
    s->folder = NULL;
}

size_t bt_process_words(pid_t pid, char *out, size_t size) {
    FILE *f = open_process_file(pid, "cmdline");
    const size_t n = f ? fread(out, 1, size, f) : 0;
    if (f) fclose(f);
    return n;
}

bool bt_process_variable(pid_t pid, const char *name, char *out, size_t size) {
    const size_t n = strlen(name);
    char *word = NULL;
    size_t room = 0;
    bool found = false;
    FILE *f = open_process_file(pid, "environ");
    while (f && !found && getdelim(&word, &room, '\0', f) > 0) {
        found = strncmp(word, name, n) == 0 && word[n] == '=';
        if (found) snprintf(out, size, "%s", word + n + 1);
    }
    free(word);
    if (f) fclose(f);
    return found;
}

/* Returns the inode of the socket that listens on a port, from /proc/net/tcp or tcp6; 0: none. */
static unsigned long listening_inode(const char *table, int port) {
    char line[512];
    unsigned long found = 0;
    FILE *f = fopen(table, "re");
    if (!f) return 0;
    while (!found && fgets(line, sizeof line, f)) {
        unsigned local, state;
        unsigned long inode;
        /* number, local address:port, remote, state, queues, timer, retransmits, user, timeout, inode */
        if (sscanf(line, " %*d: %*[^:]:%x %*s %x %*s %*s %*s %*u %*d %lu", &local, &state,
                   &inode) == 3 &&
            (int)local == port && state == STATE_LISTEN)
            found = inode;
    }
    fclose(f);
    return found;
}

static bool process_holds(pid_t pid, const char *socket) {
    char dir[64], path[400], target[64];
    snprintf(dir, sizeof dir, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(dir);
    if (!d) return false;
    bool held = false;
    for (struct dirent *e; !held && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        const ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        held = strcmp(target, socket) == 0;
    }
    closedir(d);
    return held;
}

pid_t bt_process_on_port(int port, char *name, size_t size) {
    char socket[64];
    bt_process_scan scan = {NULL};
    bt_process_info info;
    pid_t pid = 0;
    unsigned long inode = listening_inode("/proc/net/tcp", port);
    if (!inode) inode = listening_inode("/proc/net/tcp6", port);
    name[0] = '\0';
    if (!inode) return 0;
    snprintf(socket, sizeof socket, "socket:[%lu]", inode);
    do {
        pid = bt_process_scan_next(&scan);
    } while (pid > 0 && !process_holds(pid, socket));
    bt_process_scan_end(&scan);
    if (pid > 0 && bt_process_info_read(pid, &info)) snprintf(name, size, "%s", info.name);
    return pid;
}
