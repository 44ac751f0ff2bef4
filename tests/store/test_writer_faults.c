// ctest: timeout=110
/* Faults of the writer: killed at any moment, locked out, a full disk, several writers at once. No acknowledged step is
 * lost. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "engine/base/log.h"
#include "store_test.h"

static void quick_check(const char *path) {
    assert_string_equal(bt_word(path, "SELECT quick_check FROM pragma_quick_check", NULL), "ok");
}

static void child_writes(const char *path, bool resume, int64_t from,
                         _Atomic int64_t *acknowledged) {
    bt_writer *w = NULL;
    bt_err err = BT_ERR_INIT;
    int attempt;
    bt_fake f;
    bt_run_start s = bt_fake_run("a");
    s.resume = resume;
    s.from_step = from;
    if (bt_writer_open(&w, path, 5, &err) != BT_OK ||
        bt_writer_begin(w, &s, &attempt, &err) != BT_OK) {
        fprintf(stderr, "child: %s\n", err.msg);
        _exit(1);
    }
    for (int64_t step = from;; step++) {
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, step, 4));
        /* Small transactions make it likely that a kill interrupts one. */
        if (step % 8 == 0) (void)!bt_writer_flush(w, &err);
        atomic_store(acknowledged, bt_writer_committed_step(w));
    }
}

static void kill_9_loses_no_acknowledged_step(void **state) {
    const bt_tmp *t = *state;
    _Atomic int64_t *ack = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                                0);
    uint32_t seed = 7;
    int64_t next = 0;
    for (int kills = 0; kills < 40; kills++) {
        atomic_store(ack, -1);
        pid_t pid = fork();
        if (pid == 0) child_writes(t->db, kills > 0, next, ack);
        while (atomic_load(ack) < next && waitpid(pid, NULL, WNOHANG) == 0) bt_sleep_ns(200000);
        seed = seed * 1664525u + 1013904223u;
        /* The kill occurs within a transaction, within a checkpoint or between them. */
        bt_sleep_ns((int64_t)(seed >> 8) % 12000000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        int64_t acknowledged = atomic_load(ack);
        assert_true(acknowledged >= next);
        double last = bt_number(t->db, "SELECT max(step) FROM steps WHERE run = ?1", "a");
        if (last < (double)acknowledged)
            fail_msg("kill %d: step %lld was acknowledged, the newest is %.0f", kills,
                     (long long)acknowledged, last);
        /* The next attempt repeats a few steps. */
        next = (int64_t)last - 3 > 0 ? (int64_t)last - 3 : 0;
    }
    quick_check(t->db);
    double n = bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "a");
    assert_true(n ==
                bt_number(t->db, "SELECT count(DISTINCT step) FROM steps WHERE run = ?1", "a"));
    assert_true(n == bt_number(t->db, "SELECT max(step) + 1 FROM steps WHERE run = ?1", "a"));
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", "a") == 4 * n);
    assert_true(bt_number(t->db, "SELECT count(*) FROM attempts WHERE run = ?1", "a") == 40);
    munmap((void *)ack, 4096);
}

static void a_foreign_lock_costs_nothing(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    sqlite3 *db = NULL;
    int attempt;
    bt_fake f;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    sink->step(sink->ctx, bt_fake_step(&f, 0, 4));
    OK(bt_writer_flush(w, err));
    assert_int_equal(sqlite3_open(t->db, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    for (int64_t step = 1; step < 2000; step++) sink->step(sink->ctx, bt_fake_step(&f, step, 4));
    bt_sleep_ns(300000000);
    assert_int_equal(bt_writer_committed_step(w), 0);
    /* Readers are not blocked. */
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "a") == 1);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    OK(bt_writer_flush(w, err));
    assert_int_equal(bt_writer_committed_step(w), 1999);
    assert_int_equal(bt_writer_dropped(w), 0);
    bt_writer_close(w);
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", "a") == 8000);
}

static void *release_lock_late(void *db) {
    bt_sleep_ns(2600000000);
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    return NULL;
}

