/* sweep.h - many runs with different settings: the file, its runs, their progress, and their training. Private to
 * cli/sweep.
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

/* A setting with the same value in all runs. */
typedef struct bt_sweep_setting {
    const bt_opt *opt;
    const char *value, *where; /* file and line, "lr.yaml:12" */
} bt_sweep_setting;

/* A setting that differs between runs: a list of values, or a range from which values are drawn. */
typedef struct bt_sweep_axis {
    const bt_opt *opt;
    const char *where;
    char *values[BT_SWEEP_VALUES];
    size_t n; /* number of values; 0: a range */
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

/* BT_ARG names the line, the key and the allowed values. The default of the name is that of the file. */
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
    int ranks, threads;          /* derived from the cores of one run */
    bt_level level;              /* value of the goal at the steps of the newest comparison */
} bt_sweep_run;

typedef struct bt_sweep_plan {
    bt_sweep_file *file;
    char store[PATH_MAX], out[PATH_MAX]; /* absolute paths */
    bt_sweep_run *runs;
    size_t n;
    bt_training_group group; /* the runs, when their number is final */
    int parallel;            /* number of runs at the same time */
    int run_cores;           /* cores of one run */
    /* Slurm job whose steps are the runs, owned; NULL: the runs are on this machine */
    bt_slurm *slurm;
    int64_t all_steps; /* steps of all runs together; an eliminated run counts up to its rung */
    size_t left_out;   /* number of points of the space that exceed the budget */
    int64_t rungs
        [32]; /* halving: numbers of steps after which runs are compared; the last is the whole run */
    int n_rungs;
    int out_lock;
} bt_sweep_plan;

/* Checks every run's settings like `bitrain train`, before the first run begins. Afterwards the cache contains a
 * tokenizer that has to be learned, and data whose epochs are counted. quiet: shows no progress. */
bt_code bt_sweep_plan_make(bt_sweep_plan *p, bt_sweep_file *f, const char *store, const char *out,
                           bool quiet, bt_err *err) BT_MUST_CHECK;
void bt_sweep_plan_release(bt_sweep_plan *p);
/* Returns the number of runs that remain at rung k, if n began. */
size_t bt_sweep_survivors(const bt_sweep_plan *p, int rung);

/* ---- values (sweep_values.c) ---- */

/* Returns the option of a run's setting; NULL: there is none. */
const bt_opt *bt_sweep_opt(const char *key);
/* Appends the configuration file and the settings of a run as arguments of `bitrain train`. */
void bt_sweep_put_settings(const bt_sweep_plan *p, const bt_sweep_run *r, bt_words *out);
/* Writes the values of the axes: "optim.lr=1e-3 optim.beta2=0.98". */
const char *bt_sweep_point(const bt_sweep_plan *p, const bt_sweep_run *r, char *buf, size_t size);
/* True if a is better than b. A run without a value is worst; of equal runs the first is better. */
bool bt_sweep_better(const bt_sweep_plan *p, const bt_sweep_run *a, const bt_sweep_run *b);

/* ---- database of the record ---- */

/* Locks the folder. BT_BUSY: another sweep uses the folder, or used it for other runs. */
bt_code bt_sweep_folder_open(bt_sweep_plan *p, bt_err *err) BT_MUST_CHECK;
void bt_sweep_folder_close(bt_sweep_plan *p);
/* Without a goal in the file, runs are ranked by their best validation if all have one; halving compares losses at the
 * same step. */
bt_code bt_sweep_choose_goal(bt_sweep_plan *p, bt_err *err) BT_MUST_CHECK;
/* Reads the goal of a run after `steps` steps; NaN: it diverged or recorded none. */
bt_code bt_sweep_read_goal(const bt_sweep_plan *p, bt_sweep_run *r, int64_t steps, bt_err *err)
    BT_MUST_CHECK;

/* ---- work ---- */

/* BT_STOPPED: stopped by a signal or the time limit (p->group) after everything was saved. */
bt_code bt_sweep_train(bt_sweep_plan *p, bt_err *err) BT_MUST_CHECK;

/* ---- learning rate range test (method find-lr) ---- */

/* Adds the settings of a range test to those of the file; BT_ARG if the file contains a conflicting one. */
bt_code bt_sweep_find_settings(bt_sweep_file *f, bt_err *err) BT_MUST_CHECK;
/* Prints the suggested rate as a chart with text, or as JSON; and records it once as a note at its step, for the
 * views. */
bt_code bt_sweep_find_report(const bt_sweep_plan *p, bool json, bt_err *err) BT_MUST_CHECK;

/* ---- output ---- */

void bt_sweep_print_plan(const bt_sweep_plan *p);
/* ended: neither a signal nor the time limit stopped the sweep. */
bt_code bt_sweep_print_results(const bt_sweep_plan *p, bool json, bool ended, bt_err *err)
    BT_MUST_CHECK;

#endif
