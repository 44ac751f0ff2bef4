/* test_measured.c - what an attempt measured reaches the next one in the same place, whole or not at
 * all. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/train/measured.h"

static char folder[64];

static bt_measured example(void) {
    bt_measured m = {.attempt = 3, .peak_flops = 1.25e12};
    m.links[BT_AXIS_DP] = (bt_link){.latency_s = 2e-5, .bytes_per_s = 3e9, .tried = true};
    return m;
}

static void path_of(char out[96]) { snprintf(out, 96, "%s/measured", folder); }

static void test_kept(void **state) {
    (void)state;
    bt_measured m = example(), back;
    assert_false(bt_measured_read(&back, folder, 77));
    bt_measured_write(&m, folder, 77);
    assert_true(bt_measured_read(&back, folder, 77));
    assert_int_equal(back.attempt, 3);
    assert_true(back.peak_flops == 1.25e12);
    assert_true(back.links[BT_AXIS_DP].latency_s == 2e-5);
    assert_true(back.links[BT_AXIS_DP].bytes_per_s == 3e9);
    assert_true(back.links[BT_AXIS_DP].tried);
    assert_false(back.links[BT_AXIS_SHARD].tried);
    /* other hosts, another layout */
    assert_false(bt_measured_read(&back, folder, 78));
    m.peak_flops = 2e12;
    bt_measured_write(&m, folder, 78);
    assert_false(bt_measured_read(&back, folder, 77));
    assert_true(bt_measured_read(&back, folder, 78));
    assert_true(back.peak_flops == 2e12);
}

static void test_damaged(void **state) {
    (void)state;
    char path[96];
    bt_measured m = example(), back;
    struct stat st;
    path_of(path);
    bt_measured_write(&m, folder, 77);
    assert_int_equal(stat(path, &st), 0);
    for (off_t at = 0; at < st.st_size; at++) { /* every byte */
        unsigned char byte;
        int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 1;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_false(bt_measured_read(&back, folder, 77));
        byte ^= 1;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    assert_true(bt_measured_read(&back, folder, 77));
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    assert_false(bt_measured_read(&back, folder, 77));
    /* what is no file neither holds nobody up nor counts */
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(bt_measured_read(&back, folder, 77));
    unlink(path);
}

static void test_nowhere(void **state) {
    (void)state;
    bt_measured m = example(), back;
    bt_measured_write(&m, NULL, 1);
    bt_measured_write(&m, "", 1);
    bt_measured_write(&m, "/nonexistent/folder", 1);
    assert_false(bt_measured_read(&back, NULL, 1));
    assert_false(bt_measured_read(&back, "", 1));
    assert_false(bt_measured_read(&back, "/nonexistent/folder", 1));
}

/* four ranks on two cores have the peak of two */
static void shared_cores_count_once(void **state) {
    (void)state;
    const bt_peak_part one = {.flops = 10, .cores = 2, .threads = 1, .cpus = 3};
    bt_peak_part all[4] = {one, one, one, one};
    assert_true(bt_measured_peak(all, 1) == 10 && bt_measured_peak(all, 2) == 20);
    assert_true(bt_measured_peak(all, 4) == 20);
    all[2].host = all[3].host = 1; /* two hosts of two ranks */
    assert_true(bt_measured_peak(all, 4) == 40);
    for (int i = 0; i < 4; i++) /* bound to a core each */
        all[i] = (bt_peak_part){.flops = 10, .cores = 1, .threads = 1, .cpus = (uint64_t)i};
    assert_true(bt_measured_peak(all, 4) == 40);
    for (int i = 0; i < 2;
         i++) /* more threads than cores: measured together they had what there is */
        all[i] = (bt_peak_part){.flops = 20, .cores = 2, .threads = 4, .cpus = 3};
    assert_true(bt_measured_peak(all, 1) == 20 && bt_measured_peak(all, 2) == 20);
}

int main(void) {
    strcpy(folder, "/tmp/bt-measured-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept), cmocka_unit_test(test_damaged),
                                       cmocka_unit_test(test_nowhere),
                                       cmocka_unit_test(shared_cores_count_once)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
    return system(cmd) != 0 || rc;
}
