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
    bt_child child; /* pid 0 without a spare */
    bt_spare_socket socket;
    bt_rank_progress places;
    bt_output output;
    int ranks, folder;
    int started,
        failed; /* spares started in this run; consecutive spares that failed on their own */
    bool told;  /* the event about waiting ranks was recorded */
} bt_job_spare;

struct bt_job {
    const bt_job_setup *s;
    bt_job_result *result;
    bt_job_dirs scratch;
    char memory[300]; /* folder of states in memory; "" without */
    char map[300];    /* file with the machine's topology for local jobs; "" without */
    bt_wire_server *wire;
    bt_control_server *control;
    bt_output output;
    bt_health health;
    bt_rank_progress places; /* progress of this attempt's ranks */
    bt_hang_watch hang;      /* detects ranks of this host that hang */
    int64_t hang_look_ns;    /* time of the next check */
    bt_restart_history history;
    bt_child child; /* mpirun; pid 0 when none runs */
    int folder;     /* number of the attempt's folder in `scratch` */
    bt_job_spare spare;
    /* ranks of this host that connected, if the kernel supports pidfds */
    bt_rank_watch watch;
    bool ended_by_us;    /* a rank was killed, so the supervisor ended all ranks and mpirun */
    bool died_otherwise; /* a rank ended in another way, and mpirun ends the attempt */
    /* the previous attempt, until its records are stored and its folder is removed; session 0: done */
    struct {
        int folder;
        pid_t session;
        bool recorded; /* the writer has received its end */
    } past;
    bt_viewer viewer;
    /* receives records of the wire, and forwards them to the writer unchanged */
    bt_wire_into into;
    int signals;          /* signalfd */
    bt_resume_point from; /* state from which this attempt began */
    int64_t saved;        /* step of the newest checkpoint; 0 before the first */

    /* ranks and settings of this attempt: those of the setup, or of a later layout */
    int world_size;
    const char *settings;
    struct {
        bool wanted,
            by_hosts; /* by_hosts: the layout follows from the available hosts, and `to` is empty */
        bt_resize_request to;
        char why[160];
    } resize;

    bt_hosts hosts;
    bt_host *lost_host; /* host without an answer that ended this attempt, or NULL */
    int stacks;         /* stacks received since the last request for them */
    int leaving;        /* rank that received a signal to leave in this attempt, or -1 */

    char where[200]; /* positions of this host's ranks at the end of the attempt; "" if unknown */

    int attempt;
    int64_t last_step; /* last recorded step of this attempt, or -1 */
    int64_t started_ns, restart_at_ns;
    int64_t memory_kills; /* bt_memory_kills_of_group at the start of the attempt */
    int fence,
        /* fences of this attempt and the previous one; they also increase without a checkpoint
         * folder */
        last_fence;
    double start_s; /* longest time between a launch and the first connection; 0 before the first */
    bool launch_named; /* the user was informed that mpirun has not started a rank */
    struct { /* the time between the first connection and the first step (start_watch.c) */
        int64_t look_ns, alive_ns; /* time of the next check; time of the last sign of life */
        uint64_t seen;         /* hash of places, exchanges and file traffic at the last check */
        int64_t first_step;    /* step in which rank 0 was seen first, or -1 */
        int awaited;           /* rank that was named as the one all others wait for, or -1 */
        bool stalled, stepped; /* the silence was reported; rank 0 was seen in a second step */
    } start;
    struct {
        int rank, pid;
    } ranks[BT_JOB_LOCAL_RANKS];
    int n_ranks; /* connected ranks of this host */
    /* connected ranks of other hosts, for messages */
    struct {
        int rank;
        char host[BT_HOST_MAX];
    } far[BT_JOB_REMOTE_RANKS];
    int n_remote;
    bool connected; /* a rank of this attempt has connected */
    bool complete;  /* rank 0 has sent the result */
    bool unstarted; /* a stop request ended this attempt before it finished a step */

