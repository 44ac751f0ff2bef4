// ctest: timeout=60
/* test_ring.c - a ring of records in a mapped file: all records are read back, even after kill -9 during an append.
 * Records missing in the database are inserted once, whichever process died. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "store/read/dead_runs.h"
#include "store/record/record.h"
#include "store/record/ring.h"
#include "store/write/manage.h"
#include "store_test.h"

static bt_record *numbered_record(int64_t n, size_t words) {
    bt_record *r = bt_record_empty(
        &(bt_record_head){.kind = BT_REC_FACT, .bytes = (uint32_t)(8 * words), .step = n});
    assert_non_null(r);
    for (size_t i = 0; i < words; i++) memcpy(r->data + 8 * i, &n, 8);
    return r;
}

/* Checks that the records are valid, consecutive and end with `last`; returns their number. */
static size_t check_chain(const bt_record *list, int64_t last) {
    int64_t n = -1, first = -1;
    size_t count = 0;
    for (const bt_record *r = list; r; r = r->next, count++) {
        int64_t here, word;
        memcpy(&here, r->data, 8);
        assert_int_equal(r->head.step, here);
        for (size_t i = 0; i < r->head.bytes / 8; i++) {
            memcpy(&word, r->data + 8 * i, 8);
            assert_int_equal(word, here);
        }
        if (first < 0)
            first = here;
        else
            assert_int_equal(here, n + 1);
        n = here;
    }
    if (last >= 0) assert_int_equal(n, last);
    return count;
}

static void the_newest_records_are_kept(void **state) {
    bt_tmp *t = *state;
    char path[128];
    bt_ring *ring = NULL;
    bt_record *list = NULL;
    int attempt = -1;
    snprintf(path, sizeof path, "%s/r", t->dir);
    OK(bt_ring_create(&ring, path, 3, 64 << 10, err));
    OK(bt_ring_read(path, &attempt, &list, err));
    assert_null(list);
    assert_int_equal(attempt, 3);
    for (int64_t n = 0; n < 5000; n++) {
        bt_record *r = numbered_record(n, 1 + (size_t)(n * 37 % 300));
        bt_ring_append(ring, r);
        bt_records_free(r);
        if (n % 97 && n > 40) continue;
        OK(bt_ring_read(path, &attempt, &list, err));
        size_t count = check_chain(list, n);
        assert_true(n > 40 ? count > 20 : count == (size_t)n + 1);
        bt_records_free(list);
    }
    bt_ring_close(ring);
    OK(bt_ring_create(&ring, path, 4, 64 << 10, err)); /* Each attempt begins with an empty ring. */
    OK(bt_ring_read(path, &attempt, &list, err));
    assert_null(list);
    bt_record *big =
        numbered_record(1, 4000); /* A record as large as the ring replaces all earlier records. */
    bt_ring_append(ring, big);
    bt_records_free(big);
    OK(bt_ring_read(path, &attempt, &list, err));
    assert_null(list);
    bt_ring_close(ring);
}

static void kill_9_in_an_append(void **state) {
    bt_tmp *t = *state;
    char path[128];
    snprintf(path, sizeof path, "%s/r", t->dir);
    _Atomic int64_t *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 25; round++) {
        *done = -1;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            bt_ring *ring = NULL;
            bt_err err;
            if (bt_ring_create(&ring, path, round, 64 << 10, &err) != BT_OK) _exit(1);
            for (int64_t n = 0;; n++) {
                bt_record *r = numbered_record(n, 1 + (size_t)(n % 120));
                bt_ring_append(ring, r);
                *done = n;
                bt_records_free(r);
            }
        }
        while (*done < 200 + 331 * round) bt_sleep_ns(20000);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        bt_record *list = NULL;
        int attempt = -1;
        OK(bt_ring_read(path, &attempt, &list, err));
        assert_int_equal(attempt, round);
        check_chain(list, -1);
        int64_t newest = -1;
        for (const bt_record *r = list; r; r = r->next) memcpy(&newest, r->data, 8);
        assert_true(newest == *done || newest == *done + 1);
        bt_records_free(list);
    }
    munmap(done, sizeof *done);
}

