/* sweep_plan.c - computes the runs of a space: the points, the number that the budget permits, the rungs of successive
 * halving; and checks every run's settings. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/given_path.h"
#include "cli/common/progress.h"
#include "cli/sweep/sweep.h"
#include "cli/train/train_parts.h"
#include "engine/base/rng.h"
#include "engine/kernels/table/cpu.h"
#include "store/read/lr_range.h"

/* maximum number of draws per run to find a point that differs from earlier ones */
enum { DRAWS = 64 };

/* ---- points ---------------------------------------------------------------------------------- */

static size_t grid_size(const bt_sweep_file *f) {
    size_t n = 1;
    for (size_t i = 0; i < f->n_axes && n <= BT_SWEEP_RUNS; i++) n *= f->axes[i].n;
    return n;
}

static bool set_grid_point(const bt_sweep_file *f, size_t index, bt_sweep_run *r) {
    for (size_t i = f->n_axes; i-- > 0;) { /* the last setting changes fastest */
        r->values[i] = strdup(f->axes[i].values[index % f->axes[i].n]);
        index /= f->axes[i].n;
        if (!r->values[i]) return false;
    }
    return true;
}

/* A value is a function of seed, setting and run number, so a sweep with more runs begins with the same ones. */
static bool draw_random_run(const bt_sweep_file *f, size_t run, int attempt, bt_sweep_run *r) {
    for (size_t i = 0; i < f->n_axes; i++) {
        const bt_sweep_axis *a = &f->axes[i];
        const double u = bt_rng_unit((uint64_t)f->head.seed, bt_hash_name(a->opt->key),
                                     (uint64_t)run * DRAWS + (uint64_t)attempt);
        char buf[40];
        free(r->values[i]);
        if (a->n)
            r->values[i] = strdup(a->values[(size_t)(u * (double)a->n)]);
        else {
            const double v = a->log ? a->from * pow(a->to / a->from, u)
                                    : a->from + u * (a->to - a->from);
            if (a->opt->type == BT_OPT_INT)
                snprintf(buf, sizeof buf, "%lld", llround(v));
            else
                snprintf(buf, sizeof buf, "%.4g", v);
            r->values[i] = strdup(buf);
        }
        if (!r->values[i]) return false;
    }
    return true;
}

static bool is_same_point(const bt_sweep_file *f, const bt_sweep_run *a, const bt_sweep_run *b) {
    for (size_t i = 0; i < f->n_axes; i++)
        if (strcmp(a->values[i], b->values[i]) != 0) return false;
    return true;
}

/* Adds one run, or sets *full if the space has no further point. */
static bt_code add_drawn_run(bt_sweep_plan *p, bool *full, bt_err *err) {
    bt_sweep_run *r = &p->runs[p->n];
    for (int attempt = 0; attempt < DRAWS; attempt++) {
        if (!draw_random_run(p->file, p->n, attempt, r))
            return bt_fail(err, BT_NOMEM, "no memory for a run");
        bool is_new = true;
        for (size_t i = 0; i < p->n && is_new; i++)
            is_new = !is_same_point(p->file, &p->runs[i], r);
        if (!is_new) continue;
        p->n++;
        return BT_OK;
    }
    for (size_t i = 0; i < p->file->n_axes; i++) {
        free(r->values[i]);
        r->values[i] = NULL;
    }
    *full = true;
    return BT_OK;
}

/* The single run of a range test ends at the highest rate. */
static bool find_highest_rate(const bt_sweep_file *f, bt_sweep_run *r) {
    char buf[40];
    snprintf(buf, sizeof buf, "%.9g", f->axes[0].to);
    return (r->values[0] = strdup(buf)) != NULL;
}

static bt_code make_points(bt_sweep_plan *p, size_t n, bt_err *err) {
    bool full = false;
    p->runs = calloc(n + 1, sizeof *p->runs);
    if (!p->runs) return bt_fail(err, BT_NOMEM, "no memory for %zu runs", n);
    while (p->n < n && !full) {
        if (p->file->head.method == BT_SWEEP_FIND_LR) {
            if (!find_highest_rate(p->file, &p->runs[p->n++]))
                return bt_fail(err, BT_NOMEM, "no memory for a run");
            continue;
        }
        if (p->file->head.method != BT_SWEEP_GRID) {
            BT_TRY(add_drawn_run(p, &full, err));
            continue;
        }
        if (!set_grid_point(p->file, p->n, &p->runs[p->n]))
            return bt_fail(err, BT_NOMEM, "no memory for %zu runs", n);
        p->n++;
    }
    for (size_t i = 0; i < p->n; i++)
        snprintf(p->runs[i].run.name, sizeof p->runs[i].run.name, "%.*s-%03u", BT_NAME_MAX - 8,
                 p->file->head.name, (unsigned)(i + 1) % 10000);
    return BT_OK;
}

