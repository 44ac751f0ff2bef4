// ctest: timeout=20
/* Process data from /proc: page faults of this process, a missing pid, rates from the second sample on; and the line
 * about the machine on the screens. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "monitor/tui/screens/screens.h"
#include "monitor/watch/cores.h"
#include "monitor/watch/procs.h"
#include "tui_test.h"

static void touch_pages(size_t pages) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *m = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m != MAP_FAILED);
    madvise(m, pages * page, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages; i++) m[i * page] = 1;
    munmap(m, pages * page);
}

static void page_faults_of_this_process(void **state) {
    (void)state;
    static bt_procs p;
    const int64_t second = INT64_C(1000000000);
    int pids[] = {(int)getpid(), 0, -5, 999999999};
    bt_procs_sample(&p, pids, 4, 10 * second);
    assert_int_equal(p.n, 1);
    assert_null(bt_procs_of(&p, 999999999));
    const bt_proc_now *me = bt_procs_of(&p, (int)getpid());
    assert_non_null(me);
    assert_true(isnan(me->faults_per_s) && isnan(me->switches_per_s));
    assert_true(p.cpus >= 1 && p.load >= 0 && p.mem_mib > 16 && p.mem_used_mib > 0 &&
                p.mem_used_mib < p.mem_mib);
    touch_pages(3000);
    /* The process gives up the processor at least once. */
    bt_sleep_ns(1000000);
    bt_procs_sample(&p, pids, 1, 12 * second); /* simulates two seconds */
    me = bt_procs_of(&p, (int)getpid());
    assert_true(me->faults_per_s >= 1500 && me->faults_per_s < 1e6);
    assert_true(me->switches_per_s > 0);
    assert_true(isnan(p.net_per_s) || p.net_per_s >= 0);
}

static void cores_and_their_users(void **state) {
    (void)state;
    static bt_cores c;
    const int64_t second = INT64_C(1000000000);
    const int me = (int)getpid(), child = fork();
    if (child == 0)
        for (volatile unsigned n = 0;; n++) continue; /* uses a core */
    assert_true(child > 0);
    bt_cores_sample(&c, &me, 1, 10 * second);
    assert_int_equal(c.n, sysconf(_SC_NPROCESSORS_ONLN)); /* excludes the line of the sum */
    assert_true(isnan(c.core[0].busy_frac) && c.n_others == 0);
    for (int i = 0; i < 200 && c.n_others == 0; i++) { /* simulates three seconds */
        bt_sleep_ns(20000000);
        bt_cores c2 = c;
        bt_cores_sample(&c2, &me, 1, 13 * second);
        for (int k = 0; k < c2.n_others; k++)
            if (c2.other[k].pid == child) c = c2;
    }
    bool seen = false;
    for (int i = 0; i < c.n_others; i++) {
        assert_int_not_equal(c.other[i].pid, me);
        assert_true(c.other[i].cores >= 0.05 && c.other[i].name[0]);
        assert_true(i == 0 || c.other[i].cores <= c.other[i - 1].cores);
        seen |= c.other[i].pid == child;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(seen);
    double busy = 0;
    for (int i = 0; i < c.n; i++) {
        const bt_core *x = &c.core[i];
        assert_true(isnan(x->busy_frac) || (x->busy_frac >= 0 && x->busy_frac <= 1));
        assert_true(isnan(x->mhz) || (x->mhz > 10 && x->mhz < 20000));
        if (!isnan(x->busy_frac)) busy += x->busy_frac;
    }
    assert_true(busy > 0);
    assert_true(isnan(c.read_per_s) || (c.read_per_s >= 0 && c.written_per_s >= 0));
    const int ours[] = {me, child}; /* The run's own processes are not counted as foreign. */
    c.n_others = 0;
    bt_cores_sample(&c, ours, 2, 99 * second);
    for (int i = 0; i < c.n_others; i++) assert_int_not_equal(c.other[i].pid, child);
}

/* Items of the line about the machine that do not fit are omitted completely at any width. */
static void items_that_do_not_fit_are_omitted(void **state) {
    (void)state;
    bt_top *t = calloc(1, sizeof *t);
    char text[300];
    assert_non_null(t);
    t->procs = (bt_procs){.cpus = 2,
                          .load = 11.6,
                          .mem_used_mib = 5437,
                          .mem_mib = 15974,
                          .net_per_s = 12595.7,
                          .celsius = 45};
    t->cores.read_per_s = 1258291;
    t->cores.written_per_s = 3565158;
    static const struct {
        int w;
        const char *want;
    } rows[] = {{160, "this machine: load 11.6 on 2 processors · memory 5.31 GiB of 15.6 GiB · "
                      "network 12.3 KiB/s · disks read 1.20 MiB/s, written 3.40 MiB/s · 45 °C"},
                {118, "this machine: load 11.6 on 2 processors · memory 5.31 GiB of 15.6 GiB · "
                      "network 12.3 KiB/s · disks 4.60 MiB/s · 45 °C"},
                {78, "this machine: load 11.6 on 2 processors · memory 5.31 GiB of 15.6 GiB · "
                     "45 °C"},
                {20, "this machine: load 11.6 on 2 processors"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(bt_machine_summary(t, rows[i].w, text, sizeof text), rows[i].want);
    t->procs.net_per_s = t->procs.celsius = t->cores.read_per_s = NAN; /* not readable */
    assert_string_equal(bt_machine_summary(t, 160, text, sizeof text),
                        "this machine: load 11.6 on 2 processors · memory 5.31 GiB of 15.6 GiB");
    free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(page_faults_of_this_process),
                                       cmocka_unit_test(cores_and_their_users),
                                       cmocka_unit_test(items_that_do_not_fit_are_omitted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
