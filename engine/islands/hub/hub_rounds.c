/* hub_rounds.c - decides when an update is applied and when an island may begin a step. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/islands/hub/hub_internal.h"
#include "engine/islands/hub/hub_state.h"
#include "engine/islands/rules/job_settings.h"
#include "engine/islands/rules/outer_step.h"

/* Number of steps in one lease if islands do not step together. */
enum { LEASE_STEPS = 16 };

/* Returns the number of inner steps between two exchanges of an island that has done `clock` steps. Each fragment is
 * exchanged every islands.inner steps, and more often at the beginning (islands.ramp). */
static int64_t inner_steps(const bt_hub *h, int64_t clock) {
    const bt_run_cfg *c = &h->model->cfg;
    const double most = c->islands.ramp * (double)clock;
    const int64_t steps = c->islands.ramp > 0 && most < (double)c->islands.inner ? (int64_t)most
                                                                                 : c->islands.inner,
                  each = steps / h->model->fragments;
    return each > 0 ? each : 1;
}

static int64_t staleness_bound(const bt_hub *h) { return h->model->cfg.islands.staleness; }

static bool is_training_member(const bt_member *m) { return m->state == BT_MEMBER_TRAINS; }
static bool is_awaited(const bt_member *m) { return is_training_member(m) && !m->overdue; }

void bt_hub_send_go(bt_hub *h, const bt_member *m) {
    const bt_island_head head = {.type = BT_ISLAND_GO,
                                 .island = bt_hub_number(h, m),
                                 .incarnation = m->incarnation,
                                 .seq = m->applied,
                                 .version = (uint64_t)h->model->version,
                                 .bytes = sizeof m->go};
    bt_hub_send(h, &m->peer, &head, &m->go);
}

static bt_code take_lease(bt_hub *h, bt_member *m, int64_t steps, bt_err *err) {
    if (m->lease_end - m->lease >= steps * m->sequences) return BT_OK;
    const bool few = bt_hub_model_together(h->model) || bt_hub_model_local_steps(h->model);
    const int64_t many = few ? steps : LEASE_STEPS * steps, n = many * m->sequences;
    if (m->next_end - m->next == n && n > 0) { /* leased one round ago */
        m->lease = m->next;
        m->lease_end = m->next_end;
        m->next = m->next_end = 0;
        return BT_OK;
    }
    bt_leases_give_back(&h->leases, bt_hub_number(h, m));
    m->next = m->next_end = 0;
    BT_TRY(bt_leases_take(&h->leases, bt_hub_number(h, m), n, &m->lease, err));
    m->lease_end = m->lease + n;
    return BT_OK;
}

/* If islands push deltas, also leases the data of the next round, because an island may continue meanwhile. */
static bt_code lease_next_round(bt_hub *h, bt_member *m, bt_err *err) {
    const bt_run_cfg *c = &h->model->cfg;
    const int64_t then = m->clock + m->go.steps, most = inner_steps(h, then);
    int64_t steps = c->train.steps - then;
    if (steps > most) steps = most;
    m->go.next_begin = m->go.next_steps = 0;
    if (m->go.kind != BT_PUSH_DELTA || steps <= 0 || (c->islands.away == 0 && !c->islands.overlap))
        return BT_OK;
    const int64_t n = steps * m->sequences;
    if (m->next_end - m->next != n) {
        BT_TRY(bt_leases_take(&h->leases, bt_hub_number(h, m), n, &m->next, err));
        m->next_end = m->next + n;
    }
    m->go.next_begin = m->next;
    m->go.next_steps = steps;
    return BT_OK;
}

