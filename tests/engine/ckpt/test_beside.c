/* test_beside.c - threads that write or verify a checkpoint during training: the copies they write, their priority and
 * signal mask, remaining files after a cancellation at any stage, and the behaviour if no thread can be created. The
 * test replaces pthread_create, fsync and nanosleep. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "engine/base/clock.h"
#include "engine/ckpt/format.h"
#include "engine/ckpt/save_async.h"
#include "engine/ckpt/verify_idle.h"

static bool no_threads;
static int threads, nice_value, blocked_signals;
static pthread_t training;

/* sleep times of threads other than the main thread */
static int64_t slept_ns, slept_first_ns, cpu_first_ns, cpu_last_ns;

int fsync(int fd);

int pthread_create(pthread_t *restrict out, const pthread_attr_t *restrict how,
                   void *(*run)(void *), void *restrict arg) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    threads++;
    return no_threads ? EAGAIN : real(out, how, run, arg);
}

int fsync(int fd) {
    sigset_t set;
    if (!pthread_equal(pthread_self(), training)) {
        nice_value = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
        pthread_sigmask(SIG_SETMASK, NULL, &set);
        blocked_signals = sigismember(&set, SIGTERM) + sigismember(&set, SIGINT);
    }
    return (int)syscall(SYS_fsync, fd);
}

/* Records the duration and returns at once in threads other than the main thread. */
int nanosleep(const struct timespec *want, struct timespec *left) {
    if (pthread_equal(pthread_self(), training)) return (int)syscall(SYS_nanosleep, want, left);
    cpu_last_ns = bt_thread_cpu_ns();
    slept_ns += want->tv_sec * INT64_C(1000000000) + want->tv_nsec;
    if (slept_first_ns < 0) slept_first_ns = slept_ns, cpu_first_ns = cpu_last_ns;
    return 0;
}

typedef struct beside {
    bt_ckpt_async *a;
    bt_ckpt_slice slices[3];
    bt_ckpt_meta meta;
    uint8_t bytes[100];
} beside;

static void copy_beside(world *s, beside *b) {
    bt_err err = BT_ERR_INIT;
    for (int i = 0; i < 100; i++) b->bytes[i] = (uint8_t)(i * 3);
    b->slices[0] = (bt_ckpt_slice){"embed",  "weight", N_EMBED, 0,           N_EMBED,
                                   s->embed, 0,        0,       BT_CKPT_F32, false};
    b->slices[1] = (bt_ckpt_slice){"w", "bytes", 100, 0, 100, b->bytes, 0, 0, BT_CKPT_U8, false};
    b->slices[2] = (bt_ckpt_slice){"w", "weight", N_W, 0, N_W, s->w, 0, 0, BT_CKPT_F32, false};
    fill_meta(&b->meta, 40, 0);
    check_ok(bt_ckpt_async_create(&b->a, bt_ckpt_copy_bytes(b->slices, 3), &err), &err);
}

static bt_code start_save(world *s, beside *b, bt_err *err) {
    const bt_ckpt_job job = {
        .dir = s->dir, .meta = &b->meta, .slices = b->slices, .n = 3, .keep = 1};
    return bt_ckpt_async_start(b->a, bt_comm_world(), &job, &b->meta, err);
}

static void wait_for_stage(bt_ckpt_async *a) {
    while (bt_ckpt_async_busy(a)) bt_sleep_ns(20000);
}

