/* remote_cleanup.c - runs a cleaning command over ssh on every other host. */
#include "monitor/job/launch/remote_cleanup.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/system/start_process.h"
#include "monitor/job/launch/hosts.h"
#include "monitor/job/launch/launch.h"

enum { HOSTS_MAX = 256, NAME_MAX_BYTES = 128 };

/* Script that each host executes; assignments to `keep` and `gone` are put before it. A new segment is mapped within
 * microseconds, so two checks distinguish it from a leftover. Ranks return to a folder of states within the ten minutes
 * that a restart may wait; a folder with a lock belongs to a supervisor. */
static const char sweep[] =
    "[ -n \"$gone\" ] && [ ! -e \"$gone/lock\" ] && rm -rf \"$gone\"; "
    "look() { for f in /dev/shm/vader_segment.* /dev/shm/sm_segment.* $(find /dev/shm -maxdepth 1 "
    "-name "
    "\"bitrain-$(id -u)-*\" -mmin +10); do [ -O \"$f\" ] && [ \"$f\" != \"$keep\" ] && "
    "[ ! -e \"$f/lock\" ] && ! grep -qsF \"$f\" /proc/[0-9]*/maps && echo \"$f\"; done; }; "
    "first=$(look); [ -n \"$first\" ] && sleep 1 && for f in $(look); do "
    "case \" $(echo $first) \" in *\" $f \"*) rm -rf \"$f\";; esac; done";

/* Local script: the agent with its arguments, then the hosts; each host receives the script as one word. This host
 * is cleaned as well, because its ranks use /dev/shm if a job has several hosts. */
static const char start[] = "agent=$1 script=$2; shift 2; { timeout -k 1 20 sh -c \"$script\" & "
                            "for host in \"$@\"; do timeout -k 1 20 $agent \"$host\" "
                            "\"$script\" & done; } </dev/null >/dev/null 2>&1";

static int read_cleanup_hosts(const char *path, char (*out)[NAME_MAX_BYTES]) {
    char line[512];
    int n = 0;
    FILE *f = fopen(path, "re");
    while (f && n < HOSTS_MAX && fgets(line, sizeof line, f)) {
        line[strcspn(line, "#\n")] = 0;
        size_t from = strspn(line, " \t"), len = strcspn(line + from, " \t:");
        if (len == 0 || len >= NAME_MAX_BYTES || line[from] == '-') continue;
        line[from + len] = 0;
        if (bt_host_is_here(line + from)) continue;
        memcpy(out[n++], line + from, len + 1);
    }
    if (f) fclose(f);
    return n;
}

void bt_remote_sweep(const char *hosts, const char *folder, bool over) {
    char script[sizeof sweep + 700];
    static char names
        [HOSTS_MAX]
        [NAME_MAX_BYTES]; /* static, because the array is large and only the supervisor calls this function */
    const char *agent = bt_launch_agent();
    const char *argv[HOSTS_MAX + 8];
    int n = hosts[0] ? read_cleanup_hosts(hosts, names) : 0, k = 0;
    if (n == 0) return;
    snprintf(script, sizeof script, "keep='%.300s' gone='%.300s'; %s", folder, over ? folder : "",
             sweep);
    const char *own[] = {"/bin/sh",
                         "-c",
                         start,
                         "sh",
                         agent[0] ? agent : "ssh -x -o BatchMode=yes -o ConnectTimeout=5",
                         script};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) argv[k++] = own[i];
    for (int i = 0; i < n; i++) argv[k++] = names[i];
    argv[k] = NULL;
    pid_t pid;
    /* The child starts the work in the background and exits. */
    if (bt_process_start(&pid, &(bt_start){.argv = argv, .session = true}) == 0)
        waitpid(pid, NULL, 0);
}
