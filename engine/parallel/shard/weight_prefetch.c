/* weight_prefetch.c - messages of one part between each pair of shards; see weight_prefetch.h.
 *
 * There is no deadlock: before a rank waits for visit v it has sent all data needed by other ranks up to v +
 * BT_PREFETCH_AHEAD, so that the rank at the least visit finds all its data in flight. Beyond that a message needs
 * MPI's progress at its sender; a rank that waits for something else (a tensor-parallel group) calls the idle
 * hooks. */
#include "engine/parallel/shard/weight_prefetch.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/threads.h"
#include "engine/parallel/mpi/comm_internal.h"

/* SENDS: maximum number in flight to one rank. No rank is more than BT_PREFETCH_AHEAD visits ahead of another, so
 * a rank that still visits never waits for room. */
enum { TAG = 30001, RING = 2, SENDS = 4 * BT_PREFETCH_AHEAD, POLL_NS = 50000 };

struct bt_prefetch {
    bt_prefetch_cfg cfg;
    int rank, size;
    MPI_Comm mpi;
    size_t slot_bytes;
    unsigned char *ring;       /* (RING, slot_bytes) */
    MPI_Request *asks, *sends; /* requests: (RING, shards) and (SENDS, shards) */
    bt_passes walk;
    size_t *visits; /* (shards) number of visits in this walk */
    size_t most_visits;
    size_t sent; /* visits whose data were sent to all ranks */
    /* numbers of this rank's visits that were requested, have arrived, and are in use */
    size_t asked, arrived, place;
    int64_t busy_since, busy_ns, polled_at;
};

size_t bt_prefetch_visits(bt_passes walk, size_t n, size_t passes) {
    if (n == 0 || passes == 0) return 0;
    if (n == 1) return 1;
    return walk == BT_PASSES_FORWARD ? passes * n : passes * 2 * (n - 1) + 1;
}

static size_t part_of_visit(const bt_prefetch *f, size_t visit) {
    size_t n = f->cfg.n_parts;
    if (n == 1) return 0;
    if (f->walk == BT_PASSES_FORWARD) return visit % n;
    size_t k = visit % (2 * (n - 1));
    return k < n ? k : 2 * (n - 1) - k;
}

static size_t begin_of(const bt_prefetch *f, int shard, size_t part) {
    return f->cfg.at[(size_t)shard * (f->cfg.n_parts + 1) + part];
}
static size_t part_bytes(const bt_prefetch *f, int shard, size_t part) {
    return begin_of(f, shard, part + 1) - begin_of(f, shard, part);
}

/* Returns the offset of a shard's bytes of the part in a slot; for shard `size`, their sum. */
static size_t offset_in_slot(const bt_prefetch *f, int shard, size_t part) {
    size_t at = 0;
    for (int s = 0; s < shard; s++)
        if (s != f->rank) at += part_bytes(f, s, part);
    return at;
}

size_t bt_prefetch_bytes(size_t longest) { return RING * longest; }

bt_code bt_prefetch_create(bt_prefetch **out, const bt_prefetch_cfg *cfg, bt_err *err) {
    *out = NULL;
    const bt_comm *c = cfg->mesh->shard;
    bt_prefetch *f = calloc(1, sizeof *f);
    if (!f)
        return bt_fail(err, BT_NOMEM, "cannot take memory for the gathering of %zu parts",
                       cfg->n_parts);
    *f = (bt_prefetch){.cfg = *cfg, .rank = c->rank, .size = c->size, .mpi = c->mpi};
    size_t n = (size_t)f->size, longest = 0;
    for (size_t p = 0; p < cfg->n_parts; p++) {
        size_t bytes = offset_in_slot(f, f->size, p);
        if (bytes > f->slot_bytes) f->slot_bytes = bytes;
        for (int s = 0; s < f->size; s++)
            if (part_bytes(f, s, p) > longest) longest = part_bytes(f, s, p);
    }
    f->ring = malloc(bt_prefetch_bytes(f->slot_bytes) + 1);
    f->asks = calloc(RING * n, sizeof *f->asks);
    f->sends = calloc(SENDS * n, sizeof *f->sends);
    f->visits = calloc(n, sizeof *f->visits);
    bt_code code = BT_OK;
    if (!f->ring || !f->asks || !f->sends || !f->visits)
        code = bt_fail(err, BT_NOMEM, "cannot take %.1f MiB for weights on their way",
                       (double)bt_prefetch_bytes(f->slot_bytes) / 1048576.0);
    else if (longest > INT_MAX)
        code = bt_fail(err, BT_UNSUPPORTED,
                       "a shard's weights of one layer are %zu bytes: more than one message holds "
                       "(use more shards)",
                       longest);
    if (code != BT_OK) {
        bt_prefetch_destroy(f);
        return code;
    }
    for (size_t i = 0; i < RING * n; i++) f->asks[i] = MPI_REQUEST_NULL;
    for (size_t i = 0; i < SENDS * n; i++) f->sends[i] = MPI_REQUEST_NULL;
    *out = f;
    return BT_OK;
}

static bt_code check_prefetch_mpi(int rc, bt_err *err) {
    return bt_mpi_check(rc, "gathering of a layer's weights", err);
}