/* Fills the member's go, without the data of the next round. */
static bt_code send_begin(bt_hub *h, bt_member *m, bt_err *err) {
    const bt_run_cfg *c = &h->model->cfg;
    const bool local = bt_hub_model_local_steps(h->model);
    int64_t steps = local ? inner_steps(h, m->clock) : 1, all = 0;
    if (steps > c->train.steps - m->clock) steps = c->train.steps - m->clock;
    if (h->finished && bt_hub_model_together(h->model))
        steps = 0; /* rejected rounds count as well */
    m->go.seq = (int64_t)m->applied;
    m->go.outcome = m->outcome;
    m->go.version = m->base = h->model->version;
    m->round = h->round;
    m->go.clock = m->clock;
    m->go.kind = local ? BT_PUSH_DELTA : BT_PUSH_GRADIENT;
    m->go.steps = steps > 0 ? steps : 0;
    m->go.fragment = local ? bt_hub_model_fragment(h->model) : 0;
    m->go.moments = local && h->model->updates > 0 && h->model->version == h->model->updates;
    m->go.islands = 0;
    if (steps > 0) BT_TRY(take_lease(h, m, steps, err));
    for (size_t i = 0; i < h->n; i++) {
        if (!is_training_member(&h->members[i])) continue;
        m->go.islands++;
        all += h->members[i].sequences;
    }
    m->go.begin = m->lease;
    m->go.n = m->sequences;
    m->go.stride = bt_hub_model_together(h->model) && !local ? all : m->sequences;
    m->waits = false;
    return BT_OK;
}

static void record_norm(bt_hub *h, double norm) {
    if (isfinite(norm)) h->norms[h->n_norms++ % BT_POISON_NORMS] = norm;
}

/* Clears the norms if the kind of updates changes, because norms of gradients and of deltas are not comparable. */
static void use_norms_of_kind(bt_hub *h, int64_t kind) {
    if (kind != h->norms_kind) h->n_norms = 0;
    h->norms_kind = kind;
}

/* Compares the norm of the decoded update with the median of the newest accepted ones. */
static bool is_poison(bt_hub *h, const bt_member *m, double *norm) {
    *norm = bt_hub_norm(h, m);
    /* normalised by the number of elements, so that fragments are comparable */
    *norm /= sqrt((double)h->model->part);
    return bt_poisoned(*norm, h->norms, bt_min_size(h->n_norms, BT_POISON_NORMS), BT_POISON_TIMES);
}

/* Counts the outcome of the member's newest update. A push without tokens is not an update. */
static void count_outcome(bt_hub *h, bt_member *m) {
    const int64_t last = BT_HUB_STALENESS - 1, s = m->go.staleness;
    m->applied = m->staging;
    m->left_out += m->outcome == BT_UPDATE_POISONED ||
                   (m->outcome != BT_UPDATE_APPLIED && m->push.tokens > 0);
    if (m->outcome != BT_UPDATE_APPLIED || m->push.tokens == 0) return;
    h->staleness[s < last ? s : last]++;
    m->updates++;
    m->tokens += m->push.tokens;
    h->tokens += m->push.tokens;
    if (isfinite(m->push.loss)) m->loss = m->push.loss;
}

/* Called after an update was applied, was rejected with its data used up, or was empty. */
static bt_code finish_update(bt_hub *h, bt_member *m, const bt_hub_step *step, int64_t tokens,
                             bt_err *err) {
    const int64_t steps = m->push.steps > 0 ? m->push.steps : 1, used = steps * m->sequences;
    if (!bt_leases_done(&h->leases, bt_hub_number(h, m), m->lease, m->lease + used))
        return bt_fail(err, BT_CHECK,
                       "an update of island '%s' is computed from sequences [%" PRId64 ", %" PRId64
                       "), which are not leased to this island, so their data would count twice",
                       m->name, m->lease, m->lease + used);
    m->lease += used;
    m->clock += steps;
    m->sequences = m->push.sequences;
    count_outcome(h, m);
    m->go.lr = step->lr;
    m->go.decay = step->decay;
    m->go.grad_norm = step->grad_norm;
    m->go.tokens = tokens;
    bt_hub_unstage(m);
    m->waits = true;
    return BT_OK;
}

