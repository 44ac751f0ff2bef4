/* pid.c - reads the state of a process from /proc. */
#include "engine/base/system/pid.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

/* Parses "17 (name of any kind) S ..." and returns the state letter. */
static char pid_state(int64_t pid) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return '?';
    line[fread(line, 1, sizeof line - 1, f)] = '\0';
    fclose(f);
    const char *after = strrchr(line, ')');
    return after && after[1] == ' ' ? after[2] : '?';
}

bool bt_pid_lives(int64_t pid) {
    if (pid <= 0 || (kill((pid_t)pid, 0) != 0 && errno != EPERM)) return false;
    const char state = pid_state(pid);
    return state != 'Z' && state != 'X';
}
