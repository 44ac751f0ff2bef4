/* sweep_train.c - trains the runs of a sweep: children in slots, one rung of halving after the
 * other. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/sweep/sweep.h"
#include "engine/base/clock.h"
#include "engine/ckpt/ckpt.h"
#include "monitor/job/launch/child.h"

enum { POLL_MS = 20, TRIES = 3, BUSY_TRIES = 120, BUSY_MS = 500 };

typedef struct floor_of_work {
    bt_sweep_plan *p;
    bt_sweep_work *w;
    int64_t began_ns, wait_until_ns; /* a run is still held by the job of a sweep that was killed */
    int n_running, asked;            /* number of stop signals that the children received */
    size_t n_reached;
    bool *slot_taken;
} floor_of_work;

/* ---- one child ------------------------------------------------------------------------------- */

/* steps that the newest checkpoint of a run holds; 0: none */
static int64_t saved_steps(const bt_sweep_plan *p, const bt_sweep_run *r) {
    char folder[PATH_MAX + BT_NAME_MAX + 2];
    int attempt;
    int64_t step;
    snprintf(folder, sizeof folder, "%s/%s", p->out, r->name);
    return bt_ckpt_peek(folder, &attempt, &step) ? step : 0;
}

typedef struct words {
    const char *at[2 * BT_OPT_MAX + 32];
    size_t n;
    bt_text text; /* "key=value" words, each ended by NUL */
} words;

static void append_sweep_word(words *w, const char *word) { w->at[w->n++] = word; }

/* the words are read from `text` once it no longer moves */
static void append_run_settings(words *w, const bt_sweep_plan *p, const bt_sweep_run *r) {
    const bt_sweep_file *f = p->file;
    const size_t n = f->n_settings + f->n_axes;
    for (size_t i = 0; i < n; i++) {
        const bool fixed = i < f->n_settings;
        const size_t k = fixed ? i : i - f->n_settings;
        bt_text_printf(&w->text, "%s=%s", fixed ? f->settings[k].opt->key : f->axes[k].opt->key,
                       fixed ? f->settings[k].value : r->values[k]);
        bt_text_putn(&w->text, "", 1);
    }
    const char *at = bt_text_str(&w->text);
    for (size_t i = 0; i < n; i++, at += strlen(at) + 1) {
        append_sweep_word(w, "--set");
        append_sweep_word(w, at);
    }
}

/* a child trains from where its newest checkpoint is to `target` */
static bt_code launch(floor_of_work *f, bt_sweep_run *r, int64_t target, bt_err *err) {
    const bt_sweep_plan *p = f->p;
    char folder[PATH_MAX + BT_NAME_MAX + 2], log[PATH_MAX + BT_NAME_MAX + 8], after[24], ranks[16],
        threads[16];
    words *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "no memory for a run");
    snprintf(folder, sizeof folder, "%s/%s", p->out, r->name);
    snprintf(log, sizeof log, "%s.log", folder);
    append_sweep_word(w, "train");
    if (p->file->head.config[0] && !r->state[0]) append_sweep_word(w, p->file->head.config);
    append_sweep_word(w, r->state[0] ? "--resume" : "--name");
    append_sweep_word(w, r->name);
    append_sweep_word(w, "--store");
    append_sweep_word(w, p->store);
    append_sweep_word(w, "--quiet");
    if (!r->state[0]) {
        append_sweep_word(w, "--out");
        append_sweep_word(w, folder);
        append_sweep_word(w, "--group");
        append_sweep_word(w, p->file->head.name);
        append_run_settings(w, p, r);
    }
    if (p->slurm) { /* not every Slurm binds a step to its processors, where a run would look for them */
        snprintf(ranks, sizeof ranks, "%d", r->ranks);
        snprintf(threads, sizeof threads, "%d", r->threads);
        append_sweep_word(w, "--ranks");
        append_sweep_word(w, ranks);
        append_sweep_word(w, "--threads");
        append_sweep_word(w, threads);
    }
    if (target < r->steps) {
        const int64_t from = r->state[0] ? saved_steps(p, r) : 0;
        snprintf(after, sizeof after, "%" PRId64, target - from);
        append_sweep_word(w, "--stop-after");
        append_sweep_word(w, after);
    }
    int slot = 0;
    while (f->slot_taken[slot]) slot++;
    bt_child_cfg child = {
        .words = w->at, .n_words = w->n, .log = log, .part = slot, .parts = p->parallel};
    bt_slurm_words step;
    if (p->slurm) { /* Slurm gives it its processors */
        bt_slurm_step(p->slurm, p->run_cores, r->name, &step);
        child.launcher = step.at;
        child.n_launcher = step.n;
        child.parts = 1;
    }
    bt_code code = w->text.failed ? bt_fail(err, BT_NOMEM, "no memory for a run")
                                  : bt_child_start(&r->pid, &child, err);
    bt_text_release(&w->text);
    free(w);
    BT_TRY(code);
    f->slot_taken[slot] = true;
    r->slot = slot;
    r->at = BT_SWEEP_RUNS_NOW;
    r->began_ns = bt_now_ns();
    f->n_running++;
    return BT_OK;
}