static bt_code take_first_weights(bt_hub *h, bt_member *m, bt_err *err) {
    if (!h->model->has_weights) bt_hub_take_weights(h, m);
    if (!h->model->has_weights) {
        bt_hub_refuse(h, &m->peer, "the first weights are not finite");
        bt_hub_unstage(m);
        return BT_OK;
    }
    m->applied = m->staging;
    m->outcome = BT_UPDATE_APPLIED;
    bt_hub_unstage(m);
    m->state = BT_MEMBER_TRAINS;
    m->waits = true;
    bt_hub_event(h, BT_EVENT_ISLAND_JOINED, m, "on '%s' joined at step %" PRId64, m->host,
                 m->clock);
    return bt_hub_save_first(h, err);
}

/* Stores the applied update on disk, and only then publishes it and informs islands. */
static bt_code store_and_publish(bt_hub *h, const bt_hub_applied *a, int64_t version_before,
                                 const bt_hub_step *step, int64_t tokens, bt_err *err) {
    BT_TRY(bt_hub_keep(h, a, version_before, err));
    if (a->kind >= 0)
        bt_hub_observe(h, step, tokens);
    else
        bt_hub_observe_islands(h);
    return BT_OK;
}

static bt_code apply_single_update(bt_hub *h, bt_member *m, bt_err *err) {
    bt_hub_step step = {.lr = NAN, .decay = NAN, .grad_norm = NAN};
    const int64_t before = h->model->version, tokens = m->push.tokens;
    int64_t slowest, fastest;
    m->go.staleness = before - m->push.base;
    bt_hub_applied a = {.kind = tokens > 0 ? m->push.kind : BT_APPLIED_NOTHING,
                        .position = m->clock,
                        .factor = bt_staleness_factor(m->go.staleness)};
    if (a.kind == BT_PUSH_DELTA) { /* a delta is averaged; a gradient has a smaller learning rate */
        a.kind = BT_APPLIED_AVERAGE;
        a.factor = 1 / (double)bt_hub_training(h, &slowest, &fastest);
    }
    if (tokens > 0) {
        const bt_hub_change change = {.how = a, .n = 1, .member = {m}, .weight = {1}};
        BT_TRY(bt_hub_change_weights(h, &change, &step, err));
    }
    BT_TRY(finish_update(h, m, &step, tokens, err));
    return store_and_publish(h, &a, before, &step, tokens, err);
}

static int compare_leases(const void *a, const void *b) {
    const bt_member *x = *(bt_member *const *)a, *y = *(bt_member *const *)b;
    return (x->lease > y->lease) - (x->lease < y->lease);
}

/* Collects the updates of this round in the order of their data. Returns 0 while the round is not complete. With a
 * quorum it is complete when the quorum is reached and quorum_s has passed. */
static size_t collect_round(bt_hub *h, bt_member **order) {
    size_t n = 0, training = 0;
    const size_t quorum = (size_t)h->cfg.quorum;
    for (size_t i = 0; i < h->n; i++) {
        training += is_awaited(&h->members[i]);
        if (is_training_member(&h->members[i]) && h->members[i].pushed) order[n++] = &h->members[i];
    }
    if (n < training) {
        if (quorum == 0 || n < quorum) return 0;
        if (!h->quorum_ns) h->quorum_ns = h->now_ns > 0 ? h->now_ns : 1;
        if ((double)(h->now_ns - h->quorum_ns) / 1e9 < h->cfg.quorum_s) return 0;
        bt_hub_event(h, BT_EVENT_ISLAND_LATE, NULL,
                     "update %" PRId64 " continues with %zu of %zu islands after %.3g s",
                     h->model->version, n, training, h->cfg.quorum_s);
    }
    h->quorum_ns = 0;
    qsort(order, n, sizeof *order, compare_leases);
    return n;
}

