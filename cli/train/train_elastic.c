/* train_elastic.c - settings sent to the ranks, and the layouts in which a run may continue. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/train/train_parts.h"
#include "monitor/job/launch/host_file.h"

/* Replaces the settings; if out of memory the old ones remain. run.resume is empty, because the supervisor chooses
 * the checkpoint. */
static bt_code set_rank_settings(bt_text *to, const bt_run_cfg *cfg, bt_err *err) {
    bt_run_cfg *c = malloc(sizeof *c);
    bt_text settings = {0};
    if (c) {
        *c = *cfg;
        c->run.resume[0] = '\0';
        bt_run_cfg_texts(c, &settings);
    }
    if (!c || settings.failed) {
        bt_text_release(&settings);
        free(c);
        return bt_fail(err, BT_NOMEM, "no memory for the settings of the ranks");
    }
    free(c);
    bt_text_release(to);
    *to = settings;
    return BT_OK;
}

bt_code bt_train_layouts_open(bt_train_layouts *l, const bt_train_plan *p, bt_err *err) {
    memset(l, 0, sizeof *l);
    l->plan = p;
    l->now = p->cfg;
    return set_rank_settings(&l->settings, &p->cfg, err);
}

void bt_train_layouts_close(bt_train_layouts *l) { bt_text_release(&l->settings); }

static bt_code choose_ranks_of_hosts(const bt_elastic *range, const bt_resize_request *w,
                                     bt_layout_request *to, bt_err *err) {
    bt_elastic_host *hosts = calloc(w->n_hosts, sizeof *hosts);
    int alive = 0;
    if (!hosts) return bt_fail(err, BT_NOMEM, "no memory for the hosts");
    for (size_t i = 0; i < w->n_hosts; i++) {
        hosts[i] = (bt_elastic_host){w->hosts[i].slots, w->hosts[i].alive};
        if (w->hosts[i].alive) alive += w->hosts[i].slots;
    }
    to->most = bt_elastic_ranks(range, hosts, w->n_hosts);
    to->least = range->min;
    free(hosts);
    if (to->most) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "the responding hosts take %d rank%s, and --elastic requires at least %d", alive,
                   alive == 1 ? "" : "s", range->min);
}

bt_code bt_train_layout(void *ctx, const bt_resize_request *w, bool take, bt_job_layout *out,
                        bt_err *err) {
    bt_train_layouts *l = ctx;
    const bt_train_plan *p = l->plan;
    bt_layout_request wish = {
        .most = w->most, .least = w->least, .tp = w->tp, .pp = w->pp, .zero = w->zero};
    if (w->hosts) BT_TRY(choose_ranks_of_hosts(&p->elastic, w, &wish, err));
    bt_run_cfg *cfg = malloc(sizeof *cfg);
    if (!cfg) return bt_fail(err, BT_NOMEM, "no memory for the settings");
    bt_code code = bt_elastic_layout(&p->given, &p->cfg, &wish, cfg, err);
    /* --stop-after counts from the start of this process, not from that of the new ranks. */
    if (code == BT_OK && cfg->train.stop_after > 0) {
        const int64_t left = p->from.step + p->cfg.train.stop_after - w->from_step;
        if (w->from_step > 0 && left <= 0)
            code = bt_fail(err, BT_STOPPED,
                           "step %" PRId64 " was the last of --stop-after %" PRId64, w->from_step,
                           p->cfg.train.stop_after);
        else if (w->from_step > 0)
            cfg->train.stop_after = left;
    }
    /* The prediction is valid for the first layout only. */
    if (code == BT_OK && !bt_elastic_same(cfg, &p->cfg)) {
        cfg->launch.predicted_ms = 0;
        cfg->launch.predicted_parts[0] = '\0';
    }
    if (code == BT_OK) {
        *out = (bt_job_layout){.ranks = (int)cfg->launch.ranks,
                               .same = bt_elastic_same(cfg, &l->now)};
        bt_elastic_describe(cfg, out->told, sizeof out->told);
        if (take) code = set_rank_settings(&l->settings, cfg, err);
    }
    if (code == BT_OK && take) {
        l->now = *cfg;
        out->settings = bt_text_str(&l->settings);
    }
    free(cfg);
    return code;
}

bt_code bt_train_first_ranks(bt_train_plan *p, int cores, bt_err *err) {
    const bt_elastic *e = &p->elastic;
    BT_TRY(bt_elastic_parse(p->cfg.launch.elastic, &p->elastic, err));
    p->ranks = bt_run_cfg_ranks(&p->cfg, cores);
    if (!e->max) return BT_OK;
    if (p->cfg.launch.ranks && (p->ranks < e->min || p->ranks > e->max))
        return bt_fail(err, BT_ARG, "--ranks %d is outside --elastic %d:%d", p->ranks, e->min,
                       e->max);
    if (p->cfg.launch.ranks) return BT_OK;
    if (p->cfg.launch.hosts[0]) p->ranks = bt_host_file_slots(p->cfg.launch.hosts);
    if (p->ranks < e->min) p->ranks = e->min;
    if (p->ranks > e->max) p->ranks = e->max;
    return BT_OK;
}
