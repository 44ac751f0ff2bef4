/* api_prometheus.c - /metrics: live runs in the Prometheus text format 0.0.4. Base units, prefix bitrain_, a `run` label each.
 * Names: facts of monitoring practice (counters end in _total, seconds and bytes, ratios 0..1). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "web/api.h"

enum { LIVE_MAX = 64, RANKS_MAX = 512 };

typedef struct live { char run[LIVE_MAX][BT_NAME_MAX]; int n; } live;

static bool keep_name(void *ctx, const bt_row *row) {
    live *l = ctx;
    if (l->n < LIVE_MAX) snprintf(l->run[l->n++], BT_NAME_MAX, "%s", row->cells[0]);
    return l->n < LIVE_MAX;
}

static void put(bt_text *out, const char *name, const char *labels, double v) {
    if (isnan(v)) return;
    bt_text_printf(out, "bitrain_%s{%s} %.17g\n", name, labels, v);
}

typedef struct family {
    const char *name, *type, *help;
    double (*of)(const bt_view_head *h);
} family;

static double steps_of(const bt_view_head *h) { return (double)(h->newest_step + 1); }
static double tokens_of(const bt_view_head *h) { return h->tokens; }
static double loss_of(const bt_view_head *h) { return h->loss; }
static double val_loss_of(const bt_view_head *h) { return h->val_loss; }
static double norm_of(const bt_view_head *h) { return h->grad_norm; }
static double lr_of(const bt_view_head *h) { return h->lr; }
static double rate_of(const bt_view_head *h) { return h->tokens_per_s; }
static double step_of(const bt_view_head *h) { return h->step_p50_ms / 1e3; }
static double mfu_of(const bt_view_head *h) { return h->mfu; }
static double goodput_of(const bt_view_head *h) { return h->goodput; }
static double overhead_of(const bt_view_head *h) { return h->comm_overhead; }
static double age_of(const bt_view_head *h) { return h->age_s; }

static const family families[] = {
    {"steps_total", "counter", "optimizer updates done", steps_of},
    {"tokens_total", "counter", "tokens trained", tokens_of},
    {"loss", "gauge", "cross-entropy per token in nats", loss_of},
    {"validation_loss", "gauge", "cross-entropy per token of the validation split in nats", val_loss_of},
    {"gradient_norm", "gauge", "global L2 norm before clipping", norm_of},
    {"learning_rate", "gauge", "learning rate of the newest step", lr_of},
    {"tokens_per_second", "gauge", "trained tokens per second, all ranks", rate_of},
    {"step_seconds", "gauge", "median step time of the newest steps", step_of},
    {"model_flops_utilization_ratio", "gauge", "model FLOP/s over the measured peak", mfu_of},
    {"goodput_ratio", "gauge", "first-time productive time over elapsed time", goodput_of},
    {"communication_overhead_ratio", "gauge", "exposed communication and waiting over step time", overhead_of},
    {"last_record_age_seconds", "gauge", "time since the newest record", age_of},
};

static void rank_rows(bt_text *out, const char *run, const bt_view_ranks *r) {
    char labels[160];
    for (size_t i = 0; i < r->n && i < RANKS_MAX; i++) {
        const bt_view_rank *x = &r->rank[i];
        for (int p = 0; p < BT_PHASE_COUNT; p++) {
            snprintf(labels, sizeof labels, "run=\"%s\",rank=\"%d\",phase=\"%s\"", run, x->rank, bt_phases[p].name);
            put(out, "rank_phase_seconds", labels, x->mean[bt_phases[p].metric] / 1e3);
        }
    }
}

/* one view at a time is loaded, so families are gathered run by run and printed family by family */
bt_code bt_api_prometheus(bt_api *a, const bt_req *r, const char *unused, bt_answer *out, bt_err *err) {
    (void)r;
    (void)unused;
    enum { N = sizeof families / sizeof families[0] };
    live l = {.n = 0};
    bt_db *db = bt_api_db(a, err);
    if (!db) return err->code;
    BT_TRY(bt_db_query(db, "SELECT run FROM runs WHERE ended_s IS NULL ORDER BY started_s DESC LIMIT 64", NULL, 0, LIVE_MAX, 2, keep_name, &l, NULL, err));
    bt_text family_text[N] = {{0}}, phases = {0}, scores = {0}, memory = {0};
    bt_code code = BT_OK;
    for (int i = 0; i < l.n && code == BT_OK; i++) {
        char labels[160];
        bt_view_ask ask;
        bt_view_ask_init(&ask);
        ask.parts = BT_VIEW_HEAD | BT_VIEW_RANKS;
        ask.run = l.run[i];
        bt_view *v = bt_api_view(a, l.run[i], err);
        code = v ? bt_view_load(v, &ask, err) : err->code;
        if (code != BT_OK) break;
        snprintf(labels, sizeof labels, "run=\"%s\"", l.run[i]);
        for (int f = 0; f < N; f++) put(&family_text[f], families[f].name, labels, families[f].of(&v->head));
        rank_rows(&phases, l.run[i], &v->ranks);
        for (size_t k = 0; k < v->ranks.n && k < RANKS_MAX; k++) {
            snprintf(labels, sizeof labels, "run=\"%s\",rank=\"%d\"", l.run[i], v->ranks.rank[k].rank);
            put(&scores, "rank_score_ratio", labels, v->ranks.rank[k].score);
            put(&memory, "resident_memory_bytes", labels, v->ranks.rank[k].mean[BT_MR_RSS] * 1048576.0);
        }
    }
    out->type = "text/plain; version=0.0.4; charset=utf-8";
    for (int f = 0; f < N; f++) {
        if (family_text[f].len) bt_text_printf(&out->body, "# HELP bitrain_%s %s\n# TYPE bitrain_%s %s\n%s", families[f].name, families[f].help, families[f].name, families[f].type, bt_text_str(&family_text[f]));
        bt_text_release(&family_text[f]);
    }
    if (phases.len) bt_text_printf(&out->body, "# HELP bitrain_rank_phase_seconds mean time of a step's phase on a rank\n# TYPE bitrain_rank_phase_seconds gauge\n%s", bt_text_str(&phases));
    if (scores.len) bt_text_printf(&out->body, "# HELP bitrain_rank_score_ratio best rank's busy time over this rank's\n# TYPE bitrain_rank_score_ratio gauge\n%s", bt_text_str(&scores));
    if (memory.len) bt_text_printf(&out->body, "# HELP bitrain_resident_memory_bytes resident memory of a rank\n# TYPE bitrain_resident_memory_bytes gauge\n%s", bt_text_str(&memory));
    bt_text_printf(&out->body, "# HELP bitrain_live_runs runs that have not ended\n# TYPE bitrain_live_runs gauge\nbitrain_live_runs %d\n", l.n);
    bt_text_release(&phases);
    bt_text_release(&scores);
    bt_text_release(&memory);
    return code;
}
