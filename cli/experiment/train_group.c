/* train_group.c - starts child processes in slots, and handles their ends and signals. */
#include "cli/experiment/train_group.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/common/database.h"
#include "engine/base/clock.h"
#include "engine/ckpt/ckpt.h"
#include "monitor/job/launch/child.h"

enum { POLL_MS = 20, TRIES = 3, BUSY_TRIES = 120, BUSY_MS = 500 };

typedef struct floor_of_work {
    bt_training_group *g;
    int64_t
        wait_until_ns; /* a process of an earlier, killed group may still lock a run until this time */
    int n_running, n_stops; /* n_stops: stop signals sent to the children */
    bool *slot_taken;
} floor_of_work;

enum { PATH_ROOM = PATH_MAX + BT_NAME_MAX + 8 };

static void compose_training_path(const bt_training_group *g, const bt_training *r, const char *end,
                                  char out[PATH_ROOM]) {
    snprintf(out, PATH_ROOM, "%s/%s%s", g->folder, r->name, end);
}

typedef struct record {
    bool there;
    char state[24], out[PATH_MAX];
    double steps;
} record;

static bool read_group_record(void *ctx, const bt_row *row) {
    record *x = ctx;
    x->there = true;
    snprintf(x->state, sizeof x->state, "%s", bt_cli_cell(row, "state"));
    snprintf(x->out, sizeof x->out, "%s", bt_cli_cell(row, "out_dir"));
    x->steps = bt_cli_num(row, "steps");
    return false;
}

bt_code bt_training_read(const bt_training_group *g, bt_training *r, bt_err *err) {
    bt_db *db = NULL;
    record x = {.there = false};
    char mine[PATH_ROOM];
    bt_code code = bt_db_open(&db, g->store, err);
    if (code == BT_OK)
        code =
            bt_db_query(db,
                        &(bt_query){.sql = "SELECT state, steps, out_dir FROM runs WHERE run = ?1",
                                    .params = (const char *const[]){r->name},
                                    .n_params = 1},
                        read_group_record, &x, err);
    bt_db_close(db);
    r->done = 0;
    r->state[0] = 0;
    if (code == BT_NOTFOUND) return BT_OK; /* no database yet */
    BT_TRY(code);
    if (!x.there) return BT_OK;
    compose_training_path(g, r, "", mine);
    if (!g->any_folder && strcmp(mine, x.out) != 0)
        return bt_fail(err, BT_BUSY,
                       "run '%s' is in the database already, with its folder in '%.200s' (choose "
                       "another name)",
                       r->name, x.out);
    snprintf(r->state, sizeof r->state, "%s", x.state);
    r->done = isfinite(x.steps) ? (int64_t)x.steps : 0;
    return BT_OK;
}

/* Returns the number of steps in the newest checkpoint of a run; 0: there is none. */
static int64_t read_saved_steps(const bt_training_group *g, const bt_training *r) {
    char folder[PATH_ROOM];
    int attempt;
    int64_t step;
    compose_training_path(g, r, "", folder);
    return bt_ckpt_peek(folder, &attempt, &step) ? step : 0;
}

static bool has_reached_target(const bt_training_group *g, const bt_training *r) {
    if (!r->target) return strcmp(r->state, "done") == 0;
    if (strcmp(r->state, "running") != 0 && strcmp(r->state, "lost") != 0)
        return r->done >= r->target;
    /* the run was killed between its last checkpoint and its end, so no step remains */
    return read_saved_steps(g, r) >= r->target;
}

/* Updates the progress of a run, before its first launch and after each. */
static bt_code update_training(const bt_training_group *g, bt_training *r, bt_err *err) {
    BT_TRY(bt_training_read(g, r, err));
    r->at = strcmp(r->state, "failed") == 0 && !g->retry ? BT_TRAINING_FAILED
            : has_reached_target(g, r)                   ? BT_TRAINING_REACHED
                                                         : BT_TRAINING_WAITS;
    return BT_OK;
}

