/* hang_watch.c - maintains a clock for each rank, and reads their states from /proc. */
#include "monitor/job/health/hang_watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/os/machine_info.h"
#include "engine/base/os/process_info.h"
#include "engine/base/os/process_usage.h"

static const double LEAST_S = 2, LEAST_IO_S = 30, STEPS = 5, STAYS = 3, STAYS_IO = 10, RUNNING = 3;
static const int64_t LATE_NS =
    150000000; /* a longer interval between two checks counts as delay of this process */
enum { DOUBLINGS = 5 };

struct bt_hang_rank {
    bt_rank_seen seen;
    int64_t ran_ns, waited_ns; /* times of the rank's threads at the newest check */
    int64_t disk_ns; /* sum of the intervals in this activity whose checks found the rank blocked */
    int64_t stuck_ns; /* value of the clock at the newest check, with the disk wait */
};

bool bt_rank_load_read(void *ctx, int pid, bt_rank_load *out) {
    bt_process_info info;
    bt_process_schedule times;
    (void)ctx;
    *out = (bt_rank_load){0};
    if (!bt_process_info_read(pid, &info) || !bt_process_schedule_read(pid, &times)) return false;
    *out = (bt_rank_load){.state = info.state == 'S' && times.runs ? 'R' : info.state,
                          .ran_ns = times.ran_ns,
                          .waited_ns = times.waited_ns};
    return true;
}

bool bt_machine_time_read(void *ctx, bt_machine_time *out) {
    bt_processor_times times;
    (void)ctx;
    if (!bt_machine_times(&times)) return false;
    *out = (bt_machine_time){.worked = times.worked, .stolen = times.stolen};
    return true;
}

bt_code bt_hang_open(bt_hang_watch *h, int ranks, bt_rank_load_fn *load, void *ctx, bt_err *err) {
    *h = (bt_hang_watch){.load = load, .time = bt_machine_time_read, .ctx = ctx, .n = ranks};
    h->rank = calloc((size_t)ranks, sizeof *h->rank);
    if (h->rank) return BT_OK;
    h->n = 0;
    return bt_fail(err, BT_NOMEM, "cannot take memory to watch %d ranks", ranks);
}

void bt_hang_close(bt_hang_watch *h) {
    free(h->rank);
    *h = (bt_hang_watch){0};
}

void bt_hang_anew(bt_hang_watch *h) {
    if (h->rank) memset(h->rank, 0, (size_t)h->n * sizeof *h->rank);
}

/* Share of processor time since the previous check that the hypervisor gave to other machines. The value of the
 * first check is not used, because each rank's clock starts with that check. */
static double stolen_share(bt_hang_watch *h) {
    bt_machine_time now;
    if (!h->time(h->ctx, &now)) return 0;
    const double worked = (double)(now.worked - h->before.worked),
                 stolen = (double)(now.stolen - h->before.stolen);
    h->before = now;
    return !(stolen > 0) || worked < 0 ? 0 : stolen / (worked + stolen);
}

static bool is_checkpoint_or_evaluation(int at) {
    return at == BT_AT_CHECKPOINT || at == BT_AT_EVALUATION;
}
static bool is_ordinary_activity(int at) {
    return at >= BT_AT_DATA && at <= BT_AT_RECORD && !is_checkpoint_or_evaluation(at);
}

static int64_t clamp_ns(int64_t ns, int64_t most) { return ns < 0 ? 0 : ns > most ? most : ns; }

/* Returns by how much a clock advances between two checks. A runnable rank counts the time that it ran: the kernel adds
 * a wait for a processor to its statistics only when the wait has ended. */
static int64_t clock_advance(const struct bt_hang_rank *k, const bt_rank_load *load, int64_t gap_ns,
                             int64_t late_ns) {
    const int64_t own = load->state == 'R'
                            ? clamp_ns(load->ran_ns - k->ran_ns, gap_ns)
                            : gap_ns - clamp_ns(load->waited_ns - k->waited_ns, gap_ns);
    return clamp_ns(own - late_ns, gap_ns);
}

static double clock_seconds(const struct bt_hang_rank *k) { return (double)k->stuck_ns / 1e9; }

/* Advances one rank's clock. Returns false if the rank has no process. */
static bool advance_rank_clock(bt_hang_watch *h, const bt_rank_progress *p, int r, int64_t now_ns,
                               int64_t gap_ns, int64_t late_ns, bt_rank_load *load) {
    struct bt_hang_rank *k = &h->rank[r];
    const bt_rank_seen s = bt_rank_progress_read(p, r);
    if (s.at == BT_AT_NOWHERE || !h->load(h->ctx, s.pid, load)) return false;
    const bool first = k->seen.at == BT_AT_NOWHERE;
    if (s.at != k->seen.at || s.since_ns != k->seen.since_ns) {
        double *longest = is_checkpoint_or_evaluation(k->seen.at) ? &h->longest_io : &h->longest_s;
        if (is_checkpoint_or_evaluation(k->seen.at) || is_ordinary_activity(k->seen.at))
            *longest = fmax(*longest, clock_seconds(k));
        /* Nothing is known about the time before the first check, or between two distant checks. */
        *k = (struct bt_hang_rank){.seen = s,
                                   .stuck_ns = first || late_ns ? 0 : now_ns - s.since_ns};
    } else {
        k->stuck_ns += clock_advance(k, load, gap_ns, late_ns);
        if (load->state == 'D') k->disk_ns += gap_ns - late_ns;
        k->seen.exchanges = s.exchanges;
    }
    k->ran_ns = load->ran_ns;
    k->waited_ns = load->waited_ns;
    return true;
}

