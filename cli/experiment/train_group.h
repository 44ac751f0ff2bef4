/* train_group.h - trains several runs, each in a child process, one or some at a time.
 *
 * A run that is complete in its record is not trained again, and an interrupted run continues from its newest
 * checkpoint, so that a killed group, trained again, gives the same result as an undisturbed one. A signal, the
 * deadline, or a user who stops one of the runs (`bitrain ctl stop`, BT_BUSY) stops the running children, which save
 * checkpoints.
 *
 * Owns:     nothing; runs, names and callbacks belong to the caller.
 * Threads:  the main thread only (child.h). Call bt_child_signals(true) before the first bt_train_group. */
#ifndef BT_CLI_EXPERIMENT_TRAIN_GROUP_H
#define BT_CLI_EXPERIMENT_TRAIN_GROUP_H

#include <sys/types.h>

#include "cli/experiment/slurm_job.h"
#include "engine/base/system/words.h"
#include "store/store.h"

typedef enum {
    BT_TRAINING_WAITS,
    BT_TRAINING_RUNS,
    BT_TRAINING_REACHED,
    BT_TRAINING_FAILED
} bt_training_at;

typedef struct bt_training {
    /* set by the caller */
    char name[BT_NAME_MAX];
    /* length of the run; 0: unknown, the record contains whether the run is complete */
    int64_t steps;
    int64_t target; /* number of steps after which the run ends for now; at most `steps` */
    bool left_out;  /* true: the run is not trained */
    /* values from its record */
    int64_t done;   /* number of steps done */
    char state[24]; /* state as shown by `bitrain runs`; "": not started */
    /* progress of the group */
    bt_training_at at;
    int64_t began_ns;
    pid_t pid;
    int slot, tries; /* tries: consecutive launches without a new step */
} bt_training;

typedef struct bt_training_group {
    const char *store;  /* database of the records */
    const char *folder; /* each run has FOLDER/NAME and FOLDER/NAME.log; the folder exists */
    bool any_folder; /* true: a recorded run belongs to the group even if its folder is elsewhere */
    bt_training **runs;
    size_t n;
    int parallel; /* number of runs at the same time, each with an equal share of the cores */
    const bt_slurm
        *slurm;    /* the runs are steps of this job; NULL: they are children on this machine */
    int run_cores; /* processors of a run under Slurm */
    bool retry;    /* true: continue runs that failed earlier */
    int64_t deadline_ns; /* time (bt_now_ns) at which the runs are stopped; 0: none */
    bool quiet;          /* true: print no line on stderr when the runs are stopped */
    /* Appends the arguments of `bitrain train` except name, store and folder. continues: the run has recorded steps, so
     * its settings are in its record, and only the arguments of this launch are appended. */
    void (*put_words)(void *ctx, const bt_training *r, bool continues, bt_words *out);
    /* Called when a run has reached its target or has failed. An error stops the group. */
    bt_code (*ended)(void *ctx, bt_training *r, bt_err *err);
    void *ctx;
    /* result */
    size_t n_ended;   /* runs that have reached their target or failed */
    int signal;       /* signal that stopped the group; 0: none */
    bool out_of_time; /* stopped by the deadline */
} bt_training_group;

/* Reads `done` and `state` of a run from its record (if there is one). BT_BUSY: a run of this name is recorded for
 * another folder. */
bt_code bt_training_read(const bt_training_group *g, bt_training *r, bt_err *err) BT_MUST_CHECK;
/* Trains every run that is not excluded until its target number of steps. After an error, the running children save,
 * and the first error is returned. BT_STOPPED: a signal or the deadline stopped the group. */
bt_code bt_train_group(bt_training_group *g, bt_err *err) BT_MUST_CHECK;

#endif
