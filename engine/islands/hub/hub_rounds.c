/* hub_rounds.c - whose update is applied when, and who may begin. */
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

/* so many steps of data at once, where islands do not step together: one range for the reader */
enum { LEASE_STEPS = 16 };

static bool local_steps(const bt_hub *h) { /* DiLoCo, after its warm-up */
    const bt_run_cfg *c = &h->model->cfg;
    const int64_t warmup = c->island_warmup < 0 ? c->steps / 10 : c->island_warmup;
    return c->mode == BT_ISLANDS_DILOCO && h->model->updates >= warmup;
}

bt_push_kind bt_hub_push_kind(const bt_hub *h) {
    return local_steps(h) ? BT_PUSH_DELTA : BT_PUSH_GRADIENT;
}

static bool together(const bt_hub *h) { /* an update of all islands at once */
    const bt_run_cfg *c = &h->model->cfg;
    return c->mode != BT_ISLANDS_PS || c->staleness == 0;
}

static int64_t bound(const bt_hub *h) { return h->model->cfg.staleness; }

static bool trains(const bt_member *m) { return m->state == BT_MEMBER_TRAINS; }

/* ---- go ---------------------------------------------------------------------------------------- */

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
    const int64_t many = together(h) ? steps : LEASE_STEPS * steps, n = many * m->sequences;
    bt_leases_give_back(&h->leases, bt_hub_number(h, m));
    BT_TRY(bt_leases_take(&h->leases, bt_hub_number(h, m), n, &m->lease, err));
    m->lease_end = m->lease + n;
    return BT_OK;
}

static bt_code let_begin(bt_hub *h, bt_member *m, bt_err *err) {
    const bt_run_cfg *c = &h->model->cfg;
    const bool local = local_steps(h);
    int64_t steps = local ? c->inner : 1, all = 0;
    if (steps > c->steps - m->clock) steps = c->steps - m->clock;
    m->go.seq = (int64_t)m->applied;
    m->go.version = m->base = h->model->version;
    m->go.clock = m->clock;
    m->go.kind = local ? BT_PUSH_DELTA : BT_PUSH_GRADIENT;
    m->go.steps = steps > 0 ? steps : 0;
    m->go.moments = local && h->model->updates > 0 && h->model->version == h->model->updates;
    m->go.islands = 0;
    if (steps > 0) BT_TRY(take_lease(h, m, steps, err));
    for (size_t i = 0; i < h->n; i++) {
        if (!trains(&h->members[i])) continue;
        m->go.islands++;
        all += h->members[i].sequences;
    }
    m->go.begin = m->lease;
    m->go.n = m->sequences;
    m->go.stride = together(h) && !local ? all : m->sequences;
    m->go.offset = m->lease > h->round_begin ? m->lease - h->round_begin : 0;
    m->waits = false;
    bt_hub_send_go(h, m);
    return BT_OK;
}

/* ---- one update -------------------------------------------------------------------------------- */

static void remember_norm(bt_hub *h, double norm) {
    if (!isfinite(norm)) return;
    h->norms[h->n_norms++ % BT_POISON_NORMS] = norm;
}

/* The norm of what was decoded, against the newest good ones' median; islands.poison says how far */
static bool is_poison(bt_hub *h, bt_member *m, double *norm) {
    const bt_hub_part part = {m->staged, (size_t)m->push.bytes, 1};
    bt_err why = BT_ERR_INIT;
    *norm = NAN;
    if (!bt_hub_model_mean(h->model, &part, 1, &why)) return true;
    *norm = bt_vector_norm(h->model->mean, h->model->n);
    return bt_poisoned(*norm, h->norms, bt_min_size(h->n_norms, BT_POISON_NORMS),
                       h->model->cfg.poison);
}