static void other_files_are_not_read(void **state) {
    bt_tmp *t = *state;
    char path[128], junk[4096 + (64 << 10)];
    bt_record *list = NULL;
    bt_ring *ring = NULL;
    bt_err why = BT_ERR_INIT;
    int attempt;
    snprintf(path, sizeof path, "%s/r", t->dir);
    assert_int_equal(bt_ring_read(path, &attempt, &list, &why), BT_NOTFOUND);
    OK(bt_ring_create(&ring, path, 0, 64 << 10, err));
    for (int64_t n = 0; n < 40; n++) {
        bt_record *r = numbered_record(n, 20);
        bt_ring_append(ring, r);
        bt_records_free(r);
    }
    bt_ring_close(ring);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(read(fd, junk, sizeof junk), sizeof junk);
    /* After damage to any byte the ring returns whole records or none. */
    for (int i = 0; i < 4000; i++) {
        off_t at = i * 7919 % (i % 2 ? 128 : 10000);
        char other = (char)(junk[at] ^ 1 << i % 8);
        assert_int_equal(pwrite(fd, &other, 1, at), 1);
        bt_code code = bt_ring_read(path, &attempt, &list, &why);
        assert_true(code == BT_OK || code == BT_FORMAT);
        if (code == BT_OK) assert_true(check_chain(list, -1) <= 40);
        bt_records_free(list);
        list = NULL;
        assert_int_equal(pwrite(fd, junk + at, 1, at), 1);
    }
    /* The checksum includes the head: a changed step or number of rows invalidates the record. */
    for (int i = 8; i < 24; i++) {
        const char other = (char)(junk[4096 + i] ^ 1);
        assert_int_equal(pwrite(fd, &other, 1, 4096 + i), 1);
        OK(bt_ring_read(path, &attempt, &list, err));
        assert_null(list); /* The damaged record is the first one. */
        assert_int_equal(pwrite(fd, junk + 4096 + i, 1, 4096 + i), 1);
    }
    /* Positions are multiples of eight within the ring, and the tail does not exceed the head. */
    static const struct {
        uint64_t at[2]; /* tail, head */
        bool read;
    } places[] = {{{0, 0}, true},
                  {{64 << 10, 64 << 10}, true},
                  {{8, 0}, false},
                  {{4, 8}, false},
                  {{1, 8}, false},
                  {{7, 64}, false},
                  {{0, 64 << 10}, true},
                  {{0, (64 << 10) + 8}, false},
                  {{8, (64 << 10) + 8}, true},
                  {{2, 64 << 10}, false},
                  {{1 << 20, 8}, false}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        enum { AT = 24 }; /* offset after the identification of the file */
        assert_int_equal(pwrite(fd, places[i].at, 16, AT), 16);
        const bt_code code = bt_ring_read(path, &attempt, &list, &why);
        if (code != (places[i].read ? BT_OK : BT_FORMAT))
            fail_msg("tail %d, head %d: %s", (int)places[i].at[0], (int)places[i].at[1],
                     bt_code_name(code));
        bt_records_free(list);
        list = NULL;
    }
    close(fd);
    assert_int_equal(truncate(path, 5000), 0);
    assert_int_equal(bt_ring_read(path, &attempt, &list, &why), BT_FORMAT);
}

