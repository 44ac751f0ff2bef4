/* test_measured.c - the file of measurements is read only if it is complete and the ranks have the same placement; also
 * the peak rate of ranks that share cores. In tests/cli/run_kill_rank.sh the next attempt reads the file. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/train/measured.h"
#include "tests/log_said.h"

static char folder[64];

static bt_measured example_measurements(void) {
    bt_measured m = {.attempt = 3, .peak_flops = 1.25e12};
    m.links[BT_AXIS_DP] = (bt_link){.latency_s = 2e-5, .bytes_per_s = 3e9, .tried = true};
    return m;
}

static void path_of(char out[96]) { snprintf(out, 96, "%s/measured", folder); }

static void a_record_survives(void **state) {
    (void)state;
    bt_measured m = example_measurements(), back;
    assert_false(bt_measured_read(&back, folder, 77));
    bt_measured_write(&m, folder, 77);
    assert_true(bt_measured_read(&back, folder, 77));
    assert_int_equal(back.attempt, 3);
    assert_true(back.peak_flops == 1.25e12);
    assert_true(back.links[BT_AXIS_DP].latency_s == 2e-5);
    assert_true(back.links[BT_AXIS_DP].bytes_per_s == 3e9);
    assert_true(back.links[BT_AXIS_DP].tried);
    assert_false(back.links[BT_AXIS_SHARD].tried);
    /* Another layout on other hosts must not read the file. */
    assert_false(bt_measured_read(&back, folder, 78));
    m.peak_flops = 2e12;
    bt_measured_write(&m, folder, 78);
    assert_false(bt_measured_read(&back, folder, 77));
    assert_true(bt_measured_read(&back, folder, 78));
    assert_true(back.peak_flops == 2e12);
}

static void damaged_records_are_ignored(void **state) {
    (void)state;
    char path[96];
    bt_measured m = example_measurements(), back;
    struct stat st;
    path_of(path);
    bt_measured_write(&m, folder, 77);
    assert_int_equal(stat(path, &st), 0);
    for (off_t at = 0; at < st.st_size; at++) { /* damages every byte in turn */
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
    /* Writes a valid record of a smaller or larger struct, as another version of the program would. */
    for (int more = -1; more <= 1; more += 2) {
        unsigned char all[1024];
        const size_t sealed = (size_t)st.st_size - sizeof(uint64_t);
        const int fd = open(path, O_RDWR);
        assert_true((size_t)st.st_size <= sizeof all);
        assert_int_equal(pread(fd, all, sizeof all, 0), st.st_size);
        all[7] = (unsigned char)(all[7] + more);
        const uint64_t hash = XXH3_64bits(all, sealed);
        memcpy(all + sealed, &hash, sizeof hash);
        assert_int_equal(pwrite(fd, all, (size_t)st.st_size, 0), st.st_size);
        close(fd);
        assert_false(bt_measured_read(&back, folder, 77));
        bt_measured_write(&m, folder, 77);
        assert_true(bt_measured_read(&back, folder, 77));
    }
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    assert_false(bt_measured_read(&back, folder, 77));
    /* A FIFO or folder in place of the file is ignored without blocking. */
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(bt_measured_read(&back, folder, 77));
    unlink(path);
}

static void a_run_without_a_folder_keeps_no_record(void **state) {
    (void)state;
    bt_measured m = example_measurements(), back;
    bt_measured_write(&m, NULL, 1);
    bt_measured_write(&m, "", 1);
    heard_is("");
    bt_measured_write(&m, "/nonexistent/folder", 1);
    heard_is("log 0 the measurements could not be stored in '/nonexistent/folder/measured'\n");
    assert_false(bt_measured_read(&back, NULL, 1));
    assert_false(bt_measured_read(&back, "", 1));
    assert_false(bt_measured_read(&back, "/nonexistent/folder", 1));
}

/* If the file cannot be replaced, the temporary file is removed; a path that is too long is refused. */
static void a_file_that_cannot_be_kept_leaves_nothing(void **state) {
    (void)state;
    char path[96], fresh[112], long_dir[PATH_MAX + 8];
    bt_measured m = example_measurements(), back;
    path_of(path);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    assert_int_equal(mkdir(path, 0700), 0);
    bt_measured_write(&m, folder, 1);
    assert_int_equal(access(fresh, F_OK), -1);
    assert_false(bt_measured_read(&back, folder, 1));
    rmdir(path);
    bt_text_clear(&heard);
    bt_measured_write(&m, folder, 1);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    heard_is("");
    /* The longest possible name succeeds, and a name with one more character fails. */
    for (size_t more = 0; more < 2; more++) {
        const size_t n = PATH_MAX - sizeof "/measured" + more;
        memset(long_dir, '/', n);
        memcpy(long_dir, folder, strlen(folder));
        long_dir[n] = 0;
        assert_int_equal(bt_measured_read(&back, long_dir, 1), more == 0);
        /* The temporary name would be too long, so nothing is written. */
        bt_measured_write(&m, long_dir, 1);
        bt_text_clear(&heard);
    }
}

/* Four ranks on two cores share the peak of two cores. */
static void shared_cores_count_once(void **state) {
    (void)state;
    const bt_peak_part one = {.flops = 10, .cores = 2, .threads = 1, .cpus = 3};
    bt_peak_part all[4] = {one, one, one, one};
    assert_true(bt_measured_peak(all, 1) == 10 && bt_measured_peak(all, 2) == 20);
    assert_true(bt_measured_peak(all, 4) == 20);
    all[2].host = all[3].host = 1; /* two hosts with two ranks each */
    assert_true(bt_measured_peak(all, 4) == 40);
    for (int i = 0; i < 4; i++) /* each bound to one core */
        all[i] = (bt_peak_part){.flops = 10, .cores = 1, .threads = 1, .cpus = (uint64_t)i};
    assert_true(bt_measured_peak(all, 4) == 40);
    for (int i = 0; i < 2;
         i++) /* if there are more threads than cores, the joint measurement is the limit */
        all[i] = (bt_peak_part){.flops = 20, .cores = 2, .threads = 4, .cpus = 3};
    assert_true(bt_measured_peak(all, 1) == 20 && bt_measured_peak(all, 2) == 20);
}

int main(void) {
    strcpy(folder, "/tmp/bt-measured-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_survives),
        cmocka_unit_test(damaged_records_are_ignored),
        cmocka_unit_test(a_run_without_a_folder_keeps_no_record),
        cmocka_unit_test(a_file_that_cannot_be_kept_leaves_nothing),
        cmocka_unit_test(shared_cores_count_once),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
    return system(cmd) != 0 || rc;
}
