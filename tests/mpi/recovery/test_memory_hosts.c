// ctest: ranks=4
/* Training state kept in memory on two hosts of two ranks each: all ranks get it back, whichever parts their hosts
 * lack; the first host has all parts after the loss of the second; a missing part is an error on all ranks; transferred
 * copies are removed. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/ckpt/memory/memory_ring.h"
#include "engine/ckpt/memory/memory_state.h"
#include "engine/ckpt/state.h"

enum { RANKS = 4, EACH = 100000, N = RANKS * EACH }; /* A part has more than one section. */

static char base[64];
static float part[EACH], whole[N];

static int own_rank(void) { return bt_comm_rank(bt_comm_world()); }
static float value_at(int64_t step, int i) { return (float)(step * 1000 + i % 977); }

static void simulate_hosts(const char *text) {
    assert_int_equal(text ? setenv("BITRAIN_TEST_HOSTS", text, 1) : unsetenv("BITRAIN_TEST_HOSTS"),
                     0);
}

/* Each host has its own folder. */
static const char *folder_of_host(int host) {
    static char path[2][96];
    snprintf(path[host], sizeof path[host], "%s/%d/states", base, host);
    return path[host];
}

static void check_ok(bt_code code, const bt_err *err) {
    if (code != BT_OK) fail_msg("rank %d: %s: %s", own_rank(), bt_code_name(code), err->msg);
}

static void wait_for_all_ranks(void) {
    bt_err err = BT_ERR_INIT;
    check_ok(bt_barrier(bt_comm_world(), &err), &err);
}

static void write_step(bt_memory_state *m, int64_t step, bool publish) {
    bt_ckpt_meta meta = {.step = step, .tokens = 4096 * step, .params_hash = 77, .run = "spread"};
    bt_err err = BT_ERR_INIT;
    bt_text_put(&meta.state, "{\"progress\": {\"updates\": 5}}");
    for (int i = 0; i < EACH; i++) part[i] = value_at(step, own_rank() * EACH + i);
    wait_for_all_ranks(); /* All ranks of a step write before one continues. */
    check_ok(bt_memory_state_write(m, &meta, 9, &err), &err);
    if (publish) bt_memory_state_publish(m);
    bt_ckpt_meta_release(&meta);
}

static bt_memory_state *open_state(const char *dir, int attempt, const bt_memory_id *from) {
    const bt_ckpt_slice mine = {.tensor = "w",
                                .state = "weight",
                                .tensor_elems = N,
                                .first = (uint64_t)own_rank() * EACH,
                                .count = EACH,
                                .data = part};
    const bt_memory_cfg cfg = {.dir = dir,
                               .world = bt_comm_world(),
                               .slices = &mine,
                               .n = 1,
                               .attempt = attempt,
                               .spread = true,
                               .begun_from = from};
    bt_memory_state *m = NULL;
    bt_err err = BT_ERR_INIT;
    check_ok(bt_memory_dir_make(dir, &err), &err);
    check_ok(bt_memory_state_open(&m, &cfg, &err), &err);
    return m;
}

/* Loads elements [first, first + count) from the newest state; returns the code. */
static bt_code read_back(const char *dir, uint64_t first, uint64_t count, int64_t step,
                         bt_memory_id *id, bt_err *err) {
    bt_memory_found *f = NULL;
    bt_ckpt_meta meta;
    const bt_ckpt_slice want = {.tensor = "w",
                                .state = "weight",
                                .tensor_elems = N,
                                .first = first,
                                .count = count,
                                .data = whole};
    *err = (bt_err)BT_ERR_INIT;
    memset(whole, 0, sizeof whole);
    bt_code code = bt_memory_found_open(&f, dir, bt_comm_world(), id, &meta, err);
    if (code == BT_OK) code = bt_memory_found_load(f, &want, 1, err);
    if (code == BT_OK) {
        assert_int_equal(id->step, step);
        assert_int_equal(meta.tokens, 4096 * step);
        assert_true(bt_ckpt_state_real(&meta, "progress", "updates", 0) == 5);
        for (uint64_t i = 0; i < count; i++)
            if (whole[i] != value_at(step, (int)(first + i)))
                fail_msg("rank %d, element %d of step %d", own_rank(), (int)(first + i), (int)step);
    }
    bt_ckpt_meta_release(&meta);
    bt_memory_found_close(f);
    wait_for_all_ranks();
    return code;
}

