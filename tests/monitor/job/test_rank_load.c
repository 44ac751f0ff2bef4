/* test_rank_load.c - what /proc tells of ranks and of the machine: who runs, sleeps or was stopped, how long threads waited
 * for a processor, how much all processors worked. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "monitor/job/health/hang_watch.h"
#include "monitor/job/launch/proc.h"

/* user, nice, system, irq and softirq of all processors */
static int64_t worked_so_far(void) {
    enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, NUMBERS };
    long long t[NUMBERS];
    FILE *f = fopen("/proc/stat", "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "cpu"), 0);
    for (int i = 0; i < NUMBERS; i++) assert_int_equal(fscanf(f, "%lld", &t[i]), 1);
    fclose(f);
    return t[USER] + t[NICE] + t[SYSTEM] + t[IRQ] + t[SOFTIRQ];
}

static void what_the_machine_did(void **state) {
    (void)state;
    bt_machine_time now = {-1, -1};
    const int64_t before = worked_so_far();
    assert_true(bt_machine_time_read(NULL, &now) && now.worked > 0 && now.stolen >= 0);
    assert_in_range(now.worked, before, worked_so_far());
}

/* how long the threads of this process have waited for a processor, by a way of its own */
static int64_t waited_here(void) {
    int64_t sum = 0;
    FILE *f = popen("cat /proc/$PPID/task/*/schedstat", "r");
    assert_non_null(f);
    for (long long ran, waited, turns; fscanf(f, "%lld %lld %lld", &ran, &waited, &turns) == 3;)
        sum += waited;
    pclose(f);
    return sum;
}

static void *until_told(void *over) {
    while (!atomic_load((atomic_bool *)over)) usleep(100);
    return NULL;
}

static void *spins(void *over) {
    while (!atomic_load((atomic_bool *)over)) {}
    return NULL;
}

/* its state as it is read once both of its threads have come where they stay */
static char state_of_two(void *(*second)(void *)) {
    int ready[2];
    char c;
    bt_rank_load load = {0};
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        pthread_t other;
        atomic_bool over = false;
        if (pthread_create(&other, NULL, second, &over) != 0 || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    for (int i = 0; i < 1000; i++) { /* until the first sleeps */
        bt_proc one;
        assert_true(bt_proc_look(child, &one));
        if (one.state == 'S') break;
        usleep(1000);
    }
    usleep(20000);
    assert_true(bt_rank_load_read(NULL, (int)child, &load));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    return load.state;
}

static void *sleeps(void *arg) {
    for (;;) pause();
    return arg;
}

/* a rank whose first thread waits for another one that works is not asleep */
static void a_thread_that_works_is_the_rank(void **state) {
    (void)state;
    assert_int_equal(state_of_two(spins), 'R');
    assert_int_equal(state_of_two(sleeps), 'S');
}

/* of this process and of a child, as /proc tells; a name may have any characters */
static void a_process_and_a_child(void **state) {
    (void)state;
    bt_rank_load load;
    pthread_t other;
    atomic_bool over = false;
    int status;
    assert_int_equal(prctl(PR_SET_NAME, "a) S (b"), 0);
    assert_int_equal(pthread_create(&other, NULL, until_told, &over), 0);
    for (int i = 0; i < 200; i++) usleep(10); /* both have waited at some time */
    const int64_t before = waited_here();
    assert_true(bt_rank_load_read(NULL, (int)getpid(), &load));
    assert_int_equal(load.state, 'R');
    assert_true(before > 0 && load.waited_ns >= before && load.waited_ns <= waited_here());
    atomic_store(&over, true);
    pthread_join(other, NULL);
    bt_proc self;
    assert_true(bt_proc_look(getpid(), &self));
    assert_string_equal(self.name, "a) S (b");
    assert_true(self.pid == getpid() && self.state == 'R');
    const pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(bt_rank_load_read(NULL, (int)child, &load));
    assert_int_equal(load.state, 'T');
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_false(bt_rank_load_read(NULL, (int)child, &load));
    assert_false(bt_rank_load_read(NULL, 0x7ffffff0, &load));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_the_machine_did),
                                       cmocka_unit_test(a_thread_that_works_is_the_rank),
                                       cmocka_unit_test(a_process_and_a_child)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