static bt_code apply_round(bt_hub *h, bt_err *err) {
    bt_member *order[BT_HUB_ISLANDS];
    bt_hub_step step = {.lr = NAN, .decay = NAN, .grad_norm = NAN};
    const size_t n = collect_round(h, order);
    bt_hub_change change = {.n = 0};
    int64_t tokens = 0;
    const int64_t before = h->model->version;
    bt_hub_applied a = {.kind = BT_APPLIED_NOTHING, .position = h->model->updates, .factor = 1};
    if (n == 0) return BT_OK;
    for (size_t i = 0; i < n; i++) {
        const bt_island_push *p = &order[i]->push;
        order[i]->go.staleness = h->model->version - p->base;
        if (p->tokens == 0) continue;
        tokens += p->tokens;
        change.member[change.n] = order[i];
        change.weight[change.n++] = (double)p->tokens;
    }
    if (change.n) {
        a.kind = order[0]->push.kind;
        if (a.kind == BT_PUSH_DELTA) {
            a.position = order[0]->go.fragment;
            a.factor = (double)change.n;
        }
        change.how = a;
        BT_TRY(bt_hub_change_weights(h, &change, &step, err));
    }
    for (size_t i = 0; i < n; i++) BT_TRY(finish_update(h, order[i], &step, tokens, err));
    h->round_begin = h->leases.next;
    h->round++;
    return store_and_publish(h, &a, before, &step, tokens, err);
}

static bt_code reject_update(bt_hub *h, bt_member *m, bt_err *err) {
    const bt_hub_step none = {.lr = NAN, .decay = NAN, .grad_norm = NAN};
    const bt_hub_applied a = {.kind = BT_APPLIED_NOTHING};
    m->go.staleness = h->model->version - m->push.base;
    count_outcome(h, m);
    bt_leases_give_back(&h->leases, bt_hub_number(h, m));
    m->lease = m->lease_end = m->next = m->next_end = 0;
    bt_hub_unstage(m);
    m->waits = true;
    return store_and_publish(h, &a, h->model->version, &none, 0, err);
}

/* Handles an update whose round is closed. A delta is applied separately. A gradient of old weights is rejected, and
 * its data are returned; the island's clock does not change. */
static bt_code apply_late(bt_hub *h, bt_member *m, bt_err *err) {
    const int64_t late = h->round - m->round;
    const bool delta = m->push.kind == BT_PUSH_DELTA, poisoned = m->outcome != BT_UPDATE_APPLIED,
               used = delta && late <= h->cfg.late && h->model->fragments == 1;
    bt_hub_event(h, BT_EVENT_ISLAND_LATE, m, "sent its update %" PRId64 " rounds late: %s", late,
                 poisoned ? "left out as poisoned"
                 : used   ? "used as its share of a plain mean"
                          : "left out, its data are returned");
    if (used || poisoned) return apply_single_update(h, m, err);
    m->outcome = delta && h->model->fragments == 1 ? BT_UPDATE_LATE : BT_UPDATE_CLOSED;
    return reject_update(h, m, err);
}

/* Handles an update of an overdue island in an asynchronous job. Within the bound of staleness it is applied as usual.
 * Beyond the bound it is rejected, and the island continues with the clock of the slowest island. */
static bt_code apply_overdue_update(bt_hub *h, bt_member *m, bt_err *err) {
    int64_t slowest, fastest;
    const int64_t own = m->clock,
                  inner = bt_hub_model_local_steps(h->model) ? h->model->cfg.islands.inner : 1;
    m->overdue = true;
    const size_t others = bt_hub_training(h, &slowest, &fastest);
    m->overdue = false;
    if (others == 0 || staleness_bound(h) < 0 || fastest - own <= staleness_bound(h) + inner)
        return apply_single_update(h, m, err);
    bt_hub_event(h, BT_EVENT_ISLAND_LATE, m,
                 "sent its update of step %" PRId64
                 " when the slowest other island had done %" PRId64
                 ": left out, its data are returned",
                 own, slowest);
    m->outcome = BT_UPDATE_CLOSED;
    m->clock = slowest;
    return reject_update(h, m, err);
}

/* Returns the first sequence of a round of inner steps; its data may be leased before the previous round is
 * complete. */
static int64_t first_lease(bt_member *const *of, size_t n) {
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < n; i++)
        if (of[i]->lease < first) first = of[i]->lease;
    return first;
}