/* ---- settings of one run --------------------------------------------------------------------- */

/* Resolves the settings of one run like `bitrain train`, for the cores of one run of this sweep. Settings in
 * epochs are converted to steps, for which the data are opened. */
static bt_code plan_one_run(const bt_sweep_plan *p, bt_sweep_run *r, bt_train_plan *t,
                            bt_err *err) {
    bool help;
    bt_words words = {0};
    bt_sweep_put_settings(p, r, &words);
    const char **argv = bt_words_argv(&words);
    bt_code code = argv ? bt_run_cfg_read(&t->opts, &t->cfg, (int)words.n,
                                          (char *const *)(uintptr_t)argv, &help, err)
                        : bt_fail(err, BT_NOMEM, "no memory for a run");
    free(argv);
    bt_words_release(&words);
    BT_TRY(code);
    if (t->cfg.train.minutes > 0)
        return bt_fail(err, BT_ARG,
                       "train.minutes is not possible in a sweep: a run would measure the machine "
                       "during trainings of the same sweep (give train.steps)");
    memcpy(t->store, p->store, sizeof t->store);
    t->ranks = bt_run_cfg_ranks(&t->cfg, p->run_cores);
    BT_TRY(bt_train_follow_inputs(t, err));
    r->ranks = t->ranks = bt_run_cfg_ranks(&t->cfg, p->run_cores);
    r->threads = t->cfg.launch.threads > 0 ? (int)t->cfg.launch.threads : p->run_cores / r->ranks;
    if (r->threads < 1) r->threads = 1;
    BT_TRY(bt_train_epochs(t, err));
    return bt_run_cfg_resolve_opts(&t->opts, &t->cfg, r->ranks, err);
}

static bt_code check_run_settings(bt_sweep_plan *p, bt_sweep_run *r, bt_err *err) {
    bt_train_plan *t = calloc(1, sizeof *t);
    bt_err why = BT_ERR_INIT;
    char point[400];
    if (!t) return bt_fail(err, BT_NOMEM, "no memory for a run");
    t->run_lock = -1;
    bt_code code = plan_one_run(p, r, t, &why);
    r->run.steps = t->cfg.train.steps;
    if (code != BT_OK)
        bt_fail(err, code, "%s: run %s (%.120s): %.250s", p->file->path, r->run.name,
                bt_sweep_point(p, r, point, sizeof point), why.msg);
    bt_train_plan_release(t);
    free(t);
    return code;
}

/* ---- budget ---------------------------------------------------------------------------------- */

size_t bt_sweep_survivors(const bt_sweep_plan *p, int rung) {
    size_t n = p->n;
    for (int k = 0; k < rung; k++) {
        n /= (size_t)p->file->head.keep;
        if (n < 1) n = 1;
    }
    return n;
}

/* Rungs at first, first * keep, ... and the whole run. */
static void make_rungs(bt_sweep_plan *p, int64_t steps) {
    const bt_sweep_head *h = &p->file->head;
    int64_t at = h->first_steps;
    if (!at) { /* there are at most as many rungs as runs to choose from */
        at = steps;
        for (size_t n = p->n; n >= (size_t)h->keep && at / h->keep > 0; n /= (size_t)h->keep)
            at /= h->keep;
    }
    p->n_rungs = 0;
    for (; at < steps && p->n_rungs + 1 < (int)(sizeof p->rungs / sizeof *p->rungs); at *= h->keep)
        p->rungs[p->n_rungs++] = at;
    p->rungs[p->n_rungs++] = steps;
}

static int64_t planned_steps(const bt_sweep_plan *p) {
    int64_t sum = 0;
    if (p->file->head.method != BT_SWEEP_HALVING) {
        for (size_t i = 0; i < p->n; i++) sum += p->runs[i].run.steps;
        return sum;
    }
    for (int k = 0; k < p->n_rungs; k++)
        sum += (int64_t)bt_sweep_survivors(p, k) * (p->rungs[k] - (k ? p->rungs[k - 1] : 0));
    return sum;
}

static void drop_last_run(bt_sweep_plan *p) {
    p->n--;
    for (size_t i = 0; i < p->file->n_axes; i++) {
        free(p->runs[p->n].values[i]);
        p->runs[p->n].values[i] = NULL;
    }
    p->left_out++;
}

