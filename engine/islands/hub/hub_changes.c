/* hub_changes.c - averages updates, and stores the changed weights in the log and in checkpoints. */
#include "engine/islands/hub/hub_changes.h"

#include <math.h>

#include "engine/islands/hub/hub_internal.h"
#include "engine/islands/rules/outer_step.h"

size_t bt_hub_update_bytes(bt_hub *h, const bt_member *m, int64_t kind) {
    static const bt_codec plain = {.name = "fp32"};
    bt_hub_model_use(h->model, kind == BT_PUSH_DELTA ? m->go.fragment : -1);
    bt_vector_code c = h->model->up;
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

static bt_hub_part hub_part(bt_hub *h, const bt_member *m, int64_t kind, double weight) {
    return (bt_hub_part){m->staged, bt_hub_update_bytes(h, m, kind), weight};
}

double bt_hub_norm(bt_hub *h, const bt_member *m) {
    const bt_hub_part part = hub_part(h, m, m->push.kind, 1);
    bt_err ignored = BT_ERR_INIT;
    if (!bt_hub_model_mean(h->model, &part, 1, &ignored)) return (double)NAN;
    return bt_vector_norm(h->model->mean + h->model->begin, h->model->part);
}

void bt_hub_take_weights(bt_hub *h, const bt_member *m) {
    const bt_hub_part part = hub_part(h, m, BT_PUSH_WEIGHTS, 1);
    h->model->has_weights = bt_hub_model_set_weights(h->model, part.bytes, part.n);
}

bt_code bt_hub_change_weights(bt_hub *h, const bt_hub_change *c, bt_hub_step *step, bt_err *err) {
    bt_hub_part parts[BT_HUB_ISLANDS];
    bt_hub_model *m = h->model;
    const int64_t kind = c->how.kind == BT_PUSH_GRADIENT ? BT_PUSH_GRADIENT : BT_PUSH_DELTA;
    for (size_t i = 0; i < c->n; i++) parts[i] = hub_part(h, c->member[i], kind, c->weight[i]);
    bt_hub_model_use(m, c->how.kind == BT_PUSH_DELTA ? c->how.position : -1);
    if (!bt_hub_model_mean(m, parts, c->n, err)) return err->code;
    if (c->how.kind == BT_PUSH_GRADIENT)
        return bt_hub_model_gradient_step(m, c->how.position, c->how.factor, step, err);
    if (c->how.kind == BT_PUSH_DELTA)
        bt_hub_model_outer_step(m, c->how.factor);
    else
        bt_hub_model_average(m, c->how.factor);
    return BT_OK;
}

bt_code bt_hub_keep(bt_hub *h, const bt_hub_applied *a, int64_t version, bt_err *err) {
    bool waited = false;
    for (;; waited = true) {
        bt_err why = BT_ERR_INIT;
        if (bt_hub_state_log(h->state, a, version, &why) == BT_OK) break;
        BT_TRY(bt_hub_wait_for_disk(h, !waited, &why, err));
    }
    if (waited) bt_hub_disk_is_back(h);
    if (a->kind >= 0) bt_hub_model_publish(h->model);
    return BT_OK;
}

bt_code bt_hub_save(bt_hub *h, bt_err *err) {
    const bool known = h->unsaved.code != BT_OK;
    bt_err why = BT_ERR_INIT;
    const bt_code code = bt_hub_state_save(h->state, &why);
    h->unsaved = (bt_err)BT_ERR_INIT;
    if (code == BT_OK) return BT_OK;
    if (code != BT_IO || !h->cfg.wait) {
        *err = why;
        return code;
    }
    h->unsaved = why;
    if (!known) bt_hub_event(h, BT_EVENT_CHECKPOINT_FAILED, NULL, "%s; it is tried again", why.msg);
    return BT_OK;
}

bt_code bt_hub_save_first(bt_hub *h, bt_err *err) {
    for (bool first = true;; first = false) {
        BT_TRY(bt_hub_save(h, err));
        const bt_err why = h->unsaved;
        if (why.code == BT_OK) return BT_OK;
        if (!h->cfg.wait(h->cfg.wait_ctx)) {
            *err = why;
            return why.code;
        }
        if (first)
            bt_hub_notice(
                h, NULL,
                "the hub's disk has no room for the first checkpoint; it tries again each second");
    }
}
