/* test_save_ranks.c - a checkpoint of several ranks, which are threads: contents of each file, result on
 * each rank, which rank verifies which file, and that an error of one rank or of a collective is returned by
 * all and leaves the older checkpoint unchanged. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "engine/ckpt/format.h"
#include "tests/engine/ckpt/rank_threads.h"

enum { RANKS = 4, EACH = 100, ALL = RANKS * EACH, SILENT = 1 }; /* Rank SILENT has no data. */

static world *s;
static float values[ALL];
/* arguments and results of the ranks */
static struct {
    int64_t step;
    int attempt;
    const char *dir[RANKS]; /* folder of each rank; NULL: the common folder */
    bool best;
} job;
static struct {
    bt_code code;
    bt_err err;
    bt_ckpt_saved saved;
    char path[PATH_MAX], why[1000];
    int64_t step, tokens;
} got[RANKS];

static int me(void) { return bt_comm_rank(rank_world); }
static const char *dir_of(int rank) { return job.dir[rank] ? job.dir[rank] : s->dir; }

static void save_one(void *ctx) {
    (void)ctx;
    const int r = me();
    bt_ckpt_meta meta;
    const bt_ckpt_slice slices[] = {{"w", "weight", ALL, (uint64_t)(r * EACH), EACH,
                                     values + r * EACH, 0, 0, BT_CKPT_F32, false},
                                    {"only", "weight", EACH, 0, EACH, values, 0, 0, BT_CKPT_F32,
                                     false}};
    const size_t n = r == SILENT ? 0 : r == SILENT + 1 ? 2 : 1;
    fill_meta(&meta, job.step, job.attempt);
    const bt_ckpt_job one = {
        .dir = dir_of(r), .meta = &meta, .slices = slices, .n = n, .keep = 2, .best = job.best};
    got[r].err = (bt_err)BT_ERR_INIT;
    got[r].code = bt_ckpt_save(rank_world, &one, &got[r].saved, &got[r].err);
    bt_ckpt_meta_release(&meta);
}

static void find_one(void *ctx) {
    const int r = me();
    bt_ckpt_meta meta = {0};
    bt_text why;
    bt_text_init(&why);
    got[r].err = (bt_err)BT_ERR_INIT;
    got[r].path[0] = '\0';
    got[r].code = bt_ckpt_find(rank_world, ctx ? ctx : dir_of(r), got[r].path, PATH_MAX, &meta,
                               &why, &got[r].err);
    got[r].step = meta.step, got[r].tokens = meta.tokens;
    snprintf(got[r].why, sizeof got[r].why, "%s", bt_text_str(&why));
    bt_text_release(&why);
    if (got[r].code == BT_OK) bt_ckpt_meta_release(&meta);
}

static void save_all(int64_t step, int attempt) {
    job.step = step, job.attempt = attempt;
    memset(got, 0x5a, sizeof got);
    with_ranks("2,2", save_one, NULL);
}

/* where NULL: in the folder of all checkpoints */
static void find_all(const char *where) { with_ranks("2,2", find_one, (void *)(uintptr_t)where); }

/* Checks that all ranks return this code and message; from: the rank of the error. */
static void all_say(bt_code code, int from, const char *message) {
    for (int r = 0; r < RANKS; r++) {
        if (got[r].code != code)
            fail_msg("rank %d: %s: %s", r, bt_code_name(got[r].code), got[r].err.msg);
        if (code == BT_OK) continue;
        assert_int_equal(got[r].err.code, code);
        assert_int_equal(got[r].err.rank, from);
        assert_string_equal(got[r].err.msg, message);
    }
}

/* Counts the names in a folder with this prefix. */
static int count(const char *folder, const char *begin) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strncmp(e->d_name, begin, strlen(begin)) == 0;
    if (d) closedir(d);
    return n;
}

