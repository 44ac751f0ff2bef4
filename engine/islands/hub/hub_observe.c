/* hub_observe.c - metrics of a hub: a step record for each update of its weights. Rows of islands and of staleness are
 * recorded at an interval, after a rejected update, and at the end. */
#include <math.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/islands/hub/hub_internal.h"

enum { ROWS_EVERY = 10 };

static void record_hub_update(bt_hub *h, const bt_hub_step *step, int64_t tokens) {
    double values[BT_MS_COUNT], ranks[BT_HUB_ISLANDS][BT_MR_COUNT];
    double loss = 0, weight = 0, bytes = 0;
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    for (size_t i = 0; i < h->n; i++) {
        bt_member *m = &h->members[i];
        for (int k = 0; k < BT_MR_COUNT; k++) ranks[i][k] = NAN;
        ranks[i][BT_MR_LOSS] = m->loss;
        ranks[i][BT_MR_BYTES_WIRE] = (double)(m->bytes - m->told_bytes);
        bytes += (double)(m->bytes - m->told_bytes);
        m->told_bytes = m->bytes;
        if (m->state != BT_MEMBER_TRAINS || isnan(m->loss)) continue;
        loss += m->loss * (double)m->push.tokens;
        weight += (double)m->push.tokens;
    }
    const double seconds = h->told_ns ? (double)(h->now_ns - h->told_ns) / 1e9 : NAN;
    h->told_ns = h->now_ns;
    values[BT_MS_TOKENS] = (double)h->tokens;
    values[BT_MS_LOSS] = weight > 0 ? loss / weight : NAN;
    values[BT_MS_GRAD_NORM] = step->grad_norm;
    values[BT_MS_LR] = step->lr;
    values[BT_MS_WEIGHT_DECAY] = step->decay;
    values[BT_MS_STEP_TIME] = seconds * 1e3;
    values[BT_MS_TOKENS_PER_S] = seconds > 0 ? (double)tokens / seconds : NAN;
    values[BT_MS_BYTES_WIRE] = bytes;
    const bt_step_record r = {.step = h->model->version - 1,
                              .wall_us = bt_wall_us(),
                              .values = values,
                              .n_ranks = (int)h->n,
                              .rank_values = &ranks[0][0]};
    if (h->cfg.sink->step) h->cfg.sink->step(h->cfg.sink->ctx, &r);
}

static void record_islands(bt_hub *h) {
    bt_key keys[BT_HUB_ISLANDS];
    double values[BT_HUB_ISLANDS][BT_MI_COUNT];
    for (size_t i = 0; i < h->n; i++) {
        const bt_member *m = &h->members[i];
        keys[i].s = m->name;
        values[i][BT_MI_TRAINS] = m->state == BT_MEMBER_TRAINS;
        values[i][BT_MI_CLOCK] = (double)m->clock;
        values[i][BT_MI_UPDATES] = (double)m->updates;
        values[i][BT_MI_LEFT_OUT] = (double)m->left_out;
        values[i][BT_MI_TOKENS] = (double)m->tokens;
        values[i][BT_MI_BYTES] = (double)m->bytes;
        values[i][BT_MI_STALENESS] = (double)m->go.staleness;
        values[i][BT_MI_BATCH] = (double)m->sequences;
        values[i][BT_MI_LOSS] = m->loss;
    }
    h->cfg.sink->rows(h->cfg.sink->ctx, &(bt_row_record){.scope = BT_SCOPE_ISLAND,
                                                         .step = h->model->version - 1,
                                                         .n = h->n,
                                                         .keys = keys,
                                                         .values = &values[0][0]});
}

static void record_staleness(bt_hub *h) {
    bt_key keys[BT_HUB_STALENESS];
    double values[BT_HUB_STALENESS][BT_MA_COUNT];
    size_t n = 0;
    for (size_t i = 0; i < BT_HUB_STALENESS; i++) {
        if (!h->staleness[i]) continue;
        keys[n].i = (int64_t)i;
        values[n++][BT_MA_UPDATES] = (double)h->staleness[i];
    }
    if (n)
        h->cfg.sink->rows(h->cfg.sink->ctx, &(bt_row_record){.scope = BT_SCOPE_STALENESS,
                                                             .step = h->model->version - 1,
                                                             .n = n,
                                                             .keys = keys,
                                                             .values = &values[0][0]});
}

static void record_rows(bt_hub *h) {
    if (!h->cfg.sink->rows) return;
    record_islands(h);
    record_staleness(h);
}

void bt_hub_observe(bt_hub *h, const bt_hub_step *step, int64_t tokens) {
    if (!h->cfg.sink || h->model->version == 0) return;
    record_hub_update(h, step, tokens);
    if (h->model->version % ROWS_EVERY == 1) record_rows(h);
}

void bt_hub_observe_islands(bt_hub *h) {
    if (h->cfg.sink && h->model->version > 0) record_rows(h);
}