static void count(bt_hub *h, bt_member *m) {
    const int64_t last = BT_HUB_STALENESS - 1, s = m->go.staleness;
    h->staleness[s < last ? s : last]++;
    m->tokens += m->push.tokens;
    h->tokens += m->push.tokens;
    if (isfinite(m->push.loss)) m->loss = m->push.loss;
}

/* the member's update is part of the weights, or nothing was to be applied */
static void settle(bt_hub *h, bt_member *m, const bt_hub_step *step, int64_t tokens) {
    const int64_t steps = m->push.steps > 0 ? m->push.steps : 1, used = steps * m->sequences;
    bt_leases_done(&h->leases, bt_hub_number(h, m), m->lease, m->lease + used);
    m->lease += used;
    m->clock += steps;
    m->applied = m->staging;
    m->sequences = m->push.sequences;
    count(h, m);
    m->go.lr = step->lr;
    m->go.decay = step->decay;
    m->go.grad_norm = step->grad_norm;
    m->go.tokens = tokens;
    bt_hub_unstage(m);
    m->waits = true;
}

static bt_code take_first_weights(bt_hub *h, bt_member *m, bt_err *err) {
    if (!h->model->has_weights &&
        !bt_hub_model_set_weights(h->model, m->staged, (size_t)m->push.bytes)) {
        bt_hub_refuse(h, &m->peer, "the first weights are not finite");
        bt_hub_unstage(m);
        return BT_OK;
    }
    m->applied = m->staging;
    bt_hub_unstage(m);
    m->state = BT_MEMBER_TRAINS;
    m->waits = true;
    bt_hub_event(h, BT_EVENT_ISLAND_JOINED, m, "on '%s' joined at step %" PRId64, m->host,
                 m->clock);
    return bt_hub_state_save(h->state, err);
}

/* what was applied is on the disk before an island hears of it, and then in what they fetch */
static bt_code keep(bt_hub *h, const bt_hub_applied *a, int64_t version_before,
                    const bt_hub_step *step, int64_t tokens, bt_err *err) {
    BT_TRY(bt_hub_state_log(h->state, a, version_before, err));
    if (a->kind < 0) return BT_OK;
    bt_hub_model_publish(h->model);
    bt_hub_observe(h, step, tokens);
    return BT_OK;
}

/* ---- islands that do not wait for each other ----------------------------------------------------- */

static bt_code apply_alone(bt_hub *h, bt_member *m, bt_err *err) {
    bt_hub_step step = {.lr = NAN, .decay = NAN, .grad_norm = NAN};
    const int64_t before = h->model->version, tokens = m->push.tokens;
    m->go.staleness = before - m->push.base;
    const bt_hub_applied a = {.kind = tokens > 0 ? BT_PUSH_GRADIENT : -1,
                              .position = m->clock,
                              .factor = bt_staleness_factor(m->go.staleness)};
    if (tokens > 0) {
        const bt_hub_part part = {m->staged, (size_t)m->push.bytes, 1};
        if (!bt_hub_model_mean(h->model, &part, 1, err)) return BT_OK;
        BT_TRY(bt_hub_model_gradient_step(h->model, a.position, a.factor, &step, err));
    }
    settle(h, m, &step, tokens);
    return keep(h, &a, before, &step, tokens, err);
}

/* ---- all together ------------------------------------------------------------------------------ */

static int by_lease(const void *a, const void *b) {
    const bt_member *x = *(bt_member *const *)a, *y = *(bt_member *const *)b;
    return (x->lease > y->lease) - (x->lease < y->lease);
}

