/* drill_run.c - starts the run of a drill, observes its database, injects a fault, and starts it again. */
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/drill/drill.h"
#include "engine/base/clock.h"
#include "engine/base/os/process_info.h"
#include "monitor/job/launch/child.h"

static const int64_t LOOK_NS = 5000000;
/* time in seconds that a busy machine needs for a start, a hang of five steps, and a slow checkpoint */
static const double BACK_S = 60;

uint64_t bt_drill_draw(bt_drill_run *r, uint64_t n) {
    return bt_rng_u64(r->seed, 0, r->drawn++) % n;
}

bt_code bt_drill_start(bt_drill_run *r, bool resume, bt_err *err) {
    const char *argv[BT_DRILL_WORDS + 8] = {"train", "--store", r->store};
    char log[PATH_MAX + BT_NAME_MAX + 16];
    size_t n = 3;
    if (resume) {
        argv[n++] = "--resume";
        argv[n++] = r->name;
        argv[n++] = "--quiet";
    } else
        for (int i = 0; i < r->n_words; i++) argv[n++] = r->words[i];
    snprintf(log, sizeof log, "%s/%s.log", r->folder, r->name);
    return bt_child_start(&r->pid, &(bt_child_cfg){.words = argv, .n_words = n, .log = log}, err);
}

void bt_drill_last_words(const bt_drill_run *r, char *out, size_t size) {
    char log[PATH_MAX + BT_NAME_MAX + 16], line[512];
    snprintf(log, sizeof log, "%s/%s.log", r->folder, r->name);
    FILE *f = fopen(log, "re");
    out[0] = '\0';
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0]) bt_text_plain(out, size, line);
    }
    if (f) fclose(f);
}

/* ---- values from the database ------------------------------------------------------------------ */

static bt_db *open_drill_database(bt_drill_run *r) {
    bt_err why = BT_ERR_INIT;
    if (!r->db && bt_db_open(&r->db, r->store, &why) != BT_OK) r->db = NULL;
    return r->db;
}

double bt_drill_value(bt_drill_run *r, const char *sql) {
    double x = NAN;
    bt_err why = BT_ERR_INIT;
    bt_db *db = open_drill_database(r);
    if (db && bt_db_value(db, sql, r->name, &x, &why) != BT_OK) {
        bt_db_close(r->db);
        r->db = NULL;
        x = NAN;
    }
    return x;
}

static int64_t integer_or(double x, int64_t none) { return isnan(x) ? none : (int64_t)x; }

int64_t bt_drill_newest(bt_drill_run *r) {
    return integer_or(bt_drill_value(r, "SELECT max(step) FROM steps WHERE run = ?1"), -1);
}

/* ---- processes ------------------------------------------------------------------------------- */

bool bt_drill_alive(bt_drill_run *r) {
    if (r->pid > 0 && waitpid(r->pid, NULL, WNOHANG) != 0) r->pid = 0;
    return r->pid > 0;
}

