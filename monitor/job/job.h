/* job.h - state of the supervisor of one run, and the functions of monitor/job that work on it. Private to this folder.
 * Threads: the supervisor's main thread. */
#ifndef BT_MONITOR_JOB_JOB_H
#define BT_MONITOR_JOB_JOB_H

#include "monitor/job/control_server.h"
#include "monitor/job/health/alert_rules.h"
#include "monitor/job/health/hang_watch.h"
#include "monitor/job/health/health.h"
#include "monitor/job/health/rank_progress.h"
#include "monitor/job/health/restart.h"
#include "monitor/job/launch/hosts.h"
#include "monitor/job/launch/job_dirs.h"
#include "monitor/job/launch/launch.h"
#include "monitor/job/launch/output.h"
#include "monitor/job/launch/rank_watch.h"
#include "monitor/job/launch/viewer_process.h"
#include "monitor/job/spare_socket.h"
#include "monitor/job/supervisor.h"

enum { BT_JOB_LOCAL_RANKS = 256, BT_JOB_REMOTE_RANKS = 64 };

/* hot_spare.c */
typedef struct bt_job_spare {
    bt_child child; /* pid 0: no spare */
    bt_spare_socket socket;
    bt_rank_progress places;
    bt_output output;
    int ranks, folder;
    int started,
        failed; /* spares started in this run; consecutive spares that failed on their own */
    bool told;
} bt_job_spare;

struct bt_job {
    const bt_job_setup *s;
    bt_job_result *result;
    bt_job_dirs scratch;
    char memory[300]; /* folder of states in memory; "": none */
    char map[300];    /* file with the machine's topology for local jobs; "": none */
    bt_wire_server *wire;
    bt_control_server *control;
    bt_output output;
    bt_health health;
    bt_rank_progress places;
    bt_hang_watch hang; /* detects ranks of this host that hang */
    int64_t hang_look_ns;
    bt_restart_history history;
    bt_child child; /* mpirun; pid 0: not running */
    int folder;     /* number of the attempt's folder in `scratch` */
    bt_job_spare spare;
    /* ranks of this host that connected, if the kernel supports pidfds */
    bt_rank_watch watch;
    bool ended_by_us;    /* a rank was killed, so the supervisor ended all ranks and mpirun */
    bool died_otherwise; /* a rank ended in another way; mpirun ends the attempt */
    /* previous attempt, until its records are stored and its folder is removed; session 0: done */
    struct {
        int folder;
        pid_t session;
        bool recorded; /* the writer has received the attempt's end */
    } past;
    bt_viewer viewer;
    /* receives the records of the wire and forwards them to the writer */
    bt_wire_into into;
    int signals;          /* signalfd */
    bt_resume_point from; /* state from which this attempt began */
    int64_t saved;        /* step of the newest checkpoint; 0: none */

    /* ranks and settings of this attempt: those of the setup, or of a later layout */
    int world_size;
    const char *settings;
    struct {
        bool wanted,
            by_hosts; /* by_hosts: the available hosts determine the layout, and `to` is empty */
        bt_resize_request to;
        char why[160];
    } resize;

    bt_hosts hosts;
    bt_host *lost_host; /* host without a response that ended this attempt, or NULL */
    int stacks;         /* number of stacks received since the last request */
    int leaving;        /* rank that received a signal to leave in this attempt, or -1 */

    char where[200]; /* positions of this host's ranks at the end of the attempt; "": unknown */

    int attempt;
    int64_t last_step; /* last recorded step of this attempt, or -1 */
    int64_t started_ns, restart_at_ns;
    int64_t memory_kills; /* bt_group_memory_kills at the start of the attempt */
    int fence,
        /* fences of this attempt and the previous one, which increase even without a checkpoint folder */
        last_fence;
    double start_s; /* longest time between a launch and the first connection; 0 before the first */
    bool launch_named; /* a launch without ranks was reported */
    struct { /* the time between the first connection and the first step (start_watch.c) */
        int64_t look_ns, alive_ns; /* time of the next check; time of the last activity */
        uint64_t seen;      /* hash of positions, exchanges and file traffic at the last check */
        int64_t first_step; /* step in which rank 0 was seen first, or -1 */
        int awaited;        /* rank that was reported as delaying all other ranks, or -1 */
        bool stalled,
            stepped; /* the lack of progress was reported; rank 0 was seen in a second step */
    } start;
    struct {
        int rank, pid;
    } ranks[BT_JOB_LOCAL_RANKS];
    int n_ranks; /* number of connected ranks of this host */
    /* connected ranks of other hosts, for messages */
    struct {
        int rank;
        char host[BT_HOST_MAX];
    } far[BT_JOB_REMOTE_RANKS];
    int n_remote;
    bool connected; /* a rank of this attempt has connected */
    bool complete;  /* rank 0 has sent the result */
    bool unstarted; /* a stop request ended this attempt before its first step was finished */

