/* drill.h - the parts of `bitrain drill`: a run in a temporary folder, the faults injected into it, and the
 * measurements. Private to cli/drill. Threads: one. */
#ifndef BT_CLI_DRILL_DRILL_H
#define BT_CLI_DRILL_DRILL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/base/rng.h"
#include "engine/base/status.h"
#include "store/store.h"

enum { BT_DRILL_WORDS = 64, BT_DRILL_CKPT_EVERY = 10 };

typedef struct bt_drill_run {
    char name[BT_NAME_MAX];
    char folder[PATH_MAX];                         /* folder of the drill, removed at the end */
    char store[PATH_MAX + 16], out[PATH_MAX + 16]; /* inside it */
    const char *program;
    const char *words[BT_DRILL_WORDS]; /* arguments of `bitrain train` */
    int n_words;
    pid_t pid; /* process id of the supervisor; 0: none */
    bt_db *db; /* NULL until the run has a record */
    uint64_t seed, drawn;
} bt_drill_run;

typedef enum { BT_BACK_ATTEMPT, BT_BACK_RESUME, BT_BACK_CHECKPOINT } bt_drill_back;

typedef struct bt_fault bt_fault;
struct bt_fault {
    const char *id, *title;
    bt_drill_back back;
    /* Fails with BT_NOTFOUND and the reason if the fault cannot be produced here. */
    bt_code (*act)(bt_drill_run *r, const char *arg, bt_err *err);
};
extern const bt_fault bt_faults[];
extern const size_t bt_faults_n;
const bt_fault *bt_fault_find(const char *id);

typedef struct bt_drill_row { /* measurements of one fault */
    const bt_fault *fault;
    char what[48];              /* title of the fault, or a more precise description */
    double detect_s, recover_s; /* NaN: does not apply */
    int64_t at_step,
        back_step;        /* newest step recorded before the fault; first step recorded after it */
    int64_t redone, lost; /* number of repeated steps; number of missing step rows */
    bool ok, skipped;
    char why[200]; /* reason of a failed or skipped fault */
} bt_drill_row;

/* ---- drill_run.c: the run -------------------------------------------------------------------- */

/* Starts `bitrain train` (resume: `--resume NAME`) in the background. */
bt_code bt_drill_start(bt_drill_run *r, bool resume, bt_err *err) BT_MUST_CHECK;
/* Returns one number from the database (?1 is the run); NaN: none yet. */
double bt_drill_value(bt_drill_run *r, const char *sql);
int64_t bt_drill_newest(bt_drill_run *r); /* newest recorded step; -1: none */
/* Waits until a step beyond `step` is recorded. Fails with BT_CHECK if the run ended or limit_s passed. */
bt_code bt_drill_wait_step(bt_drill_run *r, int64_t step, double limit_s, bt_err *err)
    BT_MUST_CHECK;
bool bt_drill_alive(bt_drill_run *r); /* true if the supervisor of the run is running */
/* Waits until the supervisor has ended and returns its exit status; after limit_s it is killed, and the result is
 * -1. */
int bt_drill_wait_end(bt_drill_run *r, double limit_s);
void bt_drill_kill_all(
    bt_drill_run
        *r); /* kills the supervisor and all processes with the folder in their arguments */
pid_t bt_drill_rank(bt_drill_run *r, int rank);
pid_t bt_drill_mpirun(bt_drill_run *r);
int bt_drill_ranks(bt_drill_run *r);
/* Copies the last line that the program printed. */
void bt_drill_last_words(const bt_drill_run *r, char *out, size_t size);
/* Injects the fault, waits until the run trains new steps, and fills the row. Afterwards the run trains or has been
 * resumed, whatever the result in the row. Fails only if no further fault can be injected. */
bt_code bt_drill_do(bt_drill_run *r, const bt_fault *f, const char *arg, bt_drill_row *row,
                    bt_err *err) BT_MUST_CHECK;
void bt_drill_remove(const char *folder);            /* removes a folder and its content */
uint64_t bt_drill_draw(bt_drill_run *r, uint64_t n); /* returns a pseudo-random number below n */

/* ---- weights_hash.c -------------------------------------------------------------------------- */

/* Computes the hash of weights and optimizer states in the newest checkpoint of a folder, element by element in the
 * model's order, so that it does not depend on the layout. step: that of the checkpoint. */
bt_code bt_drill_hash(const char *out_dir, uint64_t *hash, int64_t *step, bt_err *err)
    BT_MUST_CHECK;

#endif
