/* choose_layout.c - obtains rates, ranks layouts, and applies the first of them. */
#include "cli/layout/choose_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/layout/layout_trial.h"
#include "cli/layout/machine_rates.h"
#include "engine/base/clock.h"
#include "engine/base/numbers/predicted.h"
#include "engine/base/tables/metric.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/plan/layout_remedy.h"
#include "engine/plan/memory.h"
#include "engine/train/trainer.h"
#include "monitor/job/launch/host_file.h"

enum { SHAPES_MOST = 48 };

static int greatest_divisor(int a, int b) { return b ? greatest_divisor(b, a % b) : a; }

/* Distributes ranks over hosts like mpirun, which fills the slots of the file's hosts in order. */
static void distribute_ranks_over_hosts(bt_cluster *c, const char *file) {
    int *on = calloc((size_t)c->ranks, sizeof *on), together = 0, most = 0;
    const int hosts = on ? bt_host_file_ranks(file, on, c->ranks) : 0;
    bool alike = true;
    for (int i = 0; i < hosts; i++) {
        together = greatest_divisor(on[i], together);
        if (on[i] > most) most = on[i];
        alike &= on[i] == on[0];
    }
    free(on);
    if (hosts == 0) return; /* the check of the file reports the reason */
    c->ranks_per_host = most;
    if (alike) return;
    c->hosts = hosts;
    c->ranks_together = together;
}

bt_cluster bt_cluster_here(const bt_run_cfg *cfg, int ranks) {
    bt_memory_room room;
    bt_memory_room_of(&room);
    bt_cluster c = {.ranks = ranks, .ranks_per_host = ranks, .cores = bt_cpu_get()->cores};
    if (cfg->launch.hosts[0]) distribute_ranks_over_hosts(&c, cfg->launch.hosts);
    if (room.host != SIZE_MAX && cfg->launch.memory_check) c.memory_bytes = (double)room.host;
    return c;
}

/* Checks that a layout fits a host's memory. BT_NOMEM names the least memory needed. */
static bt_code check_any_fits(const bt_layouts *l, const bt_layout_search *s, bt_err *err) {
    char need[32], have[32], least[32], more[32];
    bt_text would;
    if (l->fitting > 0) return BT_OK;
    const bt_cluster *c = &s->cluster;
    const int here = bt_cluster_fullest(c);
    double host = (double)l->least_bytes * here, lacks = host - c->memory_bytes;
    bt_metric_format(need, sizeof need, (double)l->least_bytes, BT_UNIT_BYTES);
    bt_metric_format(have, sizeof have, c->memory_bytes, BT_UNIT_BYTES);
    bt_metric_format(least, sizeof least, host, BT_UNIT_BYTES);
    bt_metric_format(more, sizeof more, lacks, BT_UNIT_BYTES);
    bt_text_init(&would);
    bt_layout_remedies(s, &would);
    bt_code code = bt_fail(err, BT_NOMEM,
                           "the model fits under no layout of %d rank%s: the least is %s a rank, "
                           "%s on a host of %d rank%s, which has %s: %s too little (would fit: %s)",
                           c->ranks, c->ranks == 1 ? "" : "s", need, least, here,
                           here == 1 ? "" : "s", have, more, bt_text_str(&would));
    bt_text_release(&would);
    return code;
}

static bt_code set_integer_option(bt_opts *o, const char *key, int64_t value, const char *where,
                                  bt_err *err) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return bt_opts_set(o, key, text, BT_FROM_FLAG, where, err);
}

/* Stores the prediction in the settings, so that the run can compare it with its steps. */
static bt_code set_prediction(bt_opts *o, const bt_layout *l, const char *where, bt_err *err) {
    char ms[32];
    const bt_predicted p = bt_predicted_of(l->time.step.step_s, l->time.step.phase_s, l->trial_s);
    bt_text parts;
    bt_text_init(&parts);
    bt_predicted_put(&p, &parts);
    snprintf(ms, sizeof ms, "%.6g", 1e3 * bt_layout_step_s(l));
    bt_code code = bt_opts_set(o, "launch.predicted_ms", ms, BT_FROM_FLAG, where, err);
    if (code == BT_OK)
        code = bt_opts_set(o, "launch.predicted_parts", bt_text_str(&parts), BT_FROM_FLAG, where,
                           err);
    bt_text_release(&parts);
    return code;
}

