/* hub_parts.c - a hub of several processes: the first process sends orders, and all processes execute them.
 *
 * The other processes start a reduction and test its completion between checks of their sockets. The first process
 * joins the reduction when it has an order, and then broadcasts the order. */
#include "engine/islands/hub/hub_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/islands/hub/hub_internal.h"
#include "engine/islands/rules/outer_step.h"

typedef enum {
    ORDER_JOB,
    ORDER_MEMBER,
    ORDER_HAVE,
    ORDER_NORM,
    ORDER_WEIGHTS,
    ORDER_CHANGE,
    ORDER_KEEP,
    ORDER_SAVE,
    ORDER_END
} order_kind;

typedef struct order { /* fields not used by its kind are zero */
    order_kind kind;
    uint32_t member;
    uint64_t seq, job_bytes;         /* job_bytes: length of the text that follows */
    int64_t push, version, fragment; /* fragment of the member's delta */
    bt_hub_change change;
    /* MEMBER: state of the member; KEEP: `applied` of all members */
    int64_t state;
    uint32_t incarnation;
    char key[44];
    uint64_t applied[BT_HUB_ISLANDS];
} order;

static bt_comm *all(void) { return bt_comm_world(); }

/* Broadcasts an order to the other processes; has no effect in a hub of one process. */
static bt_code send_order(bt_hub *h, order *o, bt_err *err) {
    if (h->parts == 1) return BT_OK;
    h->order = 1;
    BT_TRY(bt_all_reduce_i64_start(all(), &h->order, 1, BT_SUM, &h->ordered, err));
    BT_TRY(bt_request_wait(&h->ordered, err));
    return bt_broadcast(all(), o, sizeof *o, 0, err);
}

static uint32_t index_of(const bt_hub *h, const bt_member *m) { return bt_hub_number(h, m) - 1; }

/* ---- job ------------------------------------------------------------------------------------- */

static bt_code begin_job(bt_hub *h, const char *text, size_t n, bt_err *err) {
    const bt_code code = bt_agree(all(), bt_hub_begin_job(h, text, n, err), err);
    if (code == BT_OK) return BT_OK;
    bt_hub_model_destroy(h->model);
    h->model = NULL;
    return code;
}

static bt_code fail_hub_memory(bt_err *err) {
    return bt_fail(err, BT_NOMEM, "cannot take memory for the job's settings");
}

bt_code bt_hub_all_job(bt_hub *h, const char *text, size_t n, bt_err *err) {
    order o = {.kind = ORDER_JOB, .job_bytes = n};
    BT_TRY(send_order(h, &o, err));
    BT_TRY(bt_agree(all(), BT_OK, err)); /* all processes have allocated memory for the text */
    BT_TRY(bt_broadcast(all(), (void *)(uintptr_t)text, n, 0, err));
    return begin_job(h, text, n, err);
}

/* Only the first process reports a refusal, including one for lack of memory. */
static bt_code execute_job_order(bt_hub *h, const order *o, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    bt_code code = BT_OK;
    char *text = malloc(o->job_bytes + 1);
    if (bt_agree(all(), text ? BT_OK : fail_hub_memory(&why), &why) == BT_OK) {
        code = bt_broadcast(all(), text, o->job_bytes, 0, err);
        if (code == BT_OK) {
            text[o->job_bytes] = 0;
            (void)!begin_job(h, text, o->job_bytes, &why);
        }
    }
    free(text);
    return code;
}

/* ---- members --------------------------------------------------------------------------------- */

bt_code bt_hub_all_member(bt_hub *h, const bt_member *m, bt_err *err) {
    order o = {.kind = ORDER_MEMBER,
               .member = index_of(h, m),
               .state = m->state,
               .incarnation = m->incarnation,
               .seq = m->applied};
    snprintf(o.key, sizeof o.key, "%s", m->key);
    return send_order(h, &o, err);
}

static void execute_member_order(bt_hub *h, const order *o) {
    bt_member *m = &h->members[o->member];
    bt_hub_unstage(m);
    m->state = (bt_member_state)o->state;
    m->incarnation = o->incarnation;
    m->applied = o->seq;
    m->seen_ns = h->now_ns;
    snprintf(m->key, sizeof m->key, "%s", o->key);
    if (h->n <= o->member) h->n = o->member + 1;
}

size_t bt_hub_update_bytes(bt_hub *h, const bt_member *m, int64_t kind, bool whole) {
    bt_hub_model_use(h->model, kind == BT_PUSH_DELTA ? m->go.fragment : -1);
    bt_vector_code c = whole ? h->model->all : h->model->up;
    static const bt_codec plain = {.name = "fp32"};
    if (kind == BT_PUSH_WEIGHTS) c.codec = &plain;
    return bt_vector_bytes(&c);
}

uint32_t bt_hub_chunks(size_t bytes) {
    return (uint32_t)((bytes + BT_ISLAND_CHUNK - 1) / BT_ISLAND_CHUNK);
}

