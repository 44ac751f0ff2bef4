/* sweep_state.c - the stored state of a sweep: its locked folder, its runs in the database, and values of the goal. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cli/common/database.h"
#include "cli/sweep/sweep.h"
#include "engine/base/system/folders.h"
#include "engine/data/io/file_io.h"

enum { WINDOW = 20 }; /* number of loss values that are averaged */

/* The first line of sweep.runs has the settings that all runs share; each further line is a run. */
static void list_runs(const bt_sweep_plan *p, bt_text *out) {
    char point[2048];
    const bt_sweep_file *f = p->file;
    bt_text_printf(out, "of all runs: config=%s", f->head.config);
    for (size_t i = 0; i < f->n_settings; i++)
        bt_text_printf(out, " %s=%s", f->settings[i].opt->key, f->settings[i].value);
    for (size_t i = 0; i < out->len; i++)
        if (out->data[i] == '\n') out->data[i] = ',';
    bt_text_put(out, "\n");
    for (size_t i = 0; i < p->n; i++)
        bt_text_printf(out, "%s: %s\n", p->runs[i].run.name,
                       bt_sweep_point(p, &p->runs[i], point, sizeof point));
}

/* Compares line by line. A list may be longer or shorter, so that a sweep can continue with another budget. */
static bt_code lists_same_runs(const bt_sweep_plan *p, const char *old, const char *now,
                               bt_err *err) {
    while (*old && *now) {
        const size_t n = strcspn(old, "\n"), k = strcspn(now, "\n");
        if (n != k || strncmp(old, now, n) != 0)
            return bt_fail(
                err, BT_BUSY,
                "'%.120s' belongs to another sweep: its '%.*s' differs from '%.*s' of this "
                "file (use another name, or --out)",
                p->out, (int)(n < 100 ? n : 100), old, (int)(k < 100 ? k : 100), now);
        old += n + (old[n] == '\n');
        now += k + (now[k] == '\n');
    }
    return BT_OK;
}

/* A folder without a list does not belong to a sweep; its files are kept. */
static bt_code update_list_of_runs(bt_sweep_plan *p, bt_err *err) {
    char path[PATH_MAX + 16], *old = NULL;
    size_t n = 0;
    bt_text now;
    bt_text_init(&now);
    snprintf(path, sizeof path, "%s/sweep.runs", p->out);
    list_runs(p, &now);
    bt_code code = bt_file_slurp(path, SIZE_MAX, &old, &n, err);
    if (code == BT_NOTFOUND) code = BT_OK;
    if (code == BT_OK && now.failed) code = bt_fail(err, BT_NOMEM, "no memory for the sweep");
    if (code == BT_OK) code = lists_same_runs(p, old ? old : "", bt_text_str(&now), err);
    if (code == BT_OK && now.len > n) code = bt_file_replace(path, now.data, now.len, err);
    bt_text_release(&now);
    free(old);
    return code;
}

bt_code bt_sweep_folder_open(bt_sweep_plan *p, bt_err *err) {
    char path[PATH_MAX + 16], holder[32] = "";
    BT_TRY(bt_make_folders(p->out, err));
    snprintf(path, sizeof path, "%s/sweep.lock", p->out);
    p->out_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (p->out_lock < 0) return bt_fail_errno(err, BT_IO, errno, "cannot open '%s'", path);
    if (flock(p->out_lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        const ssize_t n = pread(p->out_lock, holder, sizeof holder - 1, 0);
        holder[n > 0 ? strcspn(holder, "\n") : 0] = 0;
        return bt_fail(err, BT_BUSY,
                       "a sweep is at work in '%.200s' (pid %s): wait for it, or give this one "
                       "another name or --out",
                       p->out, holder[0] ? holder : "unknown");
    }
    const int n = snprintf(holder, sizeof holder, "%d\n", (int)getpid());
    if (ftruncate(p->out_lock, 0) != 0 || pwrite(p->out_lock, holder, (size_t)n, 0) != n)
        return bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", path);
    return update_list_of_runs(p, err);
}

void bt_sweep_folder_close(bt_sweep_plan *p) {
    if (p->out_lock >= 0) close(p->out_lock);
    p->out_lock = -1;
}

bt_code bt_sweep_choose_goal(bt_sweep_plan *p, bt_err *err) {
    bt_sweep_head *h = &p->file->head;
    bt_db *db = NULL;
    size_t begun = 0, validated = 0;
    if (h->goal_given || (h->method != BT_SWEEP_GRID && h->method != BT_SWEEP_RANDOM)) return BT_OK;
    BT_TRY(bt_db_open(&db, p->store, err));
    bt_code code = BT_OK;
    for (size_t i = 0; i < p->n && code == BT_OK; i++) {
        double best = NAN;
        if (!p->runs[i].run.state[0] || p->runs[i].run.at == BT_TRAINING_FAILED) continue;
        begun++;
        code = bt_db_value(db, "SELECT best_val FROM runs WHERE run = ?1", p->runs[i].run.name,
                           &best, err);
        validated += isfinite(best) != 0;
    }
    bt_db_close(db);
    if (code == BT_OK && begun > 0 && begun == validated)
        snprintf(h->goal, sizeof h->goal, "best_val");
    return code;
}

bt_code bt_sweep_read_goal(const bt_sweep_plan *p, bt_sweep_run *r, int64_t steps, bt_err *err) {
    const char *goal = p->file->head.goal;
    const bool loss = strcmp(goal, "loss") == 0;
    bt_db *db = NULL;
    r->level = (bt_level){.value = NAN, .noise = NAN};
    if (!r->run.state[0]) return BT_OK;
    BT_TRY(bt_db_open(&db, p->store, err));
    bt_code code = bt_db_level(db, r->run.name, goal, &(bt_at){BT_AT_STEP, (double)steps},
                               loss || strcmp(goal, "tokens_per_s") == 0 ? WINDOW : 1, &r->level,
                               err);
    bt_db_close(db);
    /* a diverged run has steps without a loss after the last valid one */
    if (r->run.at == BT_TRAINING_FAILED) r->level.value = NAN;
    return code;
}