/* Appends the command line of a child that trains from the newest checkpoint of the run to the target. */
static void append_train_words(const bt_training_group *g, const bt_training *r, bt_words *w) {
    char folder[PATH_ROOM], after[24];
    const bool continues = r->state[0] && r->done > 0;
    bt_words_put(w, "train");
    bt_words_put(w, "--name");
    bt_words_put(w, r->name);
    if (r->state[0]) bt_words_put(w, "--continue");
    bt_words_put(w, "--store");
    bt_words_put(w, g->store);
    bt_words_put(w, "--quiet");
    if (!continues) {
        compose_training_path(g, r, "", folder);
        bt_words_put(w, "--out");
        bt_words_put(w, folder); /* also for a run that recorded no step: it starts again */
    }
    g->put_words(g->ctx, r, continues, w);
    if (r->target < r->steps) {
        snprintf(after, sizeof after, "%" PRId64,
                 r->target - (continues ? read_saved_steps(g, r) : 0));
        bt_words_put(w, "--stop-after");
        bt_words_put(w, after);
    }
}

static bt_code launch_training(floor_of_work *f, bt_training *r, bt_err *err) {
    const bt_training_group *g = f->g;
    char log[PATH_ROOM];
    bt_words w = {0};
    bt_slurm_words step;
    int slot = 0;
    while (f->slot_taken[slot]) slot++;
    append_train_words(g, r, &w);
    compose_training_path(g, r, ".log", log);
    const char **argv = bt_words_argv(&w);
    bt_child_cfg child = {
        .words = argv, .n_words = w.n, .log = log, .part = slot, .parts = g->parallel};
    if (g->slurm) { /* Slurm assigns the processors */
        bt_slurm_step(g->slurm, g->run_cores, r->name, &step);
        child.launcher = step.at;
        child.n_launcher = step.n;
        child.parts = 1;
    }
    bt_code code = argv ? bt_child_start(&r->pid, &child, err)
                        : bt_fail(err, BT_NOMEM, "no memory for a run");
    free(argv);
    bt_words_release(&w);
    BT_TRY(code);
    f->slot_taken[slot] = true;
    r->slot = slot;
    r->at = BT_TRAINING_RUNS;
    r->began_ns = bt_now_ns();
    f->n_running++;
    return BT_OK;
}

static bt_code fail_could_not_begin(const bt_training_group *g, const bt_training *r, bt_err *err) {
    char log[PATH_ROOM], line[400];
    compose_training_path(g, r, ".log", log);
    bt_child_last_line(log, line, sizeof line);
    return bt_fail(err, BT_ARG, "run '%s' could not begin: %.360s", r->name,
                   line[0] ? line : "it ended without a message");
}

/* Called when a child has ended. */
static bt_code finish_training(floor_of_work *f, bt_training *r, int status, bt_err *err) {
    const int64_t before = r->done;
    f->n_running--;
    f->slot_taken[r->slot] = false;
    r->pid = 0;
    BT_TRY(update_training(f->g, r, err));
    r->tries = r->done > before ? 0 : r->tries + 1;
    /* A run that was killed between its last checkpoint and its end has no step left, and is not recorded as done. */
    const bool ends = status == 0 && r->state[0] && strcmp(r->state, "stopped") != 0;
    if (r->at == BT_TRAINING_WAITS && !r->target && ends) r->at = BT_TRAINING_REACHED;
    const bool busy = WIFEXITED(status) && WEXITSTATUS(status) == 4;
    if (r->at == BT_TRAINING_WAITS && !f->n_stops) {
        if (status == 0 && strcmp(r->state, "stopped") == 0)
            return bt_fail(err, BT_BUSY, "run '%s' was stopped (the same command continues it)",
                           r->name);
        if (!r->state[0] && !busy) return fail_could_not_begin(f->g, r, err);
        if (busy && r->tries < BUSY_TRIES)
            f->wait_until_ns = bt_now_ns() + (int64_t)BUSY_MS * 1000000;
        else if (strcmp(r->state, "failed") == 0 || r->tries >= TRIES)
            r->at = BT_TRAINING_FAILED;
    }
    if (r->at == BT_TRAINING_WAITS) return BT_OK;
    f->g->n_ended++;
    return f->g->ended(f->g->ctx, r, err);
}

