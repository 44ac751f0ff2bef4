/* observer.c - combines the samples of tensors and of exchanges, and measures the links. */
#include <stdlib.h>

#include "engine/observe/observer_impl.h"

enum { LINK_BYTES = 4 << 20 };

struct bt_observer {
    const bt_mesh *mesh;
    bt_telemetry *telemetry;
    size_t link_bytes; /* size of a test message; 0: statistics are disabled */
    bool sharded;
    bt_exchange_watch exchanges;
    bt_tensor_watch tensors;
};

static bt_codes_cfg codes_cfg(const bt_rank_setup *s) {
    return (bt_codes_cfg){
        .shards = &s->shards, .shard = s->shard, .part = s->replica, .parts = s->replicas};
}

size_t bt_observer_bytes(const bt_rank_setup *s) {
    bt_codes_cfg cfg = codes_cfg(s);
    bt_model_cfg whole;
    bt_params all;
    if (s->cfg->train.stats_every == 0) return 0;
    const size_t codes = bt_codes_bytes(&s->params, &cfg);
    bt_run_cfg_model(s->cfg, &whole);
    if (s->cfg->train.distributions == 0 ||
        bt_params_init(&all, &whole, (bt_model_slice){.pp_size = 1, .tp_size = 1}, NULL) != BT_OK)
        return codes;
    const size_t n = all.n; /* number of tensors of all stages */
    bt_params_release(&all);
    return codes + n * sizeof(bt_histogram) +
           bt_sample_bytes(BT_SCOPE_DISTRIBUTION, n * BT_HIST_BINS);
}

bt_code bt_observer_create(bt_observer **out, const bt_observer_cfg *cfg, bt_err *err) {
    const bt_run_cfg *c = cfg->setup->cfg;
    *out = NULL;
    bt_observer *o = calloc(1, sizeof *o);
    if (!o) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the statistics");
    o->mesh = cfg->mesh;
    o->telemetry = cfg->telemetry;
    o->sharded = cfg->setup->sharded;
    if (c->train.stats_every > 0)
        o->link_bytes = c->train.bucket_bytes < LINK_BYTES ? (size_t)c->train.bucket_bytes
                                                           : LINK_BYTES;
    o->tensors.slices = codes_cfg(cfg->setup);
    bt_code code = bt_exchange_watch_create(&o->exchanges, cfg->telemetry, err);
    if (code == BT_OK) code = bt_tensor_watch_create(&o->tensors, cfg, err);
    if (code != BT_OK) {
        bt_observer_destroy(o);
        return code;
    }
    *out = o;
    return BT_OK;
}

void bt_observer_destroy(bt_observer *o) {
    if (!o) return;
    bt_exchange_watch_release(&o->exchanges);
    bt_tensor_watch_release(&o->tensors);
    free(o);
}

bt_code bt_observer_links(bt_observer *o, bt_err *err) {
    bt_link *links = o->exchanges.links;
    if (o->link_bytes == 0) return BT_OK;
    BT_TRY(bt_link_measure(&links[BT_AXIS_DP], o->mesh->dp, o->link_bytes, err));
    return o->sharded ? bt_link_measure(&links[BT_AXIS_SHARD], o->mesh->shard, o->link_bytes, err)
                      : BT_OK;
}

void bt_observer_set_links(bt_observer *o, const bt_link links[BT_AXIS_COUNT]) {
    for (int a = 0; a < BT_AXIS_COUNT; a++) o->exchanges.links[a] = links[a];
}

const bt_link *bt_observer_link(const bt_observer *o, bt_axis axis) {
    return &o->exchanges.links[axis];
}

void bt_observer_begin(bt_observer *o, int64_t step) {
    bt_exchange_watch_begin(&o->exchanges, step);
}

bt_code bt_observer_sample(bt_observer *o, const bt_sample_step *s, bt_err *err) {
    BT_TRY(bt_exchange_watch_sample(&o->exchanges, o->telemetry, s->step, err));
    return bt_tensor_watch_sample(&o->tensors, o->telemetry, s, err);
}
