/* direct_watch.c - a thread that waits for the ends of the other ranks of this host, and reports and records a
 * lost rank. */
#include "cli/train/direct_watch.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/os/own_process.h"
#include "engine/base/os/wake_fd.h"
#include "engine/parallel/mpi/comm.h"
#include "monitor/job/launch/rank_watch.h"

/* A rank that failed prints its own reason, as do the ranks that receive its error. */
enum { OWN_WORD_MS = 200, SECOND_LOOK_MS = 1000 };

typedef struct peer {
    int64_t pid, space; /* space: pid namespace of the rank */
} peer;

struct bt_direct_watch {
    bt_rank_watch ranks;
    char run[BT_NAME_MAX];
    bt_writer *writer;
    int me, stop; /* stop: becomes readable at the end of the watch */
    pthread_t thread;
    bool running;
    bool gone[BT_RANK_WATCH_MAX]; /* indexed like ranks.at */
};

static bool is_stop_requested(const bt_direct_watch *w, int wait_ms) {
    struct pollfd p = {w->stop, POLLIN, 0};
    return poll(&p, 1, wait_ms) > 0;
}

/* The lowest remaining rank of this host reports the loss. */
static bool is_lowest_remaining_rank(const bt_direct_watch *w) {
    for (size_t i = 0; i < w->ranks.n; i++)
        if (w->ranks.at[i].rank < w->me && !w->gone[i]) return false;
    return true;
}

static void record_lost_rank(bt_direct_watch *w, int rank, const char *what) {
    bt_err err = BT_ERR_INIT;
    const bt_event e = {.kind = BT_EVENT_FAILURE,
                        .step = bt_writer_committed_step(w->writer),
                        .rank = rank,
                        .title = what};
    const bt_sink *sink = bt_writer_sink(w->writer);
    sink->event(sink->ctx, &e);
    if (bt_writer_end(w->writer, "failed", "signal", BT_LOST_RANK_EXIT, &err) != BT_OK)
        bt_log(BT_LOG_WARN, "%s", err.msg);
    bool withdrawn;
    if (bt_writer_withdraw(w->writer, &withdrawn, &err) != BT_OK)
        bt_log(BT_LOG_WARN, "%s", err.msg);
}

static void mark_rank_gone(bt_direct_watch *w, int rank) {
    for (size_t i = 0; i < w->ranks.n; i++)
        if (w->ranks.at[i].rank == rank) w->gone[i] = true;
}

static void *watch_direct_ranks(void *arg) {
    bt_direct_watch *w = arg;
    char what[160], by[64] = "";
    struct pollfd p[2] = {{w->ranks.epoll, POLLIN, 0}, {w->stop, POLLIN, 0}};
    int signal = 0, rank = -1;
    while (rank < 0) {
        if (poll(p, 2, SECOND_LOOK_MS) < 0) continue;
        if (p[1].revents) return NULL;
        if (p[0].revents) rank = bt_rank_watch_next(&w->ranks, &signal);
    }
    mark_rank_gone(w, rank);
    if (is_stop_requested(w, OWN_WORD_MS)) return NULL;
    for (int more, other; (more = bt_rank_watch_next(&w->ranks, &other)) >= 0;)
        mark_rank_gone(w, more);
    const bool first = is_lowest_remaining_rank(w);
    if (signal) snprintf(by, sizeof by, " by signal %d (%s)", signal, strsignal(signal));
    snprintf(what, sizeof what, "rank %d (pid %d) was ended%s", rank,
             (int)bt_rank_watch_pid(&w->ranks, rank), by);
    if (w->writer) record_lost_rank(w, rank, what);
    if (first)
        fprintf(
            stderr,
            "bitrain train: %s: the other ranks end as well (continue with: bitrain train --resume "
            "%s)\n",
            what, w->run);
    _exit(BT_LOST_RANK_EXIT);
}

static peer describe_this_rank(void) {
    return (peer){.pid = getpid(), .space = bt_process_namespace()};
}

static bt_code add_host_ranks(bt_direct_watch *w, bt_err *err) {
    bt_comm *world = bt_comm_world();
    const int n = bt_comm_size(world);
    const peer mine = describe_this_rank();
    peer *all = calloc((size_t)n, sizeof *all);
    bt_code code = bt_agree(world,
                            all ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for %d ranks", n), err);
    if (code == BT_OK) code = bt_all_gather(world, &mine, sizeof mine, all, err);
    for (int r = 0; code == BT_OK && r < n; r++)
        if (r != w->me && mine.space >= 0 && all[r].space == mine.space &&
            bt_comm_host(r) == bt_comm_host(w->me))
            bt_rank_watch_add(&w->ranks, r, (pid_t)all[r].pid);
    free(all);
    return code;
}

static bt_code start_direct_watch(bt_direct_watch *w, bt_err *err) {
    sigset_t all, old;
    w->stop = bt_wake_fd_create();
    if (w->stop < 0)
        return bt_fail(err, BT_IO,
                       "cannot create a descriptor to end the thread that watches ranks");
    sigfillset(&all); /* only the training thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    w->running = pthread_create(&w->thread, NULL, watch_direct_ranks, w) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return w->running ? BT_OK
                      : bt_fail(err, BT_NOMEM, "cannot start the thread that watches ranks");
}

bt_code bt_direct_watch_open(bt_direct_watch **out, const char *run, bt_writer *writer,
                             bt_err *err) {
    *out = NULL;
    if (bt_comm_size(bt_comm_world()) == 1) return BT_OK;
    bt_direct_watch *w = calloc(1, sizeof *w);
    bt_code code = w ? BT_OK : bt_fail(err, BT_NOMEM, "no memory to watch the other ranks");
    code = bt_agree(bt_comm_world(), code, err);
    if (code != BT_OK) {
        free(w);
        return code;
    }
    w->me = bt_comm_rank(bt_comm_world());
    w->writer = writer;
    w->stop = -1;
    snprintf(w->run, sizeof w->run, "%s", run);
    const bool can = bt_rank_watch_open(&w->ranks);
    code = add_host_ranks(w, err);
    if (code == BT_OK && can && w->ranks.n) code = start_direct_watch(w, err);
    if (code != BT_OK) {
        bt_direct_watch_close(w);
        return code;
    }
    *out = w;
    return BT_OK;
}

void bt_direct_watch_close(bt_direct_watch *w) {
    if (!w) return;
    if (w->running && bt_wake_fd_notify(w->stop)) pthread_join(w->thread, NULL);
    if (w->stop >= 0) close(w->stop);
    bt_rank_watch_close(&w->ranks);
    free(w);
}