/* Size, permissions and owner of the file; the longest record; paths that cannot be used. */
static void sizes_and_paths_of_a_ring_are_limited(void **state) {
    bt_tmp *t = *state;
    char path[160], says[300];
    struct stat st;
    bt_ring *ring = NULL;
    bt_record *list = NULL;
    bt_err why = BT_ERR_INIT;
    int attempt;
    static const struct {
        size_t asked, bytes;
    } sizes[] = {
        {0, 64 << 10}, {64 << 10, 64 << 10}, {(64 << 10) + 1, (64 << 10) + 8}, {1 << 20, 1 << 20}};
    snprintf(path, sizeof path, "%s/r", t->dir);
    assert_false(bt_ring_left(path));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        OK(bt_ring_create(&ring, path, 7, sizes[i].asked, err));
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, 4096 + sizes[i].bytes);
        assert_true((st.st_mode & 07777) == 0600 && st.st_blocks * 512 >= st.st_size);
        assert_false(bt_ring_left(path));
        /* A record including its head may use at most an eighth of the ring. */
        for (int more = 0; more < 2; more++) {
            const size_t bytes = sizes[i].bytes / 8 / 8 * 8 - 32 + (size_t)more;
            bt_record *r = bt_record_empty(
                &(bt_record_head){.kind = BT_REC_FACT, .bytes = (uint32_t)bytes, .step = more});
            memset(r->data, 0x5a, bytes);
            bt_ring_append(ring, r);
            bt_records_free(r);
        }
        OK(bt_ring_read(path, &attempt, &list, err));
        assert_true(attempt == 7 && list && !list->next && list->head.step == 0);
        assert_int_equal(list->head.bytes, sizes[i].bytes / 8 / 8 * 8 - 32);
        for (size_t k = 0; k < list->head.bytes; k++) assert_int_equal(list->data[k], 0x5a);
        bt_records_free(list);
        bt_ring_append(ring, NULL);
        bt_ring_close(ring);
        assert_true(bt_ring_left(path));
    }
    bt_ring_append(NULL, NULL);
    bt_ring_close(NULL);
    /* The lengths of these records are not multiples of eight. */
    OK(bt_ring_create(&ring, path, 0, 0, err));
    for (uint32_t n = 0; n < 40; n++) {
        bt_record *r =
            bt_record_empty(&(bt_record_head){.kind = BT_REC_FACT, .bytes = n, .step = n});
        memset(r->data, (int)n, n);
        bt_ring_append(ring, r);
        bt_records_free(r);
    }
    bt_ring_close(ring);
    OK(bt_ring_read(path, &attempt, &list, err));
    uint32_t n = 0;
    for (const bt_record *r = list; r; r = r->next, n++) {
        assert_true(r->head.bytes == n && r->head.step == n);
        for (uint32_t k = 0; k < n; k++) assert_int_equal(r->data[k], n);
    }
    assert_int_equal(n, 40);
    bt_records_free(list);
    /* Files of other lengths or of a program with other tables are refused. */
    signal(SIGXFSZ, SIG_IGN); /* Writing beyond the limited file size then returns an error. */
    if (truncate(path, (INT64_C(1) << 30) + 1) != 0) assert_int_equal(truncate(path, 5000), 0);
    assert_int_equal(bt_ring_read(path, &attempt, &list, &why), BT_FORMAT);
    snprintf(says, sizeof says, "'%s' is not a ring of records", path);
    assert_string_equal(why.msg, says);
    assert_int_equal(truncate(path, 4096 + (64 << 10) - 1), 0);
    assert_int_equal(bt_ring_read(path, &attempt, &list, &why), BT_FORMAT);
    OK(bt_ring_create(&ring, path, 0, 0, err));
    bt_ring_close(ring);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    const uint64_t other = bt_record_mark() + 1;
    assert_int_equal(pwrite(fd, &other, 8, 16), 8);
    close(fd);
    assert_int_equal(bt_ring_read(path, &attempt, &list, &why), BT_FORMAT);
    snprintf(says, sizeof says, "'%s' is not a ring of records of this program", path);
    assert_string_equal(why.msg, says);
    assert_null(list);
    /* The folder does not exist. */
    snprintf(path, sizeof path, "%s/none/r", t->dir);
    assert_int_equal(bt_ring_create(&ring, path, 0, 0, &why), BT_IO);
    assert_null(ring);
    snprintf(says, sizeof says, "cannot create '%s': No such file or directory", path);
    assert_string_equal(why.msg, says);
    assert_int_equal(bt_ring_create(&ring, t->dir, 0, 0, &why), BT_IO);
    assert_int_equal(bt_ring_read(path, &attempt, &list, &why), BT_NOTFOUND);
    snprintf(path, sizeof path, "%s/link", t->dir); /* Symbolic links are not followed. */
    assert_int_equal(symlink("r", path), 0);
    assert_false(bt_ring_left(path));
}

