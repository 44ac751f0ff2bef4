/* test_machine_info.c - counters, memory and file systems of this machine, and the parser of processor times. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/os/file_system.h"
#include "engine/base/os/machine_info.h"

static void test_times(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool known;
        int64_t worked, idle, stolen;
    } rows[] = {{"cpu  1 2 4 8 16 32 64 128 0 0\ncpu0 9 9\n", true, 1 + 2 + 4 + 32 + 64, 24, 128},
                {"cpu 10 20 30 40\n", true, 60, 40, 0}, /* an old kernel */
                {"cpu0 1 2 4 8 16 32 64 128\n", false, 0, 0, 0},
                {"cpu 1 2\n", false, 0, 0, 0},
                {"intr 1 2 3 4 5 6 7 8\n", false, 0, 0, 0},
                {"", false, 0, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_processor_times t;
        assert_int_equal(bt_machine_times_parse(rows[i].text, &t), rows[i].known);
        if (!rows[i].known) continue;
        assert_int_equal(t.worked, rows[i].worked);
        assert_int_equal(t.idle, rows[i].idle);
        assert_int_equal(t.stolen, rows[i].stolen);
    }
    bt_processor_times all, each[4];
    assert_true(bt_machine_times(&all) && all.worked > 0 && all.cpu == -1);
    const size_t n = bt_machine_times_each(each, 4);
    assert_true(n >= 1 && n <= 4);
    for (size_t i = 0; i < n; i++)
        assert_true(each[i].cpu >= (int)i && (!i || each[i].cpu > each[i - 1].cpu));
    assert_int_equal(bt_machine_times_each(each, 1), 1);
}

static void test_machine(void **state) {
    (void)state;
    char text[64], again[64];
    double read, written;
    const bt_machine_memory m = bt_machine_memory_read();
    assert_true(m.total > 1 << 20 && m.available > 0 && m.available <= m.total);
    const bt_machine_load_now load = bt_machine_load_read();
    assert_true(load.average >= 0 && load.runnable >= 1); /* this process is one */
    if (bt_machine_disk_bytes(&read, &written)) assert_true(read >= 0 && written >= 0);
    assert_true(bt_machine_network_bytes() >= 0 || isnan(bt_machine_network_bytes()));
    if (bt_machine_boot(text)) {
        assert_true(bt_machine_boot(again) && strlen(text) > 8);
        assert_string_equal(text, again);
    }
}

static void test_file_system(void **state) {
    (void)state;
    long kind, other;
    assert_true(bt_file_system_of_path("/dev/shm", &kind) && bt_file_system_in_memory(kind));
    assert_null(bt_file_system_shared(kind));
    assert_true(bt_file_system_of_path("/proc", &other) && !bt_file_system_in_memory(other));
    assert_false(bt_file_system_of_path("/proc/no such file", &other));
    unsigned a, b;
    FILE *mounts = bt_file_system_mounts("/", &a, &b);
    assert_non_null(mounts);
    fclose(mounts);
    assert_null(bt_file_system_mounts("/proc/no such file", &a, &b));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times), cmocka_unit_test(test_machine),
                                       cmocka_unit_test(test_file_system)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
