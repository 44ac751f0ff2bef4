/* supervisor.h - supervises one run from outside: starts the ranks, receives and records their data, controls and
 * restarts them. The supervisor does not use MPI.
 *
 * mpirun has its own session, so neither Ctrl-C nor a closed terminal reaches the ranks; their output is drained until
 * the end. TERM and INT: the first one saves a checkpoint and stops, the second one stops immediately. HUP: with a
 * terminal, releases it and training continues; without one, acts like TERM. PIPE is ignored.
 * Order: bt_job_run blocks until the run is over; its callbacks call everything else.
 * Threads: one (the writer has its own). Signals are read from a signalfd: call bt_job_block_signals before starting
 * other threads. */
#ifndef BT_MONITOR_JOB_SUPERVISOR_H
#define BT_MONITOR_JOB_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/sink.h"
#include "engine/base/status.h"
#include "engine/base/tables/verb.h"
#include "engine/base/text.h"
#include "monitor/job/health/restart.h"
#include "store/store.h"
#include "store/wire/wire.h"

typedef struct bt_job bt_job;

#define BT_JOB_RING BT_RING_FILE /* in out_dir: the newest records of rank 0 (bt_writer_recover) */
/* records of the previous attempt that are not stored yet */
#define BT_JOB_RING_BEFORE BT_RING_FILE ".before"

typedef struct bt_job_view { /* for the status line and `ctl status` */
    bt_run_state state;
    int attempt, ranks, restarts;
    int64_t step, from_step, committed_step;
    double silence_s, restart_in_s;
    uint64_t dropped;
    bool late; /* no step for longer than expected */
} bt_job_view;

typedef struct bt_job_ui { /* any function may be NULL */
    void *ctx;
    void (*step)(void *ctx, const bt_step_record *r);
    void (*event)(void *ctx, const bt_event *e);
    void (*fact)(void *ctx, const char *key, const char *value);
    void (*attempt)(void *ctx, int attempt, int64_t from_step);
    void (*tick)(void *ctx, const bt_job_view *v); /* about 5 times per second */
    int input_fd;                                  /* -1: none */
    /* called when input_fd is readable */
    void (*input)(void *ctx, bt_job *job);
    /* Ctrl-Z: releases the terminal; later takes it back. */
    void (*away)(void *ctx, bool away);
    bool (*hangup)(
        void *ctx); /* called when the terminal was closed; returns true if there was one */
} bt_job_ui;

typedef struct bt_resume_point {
    char dir[1024]; /* folder of the checkpoint, "": start from scratch */
    int64_t step;
    double lr_factor; /* stored factor; 1 at the beginning */
    bool memory;      /* dir is the folder of the states in memory */
    int64_t worse;    /* evaluations without a new best validation loss (train.stop_when) */
    int64_t steps; /* total number of steps as corrected by train.time_budget; 0: not corrected */
} bt_resume_point;

typedef struct bt_job_host {
    int slots;
    bool alive;
} bt_job_host;

/* requested layout */
typedef struct bt_resize_request {
    int most, least; /* ranks, 1 <= least <= most; with hosts, limited by --elastic */
    /* the number of ranks follows from the slots of these hosts; NULL: none */
    const bt_job_host *hosts;
    size_t n_hosts;
    int tp, pp, zero;  /* requested values; 0, 0, -1: automatic */
    int64_t from_step; /* first step of the new layout */
} bt_resize_request;

typedef struct bt_job_layout {
    int ranks;
    char told[96];        /* for example "4 ranks: tp 2 x dp 2" */
    const char *settings; /* text for the ranks, as in the setup; valid until the next call */
    bool same;
} bt_job_layout;

typedef struct bt_job_setup {
    const char *program;       /* absolute path of bitrain */
    const char *run, *out_dir; /* out_dir exists */
    int run_lock;              /* descriptor of bt_run_lock, -1: none; mpirun inherits it */
    int ranks;
    const char *hosts, *mpirun_args;
    const char *settings; /* sent to the ranks in BT_LAUNCH_SETTINGS */
    /* limits of --elastic; 0, 0: the number of ranks changes only on request */
    int elastic_min, elastic_max;
    /* Computes the layout for another number of ranks. take: makes it the current one. BT_ARG: no such layout;
     * BT_STOPPED: no steps remain. NULL: the number of ranks is fixed. */
    bt_code (*layout)(void *ctx, const bt_resize_request *w, bool take, bt_job_layout *out,
                      bt_err *err);
    void *layout_ctx;
    int64_t max_restarts;
    bool hot_spare;    /* a second job waits and takes over when these ranks die; not with hosts */
    double hang_s;     /* restart after this time without a step; 0: never */
    double launch_s;   /* a launch without a connected rank is reported after this time; 0: 30 s */
    double lr;         /* peak learning rate, for `set lr=` */
    bt_writer *writer; /* writer of an attempt that has begun; NULL: record nothing */
    /* template of the following attempts, which fill in from_step, reason and resume */
    bt_run_start start;
    int attempt;
    bt_resume_point from; /* start of the first attempt */
    /* Finds the newest usable checkpoint after a failure, or newer state in the folder `memory` ("": none);
     * BT_NOTFOUND: start from scratch. `why` receives a line per skipped checkpoint. */
    bt_code (*resume_point)(void *ctx, const char *memory, bt_resume_point *p, bt_text *why,
                            bt_err *err);
    /* Returns the number that fences the attempt's checkpoints: higher than all earlier ones in out_dir. */
    int (*fence)(void *ctx, int attempt);
    void *resume_ctx; /* context of both functions */
    /* argv of a viewer to start beside the run, NULL-terminated; NULL: none */
    const char *const *viewer;
    /* Alert rules and their receivers; rules NULL: none. curl: path of the program that calls the webhook. */
    struct {
        const struct bt_alert_rules *rules;
        const char *command, *webhook, *curl;
    } alert;
    bt_job_ui ui;
} bt_job_setup;

typedef struct bt_job_result {
    bool stopped; /* stopped in order on request */
    int signal;   /* signal of the request; 0: a key, ctl, --stop-after, or none */
    bt_end end;   /* end of the last attempt */
    char why_not_again[160];
    int attempts, restarts, resizes;
    /* fact "result" of rank 0, malloc'ed; NULL: not received */
    char *result_json;
} bt_job_result;

void bt_job_block_signals(void);
bt_code bt_job_run(const bt_job_setup *s, bt_job_result *out, bt_err *err) BT_MUST_CHECK;
void bt_job_result_release(bt_job_result *r);

/* Executes a verb of verbs.def with its argument or ""; by: "key p", "ctl", "web". For callbacks. */
bt_code bt_job_execute_verb(bt_job *job, const char *verb, const char *arg, const char *by,
                            bt_err *err) BT_MUST_CHECK;
void bt_job_multiply_lr(bt_job *job, double factor, const char *by); /* keys + and - */
bool bt_job_paused(const bt_job *job);
void bt_job_stop_now(bt_job *job);

#endif
