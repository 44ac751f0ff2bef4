/* rank_progress.h - reads the progress pages of this host's ranks (engine/base/progress_page.h) to find the rank that
 * delays the run.
 *
 * A rank is behind if it is in an earlier step, or in the same step before the gradient exchange while other ranks are
 * in it or past it. A rank that waits in an exchange is never behind the ranks it waits for.
 * Order: open -> (describe | slow)* -> close; ranks map the file meanwhile (bt_rank_progress_map). Threads: one. */
#ifndef BT_MONITOR_JOB_HEALTH_RANK_PROGRESS_H
#define BT_MONITOR_JOB_HEALTH_RANK_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/progress_page.h"
#include "engine/base/status.h"

typedef struct bt_rank_progress {
    bt_progress_page *slot; /* (n); NULL: none */
    int n;
    int64_t *reported_since; /* (n) start of the activity that was reported last */
} bt_rank_progress;

typedef struct bt_rank_seen { /* position of a rank */
    int at, pid;              /* bt_activity */
    int64_t step, since_ns;
    int64_t exchanges;
} bt_rank_seen;

bt_rank_seen bt_rank_progress_read(const bt_rank_progress *p, int rank);
/* True if a rank is ending with an error message; false if the state of some ranks is unknown. */
bool bt_rank_progress_failed(const bt_rank_progress *p);
/* Returns true if a is behind b. */
bool bt_rank_before(const bt_rank_seen *a, const bt_rank_seen *b);
/* Writes for example "in the exchange of step 18". */
int bt_rank_progress_describe(char *out, size_t size, const bt_rank_seen *s);

/* Creates the file. */
bt_code bt_rank_progress_open(bt_rank_progress *p, const char *path, int ranks, bt_err *err)
    BT_MUST_CHECK;
void bt_rank_progress_close(bt_rank_progress *p); /* accepts all-zero */
/* Called by a rank: returns its slot in the file, or NULL if it has none (rank of another host). */
bt_progress_page *bt_rank_progress_map(const char *path, int rank);

/* Writes for example "rank 1 is in data of step 18 since 41 s; the others in the exchange of step 18"; if all ranks
 * of this host wait for remote ranks: "the ranks of this host are in the exchange of step 18 since 41 s; rank 3 is
 * not". Durations below one second are omitted. rank receives the rank if only one is behind, and -1 otherwise. Returns
 * false if unknown. */
bool bt_rank_progress_describe_all(const bt_rank_progress *p, int64_t now_ns, char *out,
                                   size_t size, int *rank);
/* Finds the rank for which all other ranks wait, also before the first step: there all ranks are at the same
 * position, and the one with the fewest exchanges is behind. Text and *rank: see bt_rank_progress_describe_all. */
bool bt_rank_progress_awaited(const bt_rank_progress *p, int64_t now_ns, char *out, size_t size,
                              int *rank);
/* Reports the only rank behind if it has been at its position for longer than limit_s, once per activity. Returns
 * false if there is none. */
bool bt_rank_progress_slow(bt_rank_progress *p, int64_t now_ns, double limit_s, char *out,
                           size_t size, int *rank);
/* Reports missing ranks of other hosts, which have no slot here: every rank of this host has waited for longer than
 * limit_s at the same position, so a remote rank has not arrived (or its link is down). rank: the only candidate, or
 * -1. */
bool bt_rank_progress_missing(bt_rank_progress *p, int64_t now_ns, double limit_s, char *out,
                              size_t size, int *rank);

#endif
