/* test_group_processors.c - quotas of control groups, versions 1 and 2, from files in the form of the system's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/os/control_group.h"

/* Returns the quota for these files, given as path=text pairs separated by ';' with '|' for newlines. */
static double quota_of(const char *files) {
    char root[] = "/tmp/quota.XXXXXX", command[600];
    assert_non_null(mkdtemp(root));
    for (const char *at = files; *at; at += strcspn(at, ";"), at += *at == ';') {
        const int name = (int)strcspn(at, "="), text = (int)strcspn(at + name + 1, ";");
        char path[400];
        snprintf(path, sizeof path, "%s/%.*s", root, name, at);
        snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", path);
        assert_int_equal(system(command), 0);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (int i = 0; i < text; i++) fputc(at[name + 1 + i] == '|' ? '\n' : at[name + 1 + i], f);
        fclose(f);
    }
    const double quota = bt_group_processors(root);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
    return quota;
}

static void quotas_of_every_control_group_layout(void **state) {
    (void)state;
    static const struct {
        const char *what, *files;
        double quota;
    } cases[] = {
        {"no groups at all", "proc/self/x=", 0},
        {"version 2, no limit", "proc/self/cgroup=0::/|;sys/fs/cgroup/cpu.max=max 100000|", 0},
        {"a container's own group", "proc/self/cgroup=0::/|;sys/fs/cgroup/cpu.max=150000 100000|",
         1.5},
        {"a service below a slice",
         "proc/self/cgroup=0::/system.slice/b.service|;"
         "sys/fs/cgroup/system.slice/b.service/cpu.max=400000 "
         "100000|;sys/fs/cgroup/system.slice/cpu.max=max 100000|",
         4},
        {"the limit is two groups above",
         "proc/self/cgroup=0::/a/b/c|;sys/fs/cgroup/a/b/c/cpu.max=max 100000|;"
         "sys/fs/cgroup/a/b/cpu.max=300000 100000|;sys/fs/cgroup/a/cpu.max=50000 50000|",
         1},
        {"a group that is not visible in the container",
         "proc/self/cgroup=0::/docker/0123|;sys/fs/cgroup/cpu.max=200000 100000|", 2},
        {"version 1",
         "proc/self/cgroup=4:cpu,cpuacct:/|;"
         "sys/fs/cgroup/cpu/cpu.cfs_quota_us=60000|;sys/fs/cgroup/cpu/cpu.cfs_period_us=100000|",
         0.6},
        {"version 1, no limit",
         "proc/self/cgroup=4:cpu,cpuacct:/|;"
         "sys/fs/cgroup/cpu/cpu.cfs_quota_us=-1|;sys/fs/cgroup/cpu/cpu.cfs_period_us=100000|",
         0},
        {"version 1, nested, mounted as cpu,cpuacct",
         "proc/self/cgroup=9:memory:/m|4:cpu,cpuacct:/a/b|;"
         "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us=-1|;sys/fs/cgroup/cpu,cpuacct/a/b/"
         "cpu.cfs_period_us=100000|;"
         "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us=300000|;sys/fs/cgroup/cpu,cpuacct/a/"
         "cpu.cfs_period_us=100000|;"
         "sys/fs/cgroup/cpu,cpuacct/m/cpu.cfs_quota_us=1|",
         3},
        {"both versions: the smaller one",
         "proc/self/cgroup=4:cpu:/|0::/x|;sys/fs/cgroup/cpu/cpu.cfs_quota_us=200000|;"
         "sys/fs/cgroup/cpu/cpu.cfs_period_us=100000|;sys/fs/cgroup/x/cpu.max=100000 100000|",
         1},
        {"mounted elsewhere, below a group",
         "proc/self/cgroup=0::/pods/p1/c|;"
         "proc/self/mountinfo=22 1 0:20 / /proc rw - proc proc rw|30 22 0:26 /pods/p1 /groups "
         "ro,nosuid - cgroup2 c rw|;"
         "groups/c/cpu.max=250000 100000|",
         2.5},
        {"version 1 mounted elsewhere",
         "proc/self/cgroup=3:cpu:/j|;proc/self/mountinfo=31 22 0:27 / /v1 rw - cgroup cgroup "
         "rw,cpu,cpuacct|"
         "32 22 0:28 / /v1set rw - cgroup cgroup rw,cpuset|;"
         "v1/j/cpu.cfs_quota_us=100000|;v1/j/cpu.cfs_period_us=100000|;v1set/j/cpu.cfs_quota_us=1|",
         1},
        {"nonsense",
         "proc/self/cgroup=||x:y|:::|0::|;proc/self/mountinfo=- - -|a b c - "
         "cgroup2|;sys/fs/cgroup/cpu.max=0 0|",
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double got = quota_of(cases[i].files);
        if (got != cases[i].quota) fail_msg("%s: %g, not %g", cases[i].what, got, cases[i].quota);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(quotas_of_every_control_group_layout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