static void print_run_start(const floor_of_work *f, const bt_sweep_run *r, int64_t target) {
    char point[160], took[32];
    if (f->w->quiet) return;
    fprintf(stderr, "%4zu/%zu  %s  %s  %s  %" PRId64 " steps  %s\n", f->n_reached, f->p->n, r->name,
            bt_sweep_point(f->p, r, point, sizeof point),
            r->at == BT_SWEEP_FAILED ? "failed"
            : target < r->steps      ? "paused"
                                     : "done",
            r->done, bt_duration(took, sizeof took, 1e-9 * (double)(bt_now_ns() - r->began_ns)));
}

/* Updates the progress of a run, before its first launch and after each. */
static bt_code place(floor_of_work *f, bt_sweep_run *r, int64_t target, bt_err *err) {
    BT_TRY(bt_sweep_read_run(f->p, r, err));
    r->at = BT_SWEEP_WAITS;
    const bool ended = strcmp(r->state, "running") != 0 && strcmp(r->state, "lost") != 0;
    /* killed between its last checkpoint and its end: no step is left to it */
    const bool saved = !ended && saved_steps(f->p, r) >= target;
    if (strcmp(r->state, "failed") == 0 && !f->w->retry)
        r->at = BT_SWEEP_FAILED;
    else if (saved || (r->done >= target && ended))
        r->at = BT_SWEEP_REACHED;
    return BT_OK;
}

static bt_code could_not_begin(const floor_of_work *f, const bt_sweep_run *r, bt_err *err) {
    char log[PATH_MAX + BT_NAME_MAX + 8], line[400];
    snprintf(log, sizeof log, "%s/%s.log", f->p->out, r->name);
    bt_child_last_line(log, line, sizeof line);
    return bt_fail(err, BT_ARG, "run '%s' could not begin: %.360s", r->name,
                   line[0] ? line : "it ended without a message");
}

