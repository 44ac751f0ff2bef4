/* rank_progress.h - the black boxes of the ranks of this host (engine/base/place.h), seen from the
 * supervisor: who holds up whom.
 *
 * Behind is who is in an earlier step, or in the same step still before the exchange of gradients
 * when others are in it or past it. Whoever waits in an exchange is never behind those he waits
 * for.
 * Order:    open -> (tell | slow)* -> close; the ranks map the file in between (bt_rank_progress_map). Threads: one. */
#ifndef BT_MONITOR_JOB_HEALTH_RANK_PROGRESS_H
#define BT_MONITOR_JOB_HEALTH_RANK_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/place.h"
#include "engine/base/status.h"

typedef struct bt_rank_progress {
    bt_place *slot; /* (n); NULL: none */
    int n;
    int64_t *told; /* (n) when the stay began that was told last */
} bt_rank_progress;

typedef struct bt_rank_seen { /* where a rank is */
    int at, pid;              /* bt_place_id */
    int64_t step, since_ns;
    int64_t exchanges; /* that it has begun since its start */
} bt_rank_seen;

bt_rank_seen bt_rank_progress_look(const bt_rank_progress *p, int rank);
/* a rank ends by itself, and says why: false also where nothing is known of some */
bool bt_rank_progress_failed(const bt_rank_progress *p);
/* a is behind b */
bool bt_rank_before(const bt_rank_seen *a, const bt_rank_seen *b);
/* "in the exchange of step 18" */
int bt_rank_progress_say(char *out, size_t size, const bt_rank_seen *s);

/* makes the file */
bt_code bt_rank_progress_open(bt_rank_progress *p, const char *path, int ranks, bt_err *err)
    BT_MUST_CHECK;
void bt_rank_progress_close(bt_rank_progress *p); /* accepts all-zero */
/* in a rank: its slot of the file, or NULL where there is none (a rank of another host) */
bt_place *bt_rank_progress_map(const char *path, int rank);

/* "rank 1 is in data of step 18 since 41 s; the others in the exchange of step 18"; where all of
 * this host wait and others are elsewhere: "the ranks of this host are in the exchange of step 18
 * since 41 s; rank 3 is not"; a stay of less than a second has no "since".
 * rank: the only one behind, or -1. false: nothing known */
bool bt_rank_progress_tell(const bt_rank_progress *p, int64_t now_ns, char *out, size_t size,
                           int *rank);
/* the rank that all others wait for, before the first step too: ranks at their start are in the same place, so the one
 * that has begun the fewest exchanges is behind. Text and *rank as for bt_rank_progress_tell. */
bool bt_rank_progress_awaited(const bt_rank_progress *p, int64_t now_ns, char *out, size_t size,
                              int *rank);
/* a rank that is alone behind and has been where it is for longer than limit_s; once a stay. false:
 * none */
bool bt_rank_progress_slow(bt_rank_progress *p, int64_t now_ns, double limit_s, char *out,
                           size_t size, int *rank);
/* the same for ranks of other hosts, which have no slot here: every rank of this host has waited
 * for longer than limit_s in the same place, so one that is not seen has not come there (or the
 * link to it is down). rank: the only one it can be, or -1 */
bool bt_rank_progress_missing(bt_rank_progress *p, int64_t now_ns, double limit_s, char *out,
                              size_t size, int *rank);

#endif