static int begin(void **state) {
    memset(&job, 0, sizeof job);
    collective_that_fails = 0;
    for (int i = 0; i < ALL; i++) values[i] = (float)i / 8;
    const int rc = set_up(state);
    s = *state;
    return rc;
}

/* ---- a save ---------------------------------------------------------------------------------- */

static void each_rank_writes_its_own(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    ckpt_manifest m;
    char want[128];
    int64_t bytes = 0;
    save_all(100, 0);
    all_say(BT_OK, -1, NULL);
    check_ok(ckpt_manifest_read(got[0].saved.path, &m, &err), &err);
    assert_true(m.world_size == RANKS && m.n_files == RANKS - 1 && m.meta.step == 100);
    static const int writers[] = {0, 2, 3};
    for (size_t i = 0; i < m.n_files; i++) {
        struct stat st;
        char path[2 * PATH_MAX];
        assert_int_equal(m.files[i].rank, writers[i]);
        ckpt_file_name(want, sizeof want, writers[i], m.generation);
        assert_string_equal(m.files[i].name, want);
        assert_int_equal(m.files[i].n_sections, writers[i] == SILENT + 1 ? 2 : 1);
        snprintf(path, sizeof path, "%s/%s", got[0].saved.path, want);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(m.files[i].bytes, st.st_size);
        bytes += st.st_size;
    }
    snprintf(want, sizeof want, "%s/step-000000000100", s->dir);
    for (int r = 0; r < RANKS; r++) {
        assert_string_equal(got[r].saved.path, want);
        assert_string_equal(got[r].saved.hash, m.seal);
        assert_int_equal(got[r].saved.bytes, bytes);
    }
    assert_int_equal(count(s->dir, "best"), 0);
    ckpt_manifest_release(&m);
    /* All data are read back except those of the silent rank. */
    float back[ALL];
    for (int r = 0; r < RANKS; r++) {
        const bt_ckpt_slice one = {
            "w", "weight",    ALL,  (uint64_t)(r * EACH), EACH, back + r * EACH, 0,
            0,   BT_CKPT_F32, false};
        assert_int_equal(bt_ckpt_load(want, &one, 1, &err) == BT_OK, r != SILENT);
        if (r != SILENT) assert_memory_equal(back + r * EACH, values + r * EACH, 4 * EACH);
    }
    /* the best checkpoint and the newest two */
    job.best = true;
    save_all(110, 0);
    job.best = false;
    for (int64_t step = 120; step <= 140; step += 10) save_all(step, 0);
    char link[128], to[64] = "";
    snprintf(link, sizeof link, "%s/best", s->dir);
    assert_int_equal(readlink(link, to, sizeof to - 1), 17);
    assert_string_equal(to, "step-000000000110");
    assert_int_equal(count(s->dir, "step-"), 3);
}

/* A failed save leaves no files, and the previous checkpoint loads. */
static void the_older_one_is_left_alone(int64_t step) {
    assert_int_equal(count(s->dir, "step-"), 1);
    find_all(NULL);
    all_say(BT_OK, -1, NULL);
    for (int r = 0; r < RANKS; r++) assert_int_equal(got[r].step, step);
}