static bt_code drop_runs_over_budget(bt_sweep_plan *p, bt_err *err) {
    const bt_sweep_head *h = &p->file->head;
    const int64_t one = p->runs[0].run.steps;
    if (h->method == BT_SWEEP_HALVING) {
        for (size_t i = 1; i < p->n; i++)
            if (p->runs[i].run.steps != one)
                return bt_fail(err, BT_ARG,
                               "%s: halving needs runs of equally many steps: run %s has %lld, %s "
                               "has %lld",
                               p->file->path, p->runs[0].run.name, (long long)one,
                               p->runs[i].run.name, (long long)p->runs[i].run.steps);
        make_rungs(p, one);
    }
    while (h->budget_steps && p->n > 1 && planned_steps(p) > h->budget_steps) {
        drop_last_run(p);
        if (h->method == BT_SWEEP_HALVING) make_rungs(p, one);
    }
    p->all_steps = planned_steps(p);
    if (h->budget_steps && p->all_steps > h->budget_steps)
        return bt_fail(err, BT_ARG,
                       "%s: budget.steps %lld is less than one run of %lld steps (increase it, or "
                       "reduce settings.train.steps)",
                       p->file->path, (long long)h->budget_steps, (long long)one);
    return BT_OK;
}

/* ---- the plan ------------------------------------------------------------------------------- */

static void release_runs(bt_sweep_plan *p) {
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < BT_SWEEP_AXES; k++) free(p->runs[i].values[k]);
    free(p->runs);
    p->runs = NULL;
    p->n = 0;
}

/* Refuses a path that leaves no room for the names of its files. */
static bt_code absolute_sweep_path(const char *path, char out[PATH_MAX], bt_err *err) {
    BT_TRY(bt_absolute_path(path, out, err));
    if (strlen(out) >= PATH_MAX - 128)
        return bt_fail(err, BT_ARG, "path '%.200s' is too long", path);
    return BT_OK;
}

/* Returns the number of cores of a run if the file sets its size, otherwise 0. */
static long cores_of_run(const bt_sweep_plan *p) {
    long ranks = 0, threads = 1;
    for (size_t i = 0; i < p->file->n_settings; i++) {
        const bt_sweep_setting *s = &p->file->settings[i];
        if (strcmp(s->opt->key, "launch.ranks") == 0) ranks = strtol(s->value, NULL, 10);
        if (strcmp(s->opt->key, "launch.threads") == 0) threads = strtol(s->value, NULL, 10);
    }
    return ranks < 1 ? 0 : ranks * (threads > 0 ? threads : 1);
}

/* Sets the number of concurrent runs: as many as fit on the cores if the file sets the size of a run, otherwise one. */
static void share_cores_of_machine(bt_sweep_plan *p) {
    const long run = cores_of_run(p), cores = bt_cpu_get()->cores;
    p->parallel = p->file->head.parallel ? (int)p->file->head.parallel
                  : run > 0              ? (int)(cores / run)
                                         : 1;
    if (p->parallel < 1) p->parallel = 1;
    p->run_cores = (int)cores / p->parallel;
    if (p->run_cores < 1) p->run_cores = 1;
}

/* Sets the processors of a run: those of the file; otherwise those of the smallest node, or a part of them if more
 * concurrent runs are requested than there are nodes. */
static bt_code share_slurm_job(bt_sweep_plan *p, bt_err *err) {
    const int wanted = (int)p->file->head.parallel, least = bt_slurm_cpus_least(p->slurm);
    long run = cores_of_run(p);
    if (run == 0) {
        const int on_node = wanted > p->slurm->n_nodes
                                ? (wanted + p->slurm->n_nodes - 1) / p->slurm->n_nodes
                                : 1;
        run = least / on_node > 0 ? least / on_node : 1;
    }
    const int places = bt_slurm_places(p->slurm, (int)run);
    if (places == 0)
        return bt_fail(
            err, BT_ARG,
            "%s: a run of %ld processors (launch.ranks x launch.threads) fits on no node "
            "of job %s, which has %s%d on each",
            p->file->path, run, p->slurm->job, p->slurm->n_nodes > 1 ? "at least " : "", least);
    p->parallel = wanted && wanted < places ? wanted : places;
    p->run_cores = (int)run;
    return BT_OK;
}

static bt_code distribute_budget(bt_sweep_plan *p, bt_err *err) {
    const int on = p->file->head.on;
    if (on == BT_SWEEP_ON_LOCAL || (on == BT_SWEEP_ON_AUTO && !bt_slurm_here())) {
        share_cores_of_machine(p);
        return BT_OK;
    }
    p->slurm = malloc(sizeof *p->slurm);
    if (!p->slurm) return bt_fail(err, BT_NOMEM, "no memory for the sweep");
    BT_TRY(bt_slurm_read(p->slurm, err));
    return share_slurm_job(p, err);
}