/* The writer waits as long as configured, which is longer than SQLite's own timeout. */
static void a_foreign_lock_is_waited_for(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    sqlite3 *db = NULL;
    pthread_t late;
    int attempt;
    OK(bt_writer_open(&w, t->db, 20, err));
    bt_run_start s = bt_fake_run("a");
    assert_int_equal(sqlite3_open(t->db, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(pthread_create(&late, NULL, release_lock_late, db), 0);
    OK(bt_writer_begin(w, &s, &attempt, err));
    pthread_join(late, NULL);
    sqlite3_close(db);
    bt_writer_close(w);
}

static char logged[400];
static void keep_line(void *ctx, bt_log_level level, const char *line) {
    (void)ctx, (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

/* The lock file names the process that holds it; a second writer waits while that process is stopped. */
static void a_stopped_writer_is_named(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_err why = BT_ERR_INIT;
    char lock[128], text[128];
    snprintf(lock, sizeof lock, "%s.lock", t->db);
    pid_t pid = fork();
    if (pid == 0) { /* The child holds the lock until it is killed. */
        bt_writer *mine = NULL;
        int fd;
        if (bt_writer_open(&mine, t->db, 1, &why) != BT_OK || (fd = open(lock, O_RDWR)) < 0)
            _exit(1);
        flock(fd, LOCK_EX);
        if (write(fd, "pid 4711 on elsewhere", 21) != 21) _exit(1);
        pause();
        _exit(0);
    }
    for (int i = 0; i < 500; i++) {
        FILE *f = fopen(lock, "r");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
        if (f) fclose(f);
        text[n] = 0;
        if (strncmp(text, "pid 4711 on elsewhere", 21) == 0) break;
        bt_sleep_ns(5000000);
    }
    bt_log_set(keep_line, NULL, BT_LOG_WARN);
    assert_int_equal(bt_writer_open(&w, t->db, 2.05, &why), BT_BUSY);
    bt_log_set(NULL, NULL, BT_LOG_WARN);
    assert_string_equal(logged, "waiting for the metrics database, which pid 4711 on elsewhere "
                                "holds: at most 2.05 s");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_non_null(strstr(why.msg, "pid 4711 on elsewhere"));
    OK(bt_writer_open(&w, t->db, 0.05, err)); /* A dead process holds no lock. */
    bt_writer_close(w);
}

static void several_runs_share_a_new_file(void **state) {
    const bt_tmp *t = *state;
    enum { RUNS = 4, STEPS = 1500 };
    pid_t pid[RUNS];
    for (int i = 0; i < RUNS; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            bt_writer *w = NULL;
            bt_err err = BT_ERR_INIT;
            int attempt;
            bt_fake f;
            char name[16];
            snprintf(name, sizeof name, "run-%d", i);
            bt_run_start s = bt_fake_run(name);
            bool ok = bt_writer_open(&w, t->db, 10, &err) == BT_OK &&
                      bt_writer_begin(w, &s, &attempt, &err) == BT_OK;
            for (int64_t step = 0; ok && step < STEPS; step++) {
                bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, step, 4));
                if (step % 50 == i) ok = bt_writer_flush(w, &err) == BT_OK;
            }
            ok = ok && bt_writer_end(w, "done", "finished", 0, &err) == BT_OK;
            bt_writer_close(w);
            if (!ok) fprintf(stderr, "%s: %s\n", name, err.msg);
            _exit(ok ? 0 : 1);
        }
    }
    for (int i = 0; i < RUNS; i++) {
        int status = -1;
        waitpid(pid[i], &status, 0);
        assert_int_equal(status, 0);
    }
    quick_check(t->db);
    for (int i = 0; i < RUNS; i++) {
        char name[16];
        snprintf(name, sizeof name, "run-%d", i);
        assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", name) == STEPS);
        assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", name) ==
                    4 * STEPS);
        char sql[200];
        snprintf(sql, sizeof sql,
                 "SELECT max(abs(data_ms - (4000 + step * 64 + rank * 8 + %d) / 8.0)) FROM "
                 "rank_steps WHERE run = ?1",
                 BT_MR_DATA);
        assert_true(bt_number(t->db, sql, name) == 0);
        assert_string_equal(bt_word(t->db, "SELECT state FROM runs WHERE run = ?1", name), "done");
    }
}