    bool stop_asked, stop_now, hung, paused, restarting;
    bool no_input; /* the terminal can no longer be read */
    /* verbs (BT_PENDING) that wait for the first connection */
    uint32_t pending;
    /* time at which a rank was first found stopped by a signal, or 0; time of the next check */
    int64_t stopped_ns, stopped_look_ns;
    int64_t stop_ns; /* time of the request stop_now */
    int64_t
        asked_ns; /* time of the first stop request in this attempt before its first step, or 0 */
    int64_t signal_ns; /* time of the first signal to stop, or 0 */
    bt_alert_rules alerts;
    struct {                /* newest evaluation of the run */
        bool waits;         /* the alert rules have not processed its loss yet */
        int64_t step;       /* step of the record that contains it */
        double loss;        /* loss of its event; NaN if not finite */
        int64_t counted_to; /* evaluations before this step were processed */
    } evaluation;
    int64_t alert_disk_ns; /* time of the next check of the disk */
    /* requested factor of the learning rate; the factor that the ranks have */
    double lr_factor, told_factor;
};

/* ---- job_launch.c ---- */
typedef struct bt_job_ranks { /* arguments of a launch of ranks */
    int folder;
    int attempt, fence; /* number in the database; fence of the checkpoints */
    /* the spare of a `spare` launch receives this later through that socket */
    const char *resume_from;
    const char *spare; /* path of the spare's socket; "": the ranks train at once */
} bt_job_ranks;
bt_code bt_job_launch(bt_job *job, const bt_job_ranks *how, bt_child *child,
                      bt_rank_progress *places, bt_err *err) BT_MUST_CHECK;
/* fence of the checkpoints of an attempt that starts now */
int bt_job_next_fence(bt_job *job);
/* path of a ring of records in the run's folder; false: the run is not recorded, or the path is too long */
bool bt_job_ring_path(const bt_job *job, const char *name, char *out, size_t size);

/* ---- job_attempt.c ---- */
bt_code bt_job_start_attempt(bt_job *job, bt_err *err) BT_MUST_CHECK;
void bt_job_show_attempt(const bt_job *job);
/* all ranks have connected: detects their deaths without mpirun from now on */
void bt_job_watch_ranks(bt_job *job);
void bt_job_read_deaths(bt_job *job);
/* ends ranks that hang, after recording the stacks of those on this host */
void bt_job_end_hung(bt_job *job);
/* ends ranks that are still alive after mpirun ended */
void bt_job_end_ranks(bt_job *job);
/* marks the attempt as ended; bt_job_clear_away stores its records and removes its folder */
void bt_job_attempt_over(bt_job *job);
void bt_job_clear_away(bt_job *job);
void bt_job_end_record(bt_job *job, const char *state, const char *kind, int status);
/* launches the next attempt, then closes the previous one with `end` (NULL: closed already) and clears it away */
bt_code bt_job_next_attempt(bt_job *job, const char *reason, const bt_end *end, bt_err *err)
    BT_MUST_CHECK;

/* launch_watch.c. connected: call when the first rank has connected. check: until then, reports and ends a launch that
 * takes too long; after a stop request it ends an attempt without a step soon, because there is no state to save. */
void bt_job_launch_connected(bt_job *job, int64_t now);
void bt_job_launch_check(bt_job *job, int64_t now);

/* start_watch.c. has_stepped: this attempt has finished a step. check: from the first connection until then, names
 * who is waited for, and ends ranks that show no sign of life for launch.hang_s. */
bool bt_job_has_stepped(const bt_job *job);
void bt_job_start_check(bt_job *job, int64_t now);

/* stopped_ranks.c. check: reports a rank of this host that a signal stopped, and ends it where a restart is allowed.
 * name_culprit: writes "; " and who is stopped, "; " and who is where; *rank: the rank at fault, or -1. */
void bt_job_check_stopped(bt_job *job, int64_t now);
void bt_job_name_culprit(const bt_job *job, int64_t now_ns, char *out, size_t size, int *rank);

/* hot_spare.c. tick: starts a spare if launch.hot_spare is set and the run has made progress, and detects its end.
 * serve: accepts waiting ranks. take: the spare becomes the next attempt, which begins at job->from; false without a
 * spare of this layout. */
void bt_job_spare_tick(bt_job *job);
void bt_job_spare_serve(bt_job *job);
bool bt_job_spare_take(bt_job *job);
void bt_job_spare_end(bt_job *job);