    bool stop_asked, stop_now, hung, paused, restarting;
    bool no_input;
    /* verbs (BT_PENDING) to send after the first connection */
    uint32_t pending;
    /* time at which a rank was first found stopped by a signal, or 0; time of the next check */
    int64_t stopped_ns, stopped_look_ns;
    int64_t stop_ns;
    int64_t
        asked_ns; /* time of the first stop request in this attempt before its first step, or 0 */
    int64_t signal_ns;
    bt_alert_rules alerts;
    struct {                /* newest evaluation of the run */
        bool waits;         /* the alert rules have not processed the loss yet */
        int64_t step;       /* step of the record that contains the evaluation */
        double loss;        /* loss in the evaluation's event; NaN if not finite */
        int64_t counted_to; /* evaluations before this step were processed */
    } evaluation;
    int64_t alert_disk_ns;
    /* requested factor of the learning rate; the factor that the ranks have */
    double lr_factor, told_factor;
};

/* ---- job_launch.c ---- */
typedef struct bt_job_ranks {
    int folder;
    int attempt, fence; /* number in the database; fence of the checkpoints */
    /* a spare launch receives this value later through the socket `spare` */
    const char *resume_from;
    const char *spare; /* path of the spare's socket; "": the ranks train at once */
} bt_job_ranks;
bt_code bt_job_launch(bt_job *job, const bt_job_ranks *how, bt_child *child,
                      bt_rank_progress *places, bt_err *err) BT_MUST_CHECK;
/* Returns the fence of the checkpoints of an attempt that starts now. */
int bt_job_next_fence(bt_job *job);
/* Writes the path of a ring of records in the run's folder. Returns false if the run is not recorded, or the path is
 * too long. */
bool bt_job_ring_path(const bt_job *job, const char *name, char *out, size_t size);

/* ---- job_attempt.c ---- */
bt_code bt_job_start_attempt(bt_job *job, bt_err *err) BT_MUST_CHECK;
void bt_job_show_attempt(const bt_job *job);
/* Starts to detect deaths of ranks without mpirun. Called when all ranks have connected. */
void bt_job_watch_ranks(bt_job *job);
void bt_job_read_deaths(bt_job *job);
/* Ends hanging ranks after recording the stacks of those on this host. */
void bt_job_end_hung(bt_job *job);
/* Ends ranks that are still alive after mpirun has ended. */
void bt_job_end_ranks(bt_job *job);
/* Marks the attempt as ended; bt_job_clear_away stores its records and removes its folder. */
void bt_job_attempt_over(bt_job *job);
void bt_job_clear_away(bt_job *job);
void bt_job_end_record(bt_job *job, const char *state, const char *kind, int status);
/* Launches the next attempt, then closes the previous one with `end` (NULL: already closed) and clears it away. */
bt_code bt_job_next_attempt(bt_job *job, const char *reason, const bt_end *end, bt_err *err)
    BT_MUST_CHECK;

/* launch_watch.c. connected: called when the first rank has connected. check: until then, reports and ends a launch
 * that takes too long; after a stop request it soon ends an attempt without a step, because there is no state to
 * save. */
void bt_job_launch_connected(bt_job *job, int64_t now);
void bt_job_launch_check(bt_job *job, int64_t now);

/* start_watch.c. has_stepped: true once this attempt has finished a step. check: after the first connection and before
 * that step, reports a rank that delays the start, and ends ranks that are inactive for launch.hang_s. */
bool bt_job_has_stepped(const bt_job *job);
void bt_job_start_check(bt_job *job, int64_t now);

/* stopped_ranks.c. check: reports a rank of this host that a signal stopped, and ends it if a restart is allowed.
 * name_culprit: writes "; " and the stopped rank, or "; " and the positions; *rank: the rank at fault, or -1. */
void bt_job_check_stopped(bt_job *job, int64_t now);
void bt_job_name_culprit(const bt_job *job, int64_t now_ns, char *out, size_t size, int *rank);

/* hot_spare.c. tick: starts a spare if launch.hot_spare is set and the run has made progress, and detects its end.
 * serve: accepts waiting ranks. take: the spare becomes the next attempt, which begins at job->from; false without a
 * spare of this layout. */
