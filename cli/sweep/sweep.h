/* sweep.h - many runs over settings: the file, the runs that follow from it, their progress, and their training.
 * Private to cli/sweep.
 *
 * Order: file_read -> plan_make -> folder_open -> train -> print -> folder_close, plan_release, file_release.
 *
 * Resuming: nothing is stored outside the metrics database and the checkpoints. The runs are a pure function of the
 * file, and the selection of the runs that continue is a pure function of their records, so that a sweep that was
 * killed can be continued. */
#ifndef BT_CLI_SWEEP_SWEEP_H
#define BT_CLI_SWEEP_SWEEP_H

#include <limits.h>

#include "cli/experiment/train_group.h"
#include "engine/config/run_cfg.h"
#include "store/read/compare_runs.h"

typedef enum { BT_SWEEP_ON_AUTO, BT_SWEEP_ON_LOCAL, BT_SWEEP_ON_SLURM } bt_sweep_on;
typedef enum { BT_SWEEP_GRID, BT_SWEEP_RANDOM, BT_SWEEP_HALVING, BT_SWEEP_FIND_LR } bt_sweep_method;

enum { BT_SWEEP_AXES = 16, BT_SWEEP_VALUES = 256, BT_SWEEP_RUNS = 4096, BT_SWEEP_TEXT = 1024 };

/* a setting that all runs share */
typedef struct bt_sweep_setting {
    const bt_opt *opt;
    const char *value, *where; /* file and line, "lr.yaml:12" */
} bt_sweep_setting;

/* a setting that the runs differ in: values, or a range that values are drawn from */
typedef struct bt_sweep_axis {
    const bt_opt *opt;
    const char *where;
    char *values[BT_SWEEP_VALUES];
    size_t n; /* 0: a range */
    bool log;
    double from, to;
} bt_sweep_axis;

typedef struct bt_sweep_head {
    char name[BT_NAME_MAX], goal[64], config[BT_SWEEP_TEXT];
    bool goal_given;
    int method, better, on;
    int64_t runs, seed, parallel, budget_steps, keep, first_steps;
    double budget_hours;
} bt_sweep_head;

typedef struct bt_sweep_file {
    const char *path;
    bt_sweep_head head;
    bt_sweep_axis axes[BT_SWEEP_AXES];
    size_t n_axes, n_settings;
    bt_sweep_setting settings[BT_OPT_MAX];
    void *memory; /* the texts of the file */
} bt_sweep_file;

/* BT_ARG names line, key and what is allowed; the name defaults to the file's */
bt_code bt_sweep_file_read(bt_sweep_file *f, const char *path, bt_err *err) BT_MUST_CHECK;
/* The options of `--find-lr`, as a file of method find-lr would set them. config: configuration file of the run, ""
 * for none. */
typedef struct bt_sweep_find {
    const char *name, *config;
    double from, to;
    int64_t steps;
} bt_sweep_find;
bt_code bt_sweep_file_find(bt_sweep_file *f, const bt_sweep_find *find, bt_err *err) BT_MUST_CHECK;
void bt_sweep_file_release(bt_sweep_file *f);

typedef struct bt_sweep_run {
    bt_training run;             /* first member; left_out: another run was better at a rung */
    char *values[BT_SWEEP_AXES]; /* values of the axes, owned */
    int ranks, threads;          /* for the cores that it has */
    bt_level level;              /* value of the goal at the steps of the newest comparison */
} bt_sweep_run;

typedef struct bt_sweep_plan {
    bt_sweep_file *file;
    char store[PATH_MAX], out[PATH_MAX]; /* absolute */
    bt_sweep_run *runs;
    size_t n;
    bt_training_group group; /* the runs, once their number is final */
    int parallel;            /* runs at a time */
    int run_cores;           /* cores of one run */
    /* Slurm job whose steps are the runs, owned; NULL: the runs are on this machine */
    bt_slurm *slurm;
    int64_t all_steps; /* steps of all runs together; eliminated runs count up to their rung */
    size_t left_out;   /* points of the space that the budget does not pay for */
    int64_t rungs[32]; /* halving: steps after which runs are compared; the last is the whole run */
    int n_rungs;
    int out_lock;
} bt_sweep_plan;

/* Checks every run's settings as `bitrain train` checks them, before the first one begins. A tokenizer that has to be
 * learned, and data whose epochs are counted, are in the cache afterwards. quiet: shows no progress */
bt_code bt_sweep_plan_make(bt_sweep_plan *p, bt_sweep_file *f, const char *store, const char *out,
                           bool quiet, bt_err *err) BT_MUST_CHECK;
void bt_sweep_plan_release(bt_sweep_plan *p);
/* Returns the number of runs that remain at rung k if n began. */
size_t bt_sweep_survivors(const bt_sweep_plan *p, int rung);

/* ---- values (sweep_values.c) ---- */

/* the row of a run's setting; NULL: there is none */
const bt_opt *bt_sweep_opt(const char *key);
/* appends the configuration file and the settings of a run as arguments of `bitrain train` */
void bt_sweep_put_settings(const bt_sweep_plan *p, const bt_sweep_run *r, bt_words *out);
/* "optim.lr=1e-3 optim.beta2=0.98" */
const char *bt_sweep_point(const bt_sweep_plan *p, const bt_sweep_run *r, char *buf, size_t size);
/* a is better than b. A run without a value is the worst; of equal runs the first is better */
bool bt_sweep_better(const bt_sweep_plan *p, const bt_sweep_run *a, const bt_sweep_run *b);

/* ---- database of the record ---- */

/* The folder is this sweep's alone: BT_BUSY when another one works there, or had other runs. */
bt_code bt_sweep_folder_open(bt_sweep_plan *p, bt_err *err) BT_MUST_CHECK;
void bt_sweep_folder_close(bt_sweep_plan *p);
/* Runs of a file without a goal are ranked by their best validation if all have one; halving compares losses at the
 * same step. */
bt_code bt_sweep_choose_goal(bt_sweep_plan *p, bt_err *err) BT_MUST_CHECK;
/* the goal of a run after `steps` of its steps; NaN where it diverged or recorded none */
bt_code bt_sweep_read_goal(const bt_sweep_plan *p, bt_sweep_run *r, int64_t steps, bt_err *err)
    BT_MUST_CHECK;

/* ---- work ---- */

/* BT_STOPPED: by a signal, or out of time (p->group); everything has been saved */
bt_code bt_sweep_train(bt_sweep_plan *p, bt_err *err) BT_MUST_CHECK;

/* ---- the learning rate found (method find-lr) ---- */

/* BT_ARG names what a range test cannot be made of; its further settings are added to the file's */
bt_code bt_sweep_find_settings(bt_sweep_file *f, bt_err *err) BT_MUST_CHECK;
/* the judgement of its run, as a chart and words, or as JSON; and a note at the step of the rate that is
 * suggested, once, which the views show */
bt_code bt_sweep_find_report(const bt_sweep_plan *p, bool json, bt_err *err) BT_MUST_CHECK;

/* ---- words ---- */

void bt_sweep_print_plan(const bt_sweep_plan *p);
/* ended: no signal and no limit of time stopped the sweep */
bt_code bt_sweep_print_results(const bt_sweep_plan *p, bool json, bool ended, bt_err *err)
    BT_MUST_CHECK;

#endif