/* Mounts a disk of 1 MiB in a separate mount namespace, fills it and frees space again. */
static int write_on_tiny_disk(const char *dir) {
    char db[128], filler[128];
    bt_writer *w = NULL;
    bt_err err = BT_ERR_INIT;
    int attempt;
    bt_fake f;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tiny", dir, "tmpfs", 0, "size=1m") != 0)
        return 77;
    snprintf(db, sizeof db, "%s/m.db", dir);
    snprintf(filler, sizeof filler, "%s/filler", dir);
    bt_run_start s = bt_fake_run("a");
    if (bt_writer_open(&w, db, 0.3, &err) != BT_OK ||
        bt_writer_begin(w, &s, &attempt, &err) != BT_OK)
        return 1;
    int fd = open(filler, O_WRONLY | O_CREAT, 0600);
    static const char zeros[4096];
    while (write(fd, zeros, sizeof zeros) > 0) continue;
    close(fd);
    for (int64_t step = 0; step < 400; step++)
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, step, 4));
    if (bt_writer_flush(w, &err) != BT_IO || !strstr(err.msg, "the disk is full")) return 2;
    int64_t before = bt_writer_committed_step(w);
    if (before >= 399) return 3;
    if (unlink(filler) != 0 || bt_writer_flush(w, &err) != BT_OK) return 4;
    if (bt_writer_committed_step(w) != 399 || bt_writer_dropped(w) != 0) return 5;
    if (bt_writer_end(w, "done", "finished", 0, &err) != BT_OK) return 6;
    bt_writer_close(w);
    bt_db *d = NULL;
    double n = 0;
    if (bt_db_open(&d, db, &err) != BT_OK ||
        bt_db_value(d, "SELECT count(*) FROM rank_steps WHERE run = ?1", "a", &n, &err) != BT_OK ||
        n != 1600)
        return 7;
    bt_db_close(d);
    return 0;
}

static void a_full_disk_only_delays(void **state) {
    const bt_tmp *t = *state;
    pid_t pid = fork();
    if (pid == 0) _exit(write_on_tiny_disk(t->dir));
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: mounting a small tmpfs is not permitted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* A full queue drops values of ranks, never values of steps. */
static void a_slow_disk_drops_only_rank_rows(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    sqlite3 *db = NULL;
    int attempt;
    bt_fake f;
    /* 50000 x 16 ranks x 17 values = 109 MB; the queue holds 64 MiB */
    const int64_t n = 50000;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    assert_int_equal(sqlite3_open(t->db, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    for (int64_t step = 0; step < n; step++) sink->step(sink->ctx, bt_fake_step(&f, step, 16));
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    OK(bt_writer_flush(w, err));
    uint64_t dropped = bt_writer_dropped(w);
    assert_true(dropped > 0);
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "a") == (double)n);
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", "a") ==
                (double)(16 * n) - (double)dropped);
    assert_true(bt_number(t->db, "SELECT dropped FROM runs WHERE run = ?1", "a") ==
                (double)dropped);
    /* The newest rank rows are kept. */
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1 AND step = 49999",
                          "a") == 16);
}

/* Replaces n bytes in a text by a word. */
static void replace_bytes(char *text, const char *bytes, size_t n, const char *word) {
    char what[200];
    snprintf(what, sizeof what, "%.*s", (int)n, bytes);
    char *at = strstr(text, what);
    if (!at) return;
    memmove(at + strlen(word), at + n, strlen(at + n) + 1);
    memcpy(at, word, strlen(word));
}