void bt_job_spare_tick(bt_job *job);
void bt_job_spare_serve(bt_job *job);
bool bt_job_spare_take(bt_job *job);
void bt_job_spare_end(bt_job *job);

/* alerts.c: applies the alert rules to events, records, checkpoints and free disk space. */
void bt_job_alerts_open(bt_job *job);
void bt_job_alerts_tick(bt_job *job, int64_t now);
void bt_job_alerts_evaluation(bt_job *job, const bt_event *e);
void bt_job_alerts_step(bt_job *job, const bt_step_record *r);
void bt_job_alerts_end(bt_job *job);

#define BT_PENDING(verb) (UINT32_C(1) << BT_VERB_##verb)

void bt_job_run_sink(bt_job *job); /* fills job->into */

/* job_events.c: passes an event to the database, the screen and the alert rules. */
void bt_job_event(bt_job *job, bt_event_kind kind, int rank, const char *fmt, ...) BT_PRINTF(4, 5);
/* Records that no record arrived for silent_s seconds. */
void bt_job_stalled(bt_job *job, int rank, double silent_s, const char *title);
void bt_job_show(bt_job *job, bt_event_kind kind, const char *text);
void bt_job_record(bt_job *job, bt_event_kind kind, int rank, const char *title);
void bt_job_event_body(bt_job *job, bt_event_kind kind, const char *title, const char *body);

void bt_job_signal(bt_job *job, int signal);

/* send_verbs.c. waits_for_ranks: no rank is connected. tell: sends a verb to the ranks, now or after they connect
 * (BT_BUSY: it cannot be deferred). send_pending: sends the deferred verbs. */
bool bt_job_waits_for_ranks(const bt_job *job);
bt_code bt_job_send_verb(bt_job *job, bt_verb verb, double value, bt_err *err) BT_MUST_CHECK;
void bt_job_send_pending(bt_job *job);

/* resize.c. arg: "4" or "4,tp=2,pp=1,zero=3". The ranks save and exit, and the next attempt has that layout. */
bt_code bt_job_request_resize(bt_job *job, const char *arg, const char *by, bt_err *err)
    BT_MUST_CHECK;
/* The attempt ended as intended for a new layout, and steps remain. */
bool bt_job_ended_to_resize(const bt_job *job, const bt_end *end);
/* The ranks saved and exited after a signal without a request to this process so far (a notice of the system reaches
 * all processes). */
bool bt_job_left_unasked(const bt_job *job, const bt_end *end);
/* Applies a requested layout before an attempt that begins at job->from. Returns true if the layout changed; `told`
 * describes it. An impossible layout causes a warning and changes nothing. */
bool bt_job_take_layout(bt_job *job, char *told, size_t size);
/* Returns the layout request for the hosts in use and those that respond again; list: space for all hosts. */
bt_resize_request bt_resize_request_of_hosts(const bt_job *job, bt_job_host *list);
/* Requests the layout of bt_resize_request_of_hosts for the next attempt. */
void bt_job_request_hosts(bt_job *job, const char *fmt, ...) BT_PRINTF(2, 3);
void bt_job_resized_event(bt_job *job, int ranks_before, const char *told);
bt_code bt_job_request(void *ctx, const char *verb, const char *arg, const char *who,
                       bt_text *answer, bt_err *err);
void bt_job_read_view(const bt_job *job, bt_job_view *v);

/* host_watch.c. open: reads the host file and contacts its hosts. BT_ARG: --elastic needs slots=N of each host. */
bt_code bt_job_hosts_open(bt_job *job, bt_err *err) BT_MUST_CHECK;
/* Writes a host file of the hosts in use. */
bt_code bt_job_hosts_file(bt_job *job, const char *folder, char *path, size_t size, bt_err *err)
    BT_MUST_CHECK;
/* Without new steps: checks all hosts, and ends the attempt if one is unreachable for longer than TCP can recover. */
void bt_job_hosts_check(bt_job *job, int64_t now);
void bt_job_hosts_tick(bt_job *job, int64_t now); /* tests hosts that were set aside */
void bt_job_hosts_checkpoint(bt_job *job);        /* uses hosts again that respond */
/* Returns true if unreachable hosts were set aside and the run continues without them. */
bool bt_job_hosts_ended(bt_job *job, const bt_end *end);
/* After a rank received a signal to leave: with --elastic, sets its host aside and returns true; the run continues
 * without it. */
bool bt_job_hosts_left(bt_job *job);
void bt_job_hosts_begin(bt_job *job); /* precedes the choice of an attempt's layout */

#endif