static void step_into(const bt_sink *sink, int64_t step) {
    bt_fake f;
    sink->step(sink->ctx, bt_fake_step(&f, step, 2));
}

static void event_into(const bt_sink *sink, int64_t step, const char *title) {
    sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_CHECKPOINT,
                                       .step = step,
                                       .rank = -1,
                                       .wall_us = 1700000000000000 + step,
                                       .title = title});
}

static void fill_ring(const char *path, int attempt, int64_t steps) {
    bt_ring *ring = NULL;
    bt_queue q;
    bt_sink sink;
    OK(bt_ring_create(&ring, path, attempt, BT_RING_BYTES, err));
    assert_true(bt_queue_init(&q, 1 << 20));
    q.ring = ring;
    /* The supervisor died, so the queue refuses records while the ring accepts them. */
    q.closed = true;
    bt_queue_sink(&q, &sink);
    sink.fact(sink.ctx, "result", "not for the table of facts");
    for (int64_t s = 0; s < steps; s++) {
        step_into(&sink, s);
        if (s % 10 == 9) event_into(&sink, s, "checkpoint");
    }
    bt_queue_release(&q);
    bt_ring_close(ring);
}

static void check_rows(const bt_tmp *t, const char *run) {
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", run) == 60);
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", run) == 120);
    assert_true(bt_number(t->db,
                          "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'checkpoint'",
                          run) == 6);
    assert_true(bt_number(t->db, "SELECT count(*) FROM facts WHERE run = ?1", run) == 0);
    assert_true(bt_number(t->db, "SELECT steps FROM runs WHERE run = ?1", run) == 60);
    assert_true(bt_number(t->db, "SELECT redone_s FROM runs WHERE run = ?1", run) == 0);
    /* The mean includes the steps that were committed before and those from the ring. */
    assert_true(bt_number(t->db, "SELECT tokens_per_s FROM runs WHERE run = ?1", run) ==
                (bt_truth(29, BT_MS_TOKENS_PER_S) + bt_truth(30, BT_MS_TOKENS_PER_S)) / 2);
    assert_true(bt_number(t->db, "SELECT step_ms FROM runs WHERE run = ?1", run) ==
                (bt_truth(29, BT_MS_STEP_TIME) + bt_truth(30, BT_MS_STEP_TIME)) / 2);
    for (int64_t s = 0; s < 60; s += 7) {
        char sql[128];
        snprintf(sql, sizeof sql, "SELECT loss FROM steps WHERE run = ?1 AND step = %lld",
                 (long long)s);
        assert_true(fabs(bt_number(t->db, sql, run) - bt_truth(s, BT_MS_LOSS)) < 1e-9);
    }
}