static void stop_trainings(floor_of_work *f) {
    for (size_t i = 0; i < f->g->n; i++)
        if (f->g->runs[i]->at == BT_TRAINING_RUNS) bt_child_signal(f->g->runs[i]->pid, SIGTERM);
    f->n_stops++;
}

/* The second signal makes the children end without another checkpoint. */
static void forward_stop_signals(floor_of_work *f) {
    bt_training_group *g = f->g;
    const int signal = bt_child_signals(false);
    const bool late = g->deadline_ns && bt_now_ns() > g->deadline_ns;
    if (signal) g->signal = signal;
    if (!signal && (!late || f->n_stops)) return;
    if (late && !signal) g->out_of_time = true;
    if (!f->n_stops && !g->quiet)
        fprintf(stderr, "stopping: %d run%s save%s; run the same command to continue\n",
                f->n_running, f->n_running == 1 ? "" : "s", f->n_running == 1 ? "s" : "");
    stop_trainings(f);
}

static bt_code finish_trainings(floor_of_work *f, bt_err *err) {
    for (size_t i = 0; i < f->g->n; i++) {
        bt_training *r = f->g->runs[i];
        int status;
        if (r->at == BT_TRAINING_RUNS && bt_child_ended(r->pid, &status))
            BT_TRY(finish_training(f, r, status, err));
    }
    return BT_OK;
}

/* Reads the record again before a launch: a process of an earlier, killed group may save another checkpoint, so that
 * fewer steps remain. ready: false while such a process trains the run, and if no step remains. */
static bt_code check_before_launch(floor_of_work *f, bt_training *r, bool *ready, bt_err *err) {
    BT_TRY(update_training(f->g, r, err));
    const bool waits = r->at == BT_TRAINING_WAITS, live = strcmp(r->state, "running") == 0;
    *ready = waits && (!live || r->tries >= BUSY_TRIES);
    if (!waits) f->g->n_ended++;
    if (!waits || *ready) return BT_OK;
    r->tries++;
    f->wait_until_ns = bt_now_ns() + (int64_t)BUSY_MS * 1000000;
    return BT_OK;
}

static bt_code fill_training_slots(floor_of_work *f, size_t *left, bt_err *err) {
    bool ready;
    *left = 0;
    for (size_t i = 0; i < f->g->n; i++) {
        bt_training *r = f->g->runs[i];
        if (r->at != BT_TRAINING_WAITS || r->left_out) continue;
        ++*left;
        if (f->n_running == f->g->parallel || f->n_stops || bt_now_ns() < f->wait_until_ns)
            continue;
        BT_TRY(check_before_launch(f, r, &ready, err));
        if (ready) BT_TRY(launch_training(f, r, err));
    }
    return BT_OK;
}

static bt_code train_to_targets(floor_of_work *f, bt_err *err) {
    bt_training_group *g = f->g;
    size_t left = 0;
    g->n_ended = 0;
    for (size_t i = 0; i < g->n; i++) {
        g->runs[i]->tries = 0;
        BT_TRY(update_training(g, g->runs[i], err));
        g->n_ended += g->runs[i]->left_out || g->runs[i]->at != BT_TRAINING_WAITS;
    }
    bt_code code = BT_OK;
    do {
        const bt_code c = finish_trainings(f, code == BT_OK ? err : NULL);
        if (code == BT_OK) code = c;
        if (code != BT_OK && !f->n_stops) stop_trainings(f);
        forward_stop_signals(f);
        if (code == BT_OK) code = fill_training_slots(f, &left, err);
        if (f->n_running || (left && !f->n_stops)) bt_sleep_ns((int64_t)POLL_MS * 1000000);
    } while (f->n_running || (left && !f->n_stops && code == BT_OK));
    if (code == BT_OK && f->n_stops) code = BT_STOPPED;
    return code;
}

bt_code bt_train_group(bt_training_group *g, bt_err *err) {
    floor_of_work f = {.g = g};
    f.slot_taken = calloc((size_t)g->parallel + 1, sizeof *f.slot_taken);
    if (!f.slot_taken) return bt_fail(err, BT_NOMEM, "no memory for the runs");
    const bt_code code = train_to_targets(&f, err);
    free(f.slot_taken);
    return code;
}