static void an_error_of_one_rank_is_that_of_all(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    char says[300];
    save_all(100, 0);
    all_say(BT_OK, -1, NULL);
    for (int rank = 0; rank < RANKS; rank++) { /* One rank has a value that is not finite. */
        if (rank == SILENT) continue;
        values[rank * EACH + 7] = NAN;
        save_all(200, 0);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(got[r].code, BT_DAMAGED);
            assert_string_equal(got[r].err.msg, got[0].err.msg);
            assert_int_equal(got[r].err.rank, rank);
        }
        assert_non_null(strstr(got[0].err.msg, "'w'"));
        values[rank * EACH + 7] = 1;
        the_older_one_is_left_alone(100);
    }
    check_ok(bt_ckpt_begin(s->dir, 3, &err), &err); /* Only rank 0 checks the fence. */
    save_all(200, 2);
    snprintf(says, sizeof says, "attempt 2 may not write to '%s': attempt 3 began there", s->dir);
    all_say(BT_BUSY, 0, says);
    the_older_one_is_left_alone(100);
    /* One rank cannot write because its folder does not exist. */
    for (int rank = 0; rank < RANKS; rank += 3) {
        job.dir[rank] = "/proc/none";
        save_all(200, 3);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(got[r].code, BT_IO);
            assert_int_equal(got[r].err.rank, rank);
        }
        job.dir[rank] = NULL;
        the_older_one_is_left_alone(100);
    }
    char *longest = malloc(PATH_MAX);
    assert_non_null(longest);
    memset(longest, 'x', PATH_MAX - 1);
    longest[PATH_MAX - 1] = '\0';
    job.dir[2] = longest;
    save_all(200, 3);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(got[r].code, BT_ARG);
        assert_int_equal(got[r].err.rank, 2);
        assert_memory_equal(got[r].err.msg, "checkpoint folder 'xxx", 22);
    }
    job.dir[2] = NULL;
    free(longest);
    the_older_one_is_left_alone(100);
}

/* Each collective fails in turn: at begin, folder, rows, end. Before the commit at most an empty folder
 * remains, which the next attempt removes; after it the checkpoint loads. */
static void a_collective_that_fails(void **state) {
    (void)state;
    enum { FOLDER = 3, COMMIT = 6, ALL_OF_THEM = 7 };
    bt_err err = BT_ERR_INIT;
    save_all(100, 0);
    all_say(BT_OK, -1, NULL);
    assert_int_equal(collectives, ALL_OF_THEM);
    for (long k = 1; k <= ALL_OF_THEM; k++) {
        collective_that_fails = k;
        save_all(200, 0);
        collective_that_fails = 0;
        all_say(BT_MPI, -1, "this collective fails");
        assert_int_equal(count(s->dir, "step-"), k == FOLDER || k >= COMMIT ? 2 : 1);
        check_ok(bt_ckpt_begin(s->dir, 0, &err), &err);
        if (k < COMMIT) {
            the_older_one_is_left_alone(100);
            continue;
        }
        find_all(NULL);
        all_say(BT_OK, -1, NULL);
        for (int r = 0; r < RANKS; r++) assert_int_equal(got[r].step, 200);
    }
}

/* ---- choice of the checkpoint to load -------------------------------------------------------- */

static void flip(const char *folder, const ckpt_manifest *m, int file, off_t at) {
    char path[2 * PATH_MAX];
    unsigned char byte;
    snprintf(path, sizeof path, "%s/%s", folder, m->files[file].name);
    const int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void ranks_share_the_reading(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    ckpt_manifest m;
    char newest[128], want[400];
    /* offset behind the heads of the file and of its first section */
    enum { DATA = 64 + 144 + 5 };
    save_all(100, 0);
    save_all(200, 0);
    snprintf(newest, sizeof newest, "%s/step-000000000200", s->dir);
    find_all(NULL);
    all_say(BT_OK, -1, NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_string_equal(got[r].path, newest);
        assert_true(got[r].step == 200 && got[r].tokens == 200 * 4096);
        assert_string_equal(got[r].why, "");
    }
    check_ok(ckpt_manifest_read(newest, &m, &err), &err);
    for (int file = 0; file < RANKS - 1; file++) { /* Rank i verifies file i completely. */
        flip(newest, &m, file, DATA);
        find_all(NULL);
        all_say(BT_OK, -1, NULL);
        snprintf(want, sizeof want, "step-000000000200 passed over (rank %d): '", file);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(got[r].step, 100);
            assert_memory_equal(got[r].why, want, strlen(want));
            assert_string_equal(got[r].why, got[0].why);
        }
        find_all(newest); /* The chosen checkpoint is not verified again. */
        all_say(BT_OK, -1, NULL);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(got[r].step, 200);
            assert_string_equal(got[r].path, newest);
        }
        flip(newest, &m, file, DATA);
        flip(newest, &m, file, 9); /* All ranks check the head. */
        find_all(NULL);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(got[r].step, 100);
            assert_memory_equal(got[r].why, "step-000000000200 passed over (rank 0): '", 41);
        }
        find_all(newest);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(got[r].code, BT_FORMAT);
            snprintf(want, sizeof want,
                     "no checkpoint in '%s' can be used; the last one tried: ", newest);
            assert_memory_equal(got[r].err.msg, want, strlen(want));
        }
        flip(newest, &m, file, 9);
    }
    ckpt_manifest_release(&m);
}