static bt_code apply_round(bt_hub *h, bt_err *err) {
    bt_member *order[BT_HUB_ISLANDS];
    bt_hub_part parts[BT_HUB_ISLANDS];
    bt_hub_step step = {.lr = NAN, .decay = NAN, .grad_norm = NAN};
    const bt_run_cfg *c = &h->model->cfg;
    size_t n = 0, n_parts = 0;
    int64_t tokens = 0;
    const int64_t before = h->model->version;
    bt_hub_applied a = {.kind = -1, .position = h->model->updates, .factor = 1};
    for (size_t i = 0; i < h->n; i++) {
        if (!trains(&h->members[i])) continue;
        if (!h->members[i].pushed) return BT_OK; /* not all are there */
        order[n++] = &h->members[i];
    }
    if (n == 0) return BT_OK;
    qsort(order, n, sizeof *order, by_lease);
    for (size_t i = 0; i < n; i++) {
        const bt_island_push *p = &order[i]->push;
        order[i]->go.staleness = h->model->version - p->base;
        if (p->tokens == 0) continue;
        tokens += p->tokens;
        parts[n_parts++] = (bt_hub_part){order[i]->staged, (size_t)p->bytes, (double)p->tokens};
    }
    if (n_parts) {
        if (!bt_hub_model_mean(h->model, parts, n_parts, err)) return err->code;
        a.kind = order[0]->push.kind;
        if (a.kind == BT_PUSH_DELTA)
            bt_hub_model_outer_step(h->model, c->outer_lr, c->outer_momentum);
        else
            BT_TRY(bt_hub_model_gradient_step(h->model, a.position, a.factor, &step, err));
    }
    for (size_t i = 0; i < n; i++) settle(h, order[i], &step, tokens);
    h->round_begin = h->leases.next;
    return keep(h, &a, before, &step, tokens, err);
}

/* ---- who may begin ------------------------------------------------------------------------------- */

static bt_code release(bt_hub *h, bt_err *err) {
    int64_t slowest, fastest;
    const size_t n = bt_hub_training(h, &slowest, &fastest);
    for (size_t i = 0; i < h->n; i++) {
        bt_member *m = &h->members[i];
        if (!trains(m) || !m->waits) continue;
        if (!together(h) && !bt_clock_may_begin(m->clock, slowest, bound(h))) continue;
        BT_TRY(let_begin(h, m, err));
        h->finished |= m->go.steps == 0;
    }
    /* who has done bound + 1 steps more than the slowest waits, so nobody has ever done more */
    if (n && !together(h) && bound(h) >= 0 && fastest - slowest > bound(h) + 1)
        return bt_fail(err, BT_CHECK,
                       "the bound of staleness was broken: an island is %" PRId64
                       " steps ahead of the slowest, the bound is %" PRId64,
                       fastest - slowest, bound(h));
    return BT_OK;
}

bt_code bt_hub_advance(bt_hub *h, bt_err *err) {
    int64_t slowest, fastest;
    if (!h->model || !h->model->has_weights) return BT_OK;
    const int wanted = h->awaited > 0 ? h->awaited : h->cfg.islands;
    h->started = h->started || bt_hub_training(h, &slowest, &fastest) >= (size_t)wanted;
    if (!h->started) return BT_OK;
    if (together(h)) BT_TRY(apply_round(h, err));
    return release(h, err);
}

bt_code bt_hub_pushed(bt_hub *h, bt_member *m, bt_err *err) {
    double norm = NAN;
    if (m->push.kind == BT_PUSH_WEIGHTS) {
        BT_TRY(take_first_weights(h, m, err));
        return bt_hub_advance(h, err);
    }
    if (m->push.kind != m->go.kind || !trains(m) || m->waits) {
        bt_hub_refuse(h, &m->peer, "this update was not asked for");
        bt_hub_unstage(m);
        return BT_OK;
    }
    if (m->push.tokens > 0 && is_poison(h, m, &norm)) {
        h->refused++;
        bt_hub_event(h, BT_EVENT_REFUSED, m,
                     "its update of step %" PRId64 " is poisoned (norm %.4g): left out", m->clock,
                     norm);
        m->push.tokens = 0;
    } else {
        remember_norm(h, norm);
    }
    m->pushed = true;
    if (!together(h)) BT_TRY(apply_alone(h, m, err));
    return bt_hub_advance(h, err);
}