static bt_code finish_sweep_run(floor_of_work *f, bt_sweep_run *r, int status, int64_t target,
                                bt_err *err) {
    const int64_t before = r->done;
    f->n_running--;
    f->slot_taken[r->slot] = false;
    r->pid = 0;
    BT_TRY(place(f, r, target, err));
    r->tries = r->done > before ? 0 : r->tries + 1;
    const bool busy = WIFEXITED(status) && WEXITSTATUS(status) == 4;
    if (r->at == BT_SWEEP_WAITS && !f->asked) {
        if (!r->state[0] && !busy) return could_not_begin(f, r, err);
        if (busy && r->tries < BUSY_TRIES)
            f->wait_until_ns = bt_now_ns() + (int64_t)BUSY_MS * 1000000;
        else if (strcmp(r->state, "failed") == 0 || r->tries >= TRIES)
            r->at = BT_SWEEP_FAILED;
    }
    if (r->at == BT_SWEEP_WAITS) return BT_OK;
    f->n_reached++;
    print_run_start(f, r, target);
    return BT_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int64_t target_of(const bt_sweep_run *r, int64_t rung) {
    return rung && rung < r->steps ? rung : r->steps;
}

static void request_sweep_stop(floor_of_work *f) {
    const int signal = bt_child_signals(false);
    const double hours = f->p->file->head.budget_hours;
    if (signal) f->w->signal = signal;
    const bool late = hours > 0 && 1e-9 * (double)(bt_now_ns() - f->began_ns) > 3600 * hours;
    if (!signal && (!late || f->asked)) return;
    if (late && !signal) f->w->out_of_time = true;
    /* the second time they end without another checkpoint */
    for (size_t i = 0; i < f->p->n; i++)
        if (f->p->runs[i].at == BT_SWEEP_RUNS_NOW) bt_child_signal(f->p->runs[i].pid, SIGTERM);
    if (!f->asked && !f->w->quiet)
        fprintf(stderr, "stopping: %d run%s save%s; run the same command to continue\n",
                f->n_running, f->n_running == 1 ? "" : "s", f->n_running == 1 ? "s" : "");
    f->asked++;
}

static bt_code poll_children(floor_of_work *f, int64_t rung, bt_err *err) {
    for (size_t i = 0; i < f->p->n; i++) {
        bt_sweep_run *r = &f->p->runs[i];
        int status;
        if (r->at == BT_SWEEP_RUNS_NOW && bt_child_ended(r->pid, &status))
            BT_TRY(finish_sweep_run(f, r, status, target_of(r, rung), err));
    }
    return BT_OK;
}

static bt_code fill_slots(floor_of_work *f, int64_t rung, size_t *left, bt_err *err) {
    *left = 0;
    for (size_t i = 0; i < f->p->n; i++) {
        bt_sweep_run *r = &f->p->runs[i];
        if (r->at != BT_SWEEP_WAITS || r->eliminated) continue;
        ++*left;
        if (f->n_running < f->p->parallel && !f->asked && bt_now_ns() >= f->wait_until_ns)
            BT_TRY(launch(f, r, target_of(r, rung), err));
    }
    return BT_OK;
}

/* every run that is still in the race is brought to this rung */
static bt_code climb(floor_of_work *f, int64_t rung, bt_err *err) {
    size_t left = 0;
    f->n_reached = 0;
    for (size_t i = 0; i < f->p->n; i++) {
        bt_sweep_run *r = &f->p->runs[i];
        r->tries = 0;
        BT_TRY(place(f, r, target_of(r, rung), err));
        f->n_reached += r->eliminated || r->at != BT_SWEEP_WAITS;
    }
    bt_code code = BT_OK;
    do {
        bt_code c = poll_children(f, rung, code == BT_OK ? err : NULL);
        if (code == BT_OK) code = c;
        if (code != BT_OK && !f->asked) { /* an error of one run is reported after all have saved */
            f->asked = 1;
            for (size_t i = 0; i < f->p->n; i++)
                if (f->p->runs[i].at == BT_SWEEP_RUNS_NOW)
                    bt_child_signal(f->p->runs[i].pid, SIGTERM);
        }
        request_sweep_stop(f);
        if (code == BT_OK) code = fill_slots(f, rung, &left, err);
        if (f->n_running || (left && !f->asked)) bt_sleep_ns((int64_t)POLL_MS * 1000000);
    } while (f->n_running || (left && !f->asked && code == BT_OK));
    if (code == BT_OK && f->asked) code = BT_STOPPED;
    return code;
}

/* Continues the best runs; runs that failed rank last. */
static bt_code promote_best_runs(bt_sweep_plan *p, int rung, bt_err *err) {
    const size_t keep = bt_sweep_survivors(p, rung + 1);
    for (size_t i = 0; i < p->n; i++)
        if (!p->runs[i].eliminated) BT_TRY(bt_sweep_read_goal(p, &p->runs[i], p->rungs[rung], err));
    bool out[BT_SWEEP_RUNS] = {false};
    for (size_t i = 0; i < p->n; i++) {
        size_t better = 0;
        for (size_t k = 0; k < p->n; k++)
            better += !p->runs[k].eliminated && k != i &&
                      bt_sweep_better(p, &p->runs[k], &p->runs[i]);
        out[i] = better >= keep;
    }
    for (size_t i = 0; i < p->n; i++) p->runs[i].eliminated |= out[i];
    return BT_OK;
}

bt_code bt_sweep_train(bt_sweep_plan *p, bt_sweep_work *w, bt_err *err) {
    floor_of_work f = {.p = p, .w = w, .began_ns = bt_now_ns()};
    f.slot_taken = calloc((size_t)p->parallel + 1, sizeof *f.slot_taken);
    if (!f.slot_taken) return bt_fail(err, BT_NOMEM, "no memory for the runs");
    bt_child_signals(true);
    bt_code code = BT_OK;
    const int n = p->n_rungs ? p->n_rungs : 1;
    for (int k = 0; k < n && code == BT_OK; k++) {
        const int64_t rung = p->n_rungs ? p->rungs[k] : 0;
        code = climb(&f, rung, err);
        if (code == BT_OK && k + 1 < n) code = promote_best_runs(p, k, err);
    }
    if (code == BT_OK) code = bt_sweep_choose_goal(p, err);
    for (size_t i = 0; i < p->n && (code == BT_OK || code == BT_STOPPED); i++) {
        bt_err ignored = BT_ERR_INIT;
        if (!p->runs[i].eliminated &&
            bt_sweep_read_goal(p, &p->runs[i], p->runs[i].steps, &ignored) != BT_OK)
            p->runs[i].level.n = 0;
    }
    free(f.slot_taken);
    return code;
}