/* The folder that rank 3 uses is on another host. */
static char of_rank_3[128];

int open(const char *path, int flags, ...) {
    char other[PATH_MAX];
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (of_rank_3[0] && me() == 3 && strncmp(path, s->dir, strlen(s->dir)) == 0) {
        snprintf(other, sizeof other, "%s%s", of_rank_3, path + strlen(s->dir));
        path = other;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* Hosts with separate folders must have the same checkpoint; rank 0 decides. */
static void every_host_has_the_same_one(void **state) {
    (void)state;
    char other[100], command[400], want[400];
    snprintf(other, sizeof other, "%s/elsewhere", s->dir);
    save_all(100, 0);
    save_all(200, 0);
    snprintf(command, sizeof command, "mkdir '%s' && cp -r '%s'/step-* '%s'", other, s->dir, other);
    assert_int_equal(system(command), 0);
    snprintf(of_rank_3, sizeof of_rank_3, "%s", other);
    find_all(NULL); /* A copy is accepted. */
    all_say(BT_OK, -1, NULL);
    for (int r = 0; r < RANKS; r++) assert_int_equal(got[r].step, 200);
    of_rank_3[0] = '\0';
    values[0] = 5;
    save_all(200, 0);
    snprintf(of_rank_3, sizeof of_rank_3, "%s", other);
    find_all(NULL);
    all_say(BT_OK, -1, NULL);
    snprintf(want, sizeof want,
             "step-000000000200 passed over (rank 3): '%s/step-000000000200' is another checkpoint "
             "on this host than on rank 0's\n",
             s->dir);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(got[r].step, 100);
        assert_string_equal(got[r].why, want);
    }
    of_rank_3[0] = '\0';
    /* There is no checkpoint. */
    snprintf(other, sizeof other, "%s/nothing", s->dir);
    assert_int_equal(mkdir(other, 0700), 0);
    find_all(other);
    snprintf(want, sizeof want, "no checkpoint in '%s'", other);
    all_say(BT_NOTFOUND, -1, want);
    snprintf(other, sizeof other, "%s/none", s->dir);
    find_all(other);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(got[r].code, BT_NOTFOUND);
        assert_int_equal(got[r].err.rank, 0);
    }
}

static void a_search_ends_with_a_collective_that_fails(void **state) {
    (void)state;
    save_all(100, 0);
    find_all(NULL);
    const long all = collectives;
    assert_int_equal(all, 5);
    for (long k = 1; k <= all; k++) {
        collective_that_fails = k;
        find_all(NULL);
        collective_that_fails = 0;
        all_say(BT_MPI, -1, "this collective fails");
        for (int r = 0; r < RANKS; r++) assert_true(!got[r].path[0] && !got[r].why[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_rank_writes_its_own, begin, tear_down),
        cmocka_unit_test_setup_teardown(an_error_of_one_rank_is_that_of_all, begin, tear_down),
        cmocka_unit_test_setup_teardown(a_collective_that_fails, begin, tear_down),
        cmocka_unit_test_setup_teardown(ranks_share_the_reading, begin, tear_down),
        cmocka_unit_test_setup_teardown(every_host_has_the_same_one, begin, tear_down),
        cmocka_unit_test_setup_teardown(a_search_ends_with_a_collective_that_fails, begin,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
