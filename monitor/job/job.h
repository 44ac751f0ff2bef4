/* job.h - the inside of a bt_job. Private to monitor/job. */
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
    bt_child child; /* pid 0: none */
    bt_spare_socket socket;
    bt_rank_progress places;
    bt_output output;
    int ranks, folder;
    int started, failed; /* of the run; in a row by themselves */
    bool told;           /* all its ranks wait */
} bt_job_spare;

struct bt_job {
    const bt_job_setup *s;
    bt_job_result *result;
    bt_job_dirs scratch;
    char memory[300]; /* folder of the newest states; "": none */
    char map[300];    /* of the machine, in a file for local jobs; "": none */
    bt_wire_server *wire;
    bt_control_server *control;
    bt_output output;
    bt_health health;
    bt_rank_progress places; /* of this attempt */
    bt_hang_watch hang;      /* of ranks of this host */
    int64_t hang_look_ns;    /* when to look next */
    bt_restart_history history;
    bt_child child; /* pid 0: none runs */
    int folder;     /* number of its folder in the scratch: the attempt's, or a spare's */
    bt_job_spare spare;
    /* the ranks of this host, where they told who they are and this kernel has pidfds */
    bt_rank_watch watch;
    bool ended_by_us;    /* a rank was killed, and we ended the others and mpirun */
    bool died_otherwise; /* a rank ended in another way: what follows is mpirun's matter */
    /* the attempt before, until its records are kept and its folder is gone; session 0: it is */
    struct {
        int folder;
        pid_t session;
        bool recorded; /* its end was given to the writer */
    } past;
    bt_viewer viewer;
    /* what the wire delivers is looked at here, and goes to the writer as it came */
    bt_wire_into into;
    int signals;          /* signalfd */
    bt_resume_point from; /* where this attempt began */
    int64_t saved;        /* step of the newest checkpoint that the ranks saved; 0: none yet */

    /* of this attempt: the setup's, or of another layout */
    int world_size;
    const char *const *words;
    size_t n_words;
    struct {
        bool wanted, by_hosts; /* by_hosts: what the hosts alive take, `to` is empty */
        bt_job_wish to;
        char why[160];
    } resize;

    bt_hosts hosts;     /* of --hosts */
    bt_host *lost_host; /* for whose silence this attempt was ended; NULL: none */
    int stacks;         /* that ranks told since they were asked */
    int leaving;        /* rank that a signal told to leave in this attempt; -1: none */

    char where[200]; /* the ranks of this host were when the attempt ended; "": not known */

    int attempt;
    int64_t last_step; /* recorded in this attempt, -1: none */
    int64_t started_ns, restart_at_ns;
    int64_t memory_kills; /* bt_memory_kills_of_group when the attempt began */
    int fence,
        last_fence; /* of this attempt and of the one before: they grow even where no folder records them */
    double start_s;    /* longest time from a launch to the first connection so far; 0: none yet */
    bool launch_named; /* the user was informed that mpirun has started no rank */
    struct {
        int rank, pid;
    } ranks[BT_JOB_LOCAL_RANKS];
    int n_ranks; /* of this host, as they told */
    /* of other hosts, for messages */
    struct {
        int rank;
        char host[BT_HOST_MAX];
    } far[BT_JOB_REMOTE_RANKS];
    int n_remote;
    bool connected; /* a rank greeted in this attempt */
    bool complete;  /* and told its result */
    bool unstarted; /* a stop ended this attempt before a rank connected */

    bool stop_asked, stop_now, hung, paused, restarting;
    bool no_input; /* the keyboard is gone */
    /* verbs (BT_PENDING) for a rank that is not there yet */
    uint32_t pending;
    /* when a rank was first seen stopped by a signal, 0: none is; when to look next */
    int64_t stopped_ns, stopped_look_ns;
    int64_t stop_ns; /* when stop_now was asked */
    int64_t
        asked_ns; /* when the supervisor first saw a stop without a connected rank; 0: it has not */
    int64_t signal_ns; /* when the first signal to stop came; 0: none yet */
    bt_alert_rules alerts;
    struct {                /* the newest evaluation of the ranks */
        bool waits;         /* the rules have not counted its loss yet */
        int64_t step;       /* of the record that it belongs to */
        double loss;        /* from its event; NaN: not finite */
        int64_t counted_to; /* evaluations of earlier steps have been counted */
    } evaluation;
    int64_t alert_disk_ns; /* when to look at the disk next */
    /* wanted; that the ranks have (from their checkpoint, or told) */
    double lr_factor, told_factor;
};

/* ---- job_launch.c ---- */
typedef struct bt_job_ranks { /* how a job of ranks is launched */
    int folder;
    int attempt, fence;      /* of the run's record, of its checkpoints */
    const char *resume_from; /* with spare these come later, down the socket of that name */
    const char *spare;       /* "": they train at once */
} bt_job_ranks;
bt_code bt_job_launch(bt_job *job, const bt_job_ranks *how, bt_child *child,
                      bt_rank_progress *places, bt_err *err) BT_MUST_CHECK;
/* the number that fences the checkpoints of an attempt that starts now */
int bt_job_next_fence(bt_job *job);
/* path of a ring of records in the run's folder; false: the run is not recorded, or the path is too long */
bool bt_job_ring_path(const bt_job *job, const char *name, char *out, size_t size);

