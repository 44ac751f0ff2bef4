/* test_remote_cleanup.c - files of killed ranks in /dev/shm of another host are removed through the launch agent (ssh);
 * files that a process has mapped remain. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "monitor/job/launch/remote_cleanup.h"

static char folder[] = "/tmp/bt_far_XXXXXX", left[96], used[96], asked[96], hosts[96], agent[96];
static void *mapped;

static void put_file(const char *path, const char *text, mode_t mode) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void unmapped_segments_are_removed(void **state) {
    (void)state;
    char script[400];
    if (access("/dev/shm", W_OK) != 0) skip();
    assert_non_null(mkdtemp(folder));
    snprintf(left, sizeof left, "/dev/shm/vader_segment.bttest.%d.1", (int)getpid());
    snprintf(used, sizeof used, "/dev/shm/vader_segment.bttest.%d.2", (int)getpid());
    snprintf(asked, sizeof asked, "%s/asked", folder);
    snprintf(hosts, sizeof hosts, "%s/hosts", folder);
    snprintf(agent, sizeof agent, "%s/agent", folder);
    put_file(left, "4096 bytes", 0600);
    put_file(used, "4096 bytes", 0600);
    int fd = open(used, O_RDWR);
    mapped = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(mapped != MAP_FAILED);
    char text[600];
    /* Names that look like options of the agent, or are too long, are ignored. */
    snprintf(text, sizeof text,
             "# ours and theirs\n127.0.0.1 slots=2\nlocalhost\n-oProxyCommand=x slots=1\n"
             "%0128d slots=1\nnode7:3\n\n  node8 slots=1\n",
             0);
    put_file(hosts, text, 0600);
    snprintf(script, sizeof script,
             "#!/bin/sh\n[ \"$1\" = -x ] && shift\necho \"$1\" >> '%s'\nshift\nexec sh -c \"$*\"\n",
             asked);
    put_file(agent, script, 0700);
    /* An agent may have its own arguments. */
    strcat(agent, " -x");
    setenv("OMPI_MCA_plm_rsh_agent", agent, 1);
    bt_remote_sweep("", "", false);
    assert_int_equal(access(asked, F_OK), -1);
    bt_remote_sweep(hosts, "", false);
    for (int i = 0; i < 300 && access(left, F_OK) == 0; i++) bt_sleep_ns(50000000);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(access(used, F_OK), 0);
    char names[64] = "";
    FILE *f = fopen(asked, "r");
    assert_non_null(f);
    names[fread(names, 1, sizeof names - 1, f)] = 0;
    fclose(f);
    /* This host is swept without an agent. */
    assert_true(strcmp(names, "node7\nnode8\n") == 0 || strcmp(names, "node8\nnode7\n") == 0);
    munmap(mapped, 8);
}

static int clean(void **state) {
    (void)state;
    char cmd[128];
    unlink(left);
    unlink(used);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", folder);
    return system(cmd);
}

static int lock = -1; /* locked as by a supervisor */

static void make_old_folder(char path[96], const char *name, bool locked) {
    char file[128];
    const struct timespec then[2] = {{time(NULL) - 700, 0}, {time(NULL) - 700, 0}};
    snprintf(path, 96, "/dev/shm/bitrain-%u-bttest%d%s", (unsigned)getuid(), (int)getpid(), name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(file, sizeof file, "%s/%s", path, locked ? "lock" : "state");
    put_file(file, "x", 0600);
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    if (!locked) return;
    lock = open(file, O_RDWR);
    assert_int_equal(flock(lock, LOCK_EX), 0);
}

static bool is_removed_in_time(const char *path) { /* within 15 s */
    for (int i = 0; i < 300 && access(path, F_OK) == 0; i++) bt_sleep_ns(50000000);
    return access(path, F_OK) != 0;
}

/* Folders of states on that host are removed: those of old runs, and those of this run after its end. */
static void folders_of_states_are_removed(void **state) {
    (void)state;
    enum { STALE, YOUNG, LOCKED, OWN, N };
    static const char *const names[N] = {"stale", "young", "locked", "own"};
    char path[N][96], cmd[512];
    if (access("/dev/shm", W_OK) != 0) skip();
    for (int i = 0; i < N; i++) make_old_folder(path[i], names[i], i == LOCKED);
    assert_int_equal(utimensat(AT_FDCWD, path[YOUNG], NULL, 0), 0);
    bt_remote_sweep(hosts, path[OWN], false);
    assert_true(is_removed_in_time(path[STALE]));
    assert_int_equal(access(path[YOUNG], F_OK), 0);
    assert_int_equal(access(path[LOCKED], F_OK), 0);
    assert_int_equal(access(path[OWN], F_OK), 0);
    bt_remote_sweep(hosts, path[OWN], true);
    assert_true(is_removed_in_time(path[OWN]));
    bt_remote_sweep(hosts, path[LOCKED], true);
    assert_int_equal(access(path[YOUNG], F_OK), 0);
    assert_int_equal(access(path[LOCKED], F_OK), 0);
    close(lock);
    for (int i = 0; i < N; i++) {
        snprintf(cmd, sizeof cmd, "rm -rf '%s'", path[i]);
        assert_int_equal(system(cmd), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(unmapped_segments_are_removed),
                                       cmocka_unit_test(folders_of_states_are_removed)};
    return cmocka_run_group_tests(tests, NULL, clean);
}