static int count_visible_files(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void copies_are_aligned(void **state) {
    (void)state;
    const bt_ckpt_slice s[] = {
        {.count = 0, .type = BT_CKPT_F32},  {.count = 1, .type = BT_CKPT_U8},
        {.count = 64, .type = BT_CKPT_U8},  {.count = 33, .type = BT_CKPT_BF16},
        {.count = 16, .type = BT_CKPT_F32}, {.count = 17, .type = BT_CKPT_F32}};
    static const size_t sums[] = {0, 0, 64, 128, 256, 320, 448};
    for (size_t n = 0; n <= 6; n++) assert_int_equal(bt_ckpt_copy_bytes(s, n), sums[n]);
    bt_err err = BT_ERR_INIT;
    bt_ckpt_async *a;
    check_ok(bt_ckpt_async_create(&a, 0, &err), &err);
    bt_ckpt_async_destroy(a);
    assert_int_equal(bt_ckpt_async_create(&a, SIZE_MAX / 2, &err), BT_NOMEM);
    assert_null(a);
    bt_ckpt_async_destroy(NULL);
    assert_false(bt_ckpt_async_pending(NULL) || bt_ckpt_async_busy(NULL));
}

/* The checkpoint contains the arrays as they were before training changed them, whether or not threads write it. */
static void arrays_change_while_they_are_saved(void **state) {
    world *s = *state;
    for (int without = 0; without < 2; without++) {
        bt_err err = BT_ERR_INIT;
        bt_ckpt_saved saved = {.cpu_ns = -1};
        beside b;
        bool finished = true;
        float embed[N_EMBED], w[N_W];
        uint8_t bytes[100];
        copy_beside(s, &b);
        threads = 0, nice_value = -99, blocked_signals = -1;
        /* The call has no effect if no save is in progress. */
        check_ok(bt_ckpt_async_advance(b.a, &finished, &saved, &err), &err);
        assert_false(finished || bt_ckpt_async_pending(b.a));
        no_threads = without;
        check_ok(start_save(s, &b, &err), &err);
        assert_true(b.meta.config.len == 0 && b.meta.step == 0 &&
                    !b.meta.run[0]); /* The save has taken over the
                                                                                    * metadata. */
        memcpy(embed, s->embed, sizeof embed);
        memcpy(w, s->w, sizeof w);
        memset(s->embed, 0, sizeof embed); /* Training overwrites the arrays. */
        memset(s->w, 0, sizeof w);
        memset(b.bytes, 0, sizeof b.bytes);
        for (int stage = 0; stage < 3; stage++) {
            assert_true(bt_ckpt_async_pending(b.a) && !finished);
            wait_for_stage(b.a);
            check_ok(bt_ckpt_async_advance(b.a, &finished, &saved, &err), &err);
        }
        no_threads = false;
        assert_true(finished && !bt_ckpt_async_pending(b.a) && !bt_ckpt_async_busy(b.a));
        assert_int_equal(threads, 3);
        assert_int_equal(nice_value, without ? -99 : 10);
        assert_int_equal(blocked_signals, without ? -1 : 2);
        sigset_t set; /* The training thread still receives signals. */
        pthread_sigmask(SIG_SETMASK, NULL, &set);
        assert_false(sigismember(&set, SIGTERM));
        if (without)
            assert_int_equal(saved.cpu_ns, 0);
        else
            assert_true(saved.cpu_ns > 0);
        b.slices[1].data = bytes;
        check_ok(bt_ckpt_load(saved.path, b.slices, 3, &err), &err);
        assert_memory_equal(s->embed, embed, sizeof embed);
        assert_memory_equal(s->w, w, sizeof w);
        for (int i = 0; i < 100; i++) assert_int_equal(bytes[i], (uint8_t)(i * 3));
        bt_ckpt_async_destroy(b.a);
    }
}

/* A save that is cancelled at any stage leaves no checkpoint, and the next attempt removes its files. */
static void a_save_can_be_cancelled_at_any_stage(void **state) {
    world *s = *state;
    for (int stages = 0; stages < 3; stages++) {
        bt_err err = BT_ERR_INIT;
        bt_ckpt_meta meta = {.step = 0};
        bt_ckpt_saved saved;
        beside b;
        bool finished = false;
        char path[PATH_MAX];
        copy_beside(s, &b);
        check_ok(start_save(s, &b, &err), &err);
        for (int i = 0; i < stages; i++) {
            wait_for_stage(b.a);
            check_ok(bt_ckpt_async_advance(b.a, &finished, &saved, &err), &err);
            assert_false(finished);
        }
        bt_ckpt_async_destroy(b.a); /* waits for the thread of the save */
        /* A save that was cancelled in its last stage may be committed. */
        const bt_code code = find(s, path, &meta, NULL, &err);
        assert_int_equal(code, stages == 2 ? BT_OK : BT_NOTFOUND);
        bt_ckpt_meta_release(&meta);
        check_ok(bt_ckpt_begin(s->dir, 0, &err), &err);
        /* the files attempt and attempt.lock */
        assert_int_equal(count_visible_files(s->dir), stages == 2 ? 3 : 2);
    }
}

/* A stage that fails ends the save and removes its files, and a new save may begin. */
static void a_stage_that_fails_ends_the_save(void **state) {
    world *s = *state;
    for (int stage = 0; stage < 3; stage++) {
        bt_err err = BT_ERR_INIT;
        bt_ckpt_saved saved;
        beside b;
        bool finished = false;
        bt_code code = BT_OK;
        char path[PATH_MAX];
        int done = 0;
        snprintf(path, sizeof path, "%s/step-000000000040", s->dir);
        copy_beside(s, &b);
        if (stage == 0) fclose(fopen(path, "w")); /* A file occupies the name of the folder. */
        const float was = s->w[3];
        if (stage == 1) s->w[3] = NAN;
        check_ok(start_save(s, &b, &err), &err);
        s->w[3] = was;
        for (; code == BT_OK && !finished; done++) {
            wait_for_stage(b.a);
            if (stage == 2 && done == 1) /* Another attempt begins. */
                check_ok(ckpt_replace_file(s->dir, "attempt", "5", 1, NULL, NULL, &err), &err);
            code = bt_ckpt_async_advance(b.a, &finished, &saved, &err);
        }
        assert_int_equal(code, stage == 0 ? BT_IO : stage == 1 ? BT_DAMAGED : BT_BUSY);
        assert_int_equal(err.code, code);
        assert_int_equal(done, stage + 1);
        assert_false(finished || bt_ckpt_async_pending(b.a));
        if (stage == 0) assert_int_equal(unlink(path), 0);
        assert_int_equal(access(path, F_OK), -1);
        if (stage < 2) { /* The next save succeeds. */
            fill_meta(&b.meta, 40, 0);
            check_ok(start_save(s, &b, &err), &err);
            while (!finished) {
                wait_for_stage(b.a);
                check_ok(bt_ckpt_async_advance(b.a, &finished, NULL, &err), &err);
            }
            assert_int_equal(count_visible_files(path), 2);
            snprintf(path, sizeof path, "rm -r '%s/step-000000000040'", s->dir);
            assert_int_equal(system(path), 0);
        }
        bt_ckpt_async_destroy(b.a);
    }
}

static bool is_blocked(int signal) {
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    return sigismember(&set, signal);
}

static void read_again_without_a_thread(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    bt_ckpt_reread *r;
    bt_ckpt_checked found = {.bytes = -1};
    no_threads = true;
    assert_int_equal(bt_ckpt_reread_start(&r, s->dir, &err), BT_NOMEM);
    no_threads = false;
    assert_null(r);
    assert_false(is_blocked(SIGTERM));
    assert_non_null(strstr(err.msg, "cannot start a thread to read '"));
    bt_ckpt_reread_destroy(NULL);
    /* The folder contains no checkpoint. */
    check_ok(bt_ckpt_reread_start(&r, s->dir, &err), &err);
    while (!bt_ckpt_reread_done(r, &found)) bt_sleep_ns(20000);
    assert_int_equal(found.code, BT_NOTFOUND);
    assert_int_equal(found.err.code, BT_NOTFOUND);
    assert_true(found.bytes == 0 && found.took_s > 0 && found.took_s < 1000);
    bt_ckpt_reread_destroy(r);
}

/* The verification reads every byte of every file and uses a hundredth of a processor; when it is cancelled it ends
 * early. */
static void verification_during_training(void **state) {
    world *s = *state;
    enum { N = 5 << 18 };
    bt_err err = BT_ERR_INIT;
    bt_ckpt_reread *r;
    bt_ckpt_saved saved;
    bt_ckpt_meta meta;
    bt_ckpt_checked found = {.bytes = -1};
    ckpt_manifest m;
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < N; i++) x[i] = (float)i;
    const bt_ckpt_slice slice = {"w", "weight", N, 0, N, x, 0, 0, BT_CKPT_F32, false};
    fill_meta(&meta, 1, 0);
    const bt_ckpt_job job = {.dir = s->dir, .meta = &meta, .slices = &slice, .n = 1, .keep = 1};
    check_ok(bt_ckpt_save(bt_comm_world(), &job, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    free(x);
    slept_ns = 0, slept_first_ns = -1;
    check_ok(bt_ckpt_reread_start(&r, saved.path, &err), &err);
    assert_false(is_blocked(SIGTERM));
    while (!bt_ckpt_reread_done(r, &found)) bt_sleep_ns(20000);
    check_ok(found.code, &found.err);
    assert_int_equal(found.bytes, saved.bytes);
    assert_true(found.took_s > 0);
    assert_true(slept_first_ns > 0 &&
                slept_ns - slept_first_ns > 20 * (cpu_last_ns - cpu_first_ns));
    bt_ckpt_reread_destroy(r);
    /* A verification that was cancelled before its start reports that. */
    check_ok(ckpt_manifest_read(saved.path, &m, &err), &err);
    _Atomic bool stop = true;
    const ckpt_reading how = {.stop = &stop};
    assert_int_equal(ckpt_file_read_whole(saved.path, &m.files[0], m.generation, 1, &how, &err),
                     BT_STOPPED);
    assert_non_null(strstr(err.msg, "' was not read completely"));
    stop = false;
    check_ok(ckpt_file_read_whole(saved.path, &m.files[0], m.generation, 1, &how, &err), &err);
    ckpt_manifest_release(&m);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    training = pthread_self();
    if (bt_comm_init(&err) != BT_OK) return 1;
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_aligned),       TEST(arrays_change_while_they_are_saved),
        TEST(a_save_can_be_cancelled_at_any_stage), TEST(a_stage_that_fails_ends_the_save),
        TEST(read_again_without_a_thread),          TEST(verification_during_training)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}