/* Rank 0 died and the supervisor is alive: the attempt is still open. */
static void a_ring_of_an_open_attempt(void **state) {
    bt_tmp *t = *state;
    char path[128];
    bt_writer *w = NULL;
    int attempt;
    int64_t steps = -1;
    snprintf(path, sizeof path, "%s/r", t->dir);
    bt_run_start s = bt_fake_run("open");
    OK(bt_writer_open(&w, t->db, 5, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    for (int64_t i = 0; i < 41; i++) {
        step_into(bt_writer_sink(w), i);
        if (i % 10 == 9) event_into(bt_writer_sink(w), i, "checkpoint");
    }
    OK(bt_writer_recover(w, "open", path, &steps, err)); /* The file is missing. */
    assert_int_equal(steps, 0);
    fill_ring(path, attempt, 60);
    OK(bt_writer_recover(w, "open", path, &steps, err));
    assert_int_equal(steps, 19);
    assert_int_equal(bt_writer_committed_step(w), 59);
    OK(bt_writer_recover(w, "open", path, &steps, err)); /* A second call adds no rows. */
    assert_int_equal(steps, 0);
    OK(bt_writer_end(w, "done", "x", 0, err));
    bt_writer_close(w);
    check_rows(t, "open");
}

/* The supervisor died before it read the last records of rank 0. The next supervisor recovers them before it begins an
 * attempt. */
static void a_ring_of_a_killed_supervisor(void **state) {
    bt_tmp *t = *state;
    char path[128];
    snprintf(path, sizeof path, "%s/r", t->dir);
    pid_t child = fork();
    if (child == 0) {
        bt_writer *w = NULL;
        int attempt;
        bt_err err;
        bt_run_start s = bt_fake_run("orphan");
        if (bt_writer_open(&w, t->db, 5, &err) != BT_OK ||
            bt_writer_begin(w, &s, &attempt, &err) != BT_OK)
            _exit(1);
        for (int64_t i = 0; i < 37; i++) {
            step_into(bt_writer_sink(w), i);
            if (i % 10 == 9) event_into(bt_writer_sink(w), i, "checkpoint");
        }
        if (bt_writer_flush(w, &err) != BT_OK) _exit(1);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    fill_ring(path, 0, 60);
    bt_writer *w = NULL;
    int attempt;
    int64_t steps;
    bt_run_start s = bt_fake_run("orphan");
    s.resume = true;
    s.from_step = 60;
    OK(bt_writer_open(&w, t->db, 5, err));
    OK(bt_writer_recover(w, "another", path, &steps, err)); /* The ring belongs to another run. */
    assert_int_equal(steps, 0);
    OK(bt_writer_recover(w, "orphan", path, &steps, err));
    assert_int_equal(steps, 23);
    OK(bt_writer_begin(w, &s, &attempt, err));
    assert_int_equal(attempt, 1);
    /* An older attempt is not recovered. */
    fill_ring(path, 0, 80);
    OK(bt_writer_recover(w, "orphan", path, &steps, err));
    assert_int_equal(steps, 0);
    OK(bt_writer_end(w, "done", "x", 0, err));
    bt_writer_close(w);
    check_rows(t, "orphan");
}

/* Rank 0 writes the database and is killed at random times. A viewer that then opens the database finds every
 * acknowledged step once; the ring of a running rank is unchanged. */
static void a_viewer_finds_every_acknowledged_step(void **state) {
    bt_tmp *t = *state;
    char path[128], host[BT_HOST_MAX] = "";
    _Atomic int64_t *said = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                                 0);
    uint32_t seed = 5;
    int64_t next = 0, last = -1, rescued = 0;
    snprintf(path, sizeof path, "%s/" BT_RING_FILE, t->dir);
    gethostname(host, sizeof host - 1);
    for (int kills = 0; kills < 20; kills++) {
        *said = -1;
        pid_t child = fork();
        if (child == 0) {
            bt_err err = BT_ERR_INIT;
            bt_writer *w = NULL;
            int attempt;
            bt_run_start s = bt_fake_run("direct");
            s.host = host;
            s.out_dir = t->dir;
            s.resume = kills > 0;
            s.from_step = next;
            s.pid = (int)getpid();
            if (bt_writer_open(&w, t->db, 5, &err) != BT_OK ||
                bt_writer_begin(w, &s, &attempt, &err) != BT_OK ||
                bt_writer_keep(w, path, attempt, &err) != BT_OK)
                _exit(1);
            for (int64_t step = next;; step++) {
                step_into(bt_writer_sink(w), step);
                *said = step;
                /* The ring holds more records than are written between two commits. */
                bt_sleep_ns(100000);
            }
        }
        int status = 0;
        while (*said < next && waitpid(child, &status, WNOHANG) == 0) bt_sleep_ns(200000);
        assert_false(bt_ring_left(path));
        seed = seed * 1664525u + 1013904223u;
        bt_sleep_ns((int64_t)(seed >> 8) % 60000000);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        double before = bt_number(t->db, "SELECT max(step) FROM steps WHERE run = ?1", "direct");
        bt_db *db = NULL;
        OK(bt_db_open(&db, t->db, err));
        bt_store_rescue(db, 5);
        bt_store_rescue(db, 5);
        bt_db_close(db);
        assert_int_not_equal(access(path, F_OK), 0);
        last = (int64_t)bt_number(t->db, "SELECT max(step) FROM steps WHERE run = ?1", "direct");
        if (last < *said)
            fail_msg("kill %d: step %lld was acknowledged, the newest is %lld", kills,
                     (long long)*said, (long long)last);
        rescued += !((double)last <= before);
        next = last - 3 > 0 ? last - 3 : 0;
    }
    assert_true(rescued > 0);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "direct") ==
                (double)(last + 1));
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", "direct") ==
                2 * (double)(last + 1));
    munmap(said, 4096);
}

