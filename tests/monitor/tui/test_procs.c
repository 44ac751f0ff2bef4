/* timeout: 20
 * what /proc says of processes: ourselves as one whose faults are known, a pid that is not there,
 * rates from the second sample on. */
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "monitor/watch/procs.h"
#include "tui_test.h"

static void touch(size_t pages) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *m = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m != MAP_FAILED);
    madvise(m, pages * page, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages; i++) m[i * page] = 1;
    munmap(m, pages * page);
}

static void our_own_faults(void **state) {
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
    touch(3000);
    /* gives the processor away at least once */
    bt_sleep_ns(1000000);
    bt_procs_sample(&p, pids, 1, 12 * second); /* as if two seconds had passed */
    me = bt_procs_of(&p, (int)getpid());
    assert_true(me->faults_per_s >= 1500 && me->faults_per_s < 1e6);
    assert_true(me->switches_per_s > 0);
    assert_true(isnan(p.net_per_s) || p.net_per_s >= 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(our_own_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