bool bt_hub_update_fits(const bt_member *m, size_t bytes) {
    return bytes > 0 && m->chunks == bt_hub_chunks(bytes) &&
           (size_t)(m->chunks - 1) * BT_ISLAND_CHUNK + m->end_bytes == bytes;
}

static bt_code has_update(bt_hub *h, bt_member *m, uint64_t seq, int64_t kind, bool *out,
                          bt_err *err) {
    const size_t own = bt_hub_update_bytes(h, m, kind, false);
    const bool mine = own == 0 ||
                      (m->staging == seq && m->arrived == m->chunks && bt_hub_update_fits(m, own));
    int64_t sums[2] = {!mine, h->part ? m->bytes - m->told_bytes : 0};
    BT_TRY(bt_all_reduce_i64(all(), sums, 2, BT_SUM, err));
    *out = sums[0] == 0;
    if (h->part) {
        m->told_bytes = m->bytes;
        m->pushed = *out;
    } else {
        m->bytes += sums[1];
    }
    return BT_OK;
}

bt_code bt_hub_all_have(bt_hub *h, bt_member *m, uint64_t seq, int64_t kind, bool *out,
                        bt_err *err) {
    order o = {.kind = ORDER_HAVE,
               .member = index_of(h, m),
               .seq = seq,
               .push = kind,
               .fragment = m->go.fragment};
    BT_TRY(send_order(h, &o, err));
    return has_update(h, m, seq, kind, out, err);
}

/* ---- updates --------------------------------------------------------------------------------- */

static bt_hub_part hub_part(bt_hub *h, const bt_member *m, int64_t kind, double weight) {
    return (bt_hub_part){m->staged, bt_hub_update_bytes(h, m, kind, false), weight};
}

static bt_code norm(bt_hub *h, const bt_member *m, int64_t kind, double *out, bt_err *err) {
    const bt_hub_part part = hub_part(h, m, kind, 1);
    bt_err why = BT_ERR_INIT;
    double sums[2] = {1, 0};
    if (bt_hub_model_mean(h->model, &part, 1, &why)) {
        const double x = bt_vector_norm(h->model->mean + h->model->begin, h->model->part);
        sums[0] = 0;
        sums[1] = x * x;
    }
    BT_TRY(bt_all_reduce_f64(all(), sums, 2, BT_SUM, err));
    *out = sums[0] > 0 ? (double)NAN : sqrt(sums[1]);
    return BT_OK;
}

bt_code bt_hub_all_norm(bt_hub *h, const bt_member *m, double *out, bt_err *err) {
    order o = {.kind = ORDER_NORM, .member = index_of(h, m), .push = m->push.kind};
    BT_TRY(send_order(h, &o, err));
    return norm(h, m, m->push.kind, out, err);
}

static bt_code weights(bt_hub *h, const bt_member *m, bt_err *err) {
    const bt_hub_part part = hub_part(h, m, BT_PUSH_WEIGHTS, 1);
    int64_t ok = bt_hub_model_set_weights(h->model, part.bytes, part.n);
    BT_TRY(bt_all_reduce_i64(all(), &ok, 1, BT_MIN, err));
    h->model->has_weights = ok;
    return BT_OK;
}

bt_code bt_hub_all_weights(bt_hub *h, const bt_member *m, bt_err *err) {
    order o = {.kind = ORDER_WEIGHTS, .member = index_of(h, m)};
    BT_TRY(send_order(h, &o, err));
    return weights(h, m, err);
}

static bt_code mean_updates(bt_hub *h, const bt_hub_change *c, bt_err *err) {
    bt_hub_part parts[BT_HUB_ISLANDS];
    const int64_t kind = c->how.kind == BT_PUSH_GRADIENT ? BT_PUSH_GRADIENT : BT_PUSH_DELTA;
    for (size_t i = 0; i < c->n; i++)
        parts[i] = hub_part(h, &h->members[c->member[i]], kind, c->weight[i]);
    bt_hub_model_use(h->model, c->how.kind == BT_PUSH_DELTA ? c->how.position : -1);
    return bt_hub_model_mean(h->model, parts, c->n, err) ? BT_OK : err->code;
}

static bt_code change_weights(bt_hub *h, const bt_hub_change *c, bt_hub_step *step, bt_err *err) {
    bt_hub_model *m = h->model;
    BT_TRY(bt_agree(all(), mean_updates(h, c, err), err));
    if (c->how.kind == BT_PUSH_GRADIENT)
        return bt_hub_model_gradient_step(m, c->how.position, c->how.factor, step, err);
    if (c->how.kind == BT_PUSH_DELTA)
        bt_hub_model_outer_step(m, c->how.factor);
    else
        bt_hub_model_average(m, c->how.factor);
    return BT_OK;
}

bt_code bt_hub_all_change(bt_hub *h, const bt_hub_change *c, bt_hub_step *step, bt_err *err) {
    order o = {.kind = ORDER_CHANGE, .change = *c};
    BT_TRY(send_order(h, &o, err));
    return change_weights(h, c, step, err);
}

/* ---- storage ------------------------------------------------------------------------------------- */