/* Records 100 steps, applies `harm` to the files of the database, and records `after` more steps and the end of the
 * run. Returns the number of steps in the database; `said` receives the text of the event or "". */
static double steps_after_harm(const bt_tmp *t, const char *harm, int64_t after, char said[600]) {
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    char cmd[800];
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 0; step < 100; step++) sink->step(sink->ctx, bt_fake_step(&f, step, 4));
    OK(bt_writer_flush(w, err));
    snprintf(cmd, sizeof cmd, "db='%s'; %s", t->db, harm);
    assert_int_equal(system(cmd), 0);
    for (int64_t step = 100; step < 100 + after; step++)
        sink->step(sink->ctx, bt_fake_step(&f, step, 4));
    OK(bt_writer_flush(w, err));
    assert_int_equal(bt_writer_committed_step(w), 99 + after);
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    quick_check(t->db);
    assert_true(bt_number(t->db, "SELECT attempt FROM attempts WHERE run = ?1", "a") == 0);
    assert_string_equal(bt_word(t->db, "SELECT state || ' ' || argv FROM runs WHERE run = ?1", "a"),
                        "done bitrain train");
    snprintf(said, 600, "%s",
             bt_word(t->db,
                     "SELECT coalesce(group_concat(kind || ' ' || attempt || ' ' || coalesce(step, "
                     "'-') || ' ' || "
                     "title), '') FROM events WHERE run = ?1 AND level = 'error'",
                     "a"));
    replace_bytes(said, t->db, strlen(t->db), "DB");
    char *time = strstr(said, ".corrupt-");
    if (time) replace_bytes(said, time + strlen(".corrupt-"), strlen("20260101T000000Z"), "TIME");
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", "a") ==
                4 * bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "a"));
    return bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "a");
}

/* The writer's open connection still contains every row. */
static void a_removed_file_is_saved_through_the_open_one(void **state) {
    const bt_tmp *t = *state;
    char said[600];
    assert_true(steps_after_harm(t, "rm $db $db-wal $db-shm", 100, said) == 200);
    assert_string_equal(said, "warning 0 - metrics database had been removed: every row was saved");
}

static void a_file_removed_without_its_log_is_saved(void **state) {
    const bt_tmp *t = *state;
    char said[600];
    assert_true(steps_after_harm(t, "rm $db", 100, said) == 200);
    assert_string_equal(said, "warning 0 - metrics database had been removed: every row was saved");
}

static void a_file_removed_before_the_end_is_saved(void **state) {
    const bt_tmp *t = *state;
    char said[600];
    assert_true(steps_after_harm(t, "rm $db", 0, said) == 100);
    assert_string_equal(said, "warning 0 - metrics database had been removed: every row was saved");
}

static void a_file_without_tables_in_its_place_is_moved_aside(void **state) {
    const bt_tmp *t = *state;
    char said[600];
    assert_true(steps_after_harm(t, "rm $db && : > $db", 100, said) == 200);
    assert_string_equal(said,
                        "warning 0 - metrics database had been replaced (the previous file is "
                        "'DB.corrupt-TIME' now): every row was saved");
}

static void a_removed_log_is_saved_through_the_open_one(void **state) {
    const bt_tmp *t = *state;
    char said[600];
    assert_true(steps_after_harm(t, "rm $db-wal", 100, said) == 200);
    assert_string_equal(
        said, "warning 0 - the log of the metrics database was cut: every row was saved, the "
              "damaged file is 'DB.corrupt-TIME'");
}

/* Rows that were in the truncated part of the log and not in memory are lost; later rows are recorded and the file is
 * valid. */
static void a_cut_log_is_noticed(void **state) {
    const bt_tmp *t = *state;
    char said[600];
    const double steps = steps_after_harm(t, "truncate -s 40000 $db-wal", 100, said);
    assert_true(steps >= 100);
    assert_non_null(strstr(said, "the log of the metrics database was cut: "));
    assert_non_null(strstr(said, steps < 200 ? "moved to '" : "every row was saved"));
}