bt_code bt_layout_apply(bt_opts *o, const bt_layout *l, const char *where, bt_err *err) {
    static const char *const recompute[] = {"none", "selective", "full"};
    BT_TRY(set_integer_option(o, "mesh.pp", l->shape.pp, where, err));
    if (l->virtual_stages > 1)
        BT_TRY(set_integer_option(o, "parallel.virtual_stages", l->virtual_stages, where, err));
    BT_TRY(set_integer_option(o, "mesh.tp", l->shape.tp, where, err));
    BT_TRY(set_integer_option(o, "mesh.zero", l->zero, where, err));
    /* only if shards cover a part of the data-parallel ranks; otherwise the ZeRO stage determines both settings */
    if (l->zero && l->shape.dp_replicate > 1) {
        BT_TRY(set_integer_option(o, "mesh.dp_shard", l->shape.dp_shard, where, err));
        BT_TRY(set_integer_option(o, "mesh.dp_replicate", l->shape.dp_replicate, where, err));
    }
    BT_TRY(set_integer_option(o, "train.micro_batch", l->micro_batch, where, err));
    BT_TRY(bt_opts_set(o, "train.recompute", recompute[l->recompute], BT_FROM_FLAG, where, err));
    BT_TRY(bt_opts_set(o, "parallel.gather", bt_gather_name(l->gather), BT_FROM_FLAG, where, err));
    return set_prediction(o, l, where, err);
}

static bt_code measure_layout_rates(bt_layout_choice *c, const bt_layout_job *job, bt_text *notes,
                                    bt_err *err) {
    bt_part_shape *shapes = calloc(SHAPES_MOST, sizeof *shapes);
    bt_run_cfg *first = malloc(sizeof *first);
    bt_code code = shapes && first ? BT_OK
                                   : bt_fail(err, BT_NOMEM, "no memory for the shapes of layers");
    if (code == BT_OK) code = bt_layout_settings(&c->search, &c->layouts.at[0], first, err);
    if (code == BT_OK) {
        c->search.cluster.data = bt_data_facts_of(first);
        size_t n = bt_layouts_shapes(&c->layouts, &c->search, shapes, SHAPES_MOST);
        const bt_rates_request wanted = {.cfg = first,
                                         .ranks = job->ranks,
                                         .ranks_per_host = c->search.cluster.ranks_per_host,
                                         .parts = shapes,
                                         .n_parts = n,
                                         .store = job->store,
                                         .anew = job->anew,
                                         .never = job->never,
                                         .quiet = job->quiet};
        code = bt_machine_rates(&wanted, &c->rates, notes, err);
    }
    free(shapes);
    free(first);
    return code;
}

bt_code bt_layout_choose(bt_layout_choice **out, const bt_layout_job *job, bt_text *notes,
                         bt_err *err) {
    const int64_t began = bt_now_ns();
    *out = NULL;
    bt_layout_choice *c = calloc(1, sizeof *c);
    if (!c) return bt_fail(err, BT_NOMEM, "no memory for the layouts");
    c->search = (bt_layout_search){.cfg = job->cfg,
                                   .may = bt_layout_freedom_of(job->opts),
                                   .cluster = bt_cluster_here(job->cfg, job->ranks),
                                   .parts = bt_parts_memory};
    /* memory depends on the packed forms of the kernel set */
    bt_code code = bt_kernels_select(job->cfg->launch.isa, err);
    if (code == BT_OK) code = bt_layouts_find(&c->layouts, &c->search, err);
    if (code == BT_OK) code = check_any_fits(&c->layouts, &c->search, err);
    if (code == BT_OK) code = measure_layout_rates(c, job, notes, err);
    if (code == BT_OK) code = bt_layouts_predict(&c->layouts, &c->search, &c->rates, err);
    if (code == BT_OK)
        code = bt_layout_trial(c, job, (double)(bt_now_ns() - began) / 1e9, notes, err);
    if (code == BT_OK) code = bt_layout_settings(&c->search, &c->layouts.at[0], &c->settings, err);
    if (code != BT_OK) {
        bt_layout_choice_release(c);
        return code;
    }
    *out = c;
    return BT_OK;
}

void bt_layout_choice_release(bt_layout_choice *c) {
    if (!c) return;
    bt_layouts_release(&c->layouts);
    free(c);
}