/* Recovers only rings of runs on this machine that are marked as running and have no process. */
static void only_runs_without_a_process_are_recovered(void **state) {
    enum { STEPS = 20 };
    static const struct {
        const char *run_state, *host; /* "": this host */
        int pid;                      /* 2: this process; 3: a dead process */
        bool folder, rescued;
    } rows[] = {{"running", "", 3, true, true},     {"running", "", 2, true, false},
                {"running", "far", 3, true, false}, {"done", "", 3, true, false},
                {"running", "", 0, true, false},    {"running", "", -1, true, false},
                {"running", "", 3, false, false},   {"running", "", 3, true, true}};
    enum { ROWS = sizeof rows / sizeof *rows };
    bt_tmp *t = *state;
    char host[BT_HOST_MAX] = "", ring[ROWS][160];
    bt_db *db = NULL;
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < ROWS; i++) {
        char folder[140], name[8], sql[300];
        bt_writer *w = NULL;
        int attempt;
        snprintf(name, sizeof name, "r%d", i);
        snprintf(folder, sizeof folder, "%s/%s", t->dir, name);
        snprintf(ring[i], sizeof ring[i], "%s/%s", folder, BT_RING_FILE);
        assert_int_equal(mkdir(folder, 0700), 0);
        bt_run_start s = bt_fake_run(name);
        s.out_dir = rows[i].folder ? folder : "";
        s.host = rows[i].host[0] ? rows[i].host : host;
        s.pid = rows[i].pid == 2 ? (int)getpid() : rows[i].pid == 3 ? 2147483000 : rows[i].pid;
        OK(bt_writer_open(&w, t->db, 5, err));
        OK(bt_writer_begin(w, &s, &attempt, err));
        bt_writer_close(w);
        fill_ring(ring[i], attempt, STEPS);
        snprintf(sql, sizeof sql, "UPDATE run SET state = '%s' WHERE name = '%s'",
                 rows[i].run_state, name);
        run_sql(t->db, sql);
    }
    OK(bt_db_open(&db, t->db, err));
    bt_store_rescue(db, 5);
    bt_db_close(db);
    for (int i = 0; i < ROWS; i++) {
        char name[8];
        snprintf(name, sizeof name, "r%d", i);
        const double steps = bt_number(t->db, "SELECT count(*) FROM all_steps WHERE run = ?1",
                                       name);
        if ((access(ring[i], F_OK) != 0) != rows[i].rescued ||
            (int)steps != (rows[i].rescued ? STEPS : 0))
            fail_msg("row %d: %d steps", i, (int)steps);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_newest_records_are_kept, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(kill_9_in_an_append, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(other_files_are_not_read, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(sizes_and_paths_of_a_ring_are_limited, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_ring_of_an_open_attempt, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_ring_of_a_killed_supervisor, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(only_runs_without_a_process_are_recovered, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_viewer_finds_every_acknowledged_step, bt_tmp_make,
                                        bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