static bt_code send_up_to(bt_prefetch *f, size_t end, bt_err *err) {
    if (end > f->most_visits) end = f->most_visits;
    for (; f->sent < end; f->sent++) {
        size_t part = part_of_visit(f, f->sent), n = part_bytes(f, f->rank, part);
        MPI_Request *slot = f->sends + f->sent % SENDS * (size_t)f->size;
        for (int d = 1; d < f->size && n > 0; d++) {
            int to = (f->rank - d + f->size) % f->size;
            if (f->sent >= f->visits[to]) continue;
            BT_TRY(check_prefetch_mpi(MPI_Wait(&slot[to], MPI_STATUS_IGNORE), err));
            BT_TRY(check_prefetch_mpi(MPI_Isend(f->cfg.own + begin_of(f, f->rank, part), (int)n,
                                                MPI_BYTE, to, TAG, f->mpi, &slot[to]),
                                      err));
            bt_comm_count(n, n);
            bt_traffic_add(BT_COLL_ALL_GATHER, BT_AXIS_SHARD,
                           &(bt_traffic){.bytes_logical = (int64_t)n, .bytes_wire = (int64_t)n});
        }
    }
    return BT_OK;
}

static bt_code post_receives(bt_prefetch *f, bt_err *err) {
    for (; f->asked < f->visits[f->rank] && f->asked < f->place + RING; f->asked++) {
        size_t part = part_of_visit(f, f->asked), slot = f->asked % RING;
        if (f->arrived == f->asked) f->busy_since = bt_now_ns();
        for (int d = 1; d < f->size; d++) {
            int from = (f->rank + d) % f->size;
            size_t n = part_bytes(f, from, part);
            if (n == 0) continue;
            unsigned char *to = f->ring + slot * f->slot_bytes + offset_in_slot(f, from, part);
            BT_TRY(check_prefetch_mpi(MPI_Irecv(to, (int)n, MPI_BYTE, from, TAG, f->mpi,
                                                &f->asks[slot * (size_t)f->size + (size_t)from]),
                                      err));
            bt_pair_add(bt_mesh_peer(f->cfg.mesh, BT_AXIS_SHARD, from),
                        &(bt_pair){.messages = 1, .bytes = (int64_t)n});
        }
    }
    return BT_OK;
}

static bt_code progress_prefetch(bt_prefetch *f, bt_err *err) {
    while (f->arrived < f->asked) {
        int done = 0;
        BT_TRY(
            check_prefetch_mpi(MPI_Testall(f->size, f->asks + f->arrived % RING * (size_t)f->size,
                                           &done, MPI_STATUSES_IGNORE),
                               err));
        if (!done) return BT_OK;
        f->arrived++;
        if (f->arrived == f->asked) f->busy_ns += bt_now_ns() - f->busy_since;
    }
    return BT_OK;
}

/* bt_prefetch_wait reports the same error again and returns it. A rank without own messages still makes progress
 * for those of other ranks. */
void bt_prefetch_poll(void *feed) {
    bt_prefetch *f = feed;
    int64_t now = bt_now_ns();
    int flag;
    if (now - f->polled_at < POLL_NS) return;
    f->polled_at = now;
    if (f->arrived < f->asked)
        (void)progress_prefetch(f, NULL);
    else
        (void)MPI_Iprobe(MPI_ANY_SOURCE, TAG, f->mpi, &flag, MPI_STATUS_IGNORE);
}

void bt_prefetch_destroy(bt_prefetch *f) {
    if (!f) return;
    bt_threads_off_idle(bt_prefetch_poll, f);
    free(f->ring);
    free(f->asks);
    free(f->sends);
    free(f->visits);
    free(f);
}

bt_code bt_prefetch_begin(bt_prefetch *f, bt_passes walk, const size_t *passes, bt_err *err) {
    f->walk = walk;
    f->most_visits = f->sent = f->asked = f->arrived = f->place = 0;
    f->busy_ns = 0;
    for (int s = 0; s < f->size; s++) {
        f->visits[s] = bt_prefetch_visits(walk, f->cfg.n_parts, passes[s]);
        if (f->visits[s] > f->most_visits) f->most_visits = f->visits[s];
    }
    bt_threads_on_idle(bt_prefetch_poll, f);
    BT_TRY(post_receives(f, err));
    return send_up_to(f, BT_PREFETCH_AHEAD, err);
}

bt_code bt_prefetch_wait(bt_prefetch *f, size_t part, bt_err *err) {
    assert(f->place < f->visits[f->rank] && part == part_of_visit(f, f->place));
    (void)part;
    BT_TRY(send_up_to(f, f->place + BT_PREFETCH_AHEAD, err));
    for (;;) {
        BT_TRY(progress_prefetch(f, err));
        if (f->arrived > f->place) return BT_OK;
        (void)bt_threads_poll();
    }
}

const unsigned char *bt_prefetch_from(const bt_prefetch *f, int shard) {
    size_t part = part_of_visit(f, f->place);
    if (shard == f->rank) return f->cfg.own + begin_of(f, shard, part);
    return f->ring + f->place % RING * f->slot_bytes + offset_in_slot(f, shard, part);
}

bt_code bt_prefetch_next(bt_prefetch *f, bt_err *err) {
    f->place++;
    return post_receives(f, err);
}

bt_code bt_prefetch_drain_sends(bt_prefetch *f, bt_err *err) {
    return send_up_to(f, f->most_visits, err);
}

bt_code bt_prefetch_end(bt_prefetch *f, bt_err *err) {
    BT_TRY(bt_prefetch_drain_sends(f, err));
    assert(f->place == f->visits[f->rank]);
    bt_threads_off_idle(bt_prefetch_poll, f);
    bt_traffic_add(BT_COLL_ALL_GATHER, BT_AXIS_SHARD, &(bt_traffic){.rounds = (int64_t)f->place});
    return check_prefetch_mpi(MPI_Waitall(SENDS * f->size, f->sends, MPI_STATUSES_IGNORE), err);
}

int64_t bt_prefetch_busy_ns(const bt_prefetch *f) { return f->busy_ns; }
