/* rank_progress.h - the supervisor's view of the black boxes of this host's ranks
 * (engine/base/progress_page.h): which rank delays the run.
 *
 * A rank is behind if it is in an earlier step, or in the same step before the gradient exchange
 * while other ranks are in it or past it. A rank that waits in an exchange is never behind the
 * ranks it waits for.
 * Order:    open -> (describe | slow)* -> close; in between the ranks map the file
 *           (bt_rank_progress_map).
 * Threads:  one. */
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
    int64_t *reported_since; /* (n) when the activity began that was reported last */
} bt_rank_progress;

typedef struct bt_rank_seen { /* place of a rank */
    int at, pid;              /* bt_activity */
    int64_t step, since_ns;
    int64_t exchanges; /* exchanges begun since its start */
} bt_rank_seen;

bt_rank_seen bt_rank_progress_read(const bt_rank_progress *p, int rank);
/* true if a rank is ending with an error message; also false if the state of some ranks is
 * unknown */
bool bt_rank_progress_failed(const bt_rank_progress *p);
/* a is behind b */
bool bt_rank_before(const bt_rank_seen *a, const bt_rank_seen *b);
/* "in the exchange of step 18" */
int bt_rank_progress_describe(char *out, size_t size, const bt_rank_seen *s);

/* makes the file */
bt_code bt_rank_progress_open(bt_rank_progress *p, const char *path, int ranks, bt_err *err)
    BT_MUST_CHECK;
void bt_rank_progress_close(bt_rank_progress *p); /* accepts all-zero */
/* called by a rank: returns its slot of the file, or NULL if it has none (rank of another host) */
bt_progress_page *bt_rank_progress_map(const char *path, int rank);

/* "rank 1 is in data of step 18 since 41 s; the others in the exchange of step 18"; if all ranks
 * of this host wait for remote ones: "the ranks of this host are in the exchange of step 18
 * since 41 s; rank 3 is not"; an activity of less than a second has no "since". rank: the only one
 * behind, or -1. false: unknown */
bool bt_rank_progress_describe_all(const bt_rank_progress *p, int64_t now_ns, char *out,
                                   size_t size, int *rank);
/* Finds the rank that all other ranks wait for, also before the first step: starting ranks are in the
 * same place, so the one with the fewest exchanges is behind. Text and *rank: see bt_rank_progress_describe_all */
bool bt_rank_progress_awaited(const bt_rank_progress *p, int64_t now_ns, char *out, size_t size,
                              int *rank);
/* Reports the only rank behind if it has been in its place for longer than limit_s, once per
 * activity. false: none */
bool bt_rank_progress_slow(bt_rank_progress *p, int64_t now_ns, double limit_s, char *out,
                           size_t size, int *rank);
/* The same for ranks of other hosts, which have no slot here: every rank of this host has waited
 * for longer than limit_s in the same place, so a remote rank has not arrived (or its link is
 * down). rank: the only candidate, or -1 */
bool bt_rank_progress_missing(bt_rank_progress *p, int64_t now_ns, double limit_s, char *out,
                              size_t size, int *rank);

#endif
