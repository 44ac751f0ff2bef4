/* test_energy.c - counters of energy as Linux lays them out: which of them are added, a counter that begins
 * anew, this process's share, and what is said where there are none. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/tables/metric.h"
#include "engine/observe/energy.h"

static char root[64];
static char why[BT_ENERGY_WHY];

static void put(const char *zone, const char *file, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, zone);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", root, zone, file);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void zone(const char *at, const char *name, const char *energy, const char *range) {
    put(at, "name", name);
    put(at, "energy_uj", energy);
    put(at, "max_energy_range_uj", range);
}

/* two packages, parts of them, the memory of one, a platform counter and a second view of a package */
static int setup(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/bitrain-energy-XXXXXX");
    if (!mkdtemp(root)) return 1;
    zone("intel-rapl:0", "package-0\n", "1000000\n", "50000000\n");
    zone("intel-rapl:1", "package-1\n", "49000000\n", "50000000\n");
    zone("intel-rapl:0:0", "core\n", "0\n", "50000000\n");
    zone("intel-rapl:0:1", "dram\n", "7000000\n", "50000000\n");
    zone("intel-rapl:2", "psys\n", "0\n", "50000000\n");
    zone("intel-rapl-mmio:0", "package-0\n", "1000000\n", "50000000\n");
    put(".", "stat", "cpu  100 10 50 100000 900 4 6 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command) != 0; /* NOLINT: the folder is this test's */
}

/* of this process, measured beside the counter */
static double work(double seconds) {
    const clock_t start = clock();
    volatile double x = 1;
    while ((double)(clock() - start) / CLOCKS_PER_SEC < seconds) x = x * 1.0000001;
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

static void packages_and_memory_are_added(void **state) {
    (void)state;
    bt_energy e;
    assert_true(bt_energy_open(&e, root, why, sizeof why));
    assert_int_equal(e.n, 3);
    assert_string_equal(why, "");
    assert_true(isnan(bt_energy_take(&e))); /* too soon */
    const double own = work(0.3);
    zone("intel-rapl:0", "package-0\n", "21000000\n", "50000000\n"); /* 20 J */
    zone("intel-rapl:1", "package-1\n", "9000000\n", "50000000\n");  /* it began anew: 10 J */
    zone("intel-rapl:0:1", "dram\n", "8000000\n", "50000000\n");     /* 1 J */
    zone("intel-rapl:0:0", "core\n", "30000000\n", "50000000\n");    /* in package 0 */
    zone("intel-rapl:2", "psys\n", "40000000\n", "50000000\n");
    /* 60 s more of all processors: 30 + 10 + 15 + 2 + 3; idle and waiting for disks are no work */
    put(".", "stat", "cpu  3100 1010 1550 900000 99900 204 306 0 0 0\n");
    const double joules = bt_energy_take(&e);
    assert_true(fabs(joules - 31 * own / 60) < 0.02 * joules + 31 * 0.02 / 60);
    assert_true(isnan(bt_energy_take(&e)));
    bt_energy_close(&e);
    assert_true(isnan(bt_energy_take(&e)));
}

static void the_only_process_took_all_of_it(void **state) {
    (void)state;
    bt_energy e;
    assert_true(bt_energy_open(&e, root, why, sizeof why));
    work(0.3);
    zone("intel-rapl:0", "package-0\n", "26000000\n", "50000000\n"); /* 5 J more than above */
    assert_true(bt_energy_take(&e) == 5); /* /proc/stat has not moved: its hundredths are coarser */
    bt_energy_close(&e);
}

static void no_counter_is_said(void **state) {
    (void)state;
    bt_energy e;
    char path[128];
    assert_false(bt_energy_open(&e, "/proc/self/fd", why, sizeof why));
    assert_non_null(strstr(why, "/proc/self/fd has no intel-rapl"));
    assert_true(isnan(bt_energy_take(&e)));
    assert_false(bt_energy_open(&e, "/no/such/folder", why, sizeof why));
    assert_non_null(strstr(why, "not counted"));
    bt_energy_close(&e);
    /* one that cannot be read: the others would be told as the whole */
    snprintf(path, sizeof path, "%s/intel-rapl:1/energy_uj", root);
    assert_int_equal(unlink(path), 0);
    assert_false(bt_energy_open(&e, root, why, sizeof why));
    assert_non_null(strstr(why, "only root may read it"));
    assert_true(isnan(bt_energy_take(&e)));
}

static void joules_are_written_for_people(void **state) {
    (void)state;
    char text[32];
    static const struct {
        double joules;
        const char *text;
    } rows[] = {{0, "0 J"},       {3, "3 J"},          {1234, "1.23 kJ"},   {3.6e6, "3.60 MJ"},
                {0.25, "0.25 J"}, {0.0128, "12.8 mJ"}, {0.0012, "1.20 mJ"}, {0.00003, "30 uJ"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(bt_metric_format(text, sizeof text, rows[i].joules, BT_UNIT_J),
                            rows[i].text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_and_memory_are_added),
        cmocka_unit_test(the_only_process_took_all_of_it),
        cmocka_unit_test(no_counter_is_said),
        cmocka_unit_test(joules_are_written_for_people),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