/* ---- job_attempt.c ---- */
bt_code bt_job_start_attempt(bt_job *job, bt_err *err) BT_MUST_CHECK;
void bt_job_show_attempt(const bt_job *job);
/* the ranks have told who they are: from here on their deaths are seen without mpirun */
void bt_job_watch_ranks(bt_job *job);
void bt_job_hear_deaths(bt_job *job);
/* the ranks hang: those of this host say where, and all are ended */
void bt_job_end_hung(bt_job *job);
/* after mpirun: no rank lives any more */
void bt_job_end_ranks(bt_job *job);
/* nothing of it runs; clear_away sees to its records and its folder */
void bt_job_attempt_over(bt_job *job);
void bt_job_clear_away(bt_job *job);
void bt_job_end_record(bt_job *job, const char *state, const char *kind, int status);
/* launches it, then closes the record of the one before as `end` (NULL: closed already) and clears it
 * away */
bt_code bt_job_next_attempt(bt_job *job, const char *reason, const bt_end *end, bt_err *err)
    BT_MUST_CHECK;

/* launch_watch.c. connected: the first rank of this attempt has connected. check: until then, a launch that takes too
 * long is named, then ended; a stop ends it soon, because nothing has to be saved */
void bt_job_launch_connected(bt_job *job, int64_t now);
void bt_job_launch_check(bt_job *job, int64_t now);

/* hot_spare.c. tick: starts one where launch.hot_spare says so and the run has got on; sees its end. serve:
 * takes the ranks that wait. take: the spare is the next attempt's job, which begins at job->from; false:
 * there is none, or none of this layout */
void bt_job_spare_tick(bt_job *job);
void bt_job_spare_serve(bt_job *job);
bool bt_job_spare_take(bt_job *job);
void bt_job_spare_end(bt_job *job);

/* alerts.c: the setup's rules against what the run says, does and has room for */
void bt_job_alerts_open(bt_job *job);
void bt_job_alerts_tick(bt_job *job, int64_t now);
void bt_job_alerts_evaluation(bt_job *job, const bt_event *e);
void bt_job_alerts_step(bt_job *job, const bt_step_record *r);
void bt_job_alerts_end(bt_job *job);

#define BT_PENDING(verb) (UINT32_C(1) << BT_VERB_##verb)

void bt_job_run_sink(bt_job *job); /* fills job->into */

/* job_events.c: into the database, onto the screen, to the alert rules */
void bt_job_event(bt_job *job, bt_event_kind kind, int rank, const char *fmt, ...) BT_PRINTF(4, 5);
/* no record for silent_s, which is longer than usual */
void bt_job_stalled(bt_job *job, int rank, double silent_s, const char *title);
void bt_job_show(bt_job *job, bt_event_kind kind, const char *text); /* on the screen only */
/* not on the screen */
void bt_job_record(bt_job *job, bt_event_kind kind, int rank, const char *title);
void bt_job_event_body(bt_job *job, bt_event_kind kind, const char *title, const char *body);

void bt_job_signal(bt_job *job, int signal);

/* send_verbs.c. waits_for_ranks: no rank is connected. tell: sends a verb to the ranks, now or when they are connected
 * (BT_BUSY: this verb is not offered then). send_pending: sends what was kept */
bool bt_job_waits_for_ranks(const bt_job *job);
bt_code bt_job_tell(bt_job *job, bt_verb verb, double value, bt_err *err) BT_MUST_CHECK;
void bt_job_send_pending(bt_job *job);

/* resize.c: "4" or "4,tp=2,pp=1,zero=3"; the ranks save and leave */
bt_code bt_job_resize_ask(bt_job *job, const char *arg, const char *by, bt_err *err) BT_MUST_CHECK;
/* the attempt ended in order because another number of ranks is wanted, and steps are left */
bool bt_job_ended_to_resize(const bt_job *job, const bt_end *end);
/* the ranks saved and left because a signal told them to, and nobody has asked this process for it (yet:
 * a notice comes to all) */
bool bt_job_left_unasked(const bt_job *job, const bt_end *end);
/* before an attempt that begins at job->from: the layout that is wanted, if any; true: it is another one,
 * and `told` says so. What cannot be is a warning, and the ranks stay as they were */
bool bt_job_take_layout(bt_job *job, char *told, size_t size);
/* the wish for a layout of the hosts in use and those that answer again; list: room for all hosts */
bt_job_wish bt_job_wish_of_hosts(const bt_job *job, bt_job_host *list);
/* the next attempt takes that layout */
void bt_job_want_hosts(bt_job *job, const char *fmt, ...) BT_PRINTF(2, 3);
void bt_job_resized_event(bt_job *job, int ranks_before, const char *told);
bt_code bt_job_request(void *ctx, const char *verb, const char *arg, const char *who,
                       bt_text *answer, bt_err *err);
void bt_job_look(const bt_job *job, bt_job_view *v);

/* host_watch.c. open: reads the host file and asks its hosts; BT_ARG where --elastic does not know their
 * slots */
bt_code bt_job_hosts_open(bt_job *job, bt_err *err) BT_MUST_CHECK;
/* path of a host file of those in use */
bt_code bt_job_hosts_file(bt_job *job, const char *folder, char *path, size_t size, bt_err *err)
    BT_MUST_CHECK;
/* steps stay away: are all hosts there? One that is not for longer than TCP mends ends the attempt */
void bt_job_hosts_check(bt_job *job, int64_t now);
void bt_job_hosts_tick(bt_job *job, int64_t now); /* asks those set aside */
void bt_job_hosts_checkpoint(bt_job *job);        /* takes back those that answer */
/* true: hosts were set aside, and the run goes on at once without them */
bool bt_job_hosts_ended(bt_job *job, const bt_end *end);
/* the ranks left because one of them was told to: with --elastic its host is set aside, and the run goes
 * on at once without it (true) */
bool bt_job_hosts_left(bt_job *job);
void bt_job_hosts_begin(bt_job *job); /* before an attempt's layout is chosen */

#endif
