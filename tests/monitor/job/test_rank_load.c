/* test_rank_load.c - process data from /proc for hang_watch.h: states of threads, time waiting for a processor, with
 * any process name; and the time of all processors. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "monitor/job/health/hang_watch.h"
#include "monitor/job/launch/proc.h"

/* Returns how long the threads of this process have waited for a processor, read independently. */
static int64_t waiting_time_of_process(void) {
    int64_t sum = 0;
    FILE *f = popen("cat /proc/$PPID/task/*/schedstat", "r");
    assert_non_null(f);
    for (long long ran, waited, turns; fscanf(f, "%lld %lld %lld", &ran, &waited, &turns) == 3;)
        sum += waited;
    pclose(f);
    return sum;
}

static void *wait_until_released(void *over) {
    while (!atomic_load((atomic_bool *)over)) usleep(100);
    return NULL;
}

static void *spin_thread(void *over) {
    while (!atomic_load((atomic_bool *)over)) {}
    return NULL;
}

/* Waits until a process with a sleeping first thread is reported in this state; its second thread runs `second`. */
static bool reaches_state(char state, void *(*second)(void *)) {
    int ready[2];
    char c;
    bool seen = false;
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
    for (int i = 0; i < 5000 && !seen; i++) {
        bt_proc one;
        bt_rank_load load = {0};
        usleep(1000);
        assert_true(bt_proc_read(child, &one) && bt_rank_load_read(NULL, (int)child, &load));
        seen = one.state == 'S' && load.state == state;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    return seen;
}

static void *sleep_thread(void *arg) {
    for (;;) pause();
    return arg;
}

/* A rank whose first thread waits for a working one is not asleep. */
static void test_threads(void **state) {
    (void)state;
    assert_true(reaches_state('R', spin_thread));
    assert_true(reaches_state('S', sleep_thread));
}

/* This process and a child are read from /proc; a name may contain any characters. */
static void test_proc(void **state) {
    (void)state;
    bt_rank_load load;
    pthread_t other;
    atomic_bool over = false;
    int status;
    assert_int_equal(prctl(PR_SET_NAME, "a) S (b"), 0);
    assert_int_equal(pthread_create(&other, NULL, wait_until_released, &over), 0);
    for (int i = 0; i < 200; i++) usleep(10); /* both have waited at some time */
    const int64_t before = waiting_time_of_process();
    assert_true(bt_rank_load_read(NULL, (int)getpid(), &load));
    assert_int_equal(load.state, 'R');
    assert_true(before > 0 && load.waited_ns >= before &&
                load.waited_ns <= waiting_time_of_process());
    const int64_t ran = load.ran_ns;
    for (volatile int i = 0; i < 20000000; i++) {}
    assert_true(bt_rank_load_read(NULL, (int)getpid(), &load));
    assert_true(ran > 0 && load.ran_ns > ran);
    atomic_store(&over, true);
    pthread_join(other, NULL);
    bt_proc self;
    assert_true(bt_proc_read(getpid(), &self));
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

/* Returns the fields user, nice, system, irq, softirq and steal of /proc/stat. */
static bt_machine_time machine_time_of_stat(void) {
    long long t[8];
    FILE *f = fopen("/proc/stat", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &t[0], &t[1], &t[2],
                            &t[3], &t[4], &t[5], &t[6], &t[7]),
                     8);
    fclose(f);
    return (bt_machine_time){.worked = t[0] + t[1] + t[2] + t[5] + t[6], .stolen = t[7]};
}

static void test_machine_time(void **state) {
    (void)state;
    bt_machine_time now = {-1, -1};
    const bt_machine_time before = machine_time_of_stat();
    assert_true(bt_machine_time_read(NULL, &now));
    const bt_machine_time after = machine_time_of_stat();
    assert_true(before.worked > 0 && now.worked >= before.worked && now.worked <= after.worked);
    assert_true(now.stolen >= before.stolen && now.stolen <= after.stolen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_proc),
        cmocka_unit_test(test_machine_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
