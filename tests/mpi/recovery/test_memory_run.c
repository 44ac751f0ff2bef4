// ctest: ranks=4
/* Training with states in memory on two simulated hosts of two ranks each: with plain data parallelism the first host
 * keeps the whole state; with ZeRO-3 every rank keeps its part and the first host also copies of the second host's
 * parts. Such distributed states are removed at the end. */
#include <dirent.h>
#include <unistd.h>

#include "engine/ckpt/memory/memory_state.h"
#include "tests/tiny_run.h"

static char base[64], out[96], folder[96];
static fake_sink sink;

static int own_rank(void) { return bt_comm_rank(bt_comm_world()); }

static void train(const char *const *words) {
    bt_err err = BT_ERR_INIT;
    bt_run_cfg cfg;
    bt_trainer *t = NULL;
    bt_train_result r;
    tiny_cfg(&cfg, words);
    memcpy(cfg.run.out, out, sizeof out);
    memset(&sink, 0, offsetof(fake_sink, on_step));
    const bt_sink to = fake_sink_of(&sink);
    if (bt_kernels_select(cfg.launch.isa, &err) != BT_OK || bt_threads_init(1, &err) != BT_OK ||
        bt_memory_dir_make(folder, &err) != BT_OK)
        fail_msg("%s", err.msg);
    const bt_trainer_setup setup = {
        .cfg = &cfg, .sink = &to, .resume_dir = "", .attempt = 1, .memory_dir = folder};
    if (bt_trainer_create(&t, &setup, &err) != BT_OK || bt_trainer_run(t, &r, &err) != BT_OK)
        fail_msg("%s", err.msg);
    bt_trainer_destroy(t);
    bt_threads_release();
    if (bt_barrier(bt_comm_world(), &err) != BT_OK) fail_msg("%s", err.msg);
}

/* Counts the segments in a host's folder. */
static int segments_of_host(int host) {
    char path[96];
    int n = 0;
    snprintf(path, sizeof path, "%s/%d/states", base, host);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += strncmp(e->d_name, "state-", 6) == 0;
    if (d) closedir(d);
    return n;
}

static int during[2]; /* segments of each host at the newest record */

static void count_segments(void *arg, const bt_step_record *r) {
    (void)arg, (void)r;
    for (int h = 0; h < 2; h++) during[h] = segments_of_host(h);
}

static void each_layout_keeps_its_state(void **state) {
    (void)state;
    static const struct {
        const char *const words[8];
        bool spread;
        int on[2], left; /* two segments per rank, and two per copy */
    } rows[] = {
        {{NULL}, false, {4, 0}, 4},
        {{"--zero", "3"}, true, {8, 4}, 0},
    };
    sink.on_step = count_segments;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        train(rows[i].words);
        if (own_rank() == 0) {
            const char *fact = fake_fact(&sink, "memory_states");
            assert_true(fact && strncmp(fact, "two, ", 5) == 0);
            assert_int_equal(strstr(fact, "copied to the next host") != NULL, rows[i].spread);
            for (int h = 0; h < 2; h++) assert_int_equal(during[h], rows[i].on[h]);
            /* Only rank 0 is the first rank of a real host, so the second folder is not removed. */
            assert_int_equal(segments_of_host(0), rows[i].left);
            bt_memory_state_drop(folder);
        }
    }
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    char cmd[128];
    if (access("/dev/shm", W_OK) != 0) return 77;
    setenv("BITRAIN_TEST_HOSTS", "2,2", 1);
    if (bt_comm_init(&err) != BT_OK) return 1;
    strcpy(base, "/dev/shm/bt-run-XXXXXX");
    if (own_rank() == 0 && !mkdtemp(base)) bt_comm_abort(1);
    if (bt_broadcast(bt_comm_world(), base, sizeof base, 0, &err) != BT_OK) return 1;
    snprintf(out, sizeof out, "%s/out", base);
    snprintf(folder, sizeof folder, "%s/%d/states", base, own_rank() / 2);
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_layout_keeps_its_state)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1); /* Other ranks may wait for this rank, so the job is aborted. */
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", base);
    if (own_rank() == 0 && system(cmd) != 0)
        return 1; /* NOLINT: the folder is created by this test */
    bt_comm_finalize();
    return 0;
}
