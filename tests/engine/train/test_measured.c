/* test_measured.c - measurements of an attempt reach the next attempt with the same placement, completely or
 * not at all; the exchange of measurements between ranks. Ranks and clocks are defined here. */
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/bench/peak.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/train/measured.h"
#include "engine/train/trainer_impl.h"
#include "tests/heard.h"

/* ---- ranks, clocks and kernels
 * ----------------------------------------------------------------------------------- */

static bt_trainer t;
static bt_err err;
static bt_cpu cpu;
static bt_link links[BT_AXIS_COUNT];
static struct {
    const char *fails;
    int rank, size;
    int64_t hash;      /* hash of this rank's placement */
    const void *told;  /* broadcast of rank 0; NULL: this rank's own */
    size_t told_bytes; /* size of the broadcast */
    bt_peak_part mine; /* this rank's contribution to the gather */
} world;

static bt_code done(const char *what, bt_err *e) {
    return said_or_fails(what, world.fails, BT_IO, e);
}
void bt_log(bt_log_level level, const char *fmt, ...) {
    char line[2 * PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (strlen(line) < 200) said("log %d %s", (int)level, line);
}
int bt_comm_rank(const bt_comm *c) {
    assert_ptr_equal(c, t.mesh.world);
    return world.rank;
}
int bt_comm_size(const bt_comm *c) {
    assert_ptr_equal(c, t.mesh.world);
    return world.size;
}
int bt_comm_host(int rank) { return 70 + rank; }
bt_code bt_all_reduce_i64(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_err *e) {
    assert_true(c == t.mesh.world && n == 1 && op == BT_SUM);
    world.hash = *x;
    *x += 1000;
    return done("place", e);
}
bt_code bt_all_reduce_f64(bt_comm *c, double *x, size_t n, bt_reduce_op op, bt_err *e) {
    assert_true(c == t.mesh.world && n == 1 && op == BT_MAX);
    *x *= 2; /* Another host is busier. */
    return done("load", e);
}
double bt_machine_load_of_others(void) { return 0.75; }
bt_code bt_broadcast(bt_comm *c, void *x, size_t bytes, int root, bt_err *e) {
    assert_true(c == t.mesh.world && root == 0);
    world.told_bytes = bytes;
    if (world.told) memcpy(x, world.told, bytes);
    return done("tell", e);
}
bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *e) {
    assert_ptr_equal(c, t.mesh.world);
    return mine == BT_OK ? done("agree", e) : mine;
}
/* Every other rank measured ten times as much, on its own host. */
bt_code bt_all_gather(bt_comm *c, const void *x, size_t bytes, void *all, bt_err *e) {
    assert_true(c == t.mesh.world && bytes == sizeof world.mine);
    memcpy(&world.mine, x, bytes);
    for (int i = 0; i < world.size; i++) {
        bt_peak_part p = world.mine;
        if (i != world.rank) p.flops *= 10, p.host = i;
        memcpy((char *)all + (size_t)i * bytes, &p, bytes);
    }
    return done("gather", e);
}
const bt_cpu *bt_cpu_get(void) { return &cpu; }
const char *bt_kernels_isa(void) { return "abacus"; }
int bt_threads_count(void) { return 3; }
double bt_peak_flops(int threads) {
    assert_int_equal(threads, 3);
    return 5e9;
}
bt_code bt_observer_links(bt_observer *o, bt_err *e) {
    assert_ptr_equal(o, t.observer);
    return done("links", e);
}
const bt_link *bt_observer_link(const bt_observer *o, bt_axis axis) {
    assert_ptr_equal(o, t.observer);
    return &links[axis];
}
void bt_observer_set_links(bt_observer *o, const bt_link given[BT_AXIS_COUNT]) {
    assert_ptr_equal(o, t.observer);
    memcpy(links, given, sizeof links);
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

static char folder[64];

static bt_measured example(void) {
    bt_measured m = {.attempt = 3, .peak_flops = 1.25e12};
    m.links[BT_AXIS_DP] = (bt_link){.latency_s = 2e-5, .bytes_per_s = 3e9, .tried = true};
    return m;
}

static void path_of(char out[96]) { snprintf(out, 96, "%s/measured", folder); }

static void a_record_survives(void **state) {
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
    bt_measured m = example(), back;
    struct stat st;
    path_of(path);
    bt_measured_write(&m, folder, 77);
    assert_int_equal(stat(path, &st), 0);
    for (off_t at = 0; at < st.st_size; at++) { /* Damages every byte in turn. */
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
    /* Writes a valid, sealed record of a smaller or larger struct, as another program version would. */
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
    /* A FIFO or folder in place of the file neither blocks nor counts. */
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(bt_measured_read(&back, folder, 77));
    unlink(path);
}

static void a_run_without_a_folder_keeps_no_record(void **state) {
    (void)state;
    bt_measured m = example(), back;
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
    bt_measured m = example(), back;
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
    /* The longest possible name succeeds, and one character more fails. */
    for (size_t more = 0; more < 2; more++) {
        const size_t n = PATH_MAX - sizeof "/measured" + more;
        memset(long_dir, '/', n);
        memcpy(long_dir, folder, strlen(folder));
        long_dir[n] = 0;
        assert_int_equal(bt_measured_read(&back, long_dir, 1), more == 0);
        bt_measured_write(&m, long_dir,
                          1); /* The temporary name would be too long, so nothing is written. */
        heard_is("");
    }
}

/* ---- all ranks
 * --------------------------------------------------------------------------------------------------- */

static void begin(int rank) {
    char path[96];
    memset(&t, 0, sizeof t);
    memset(&world, 0, sizeof world);
    t.mesh.me = (bt_mesh_coord){.pp = 4, .dp_replicate = 5, .dp_shard = 6, .tp = 7};
    t.attempt.number = 9;
    world.rank = rank, world.size = 3;
    cpu.cores = 8;
    for (int a = 0; a < BT_AXIS_COUNT; a++)
        links[a] = (bt_link){.latency_s = 1 + a, .bytes_per_s = 100 + a, .tried = true};
    err = (bt_err)BT_ERR_INIT;
    bt_text_clear(&heard);
    path_of(path);
    unlink(path);
}

static void links_are(double offset) {
    for (int a = 0; a < BT_AXIS_COUNT; a++)
        assert_true(links[a].latency_s == offset + a && links[a].bytes_per_s == 99 + offset + a &&
                    links[a].tried);
}

/* Returns a rank's placement: half of the hash of its host, threads, kernels and coordinates. */
static int64_t place_of(int rank) {
    char here[400], host[BT_HOST_MAX] = "";
    gethostname(host, sizeof host - 1);
    const int n = snprintf(here, sizeof here, "%d/3 %s 3 abacus 4 5 6 7", rank, host);
    return (int64_t)(XXH3_64bits(here, (size_t)n) >> 32);
}

static void the_next_attempt_reuses_the_measurement(void **state) {
    (void)state;
    begin(0);
    assert_int_equal(bt_trainer_measure(&t, folder, true, &err), BT_OK);
    assert_true(world.hash == place_of(0) && world.hash != place_of(1));
    /* Three ranks run on separate hosts; the rank's peak is one core of eight per thread. */
    assert_true(t.attempt.measured_by == 9 && t.telemetry.peak_flops == 105e9);
    cpu_set_t cpus;
    assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    assert_true(world.mine.flops == 5e9 && world.mine.cpus == XXH3_64bits(&cpus, sizeof cpus) &&
                world.mine.host == 70 && world.mine.cores == 8 && world.mine.threads == 3);
    links_are(1);

    t.attempt.number = 10; /* The placement is equal, so nothing is measured. */
    assert_true(t.attempt.measured_load == 1.5);
    t.attempt.measured_by = 0, t.telemetry.peak_flops = 0, t.attempt.measured_load = 0;
    memset(links, 0, sizeof links);
    assert_int_equal(bt_trainer_measure(&t, folder, true, &err), BT_OK);
    assert_true(t.attempt.measured_by == 9 && t.telemetry.peak_flops == 105e9 &&
                t.attempt.measured_load == 1.5);
    links_are(1);

    t.mesh.me.tp = 8; /* The placement differs, and the peak is not requested. */
    assert_int_equal(bt_trainer_measure(&t, folder, false, &err), BT_OK);
    assert_true(t.attempt.measured_by == 10 && t.telemetry.peak_flops == 0);
    char path[96];
    path_of(path);
    unlink(path);
    assert_int_equal(bt_trainer_measure(&t, NULL, false, &err), BT_OK); /* Nothing is written. */
    assert_int_equal(access(path, F_OK), -1);
}

/* All ranks use the file that rank 0 read; they neither read nor write it themselves. */
static void rank_0_alone_reads_and_writes(void **state) {
    (void)state;
    struct {
        bt_measured what;
        int64_t found;
    } all;
    char path[96];
    path_of(path);
    begin(1);
    bt_measured m = example();
    bt_measured_write(&m, folder, (uint64_t)place_of(1) + 1000);
    assert_int_equal(bt_trainer_measure(&t, folder, false, &err), BT_OK);
    assert_int_equal(world.told_bytes, sizeof all);
    assert_int_equal(t.attempt.measured_by, 9);
    bt_measured back;
    assert_true(bt_measured_read(&back, folder, (uint64_t)place_of(1) + 1000));
    assert_int_equal(back.attempt, 3);
    begin(1);
    memset(&all, 0, sizeof all);
    all.what = example();
    all.found = 1;
    world.told = &all;
    assert_int_equal(bt_trainer_measure(&t, folder, true, &err), BT_OK);
    assert_true(t.attempt.measured_by == 3 && t.telemetry.peak_flops == 1.25e12);
    assert_memory_equal(links, m.links, sizeof links);
    assert_int_equal(access(path, F_OK), -1);
}

static void one_failing_rank_fails_all(void **state) {
    (void)state;
    static const char *const parts[] = {"place", "tell", "links", "agree", "gather"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char says[40];
        begin(0);
        world.fails = parts[i];
        assert_int_equal(bt_trainer_measure(&t, folder, true, &err), BT_IO);
        snprintf(says, sizeof says, "%s fails", parts[i]);
        assert_string_equal(err.msg, says);
        assert_int_equal(t.attempt.measured_by, 0);
        char path[96];
        path_of(path);
        assert_int_equal(access(path, F_OK), -1);
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
         i++) /* The joint measurement is the limit if there are more threads than cores. */
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
        cmocka_unit_test(the_next_attempt_reuses_the_measurement),
        cmocka_unit_test(rank_0_alone_reads_and_writes),
        cmocka_unit_test(one_failing_rank_fails_all),
        cmocka_unit_test(shared_cores_count_once),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
    return system(cmd) != 0 || rc;
}