static int count_files_with(const char *dir, const char *with) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' && strstr(e->d_name, with) != NULL;
    if (d) closedir(d);
    return n;
}

/* Removes all segments on host 1, or on the first host rank 0's copy of rank 2's part. */
static void remove_segments(const char *what) {
    char cmd[256];
    wait_for_all_ranks();
    snprintf(cmd, sizeof cmd, "rm -rf %s/%s", base, what);
    if (own_rank() == 0) assert_int_equal(system(cmd), 0);
    wait_for_all_ranks();
}

static void the_whole_state_is_restored(void **state) {
    (void)state;
    bt_err err;
    bt_memory_id id, seen;
    simulate_hosts("2,2");
    const char *dir = folder_of_host(own_rank() / 2);
    bt_memory_state *m = open_state(dir, 1, NULL);
    for (int64_t step = 1; step <= 4; step++) write_step(m, step, true);
    wait_for_all_ranks();
    /* Each rank has two alternating segments, and the first host has copies of the other host's parts. */
    assert_true(bt_memory_state_find(folder_of_host(0), &seen, NULL));
    assert_int_equal(seen.step, 4);
    assert_int_equal(count_files_with(folder_of_host(0), "state-"), 8);
    assert_int_equal(count_files_with(folder_of_host(1), "state-"), 4);
    assert_int_equal(bt_memory_state_total(m) > (own_rank() < 2 ? 4u : 2u) * EACH * sizeof(float),
                     1);

    check_ok(read_back(dir, 0, N, 4, &id, &err), &err);
    /* Each rank reads its own part, so no message is sent. */
    check_ok(read_back(dir, (uint64_t)own_rank() * EACH, EACH, 4, &id, &err), &err);
    check_ok(read_back(dir, (uint64_t)(3 - own_rank()) * EACH + 7, EACH - 9, 4, &id, &err), &err);
    assert_int_equal(count_files_with(dir, "copy"), 0);

    /* All ranks wrote this state but rank 0 did not publish it, so it is not used. */
    write_step(m, 5, own_rank() != 0);
    wait_for_all_ranks();
    check_ok(read_back(dir, 0, N, 4, &id, &err), &err);
    bt_memory_state_close(m);

    /* The next attempt overwrites the state that was not published. */
    m = open_state(dir, 2, &id);
    write_step(m, 5, own_rank() != 0);
    wait_for_all_ranks();
    check_ok(read_back(dir, 0, N, 4, &id, &err), &err);
    bt_memory_state_publish(m);
    wait_for_all_ranks();
    check_ok(read_back(dir, 0, N, 5, &id, &err), &err);
    assert_int_equal(id.attempt, 2);
    bt_memory_state_close(m);
}

/* The second host is lost; all four ranks now run on the first host, which has the second host's parts. */
static void one_host_has_everything(void **state) {
    (void)state;
    bt_err err;
    bt_memory_id id;
    remove_segments("1");
    simulate_hosts("4");
    check_ok(read_back(folder_of_host(0), 0, N, 5, &id, &err), &err);
    /* The second host returns without segments and receives the parts that its ranks need. */
    simulate_hosts("2,2");
    check_ok(read_back(folder_of_host(own_rank() / 2), (uint64_t)own_rank() * EACH, EACH, 5, &id,
                       &err),
             &err);
    assert_int_equal(count_files_with(folder_of_host(1), "state-"), 0);
    /* The ranks of this host need a segment of the other host. */
    simulate_hosts("3,1");
    check_ok(read_back(folder_of_host(own_rank() / 3), 0, N, 5, &id, &err), &err);
}

