/* test_energy.c - energy counters as Linux presents them: which counters are added, a counter that wraps, this
 * process's share, and the message without counters. */
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

static void write_counter_file(const char *zone, const char *file, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, zone);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", root, zone, file);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void write_zone(const char *at, const char *name, const char *energy, const char *range) {
    write_counter_file(at, "name", name);
    write_counter_file(at, "energy_uj", energy);
    write_counter_file(at, "max_energy_range_uj", range);
}

/* Creates two packages, parts of them, the memory of one, a platform counter and a second view of a package. */
static int setup(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/bitrain-energy-XXXXXX");
    if (!mkdtemp(root)) return 1;
    write_zone("intel-rapl:0", "package-0\n", "1000000\n", "50000000\n");
    write_zone("intel-rapl:1", "package-1\n", "49000000\n", "50000000\n");
    write_zone("intel-rapl:0:0", "core\n", "0\n", "50000000\n");
    write_zone("intel-rapl:0:1", "dram\n", "7000000\n", "50000000\n");
    write_zone("intel-rapl:2", "psys\n", "0\n", "50000000\n");
    write_zone("intel-rapl-mmio:0", "package-0\n", "1000000\n", "50000000\n");
    write_counter_file(".", "stat",
                       "cpu  100 10 50 100000 900 4 6 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command) != 0; /* NOLINT: the folder is created by this test */
}

/* Returns the joules of this process, measured while it computes. */
static double joules_of_work(double seconds) {
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
    assert_true(isnan(bt_energy_take(&e))); /* too early for a second reading */
    const double own = joules_of_work(0.3);
    write_zone("intel-rapl:0", "package-0\n", "21000000\n", "50000000\n"); /* 20 J */
    /* The counter wrapped: 10 J. */
    write_zone("intel-rapl:1", "package-1\n", "9000000\n", "50000000\n");
    write_zone("intel-rapl:0:1", "dram\n", "8000000\n", "50000000\n");  /* 1 J */
    write_zone("intel-rapl:0:0", "core\n", "30000000\n", "50000000\n"); /* part of package 0 */
    write_zone("intel-rapl:2", "psys\n", "40000000\n", "50000000\n");
    /* All processors together worked 60 s more (30 + 10 + 15 + 2 + 3); idle time and waiting for disks do not count. */
    write_counter_file(".", "stat", "cpu  3100 1010 1550 900000 99900 204 306 0 0 0\n");
    const double joules = bt_energy_take(&e);
    assert_true(fabs(joules - 31 * own / 60) < 0.02 * joules + 31 * 0.02 / 60);
    assert_true(isnan(bt_energy_take(&e)));
    bt_energy_close(&e);
    assert_true(isnan(bt_energy_take(&e)));
}

static void a_single_process_is_charged_with_everything(void **state) {
    (void)state;
    bt_energy e;
    assert_true(bt_energy_open(&e, root, why, sizeof why));
    joules_of_work(0.3);
    write_zone("intel-rapl:0", "package-0\n", "26000000\n", "50000000\n"); /* 5 J more than above */
    /* /proc/stat has not changed, because its resolution is a hundredth of a second. */
    assert_true(bt_energy_take(&e) == 5);
    bt_energy_close(&e);
}

static void a_missing_counter_is_reported(void **state) {
    (void)state;
    bt_energy e;
    char path[128];
    assert_false(bt_energy_open(&e, "/proc/self/fd", why, sizeof why));
    assert_non_null(strstr(why, "/proc/self/fd has no intel-rapl"));
    assert_true(isnan(bt_energy_take(&e)));
    assert_false(bt_energy_open(&e, "/no/such/folder", why, sizeof why));
    assert_non_null(strstr(why, "not counted"));
    bt_energy_close(&e);
    /* If one counter is unreadable the sum is unknown, because a partial sum would look like the total. */
    snprintf(path, sizeof path, "%s/intel-rapl:1/energy_uj", root);
    assert_int_equal(unlink(path), 0);
    assert_false(bt_energy_open(&e, root, why, sizeof why));
    assert_non_null(strstr(why, "only root may read it"));
    assert_true(isnan(bt_energy_take(&e)));
}

static void joules_are_formatted_for_display(void **state) {
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
        cmocka_unit_test(a_single_process_is_charged_with_everything),
        cmocka_unit_test(a_missing_counter_is_reported),
        cmocka_unit_test(joules_are_formatted_for_display),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