/* A process that closes any descriptor of the -shm file loses its POSIX locks on it. The next reader then considers the
 * file unused and truncates it to three bytes, and the writer dies of SIGBUS. Byte 128 is the lock of the processes
 * that use the file. */
static void reading_the_log_keeps_the_locks(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt, status = -1;
    bt_fake f;
    char shm[200];
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 0; step < 20; step++) {
        sink->step(sink->ctx, bt_fake_step(&f, step, 4));
        OK(bt_writer_flush(w, err));
    }
    snprintf(shm, sizeof shm, "%s-shm", t->db);
    pid_t pid = fork();
    if (pid == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 128, .l_len = 1};
        int fd = open(shm, O_RDWR | O_CLOEXEC);
        _exit(fd < 0 || fcntl(fd, F_GETLK, &lock) != 0 ? 2 : lock.l_type == F_UNLCK);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
}

/* Pages in the middle of the file are damaged and the log is truncated: the file is moved aside, the readable rows are
 * saved, and the run continues. */
static void a_damaged_file_is_moved_and_saved(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL, *done = NULL;
    int attempt;
    bt_fake f;
    char name[160], cmd[400];
    bt_run_start s = bt_fake_run("before");
    OK(bt_writer_open(&done, t->db, 1, err));
    OK(bt_writer_begin(done, &s, &attempt, err));
    for (int64_t step = 0; step < 500; step++)
        bt_writer_sink(done)->step(bt_writer_sink(done)->ctx, bt_fake_step(&f, step, 4));
    OK(bt_writer_end(done, "done", "finished", 0, err));
    bt_writer_close(done);
    s = bt_fake_run("a");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 0; step < 2000; step++) sink->step(sink->ctx, bt_fake_step(&f, step, 4));
    OK(bt_writer_flush(w, err));
    sqlite3 *db =
        NULL; /* The checkpoint moves all rows from the log to the file, which is then damaged. */
    sqlite3_open(t->db, &db);
    assert_int_equal(sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    struct stat st;
    assert_int_equal(stat(t->db, &st), 0);
    int fd = open(t->db, O_WRONLY);
    static const char rubbish[4096] = {1, 2, 3};
    for (off_t page = st.st_size / 4096 / 2; page < st.st_size / 4096; page++)
        assert_int_equal(pwrite(fd, rubbish, 4096, page * 4096), 4096);
    close(fd);
    for (int64_t step = 2000; step < 40000; step++)
        sink->step(sink->ctx, bt_fake_step(&f, step, 4));
    OK(bt_writer_flush(w, err));
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    snprintf(cmd, sizeof cmd, "ls %s.corrupt-* | grep -v -e wal -e shm | head -1 > %s/moved", t->db,
             t->dir);
    assert_int_equal(system(cmd), 0);
    snprintf(name, sizeof name, "%s/moved", t->dir);
    assert_true(stat(name, &st) == 0);
    assert_true(st.st_size > 0);
    quick_check(t->db);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1 AND step >= 2000",
                          "a") == 38000);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "before") > 0);
    assert_string_equal(bt_word(t->db, "SELECT state FROM runs WHERE run = ?1", "a"), "done");
    assert_non_null(
        strstr(bt_word(t->db, "SELECT title FROM events WHERE run = ?1 AND level = 'error'", "a"),
               "was damaged: moved to"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kill_9_loses_no_acknowledged_step, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_foreign_lock_is_waited_for, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_foreign_lock_costs_nothing, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_stopped_writer_is_named, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(several_runs_share_a_new_file, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_full_disk_only_delays, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_removed_file_is_saved_through_the_open_one, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_file_removed_without_its_log_is_saved, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_file_removed_before_the_end_is_saved, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_file_without_tables_in_its_place_is_moved_aside,
                                        bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_removed_log_is_saved_through_the_open_one, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_cut_log_is_noticed, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(reading_the_log_keeps_the_locks, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_moved_and_saved, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_slow_disk_drops_only_rank_rows, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