int bt_drill_wait_end(bt_drill_run *r, double limit_s) {
    const int64_t until = bt_now_ns() + (int64_t)(limit_s * 1e9);
    int status = 0;
    pid_t ended = 0;
    while (r->pid > 0 && (ended = waitpid(r->pid, &status, WNOHANG)) == 0) {
        if (bt_now_ns() > until) {
            bt_drill_kill_all(r);
            return -1;
        }
        bt_sleep_ns(LOOK_NS);
    }
    r->pid = 0;
    if (ended <= 0) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* True for a process of this drill: one of the programs of a run, whose arguments contain the temporary folder of the
 * drill. */
static bool is_drill_process(const bt_drill_run *r, int pid) {
    static const char *const programs[] = {"bitrain", "mpirun",  "orterun",
                                           "orted",   "prterun", "prted"};
    char words[8192];
    bt_process_info info;
    const size_t len = strlen(r->folder);
    if (!strstr(r->folder, "/bitrain-drill-") || strstr(r->folder, "XXXXXX")) return false;
    if (!bt_process_info_read(pid, &info)) return false;
    /* the kernel stores 15 bytes of a program's name, and the program may have been renamed */
    const char *own = strrchr(r->program, '/');
    bool known = own && own[1] && strncmp(info.name, own + 1, 15) == 0;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        known |= strcmp(info.name, programs[i]) == 0;
    const size_t n = known ? bt_process_words(pid, words, sizeof words) : 0;
    return memmem(words, n, r->folder, len) != NULL;
}

pid_t bt_drill_rank(bt_drill_run *r, int rank) {
    char sql[160];
    snprintf(sql, sizeof sql,
             "SELECT pid FROM ranks WHERE run = ?1 AND rank = %d ORDER BY attempt DESC LIMIT 1",
             rank);
    const pid_t pid = (pid_t)integer_or(bt_drill_value(r, sql), 0);
    return pid > 1 && is_drill_process(r, pid) ? pid : 0;
}

int bt_drill_ranks(bt_drill_run *r) {
    return (int)integer_or(bt_drill_value(r,
                                          "SELECT world_size FROM attempts WHERE run = ?1 ORDER BY "
                                          "attempt DESC LIMIT 1"),
                           0);
}

pid_t bt_drill_mpirun(bt_drill_run *r) {
    bt_process_info info = {0};
    const pid_t rank = bt_drill_rank(r, 0);
    if (rank > 0) (void)bt_process_info_read(rank, &info);
    return info.parent > 1 && is_drill_process(r, info.parent) ? info.parent : 0;
}

static int count_or_kill_drill_processes(const bt_drill_run *r, bool kills) {
    bt_process_scan scan = {NULL};
    int n = 0;
    for (pid_t pid; (pid = bt_process_scan_next(&scan)) > 0;) {
        if (pid <= 1 || pid == getpid() || !is_drill_process(r, pid)) continue;
        n++;
        if (kills) kill(pid, SIGKILL);
    }
    bt_process_scan_end(&scan);
    return n;
}

static void wait_until_gone(const bt_drill_run *r, double limit_s) {
    const int64_t until = bt_now_ns() + (int64_t)(limit_s * 1e9);
    while (count_or_kill_drill_processes(r, false) > 0 && bt_now_ns() < until)
        bt_sleep_ns(4 * LOOK_NS);
}

void bt_drill_kill_all(bt_drill_run *r) {
    if (r->pid > 0) {
        kill(r->pid, SIGKILL);
        waitpid(r->pid, NULL, 0);
    }
    r->pid = 0;
    if (!r->folder[0]) return; /* nothing was started */
    count_or_kill_drill_processes(r, true);
    wait_until_gone(r, 5);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bt_code wait_for_run_end(const bt_drill_run *r, bt_err *err) {
    char said[200];
    bt_drill_last_words(r, said, sizeof said);
    return bt_fail(err, BT_CHECK, "the run ended: %.150s", said);
}

bt_code bt_drill_wait_step(bt_drill_run *r, int64_t step, double limit_s, bt_err *err) {
    const int64_t until = bt_now_ns() + (int64_t)(limit_s * 1e9);
    while (bt_drill_newest(r) <= step) {
        if (!bt_drill_alive(r)) return bt_drill_newest(r) > step ? BT_OK : wait_for_run_end(r, err);
        if (bt_now_ns() > until)
            return bt_fail(err, BT_CHECK, "no step beyond %lld within %.0f s", (long long)step,
                           limit_s);
        bt_sleep_ns(LOOK_NS);
    }
    return BT_OK;
}

typedef struct before {
    int64_t t0, step, attempt, seq;
} before;

static before observe_run(bt_drill_run *r) {
    return (before){
        .step = bt_drill_newest(r),
        .attempt = integer_or(bt_drill_value(r, "SELECT max(attempt) FROM attempts WHERE run = ?1"),
                              -1),
        .seq = integer_or(bt_drill_value(r, "SELECT max(seq) FROM events WHERE run = ?1"), 0)};
}

static double drill_seconds_since(int64_t t0) { return (double)(bt_now_ns() - t0) / 1e9; }

/* True if the fault was detected: the supervisor or rank 0 has written a record after it. */
static bool is_fault_detected(bt_drill_run *r, const before *b) {
    char sql[256];
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM events WHERE run = ?1 AND seq > %lld AND kind IN ('failure', "
             "'stalled', 'restarted', 'resized', 'checkpoint_failed', 'warning')",
             (long long)b->seq);
    return bt_drill_value(r, sql) > 0;
}

static bool has_recovered(bt_drill_run *r, const bt_fault *f, const before *b) {
    char sql[256];
    if (f->back == BT_BACK_CHECKPOINT)
        snprintf(
            sql, sizeof sql,
            "SELECT count(*) FROM checkpoints WHERE run = ?1 AND step > (SELECT max(step) FROM "
            "events WHERE run = ?1 AND seq > %lld AND kind = 'checkpoint_failed')",
            (long long)b->seq);
    else
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM steps WHERE run = ?1 AND attempt > %lld AND step > %lld",
                 (long long)b->attempt, (long long)b->step);
    return bt_drill_value(r, sql) > 0;
}

static bt_code wait_until_training_again(bt_drill_run *r, const bt_fault *f, const before *b,
                                         bt_drill_row *row, bt_err *err) {
    const int64_t until = bt_now_ns() + (int64_t)(BACK_S * 1e9);
    for (;;) {
        if (isnan(row->detect_s) && is_fault_detected(r, b))
            row->detect_s = drill_seconds_since(b->t0);
        if (has_recovered(r, f, b)) break;
        if (!bt_drill_alive(r) && !has_recovered(r, f, b)) return wait_for_run_end(r, err);
        if (bt_now_ns() > until)
            return bt_fail(err, BT_CHECK, "not back after %.0f s (newest step %lld)", BACK_S,
                           (long long)bt_drill_newest(r));
        bt_sleep_ns(LOOK_NS);
    }
    row->recover_s = drill_seconds_since(b->t0);
    return BT_OK;
}

static void count_rows(bt_drill_run *r, const before *b, bt_drill_row *row) {
    char sql[320];
    snprintf(sql, sizeof sql,
             "SELECT min(from_step) FROM attempts WHERE run = ?1 AND attempt > %lld",
             (long long)b->attempt);
    const int64_t from = integer_or(bt_drill_value(r, sql), b->step + 1);
    row->redone = b->step + 1 > from ? b->step + 1 - from : 0;
    row->back_step = bt_drill_newest(r);
    snprintf(sql, sizeof sql, "SELECT %lld - count(*) FROM steps WHERE run = ?1 AND step <= %lld",
             (long long)row->back_step + 1, (long long)row->back_step);
    row->lost = integer_or(bt_drill_value(r, sql), -1);
}

bt_code bt_drill_do(bt_drill_run *r, const bt_fault *f, const char *arg, bt_drill_row *row,
                    bt_err *err) {
    bt_err why = BT_ERR_INIT;
    before b = observe_run(r);
    if (!row->what[0]) snprintf(row->what, sizeof row->what, "%s", f->title);
    row->fault = f;
    row->detect_s = row->recover_s = NAN;
    row->at_step = b.step;
    b.t0 = bt_now_ns();
    bt_code code = f->act(r, arg, &why);
    if (code == BT_NOTFOUND) {
        row->skipped = true;
        snprintf(row->why, sizeof row->why, "%.190s", why.msg);
        return BT_OK;
    }
    if (code == BT_OK && f->back == BT_BACK_RESUME) {
        b.step = bt_drill_newest(r); /* ranks without a supervisor finish their current step */
        wait_until_gone(r, 20);
        code = bt_drill_start(r, true, &why);
    }
    if (code == BT_OK) code = wait_until_training_again(r, f, &b, row, &why);
    count_rows(r, &b, row);
    row->ok = code == BT_OK && row->lost == 0;
    if (code != BT_OK)
        snprintf(row->why, sizeof row->why, "%.190s", why.msg);
    else if (row->lost)
        snprintf(row->why, sizeof row->why, "%lld rows of steps are missing", (long long)row->lost);
    if (bt_drill_alive(r)) return BT_OK;
    return row->ok ? BT_OK : bt_drill_start(r, true, err); /* for the next faults */
}

static int remove_drill_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

void bt_drill_remove(const char *folder) {
    if (nftw(folder, remove_drill_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        fprintf(stderr, "warning: '%s' could not be removed: %s\n", folder, strerror(errno));
}