/* Every process writes a record to its log and waits until all have written theirs. */
static bt_code log_when_possible(bt_hub *h, const bt_hub_applied *a, int64_t version, bt_err *err) {
    bool written = false, waited = false;
    for (;; waited = true) {
        bt_err why = BT_ERR_INIT;
        const bt_code code = written ? BT_OK : bt_hub_state_log(h->state, a, version, &why);
        written = code == BT_OK;
        if (bt_agree(all(), code, &why) == BT_OK) break;
        BT_TRY(bt_hub_wait_for_disk(h, !waited, &why, err));
    }
    if (waited) bt_hub_disk_is_back(h);
    return BT_OK;
}

static bt_code log_and_publish(bt_hub *h, const bt_hub_applied *a, int64_t version, bt_err *err) {
    BT_TRY(log_when_possible(h, a, version, err));
    if (a->kind < 0) return BT_OK;
    /* processes other than the first may have received messages since the change */
    bt_hub_model_use(h->model, a->kind == BT_PUSH_DELTA ? a->position : -1);
    bt_hub_model_publish(h->model);
    return BT_OK;
}

bt_code bt_hub_all_keep(bt_hub *h, const bt_hub_applied *a, int64_t version, bt_err *err) {
    order o = {.kind = ORDER_KEEP, .version = version, .change.how = *a};
    for (size_t i = 0; i < h->n; i++) o.applied[i] = h->members[i].applied;
    BT_TRY(send_order(h, &o, err));
    return log_and_publish(h, a, version, err);
}

static bt_code execute_log_order(bt_hub *h, const order *o, bt_err *err) {
    for (size_t i = 0; i < h->n; i++) {
        bt_member *m = &h->members[i];
        if (m->applied == o->applied[i]) continue;
        m->applied = o->applied[i];
        bt_hub_unstage(m);
    }
    return log_and_publish(h, &o->change.how, o->version, err);
}

/* A checkpoint that the disk refuses is tried again later, because the log contains the same information. */
static bt_code all_saved(bt_hub *h, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    const bt_code code = bt_hub_state_save(h->state, &why);
    if (code == BT_IO && h->cfg.wait) {
        h->unsaved = why;
        return BT_OK;
    }
    h->unsaved = (bt_err)BT_ERR_INIT;
    if (code != BT_OK) *err = why;
    return code;
}

bt_code bt_hub_all_save(bt_hub *h, bt_err *err) {
    order o = {.kind = ORDER_SAVE};
    const bool known = h->unsaved.code != BT_OK;
    BT_TRY(send_order(h, &o, err));
    BT_TRY(all_saved(h, err));
    if (!known && h->unsaved.code != BT_OK)
        bt_hub_event(h, BT_EVENT_CHECKPOINT_FAILED, NULL, "%s; it is tried again", h->unsaved.msg);
    return BT_OK;
}

bt_code bt_hub_all_save_first(bt_hub *h, bt_err *err) {
    for (bool first = true;; first = false) {
        BT_TRY(bt_hub_all_save(h, err));
        const bt_err why = h->unsaved;
        if (why.code == BT_OK) break;
        if (!h->cfg.wait(h->cfg.wait_ctx)) {
            *err = why;
            return why.code;
        }
        if (first)
            bt_hub_notice(
                h, NULL,
                "the hub's disk has no room for the first checkpoint; it tries again each second");
    }
    return BT_OK;
}

bt_code bt_hub_all_end(bt_hub *h, bt_err *err) {
    order o = {.kind = ORDER_END};
    return send_order(h, &o, err);
}

/* ---- other processes ------------------------------------------------------------------------------ */

static bt_code execute_order(bt_hub *h, const order *o, bool *end, bt_err *err) {
    bt_member *m = &h->members[o->member];
    bt_hub_step step;
    double ignored;
    bool have_it;
    switch (o->kind) {
    case ORDER_JOB: return execute_job_order(h, o, err);
    case ORDER_MEMBER: execute_member_order(h, o); return BT_OK;
    case ORDER_HAVE:
        m->go.fragment = o->fragment;
        return has_update(h, m, o->seq, o->push, &have_it, err);
    case ORDER_NORM: return norm(h, m, o->push, &ignored, err);
    case ORDER_WEIGHTS: return weights(h, m, err);
    case ORDER_CHANGE: return change_weights(h, &o->change, &step, err);
    case ORDER_KEEP: return execute_log_order(h, o, err);
    case ORDER_SAVE: return all_saved(h, err);
    case ORDER_END: *end = true; return BT_OK;
    }
    return bt_fail(err, BT_CHECK, "an order of kind %d", (int)o->kind);
}

bt_code bt_hub_execute(bt_hub *h, bool *end, bt_err *err) {
    bool done = false;
    order o;
    *end = false;
    if (!h->ordered.active) {
        h->order = 0;
        BT_TRY(bt_all_reduce_i64_start(all(), &h->order, 1, BT_SUM, &h->ordered, err));
    }
    BT_TRY(bt_request_test(&h->ordered, &done, err));
    if (!done) return BT_OK;
    BT_TRY(bt_broadcast(all(), &o, sizeof o, 0, err));
    return execute_order(h, &o, end, err);
}