/* Uses the folder beside the database, unless one is given. */
static bt_code choose_folder(bt_sweep_plan *p, const char *store, const char *out, bt_err *err) {
    char path[PATH_MAX];
    BT_TRY(bt_store_path(path, sizeof path, store, err));
    BT_TRY(absolute_sweep_path(path, p->store, err));
    if (out[0]) return absolute_sweep_path(out, p->out, err);
    snprintf(path, sizeof path, "%s", p->store);
    *strrchr(path, '/') = '\0';
    const size_t n = strlen(path);
    snprintf(path + n, sizeof path - n, "/sweeps/%s", p->file->head.name);
    return absolute_sweep_path(path, p->out, err);
}

/* Counts the points to be made; *space: the number of points of a grid. */
static bt_code count_points(const bt_sweep_plan *p, size_t *most, size_t *space, bt_err *err) {
    const bt_sweep_file *f = p->file;
    const size_t wanted = (size_t)f->head.runs;
    *space = f->head.method == BT_SWEEP_GRID      ? grid_size(f)
             : f->head.method == BT_SWEEP_FIND_LR ? 1
                                                  : BT_SWEEP_RUNS;
    if (f->head.method == BT_SWEEP_GRID && *space > BT_SWEEP_RUNS)
        return bt_fail(err, BT_ARG, "%s: the grid has more than %d points (try method: random)",
                       f->path, BT_SWEEP_RUNS);
    *most = wanted && wanted < *space ? wanted : *space;
    return BT_OK;
}

/* Sets the number of runs of a random search that has only a budget. */
static bt_code count_random(bt_sweep_plan *p, size_t *most, bt_err *err) {
    const bt_sweep_head *h = &p->file->head;
    if (h->method != BT_SWEEP_RANDOM || h->runs) return BT_OK;
    BT_TRY(make_points(p, 1, err));
    BT_TRY(check_run_settings(p, &p->runs[0], err));
    const int64_t n = h->budget_steps / p->runs[0].run.steps;
    release_runs(p);
    if (n < (int64_t)*most) *most = n > 0 ? (size_t)n : 1;
    return BT_OK;
}

/* Checks every run. Opening tokenizer and data takes milliseconds per run, so progress is shown. */
static bt_code check_runs(bt_sweep_plan *p, bool quiet, bt_err *err) {
    bt_progress bar;
    char note[64];
    bt_code code = BT_OK;
    bt_progress_begin(&bar, quiet);
    for (size_t i = 0; i < p->n && code == BT_OK; i++) {
        code = check_run_settings(p, &p->runs[i], err);
        snprintf(note, sizeof note, "%zu of %zu runs", i + 1, p->n);
        bt_progress_show(&bar, "checking", (double)(i + 1) / (double)p->n, note);
    }
    bt_progress_end(&bar);
    return code;
}

static bt_code build_training_group(bt_sweep_plan *p, bt_err *err) {
    p->group = (bt_training_group){.store = p->store,
                                   .folder = p->out,
                                   .runs = calloc(p->n, sizeof *p->group.runs),
                                   .n = p->n,
                                   .parallel = p->parallel,
                                   .slurm = p->slurm,
                                   .run_cores = p->run_cores};
    if (!p->group.runs) return bt_fail(err, BT_NOMEM, "no memory for %zu runs", p->n);
    for (size_t i = 0; i < p->n; i++) p->group.runs[i] = &p->runs[i].run;
    return BT_OK;
}

bt_code bt_sweep_plan_make(bt_sweep_plan *p, bt_sweep_file *f, const char *store, const char *out,
                           bool quiet, bt_err *err) {
    size_t most = 0, space = 0;
    memset(p, 0, sizeof *p);
    p->file = f;
    p->out_lock = -1;
    BT_TRY(distribute_budget(p, err));
    BT_TRY(choose_folder(p, store, out, err));
    BT_TRY(count_points(p, &most, &space, err));
    BT_TRY(count_random(p, &most, err));
    BT_TRY(make_points(p, most, err));
    if (f->head.method == BT_SWEEP_GRID) p->left_out = space - p->n;
    BT_TRY(check_runs(p, quiet, err));
    if (f->head.method == BT_SWEEP_FIND_LR &&
        (p->runs[0].run.steps < BT_LR_RANGE_LEAST || p->runs[0].run.steps > BT_LR_RANGE_MOST))
        return bt_fail(err, BT_ARG,
                       "%s: %lld steps are no range test: between %d and %d are (train.steps)",
                       f->path, (long long)p->runs[0].run.steps, BT_LR_RANGE_LEAST,
                       BT_LR_RANGE_MOST);
    BT_TRY(drop_runs_over_budget(p, err));
    return build_training_group(p, err);
}

void bt_sweep_plan_release(bt_sweep_plan *p) {
    release_runs(p);
    free(p->group.runs);
    free(p->slurm);
    p->slurm = NULL;
}
