/* mpi: 4
 * Trainings with states in memory on two simulated hosts of two ranks: with plain data parallelism the first host
 * keeps everything, with ZeRO-3 every rank its part. A stopped training leaves its newest state, and a finished one
 * removes spread states on both hosts. */
#include <dirent.h>
#include <unistd.h>

#include "engine/ckpt/memory_state.h"
#include "tests/tiny_run.h"

static char base[64], out[96], folder[96];
static fake_sink sink;

static int me(void) { return bt_comm_rank(bt_comm_world()); }

/* Trains with these words; each host has its own folder. */
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

static int states_in_folder(void) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) n += strncmp(e->d_name, "state-", 6) == 0;
    if (d) closedir(d);
    return n;
}

static void remove_states(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_barrier(bt_comm_world(), &err) != BT_OK) fail_msg("%s", err.msg);
    if (me() % 2 == 0) bt_memory_state_drop(folder);
    if (bt_barrier(bt_comm_world(), &err) != BT_OK) fail_msg("%s", err.msg);
}

static void each_layout_keeps_its_state(void **state) {
    (void)state;
    static const struct {
        const char *const words[8];
        bool spread;
        int on_first,
            on_second; /* files: two segments a rank, and of the second host's ranks a copy */
    } rows[] = {
        {{"--stop-after", "5"}, false, 4, 0},
        {{"--stop-after", "5", "--zero", "3"}, true, 8, 4},
        {{"--zero", "3"}, true, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_memory_id id;
        train(rows[i].words);
        const int n = states_in_folder(), want = me() < 2 ? rows[i].on_first : rows[i].on_second;
        if (n != want) fail_msg("row %zu, rank %d: %d files instead of %d", i, me(), n, want);
        if (me() == 0) {
            const char *fact = fake_fact(&sink, "memory_states");
            assert_true(fact && strncmp(fact, "two, ", 5) == 0);
            assert_int_equal(strstr(fact, "copied to the next host") != NULL, rows[i].spread);
            assert_int_equal(bt_memory_state_find(folder, &id, NULL), want > 0);
            if (want > 0) assert_in_range(id.step, 1, 5);
        }
        remove_states();
    }
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    char cmd[128];
    if (access("/dev/shm", W_OK) != 0) return 77;
    setenv("BITRAIN_TEST_HOSTS", "2,2", 1);
    if (bt_comm_init(&err) != BT_OK) return 1;
    strcpy(base, "/dev/shm/bt-run-XXXXXX");
    if (me() == 0 && !mkdtemp(base)) bt_comm_abort(1);
    if (bt_broadcast(bt_comm_world(), base, sizeof base, 0, &err) != BT_OK) return 1;
    snprintf(out, sizeof out, "%s/out", base);
    snprintf(folder, sizeof folder, "%s/%d/states", base, me() / 2);
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_layout_keeps_its_state)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1); /* Aborts, because the remaining ranks may wait for this one. */
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", base);
    if (me() == 0 && system(cmd) != 0) return 1; /* NOLINT: the folder is this test's */
    bt_comm_finalize();
    return 0;
}
