/* rank_progress.c - maps the progress pages of the ranks and describes the position of each rank and its duration. */
#include "monitor/job/health/rank_progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/system/reserve.h"

/* order within a step; waits: the rank may be waiting for other ranks */
static const struct {
    const char *words;
    int order;
    bool waits;
} places[BT_AT_COUNT] = {
    [BT_AT_NOWHERE] = {"not there yet", 0, false},
    [BT_AT_START] = {"at the start", 0, true},
    [BT_AT_DATA] = {"in data", 1, false},
    [BT_AT_COMPUTE] = {"in forward and backward", 1, false},
    [BT_AT_EXCHANGE] = {"in the exchange", 2, true},
    [BT_AT_OPTIMIZER] = {"in the optimizer", 3, true},
    [BT_AT_CHECKPOINT] = {"in a checkpoint", 6, true},
    [BT_AT_EVALUATION] = {"in an evaluation", 4, true},
    [BT_AT_RECORD] = {"recording measurements", 5, true},
    [BT_AT_PAUSE] = {"in a pause", 7, true},
    [BT_AT_END] = {"at the end", 8, true},
    [BT_AT_HUB] = {"in the exchange with the hub", 3, true},
};

typedef bt_rank_seen seen;

static seen read_progress_page(const bt_progress_page *p) {
    seen s = {.at = atomic_load_explicit(&p->at, memory_order_acquire),
              .pid = atomic_load_explicit(&p->pid, memory_order_relaxed)};
    s.step = atomic_load_explicit(&p->step, memory_order_relaxed);
    s.since_ns = atomic_load_explicit(&p->since_ns, memory_order_relaxed);
    s.exchanges = atomic_load_explicit(&p->exchanges, memory_order_relaxed);
    if (s.at < 0 || s.at >= BT_AT_COUNT) s.at = BT_AT_NOWHERE;
    /* A dying rank may have written half of its page, so times and steps are limited to valid ranges. */
    if (s.since_ns < 0) s.since_ns = 0;
    if (s.step < -1 || s.step == INT64_MAX) s.step = -1;
    return s;
}

bt_rank_seen bt_rank_progress_read(const bt_rank_progress *p, int rank) {
    return read_progress_page(&p->slot[rank]);
}

bool bt_rank_progress_failed(const bt_rank_progress *p) {
    for (int r = 0; r < p->n; r++)
        if (atomic_load(&p->slot[r].failed)) return true;
    return false;
}

bool bt_rank_before(const bt_rank_seen *a, const bt_rank_seen *b) {
    return a->step != b->step ? a->step < b->step : places[a->at].order < places[b->at].order;
}

/* Finds the rank furthest behind, the number of ranks at its position, and the rank furthest ahead. Returns false if
 * no rank has started. */
static bool find_hindmost_and_foremost(const bt_rank_progress *p, seen *last, int *n_last, int *who,
                                       seen *first, int *known) {
    *known = *n_last = 0;
    *who = -1;
    for (int r = 0; r < p->n; r++) {
        seen s = read_progress_page(&p->slot[r]);
        if (s.at == BT_AT_NOWHERE) continue;
        if (*known == 0 || bt_rank_before(first, &s)) *first = s;
        if (*known == 0 || bt_rank_before(&s, last))
            *last = s, *n_last = 1, *who = r;
        else if (!bt_rank_before(last, &s))
            ++*n_last;
        ++*known;
    }
    return *known > 0;
}

int bt_rank_progress_describe(char *out, size_t size, const bt_rank_seen *s) {
    if (s->at == BT_AT_START || s->at == BT_AT_END)
        return snprintf(out, size, "%s", places[s->at].words);
    return snprintf(out, size, "%s of step %lld", places[s->at].words, (long long)s->step + 1);
}