static bt_code send_gos(bt_hub *h, bt_member *const *to, size_t n, bt_err *err) {
    if (n && to[0]->go.kind == BT_PUSH_DELTA) h->round_begin = first_lease(to, n);
    for (size_t i = 0; i < n; i++) {
        bt_member *m = to[i];
        m->go_ns = m->worked_ns = h->now_ns;
        m->go.offset = m->lease > h->round_begin ? m->lease - h->round_begin : 0;
        BT_TRY(lease_next_round(h, m, err));
        bt_hub_send_go(h, m);
    }
    return BT_OK;
}

static bt_code release_round(bt_hub *h, bt_err *err) {
    int64_t slowest, fastest;
    bt_member *begin[BT_HUB_ISLANDS];
    size_t n_begin = 0;
    const size_t n = bt_hub_training(h, &slowest, &fastest);
    for (size_t i = 0; i < h->n; i++) {
        bt_member *m = &h->members[i];
        if (!is_training_member(m) || !m->waits) continue;
        if (!bt_hub_model_together(h->model) &&
            !bt_clock_may_begin(m->clock, slowest, staleness_bound(h)))
            continue;
        BT_TRY(send_begin(h, m, err));
        h->finished |= m->go.steps == 0;
        begin[n_begin++] = m;
    }
    /* asynchronous islands end one after another, so their rows are recorded again after the last one */
    if (h->finished && n_begin) bt_hub_observe_islands(h);
    BT_TRY(send_gos(h, begin, n_begin, err));
    /* an island that is bound + 1 steps ahead of the slowest waits, so the difference is never larger */
    const int64_t most = staleness_bound(h) +
                         (bt_hub_model_local_steps(h->model) ? h->model->cfg.islands.inner : 1);
    if (n && !bt_hub_model_together(h->model) && staleness_bound(h) >= 0 &&
        fastest - slowest > most)
        return bt_fail(err, BT_CHECK,
                       "the bound of staleness is violated: an island is %" PRId64
                       " steps ahead of the slowest, the bound is %" PRId64,
                       fastest - slowest, staleness_bound(h));
    return BT_OK;
}

bt_code bt_hub_advance(bt_hub *h, bt_err *err) {
    int64_t slowest, fastest;
    if (!h->model || !h->model->has_weights) return BT_OK;
    const int wanted = h->awaited > 0 ? h->awaited : h->cfg.islands;
    h->started = h->started || bt_hub_training(h, &slowest, &fastest) >= (size_t)wanted;
    if (!h->started) return BT_OK;
    if (bt_hub_model_together(h->model)) BT_TRY(apply_round(h, err));
    BT_TRY(release_round(h, err));
    bt_hub_note_waits(h);
    return BT_OK;
}

bt_code bt_hub_pushed(bt_hub *h, bt_member *m, bt_err *err) {
    double norm = NAN;
    if (m->push.kind == BT_PUSH_WEIGHTS) {
        BT_TRY(take_first_weights(h, m, err));
        return bt_hub_advance(h, err);
    }
    if (m->push.kind != m->go.kind || !is_training_member(m) || m->waits) {
        bt_hub_refuse(h, &m->peer, "this update was not requested");
        bt_hub_unstage(m);
        return BT_OK;
    }
    m->outcome = BT_UPDATE_APPLIED;
    use_norms_of_kind(h, m->push.kind);
    if (m->push.tokens > 0 && is_poison(h, m, &norm)) {
        h->refused++;
        bt_hub_event(h, BT_EVENT_REFUSED, m,
                     "its update of step %" PRId64 " is poisoned (%.4g an element): left out",
                     m->clock, norm);
        m->push.tokens = 0;
        m->outcome = BT_UPDATE_POISONED;
    } else {
        record_norm(h, norm);
    }
    m->pushed = true;
    const bool behind = bt_hub_returns(h, m);
    if (!bt_hub_model_together(h->model))
        BT_TRY(behind ? apply_overdue_update(h, m, err) : apply_single_update(h, m, err));
    else if (m->round < h->round)
        BT_TRY(apply_late(h, m, err));
    return bt_hub_advance(h, err);
}