/* alerts.c: applies the alert rules to events, records, checkpoints and free disk space */
void bt_job_alerts_open(bt_job *job);
void bt_job_alerts_tick(bt_job *job, int64_t now);
void bt_job_alerts_evaluation(bt_job *job, const bt_event *e);
void bt_job_alerts_step(bt_job *job, const bt_step_record *r);
void bt_job_alerts_end(bt_job *job);

#define BT_PENDING(verb) (UINT32_C(1) << BT_VERB_##verb)

void bt_job_run_sink(bt_job *job); /* fills job->into */

/* job_events.c: passes an event to the database, the screen and the alert rules */
void bt_job_event(bt_job *job, bt_event_kind kind, int rank, const char *fmt, ...) BT_PRINTF(4, 5);
/* records that no record arrived for silent_s seconds */
void bt_job_stalled(bt_job *job, int rank, double silent_s, const char *title);
void bt_job_show(bt_job *job, bt_event_kind kind, const char *text); /* screen only */
/* database and alert rules only */
void bt_job_record(bt_job *job, bt_event_kind kind, int rank, const char *title);
void bt_job_event_body(bt_job *job, bt_event_kind kind, const char *title, const char *body);

void bt_job_signal(bt_job *job, int signal);

/* send_verbs.c. waits_for_ranks: no rank is connected. tell: sends a verb to the ranks, now or after they connect
 * (BT_BUSY: this verb cannot wait). send_pending: sends the waiting verbs. */
bool bt_job_waits_for_ranks(const bt_job *job);
bt_code bt_job_send_verb(bt_job *job, bt_verb verb, double value, bt_err *err) BT_MUST_CHECK;
void bt_job_send_pending(bt_job *job);

/* resize.c. arg: "4" or "4,tp=2,pp=1,zero=3". The ranks save and end, and the next attempt has that layout. */
bt_code bt_job_request_resize(bt_job *job, const char *arg, const char *by, bt_err *err)
    BT_MUST_CHECK;
/* the attempt ended as intended for a new layout, and steps remain */
bool bt_job_ended_to_resize(const bt_job *job, const bt_end *end);
/* the ranks saved and ended after a signal, without a request to this process so far (a notice of the system reaches
 * all processes) */
bool bt_job_left_unasked(const bt_job *job, const bt_end *end);
/* Applies a requested layout before an attempt that begins at job->from. true: the layout changed, and `told` describes
 * it. An impossible layout is a warning and changes nothing. */
bool bt_job_take_layout(bt_job *job, char *told, size_t size);
/* the layout request for the hosts in use and those that answer again; list: space for all hosts */
bt_resize_request bt_resize_request_of_hosts(const bt_job *job, bt_job_host *list);
/* requests that layout for the next attempt */
void bt_job_request_hosts(bt_job *job, const char *fmt, ...) BT_PRINTF(2, 3);
void bt_job_resized_event(bt_job *job, int ranks_before, const char *told);
bt_code bt_job_request(void *ctx, const char *verb, const char *arg, const char *who,
                       bt_text *answer, bt_err *err);
void bt_job_read_view(const bt_job *job, bt_job_view *v);

/* host_watch.c. open: reads the host file and contacts its hosts. BT_ARG: --elastic needs slots=N of each host. */
bt_code bt_job_hosts_open(bt_job *job, bt_err *err) BT_MUST_CHECK;
/* writes a host file of the hosts in use */
bt_code bt_job_hosts_file(bt_job *job, const char *folder, char *path, size_t size, bt_err *err)
    BT_MUST_CHECK;
/* if there are no new steps: checks all hosts, and ends the attempt if one is unreachable for
 * longer than TCP can recover */
void bt_job_hosts_check(bt_job *job, int64_t now);
void bt_job_hosts_tick(bt_job *job, int64_t now); /* contacts hosts that were set aside */
void bt_job_hosts_checkpoint(bt_job *job);        /* takes hosts back that answer */
/* true: unreachable hosts were set aside, and the run continues without them */
bool bt_job_hosts_ended(bt_job *job, const bt_end *end);
/* After a rank received a signal to leave: with --elastic, sets its host aside and returns true, and the run continues
 * without it. */
bool bt_job_hosts_left(bt_job *job);
void bt_job_hosts_begin(bt_job *job); /* call before the layout of an attempt is chosen */

#endif