/* Names the ranks without a slot: "rank 3", "ranks 2, 3 and 5 more". Returns the only rank behind, or -1. */
static int list_ranks_without_slot(const bt_rank_progress *p, char *out, size_t size) {
    int n = 0, only = -1;
    size_t used = 0;
    out[0] = '\0';
    for (int r = 0; r < p->n; r++) {
        if (read_progress_page(&p->slot[r]).at != BT_AT_NOWHERE) continue;
        if (n < 4) used += (size_t)snprintf(out + used, size - used, n ? ", %d" : "%d", r);
        only = n++ ? -1 : r;
    }
    if (n > 4) snprintf(out + used, size - used, " and %d more", n - 4);
    return only;
}

/* True if all visible ranks wait at one position for an invisible one. */
static bool is_waiting_for_invisible_rank(const bt_rank_progress *p, const seen *last,
                                          const seen *first, int known) {
    return known < p->n && places[last->at].waits && last->at != BT_AT_START &&
           last->at != BT_AT_PAUSE && last->at != BT_AT_END && last->at != BT_AT_HUB &&
           !bt_rank_before(last, first);
}

/* Returns the time at which the last visible rank arrived. */
static int64_t latest_arrival(const bt_rank_progress *p) {
    int64_t ns = 0;
    for (int r = 0; r < p->n; r++) {
        const int64_t since_ns = read_progress_page(&p->slot[r]).since_ns;
        if (since_ns > ns) ns = since_ns;
    }
    return ns;
}

bool bt_rank_progress_describe_all(const bt_rank_progress *p, int64_t now_ns, char *out,
                                   size_t size, int *rank) {
    seen last, first;
    int n_last, who, known;
    char here[80], there[80], since[32] = "";
    out[0] = '\0';
    *rank = -1;
    if (!p->slot || !find_hindmost_and_foremost(p, &last, &n_last, &who, &first, &known))
        return false;
    bt_rank_progress_describe(here, sizeof here, &last);
    bt_rank_progress_describe(there, sizeof there, &first);
    const bool together = !bt_rank_before(&last, &first);
    double s = (double)(now_ns - (together ? latest_arrival(p) : last.since_ns)) / 1e9;
    if (s >= 1) snprintf(since, sizeof since, " since %.1f s", s);
    if (is_waiting_for_invisible_rank(p, &last, &first, known)) {
        char who_not[64];
        *rank = list_ranks_without_slot(p, who_not, sizeof who_not);
        snprintf(out, size, "the ranks of this host are %s%s; rank%s %s %s not", here, since,
                 *rank < 0 ? "s" : "", who_not, *rank < 0 ? "are" : "is");
    } else if (together && known < p->n) {
        char unseen[64];
        const int only = list_ranks_without_slot(p, unseen, sizeof unseen);
        snprintf(out, size, "the ranks of this host are %s%s; rank%s %s %s not seen from here",
                 here, since, only < 0 ? "s" : "", unseen, only < 0 ? "are" : "is");
    } else if (together)
        snprintf(out, size, "%s %s%s", p->n == 1 ? "the rank is" : "all ranks are", here, since);
    else if (n_last == 1) {
        *rank = who;
        snprintf(out, size, "rank %d is %s%s; %s %s", who, here, since,
                 known == 2 ? "the other" : "other ranks wait", there);
    } else
        snprintf(out, size, "%d ranks (first of them rank %d) are %s%s; other ranks wait %s",
                 n_last, who, here, since, there);
    return true;
}

bool bt_rank_progress_awaited(const bt_rank_progress *p, int64_t now_ns, char *out, size_t size,
                              int *rank) {
    int64_t least = INT64_MAX, most = -1;
    int n_least = 0, n_start = 0, who = -1;
    for (int r = 0; p->slot && r < p->n; r++) {
        const seen s = read_progress_page(&p->slot[r]);
        if (s.at == BT_AT_START) n_start++;
        if (s.exchanges > most) most = s.exchanges;
        if (s.exchanges < least) least = s.exchanges, n_least = 0, who = r;
        if (s.exchanges == least) n_least++;
    }
    if (n_start < 2 || n_start < p->n || n_least != 1)
        return bt_rank_progress_describe_all(p, now_ns, out, size, rank);
    *rank = who;
    snprintf(
        out, size,
        "rank %d (pid %d) is at the start, after %lld exchanges; the other ranks wait for it in "
        "exchange %lld",
        who, read_progress_page(&p->slot[who]).pid, (long long)least, (long long)most);
    return true;
}

