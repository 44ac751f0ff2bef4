/* test_memory_kills.c - lines of the kernel's log that concern a process of this job, and the file that counts the
 * kills of its memory control group. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/os/control_group.h"
#include "monitor/job/machine/memory_kills.h"

static void records_of_the_kernel(void **state) {
    (void)state;
    static const int ours[] = {4711, 4712};
    static const struct {
        const char *record;
        bool ours;
    } rows[] = {
        {"3,100,900000000,-;Out of memory: Killed process 4712 (bitrain) total-vm:1kB", true},
        {"3,100,900000000,-;Memory cgroup out of memory: Killed process 4711 (bitrain)", true},
        {"6,100,900000000,-;oom-kill:constraint=CONSTRAINT_NONE,task=bitrain,pid=4712,uid=0", true},
        /* another program; a longer number with the same prefix; an earlier process with this number */
        {"3,100,900000000,-;Memory cgroup out of memory: Killed process 99 (python3)", false},
        {"3,100,900000000,-;Out of memory: Killed process 47 (bitrain)", false},
        {"3,100,900000000,-;Out of memory: Killed process 47110 (bitrain)", false},
        {"6,100,900000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=bitrain,pid=5,uid=4711",
         false},
        {"3,100,500000000,-;Out of memory: Killed process 4712 (bitrain)", false},
        {"6,100,900000000,-;oom-kill:constraint=CONSTRAINT_MEMCG", false},
        {"6,100,900000000,-;process 4711 was started", false},
        {"garbage;Out of memory: Killed process 4711", false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (bt_memory_kill_names(rows[i].record, ours, 2, INT64_C(900000000000)) != rows[i].ours)
            fail_msg("'%s'", rows[i].record);
    assert_false(bt_memory_kill_names(rows[0].record, ours, 0, 0));
}

static void the_counter_of_a_group(void **state) {
    (void)state;
    static const struct {
        const char *cgroups, *path;
    } rows[] = {
        {"0::/user.slice/a.scope\n", "/r/user.slice/a.scope/memory.events"},
        {"9:name=systemd:/\n4:memory:/job/7\n1:cpu:/\n0::/\n",
         "/r/memory/job/7/memory.oom_control"},
        {"4:cpu,memory:/j\n", "/r/memory/j/memory.oom_control"},
        {"4:memory,cpu:/j\n", "/r/memory/j/memory.oom_control"},
        {"0::/a\n4:memory:/j\n", "/r/memory/j/memory.oom_control"},
        {"4:memoryless:/j\n1:name=memory:/x\n", ""},
        {"", ""},
        {"nonsense", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[200];
        assert_int_equal(bt_group_memory_file(rows[i].cgroups, "/r", path, sizeof path),
                         rows[i].path[0] != 0);
        assert_string_equal(path, rows[i].path);
    }
}

/* Kills of other processes on this machine are not attributed to a process that is alive. */
static void a_living_process_was_not_killed(void **state) {
    (void)state;
    const int me[] = {(int)getpid()};
    char lines[2][BT_KERNEL_LINE];
    const int64_t before = bt_group_memory_kills();
    assert_true(before >= -1);
    assert_false(bt_memory_killed(me, 1, bt_now_ns(), before));
    assert_false(bt_memory_killed(me, 0, 0, -1));
    assert_true(bt_memory_kill_lines(me, 1, bt_now_ns(), lines, 2) <= 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(records_of_the_kernel),
                                       cmocka_unit_test(the_counter_of_a_group),
                                       cmocka_unit_test(a_living_process_was_not_killed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