static void a_missing_part_is_reported(void **state) {
    (void)state;
    bt_err err;
    bt_memory_id id;
    simulate_hosts("2,2");
    remove_segments("0/states/state-00002-*");
    assert_int_equal(read_back(folder_of_host(own_rank() / 2), 0, N, 5, &id, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "has the parts of only 3 of 4 ranks for step 5"));
    /* The copy was damaged after it was written. */
    bt_memory_state *m = open_state(folder_of_host(own_rank() / 2), 3, NULL);
    write_step(m, 6, true);
    wait_for_all_ranks();
    bt_memory_state_close(m);
    remove_segments("1");
    if (own_rank() == 0) {
        DIR *d = opendir(folder_of_host(0));
        for (struct dirent *e; (e = readdir(d));) {
            char path[400];
            struct stat st;
            if (strncmp(e->d_name, "state-00003", 11) != 0) continue;
            snprintf(path, sizeof path, "%s/%s", folder_of_host(0), e->d_name);
            const int fd = open(path, O_RDWR);
            assert_int_equal(fstat(fd, &st), 0);
            assert_int_equal(pwrite(fd, "x", 1, st.st_size - 65), 1);
            close(fd);
        }
        closedir(d);
    }
    wait_for_all_ranks();
    assert_int_equal(read_back(folder_of_host(own_rank() / 2), 0, N, 6, &id, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "is damaged in 'w' (weight) of the part of rank 3"));
    /* Ranks that do not need the damaged part receive no error. */
    assert_int_equal(read_back(folder_of_host(own_rank() / 2), 0, 3 * EACH, 6, &id, &err), BT_OK);
}

/* Ranks alternate between hosts, so the first host's parts have no copy. */
static void each_part_has_its_keeper(void **state) {
    (void)state;
    static const struct {
        const char *hosts;
        int n, keeper[8];
    } rows[] = {{"4", 4, {-1, -1, -1, -1}},         {"2,2", 4, {-1, -1, 0, 1}},
                {"1,3", 4, {-1, 0, 0, 0}},          {"3,1", 4, {-1, -1, -1, 0}},
                {"2,2,2", 6, {-1, -1, 4, 5, 0, 1}}, {"2,1,3", 6, {-1, -1, 3, 0, 1, 0}},
                {"1,1,4", 6, {-1, 2, 0, 0, 0, 0}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int kept[8] = {0};
        simulate_hosts(rows[i].hosts);
        for (int r = 0; r < rows[i].n; r++) {
            assert_int_equal(bt_memory_keeper(r, rows[i].n), rows[i].keeper[r]);
            if (rows[i].keeper[r] >= 0) kept[rows[i].keeper[r]]++;
        }
        for (int r = 0; r < rows[i].n; r++) assert_int_equal(bt_memory_kept(r, rows[i].n), kept[r]);
    }
}

/* A folder that a supervisor has locked remains. */
static void folders_are_removed_with_their_states(void **state) {
    (void)state;
    char lock[128];
    simulate_hosts(NULL);
    snprintf(lock, sizeof lock, "%s/0/lock", base);
    if (own_rank() == 0) {
        bt_err err = BT_ERR_INIT;
        close(open(lock, O_CREAT | O_WRONLY, 0600));
        bt_memory_dir_remove(folder_of_host(0));
        assert_true(count_files_with(folder_of_host(0), "state-") > 0);
        unlink(lock);
        bt_memory_dir_remove(folder_of_host(0));
        *strrchr(lock, '/') = '\0';
        assert_int_equal(access(lock, F_OK), -1);
        /* the lock belongs to another user */
        assert_int_equal(symlink("/dev/shm", lock), 0);
        assert_int_equal(bt_memory_dir_make(folder_of_host(0), &err), BT_IO);
        assert_int_equal(unlink(lock), 0);
    }
    wait_for_all_ranks();
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    char cmd[128];
    if (access("/dev/shm", W_OK) != 0) return 77;
    if (bt_comm_init(&err) != BT_OK) return 1;
    strcpy(base, "/dev/shm/bt-spread-XXXXXX");
    if (own_rank() == 0 && !mkdtemp(base)) bt_comm_abort(1);
    if (bt_broadcast(bt_comm_world(), base, sizeof base, 0, &err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_part_has_its_keeper),
                                       cmocka_unit_test(the_whole_state_is_restored),
                                       cmocka_unit_test(one_host_has_everything),
                                       cmocka_unit_test(a_missing_part_is_reported),
                                       cmocka_unit_test(folders_are_removed_with_their_states)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", base);
    if (failed) bt_comm_abort(1); /* Other ranks may wait for this rank, so the job is aborted. */
    if (own_rank() == 0 && system(cmd) != 0) return 1;
    bt_comm_finalize();
    return 0;
}