/* ranks that are furthest behind */

typedef struct ranks_behind {
    int rank, n, n_blocked,
        blocked; /* first rank; number of ranks; number that sleep; last of those that wait for the disk */
    int known;
    bool on_disk, stopped;
    double stuck_s; /* shortest clock */
    double disk_s;  /* longest disk wait of a rank in its activity */
} ranks_behind;

static double hang_limit_s(const bt_hang_watch *h, const ranks_behind *b, double median_s) {
    const int at = h->rank[b->rank].seen.at;
    if (is_checkpoint_or_evaluation(at) || (b->on_disk && is_ordinary_activity(at)))
        return fmax(LEAST_IO_S, STAYS_IO * h->longest_io);
    if (!is_ordinary_activity(at)) return INFINITY;
    const double least = b->n_blocked ? LEAST_S : RUNNING * LEAST_S,
                 s = median_s > 0 ? fmax(least, fmax(STEPS * median_s, STAYS * h->longest_s))
                                  : LEAST_IO_S;
    return ldexp(s, h->found < DOUBLINGS ? h->found : DOUBLINGS) + b->disk_s;
}

static void add_rank_behind(ranks_behind *b, const bt_hang_watch *h, int r,
                            const bt_rank_load *load) {
    if (b->n++ == 0) b->rank = r;
    b->on_disk |= load->state == 'D';
    b->stopped |= load->state == 'T' || load->state == 't';
    b->stuck_s = fmin(b->stuck_s, clock_seconds(&h->rank[r]));
    b->disk_s = fmax(b->disk_s, (double)h->rank[r].disk_ns / 1e9);
    if (load->state == 'S' || load->state == 'D') b->n_blocked++, b->blocked = r;
}

/* Writes for example ", after 412 exchanges, of which another rank has begun 413"; "" if exchanges are not counted. */
static void put_exchange_counts(const bt_hang_watch *h, const struct bt_hang_rank *k, char *out,
                                size_t size) {
    int64_t most = k->seen.exchanges;
    for (int r = 0; r < h->n; r++)
        if (h->rank[r].seen.at != BT_AT_NOWHERE && h->rank[r].seen.exchanges > most)
            most = h->rank[r].seen.exchanges;
    out[0] = '\0';
    if (k->seen.exchanges < 1) return;
    const int n = snprintf(out, size, ", after %lld exchanges", (long long)k->seen.exchanges);
    if (most > k->seen.exchanges)
        snprintf(out + n, size - (size_t)n, " (another rank: %lld)", (long long)most);
}

static void describe_hang(const bt_hang_watch *h, const ranks_behind *b, bt_hang *out) {
    char where[100], wchan[64], exchanges[80];
    const struct bt_hang_rank *k = &h->rank[out->rank >= 0 ? out->rank : b->rank];
    const double since_s = (double)(h->last_ns - k->seen.since_ns) / 1e9;
    bt_rank_progress_describe(where, sizeof where, &k->seen);
    put_exchange_counts(h, k, exchanges, sizeof exchanges);
    bt_process_sleeps_in(k->seen.pid, wchan, sizeof wchan);
    if (out->rank < 0)
        snprintf(
            out->what, sizeof out->what,
            "all %d ranks are %s since %.1f s%s and none continues (the transport between them, or "
            "one of them)",
            b->n, where, since_s, exchanges);
    else
        snprintf(out->what, sizeof out->what, "rank %d (pid %d) is %s since %.1f s, %s%s%s%s%s",
                 out->rank, k->seen.pid, where, since_s,
                 out->rank == b->blocked && b->n_blocked ? "asleep" : "running",
                 wchan[0] && b->n_blocked ? " in " : "", b->n_blocked ? wchan : "", exchanges,
                 b->known > b->n ? "; the other ranks wait for it" : "");
}

bool bt_hang_check(bt_hang_watch *h, const bt_rank_progress *p, int64_t now_ns, double median_s,
                   bt_hang *out) {
    const int64_t gap = now_ns - h->last_ns;
    ranks_behind b = {.rank = -1, .blocked = -1, .stuck_s = INFINITY};
    if (!p->slot || p->n > h->n) return false;
    const double stolen = stolen_share(h);
    const int64_t late = gap > LATE_NS ? gap : (int64_t)(stolen * (double)gap);
    h->last_ns = now_ns;
    for (int r = 0; r < p->n; r++) {
        bt_rank_load load;
        if (!advance_rank_clock(h, p, r, now_ns, gap, late, &load)) continue;
        b.known++;
        if (b.n && bt_rank_before(&h->rank[b.rank].seen, &h->rank[r].seen)) continue;
        if (b.n && bt_rank_before(&h->rank[r].seen, &h->rank[b.rank].seen))
            b = (ranks_behind){.known = b.known, .rank = -1, .blocked = -1, .stuck_s = INFINITY};
        add_rank_behind(&b, h, r, &load);
    }
    if (!b.n || b.stopped || b.known < p->n) return false;
    const double limit = hang_limit_s(h, &b, median_s);
    if (!(b.stuck_s > limit)) return false;
    h->found++;
    *out = (bt_hang){.rank = b.n == 1           ? b.rank
                             : b.n_blocked == 1 ? b.blocked
                                                : -1,
                     .stuck_s = b.stuck_s,
                     .limit_s = limit};
    describe_hang(h, &b, out);
    return true;
}