bool bt_rank_progress_slow(bt_rank_progress *p, int64_t now_ns, double limit_s, char *out,
                           size_t size, int *rank) {
    seen last, first;
    int n_last, known;
    char here[80];
    if (!p->slot || !find_hindmost_and_foremost(p, &last, &n_last, rank, &first, &known) ||
        n_last != 1 || !bt_rank_before(&last, &first) || places[last.at].waits)
        return false;
    double s = (double)(now_ns - last.since_ns) / 1e9;
    if (s < limit_s || p->reported_since[*rank] == last.since_ns) return false;
    p->reported_since[*rank] = last.since_ns;
    bt_rank_progress_describe(here, sizeof here, &last);
    snprintf(out, size, "rank %d is %s since %.1f s, the other ranks wait for it", *rank, here, s);
    return true;
}

bool bt_rank_progress_missing(bt_rank_progress *p, int64_t now_ns, double limit_s, char *out,
                              size_t size, int *rank) {
    seen last, first;
    int n_last, who, known;
    char here[80], unseen[64];
    if (!p->slot || !find_hindmost_and_foremost(p, &last, &n_last, &who, &first, &known) ||
        !is_waiting_for_invisible_rank(p, &last, &first, known))
        return false;
    const int64_t since = latest_arrival(p);
    const double s = (double)(now_ns - since) / 1e9;
    *rank = list_ranks_without_slot(p, unseen, sizeof unseen);
    if (s < limit_s || p->reported_since[who] == since) return false;
    p->reported_since[who] = since;
    bt_rank_progress_describe(here, sizeof here, &last);
    snprintf(out, size,
             *rank >= 0 ? "rank %s is not %s, where the other ranks wait since %.1f s"
                        : "one of the ranks %s is not %s, where the other ranks wait since %.1f s",
             unseen, here, s);
    return true;
}

static bt_progress_page *map_progress_pages(int fd, size_t bytes) {
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return m == MAP_FAILED ? NULL : m;
}

bt_code bt_rank_progress_open(bt_rank_progress *p, const char *path, int ranks, bt_err *err) {
    *p = (bt_rank_progress){.n = ranks};
    size_t bytes = (size_t)ranks * sizeof(bt_progress_page);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", path);
    /* Reserves space, because a missing page later would kill the rank. */
    int rc = bt_file_reserve(fd, bytes);
    if (rc == 0 && !(p->slot = map_progress_pages(fd, bytes))) rc = errno;
    p->reported_since = calloc((size_t)ranks, sizeof *p->reported_since);
    close(fd);
    if (p->slot && p->reported_since) return BT_OK;
    bt_rank_progress_close(p);
    unlink(path);
    return bt_fail_errno(err, BT_IO, rc, "cannot take %zu bytes for '%s'", bytes, path);
}

void bt_rank_progress_close(bt_rank_progress *p) {
    if (p->slot) munmap(p->slot, (size_t)p->n * sizeof(bt_progress_page));
    free(p->reported_since);
    *p = (bt_rank_progress){0};
}

bt_progress_page *bt_rank_progress_map(const char *path, int rank) {
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    bt_progress_page *slots = NULL;
    if (fstat(fd, &st) == 0 && st.st_size >= (off_t)((size_t)(rank + 1) * sizeof(bt_progress_page)))
        slots = map_progress_pages(fd, (size_t)st.st_size);
    close(fd);
    if (!slots) return NULL;
    atomic_store(&slots[rank].pid, (int32_t)getpid());
    return &slots[rank]; /* remains mapped until the process ends */
}
