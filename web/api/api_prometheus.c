/* api_prometheus.c - /metrics: live runs, and runs that ended at most ENDED_S ago, in the Prometheus text format 0.0.4.
 * Names have base units and the prefix bitrain_; each sample has a `run` label; counters end in _total; shares are
 * ratios 0..1. A metric of the tables for which `families` has a row is exported under that name only. grafana.json
 * uses these names (a test compares them with this output). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "web/api/api.h"

/* time in seconds for which an ended run's last values are exported, for scrapers with intervals of minutes */
#define ENDED_S "300"

/* Maximum number of series in one response. bitrain_left_out is the number of omitted series, counted over at most
 * COUNTED_MAX runs. */
enum { LIVE_MAX = 64, RANKS_MAX = 512, TENSORS_MAX = 512, COUNTED_MAX = 100000 };

/* ---- families with one value per run, taken from the head of its view ------------------------------------------ */

typedef struct family {
    const char *name, *type, *help;
    double (*of)(const bt_view_head *h); /* NULL: written separately below */
} family;

static double head_steps(const bt_view_head *h) { return (double)(h->newest_step + 1); }
static double head_tokens(const bt_view_head *h) { return h->tokens; }
static double newest_loss(const bt_view_head *h) { return h->loss; }
static double head_val_loss(const bt_view_head *h) { return h->val_loss; }
static double head_grad_norm(const bt_view_head *h) { return h->grad_norm; }
static double head_lr(const bt_view_head *h) { return h->lr; }
static double head_token_rate(const bt_view_head *h) { return h->tokens_per_s; }
static double head_step_s(const bt_view_head *h) { return h->step_p50_ms / 1e3; }
static double head_step_p95_s(const bt_view_head *h) { return h->step_p95_ms / 1e3; }
static double head_flops_utilization(const bt_view_head *h) { return h->mfu; }
static double head_goodput(const bt_view_head *h) { return h->goodput; }
static double head_comm_overhead(const bt_view_head *h) { return h->comm_overhead; }
static double head_comm_overlap(const bt_view_head *h) { return h->overlap; }
static double head_timestamp_s(const bt_view_head *h) {
    return round((double)bt_wall_us() / 1e3 - h->age_s * 1e3) / 1e3;
}
static double head_attempts(const bt_view_head *h) { return h->n_attempts; }
static double head_ranks(const bt_view_head *h) { return h->world_size; }

enum { WIRE, EVENTS, TIMES, PHASES, SCORES, MEMORY, ZEROS, FLIPS, STATE, LEFT_OUT, FIRST_PLAIN };
static const family families[] = {
    [WIRE] = {"comm_wire_bytes_total", "counter", "bytes sent on the wire by all ranks", NULL},
    [EVENTS] = {"events_total", "counter", "events of the run by kind and level", NULL},
    [TIMES] = {"time_seconds", "gauge",
               "parts of the wall clock since the run began; they add up to the elapsed time",
               NULL},
    [PHASES] = {"rank_phase_seconds", "gauge",
                "mean time of a step's phase on a rank, newest steps", NULL},
    [SCORES] = {"rank_score_ratio", "gauge",
                "best rank's busy time over this rank's: 0.5 means twice as slow", NULL},
    [MEMORY] = {"resident_memory_bytes", "gauge", "resident memory of a rank", NULL},
    [ZEROS] = {"zero_ratio", "gauge", "share of a ternary tensor's codes that are 0", NULL},
    [FLIPS] = {"flip_ratio", "gauge",
               "share of a ternary tensor's codes that differ from the sample before", NULL},
    [STATE] = {"run_state", "gauge",
               "1, with the run's state as a label; an ended run remains for " ENDED_S " s", NULL},
    [LEFT_OUT] =
        {"left_out", "gauge",
         "runs, ranks or tensors that this answer leaves out, because it holds 64 runs (live ones "
         "first) and 512 ranks and tensors of each",
         NULL},
    [FIRST_PLAIN] = {"steps_total", "counter", "optimizer updates done", head_steps},
    {"tokens_total", "counter", "tokens trained", head_tokens},
    {"loss", "gauge", "cross-entropy per token in nats", newest_loss},
    {"validation_loss", "gauge",
     "cross-entropy per token of the validation split in nats; NaN: not evaluated yet",
     head_val_loss},
    {"gradient_norm", "gauge", "global L2 norm before clipping", head_grad_norm},
    {"learning_rate", "gauge", "learning rate of the newest step", head_lr},
    {"tokens_per_second", "gauge", "trained tokens per second, all ranks", head_token_rate},
    {"step_seconds", "gauge", "median step time of the newest steps", head_step_s},
    {"step_p95_seconds", "gauge", "95th percentile of the newest steps' times", head_step_p95_s},
    {"model_flops_utilization_ratio", "gauge", "model FLOP/s over the measured peak of bf16",
     head_flops_utilization},
    {"goodput_ratio", "gauge", "productive part of the time since the run began", head_goodput},
    {"communication_overhead_ratio", "gauge", "exposed communication and waiting over step time",
     head_comm_overhead},
    {"overlap_ratio", "gauge", "share of the transfer time hidden behind compute",
     head_comm_overlap},
    {"last_record_timestamp_seconds", "gauge", "when the newest record was written, since 1970",
     head_timestamp_s},
    {"attempts", "gauge", "launches of the run so far", head_attempts},
    {"ranks", "gauge", "ranks of the newest attempt", head_ranks},
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

/* ---- families generated from the tables: every metric, named after the view of its scope ------------------ */

static const struct {
    const char *from, *to;
    double scale;
} base_units[] = {[BT_UNIT_NONE] = {"", "", 1},
                  [BT_UNIT_MS] = {"_ms", "_seconds", 1e-3},
                  [BT_UNIT_MIB] = {"_mib", "_bytes", 1048576},
                  [BT_UNIT_BYTES] = {"", "", 1},
                  [BT_UNIT_COUNT] = {"", "", 1},
                  [BT_UNIT_PER_S] = {"_per_s", "_per_second", 1},
                  [BT_UNIT_FRAC] = {"_frac", "_ratio", 1},
                  [BT_UNIT_NATS] = {"", "_nats", 1},
                  [BT_UNIT_J] = {"_j", "_joules", 1}};

/* "bitrain_rank_steps_wait_seconds" */
static void family_name(char *out, size_t size, const bt_scope_row *scope, const bt_metric *m) {
    const char *from = base_units[m->unit].from;
    size_t n = strlen(m->key), cut = strlen(from);
    if (n > cut && strcmp(m->key + n - cut, from) == 0) n -= cut;
    snprintf(out, size, "bitrain_%s_%.*s%s", scope->view, (int)n, m->key, base_units[m->unit].to);
}

static size_t index_over_all_scopes(bt_scope scope, int metric) {
    size_t n = (size_t)metric;
    for (int k = 0; k < (int)scope; k++) n += (size_t)bt_scopes[k].n;
    return n;
}

/* True for metrics that are exported by a row of `families`. */
static bool has_own_family(bt_scope scope, int metric) {
    static const int step[] = {BT_MS_TOKENS,        BT_MS_LOSS,      BT_MS_VAL_LOSS,
                               BT_MS_GRAD_NORM,     BT_MS_LR,        BT_MS_MFU,
                               BT_MS_COMM_OVERHEAD, BT_MS_OVERLAP,   BT_MS_TOKENS_PER_S,
                               BT_MS_STEP_TIME,     BT_MS_BYTES_WIRE},
                     layer[] = {BT_ML_ZERO, BT_ML_FLIP};
    if (scope == BT_SCOPE_STEP)
        for (size_t i = 0; i < sizeof step / sizeof *step; i++)
            if (step[i] == metric) return true;
    if (scope == BT_SCOPE_LAYER)
        for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
            if (layer[i] == metric) return true;
    if (scope != BT_SCOPE_RANK) return false;
    for (int p = 0; p < BT_PHASE_COUNT; p++)
        if ((int)bt_phases[p].metric == metric) return true;
    return metric == BT_MR_RSS;
}

/* rows[k] belongs to the k-th metric of all scopes. */
static void put_table_metrics(bt_text *rows, const char *run, const bt_view_panel *p) {
    char name[160];
    for (size_t i = 0; i < p->n; i++) {
        const bt_view_metric *x = &p->metric[i];
        const bt_scope_row *scope = &bt_scopes[x->scope];
        const bt_metric *m = &scope->metric[x->metric];
        double scale = base_units[m->unit].scale;
        const struct {
            const char *of;
            double v;
        } told[] = {{"mean", x->mean}, {"least", x->least}, {"most", x->most}};
        if (x->step < 0 || has_own_family(x->scope, x->metric)) continue;
        family_name(name, sizeof name, scope, m);
        /* a metric of a step has one row, so its mean is its value */
        for (int k = 0; k < (scope->n_keys ? 3 : 1); k++)
            bt_text_printf(&rows[index_over_all_scopes(x->scope, x->metric)],
                           "%s{run=\"%s\",of=\"%s\"} %.17g\n", name, run, told[k].of,
                           told[k].v * scale);
    }
}

static void print_prometheus(bt_text *out, bt_text *rows) {
    char name[160];
    size_t i = 0;
    for (int k = 0; k < BT_SCOPE_COUNT; k++) {
        for (int m = 0; m < bt_scopes[k].n; m++, i++) {
            if (rows[i].failed) out->failed = true;
            family_name(name, sizeof name, &bt_scopes[k], &bt_scopes[k].metric[m]);
            if (rows[i].len)
                bt_text_printf(out, "# HELP %s %s\n# TYPE %s gauge\n%s", name,
                               bt_scopes[k].metric[m].help, name, bt_text_str(&rows[i]));
            bt_text_release(&rows[i]);
        }
    }
}

static void put_prometheus_row(bt_text *rows, int f, const char *labels, double v) {
    if (!isnan(v)) bt_text_printf(&rows[f], "bitrain_%s{%s} %.17g\n", families[f].name, labels, v);
}

/* Escapes label values, because names of tensors and kinds are recorded texts. */
static const char *escape_label(char *out, size_t size, const char *s) {
    size_t n = 0;
    for (; *s && n + 3 < size; s++) {
        if (*s == '"' || *s == '\\') out[n++] = '\\';
        if ((unsigned char)*s >= ' ') out[n++] = *s;
    }
    out[n] = '\0';
    return out;
}

static void put_time_part_samples(bt_text *rows, const char *run, const bt_view_head *h) {
    char labels[160];
    for (int p = 0; p < BT_TIME_PARTS; p++) {
        snprintf(labels, sizeof labels, "run=\"%s\",part=\"%s\"", run, bt_times[p].key);
        put_prometheus_row(rows, TIMES, labels, h->time_s[p]);
    }
}

static void put_rank_samples(bt_text *rows, const char *run, const bt_view_ranks *r) {
    char labels[160];
    for (size_t i = 0; i < r->n && i < RANKS_MAX; i++) {
        const bt_view_rank *x = &r->rank[i];
        for (int p = 0; p < BT_PHASE_COUNT; p++) {
            snprintf(labels, sizeof labels, "run=\"%s\",rank=\"%d\",phase=\"%s\"", run, x->rank,
                     bt_phases[p].name);
            put_prometheus_row(rows, PHASES, labels, x->mean[bt_phases[p].metric] / 1e3);
        }
        snprintf(labels, sizeof labels, "run=\"%s\",rank=\"%d\"", run, x->rank);
        put_prometheus_row(rows, SCORES, labels, x->score);
        put_prometheus_row(rows, MEMORY, labels, x->mean[BT_MR_RSS] * 1048576.0);
    }
}

static void put_tensor_samples(bt_text *rows, const char *run, const bt_view_layers *l) {
    char labels[240], name[80];
    for (size_t i = 0; i < l->n && i < TENSORS_MAX; i++) {
        const bt_view_layer *x = &l->layer[i];
        snprintf(labels, sizeof labels, "run=\"%s\",layer=\"%d\",tensor=\"%s\"", run, x->layer,
                 escape_label(name, sizeof name, x->tensor));
        put_prometheus_row(rows, ZEROS, labels, x->value[BT_ML_ZERO]);
        put_prometheus_row(rows, FLIPS, labels, x->value[BT_ML_FLIP]);
    }
}

static void put_omitted_count(bt_text *rows, const char *run, const char *of, size_t n,
                              size_t most) {
    char labels[160];
    snprintf(labels, sizeof labels, "run=\"%s\",of=\"%s\"", run, of);
    if (n > most) put_prometheus_row(rows, LEFT_OUT, labels, (double)(n - most));
}

typedef struct event_rows {
    bt_text *rows;
    const char *run;
} event_rows;

static bool put_event_count(void *ctx, const bt_row *row) {
    const event_rows *e = ctx;
    char labels[240], kind[80], level[40];
    snprintf(labels, sizeof labels, "run=\"%s\",kind=\"%s\",level=\"%s\"", e->run,
             escape_label(kind, sizeof kind, row->cells[0]),
             escape_label(level, sizeof level, row->cells[1]));
    put_prometheus_row(e->rows, EVENTS, labels, row->nums[2]);
    return true;
}

static int find_family(const char *name) {
    int f = 0;
    while (f + 1 < (int)N_FAMILIES && strcmp(families[f].name, name) != 0) f++;
    return f;
}

static bt_code put_run_samples(bt_api *a, bt_text *rows, bt_text *table, const char *run,
                               bt_err *err) {
    char labels[160];
    bt_view_request ask;
    bt_view_request_init(&ask);
    ask.parts = BT_VIEW_HEAD | BT_VIEW_RANKS | BT_VIEW_LAYERS | BT_VIEW_SERIES | BT_VIEW_PANEL;
    ask.panel = BT_PANEL_COUNT;
    ask.samples = 1;
    ask.run = run;
    /* the newest point on this axis contains the total number of bytes */
    ask.x = BT_X_BYTES;
    ask.series[0] = (bt_series_request){.rank = -1, .metric = BT_MS_TOKENS};
    ask.n_series = 1;
    ask.columns = 64;
    bt_view *v = bt_api_view(a, run, err);
    if (!v) return err->code;
    BT_TRY(bt_view_load(v, &ask, err));
    snprintf(labels, sizeof labels, "run=\"%s\"", run);
    for (int f = FIRST_PLAIN; f < (int)N_FAMILIES; f++)
        put_prometheus_row(rows, f, labels, families[f].of(&v->head));
    if (v->n_series && v->series[0].n)
        put_prometheus_row(rows, WIRE, labels, v->series[0].x[v->series[0].n - 1]);
    if (isnan(v->head.val_loss) && !v->head.hub)
        bt_text_printf(&rows[find_family("validation_loss")], "bitrain_validation_loss{%s} NaN\n",
                       labels);
    snprintf(labels, sizeof labels, "run=\"%s\",state=\"%s\"", run,
             bt_run_states[v->head.state].name);
    put_prometheus_row(rows, STATE, labels, 1);
    put_time_part_samples(rows, run, &v->head);
    put_rank_samples(rows, run, &v->ranks);
    put_tensor_samples(rows, run, &v->layers);
    put_omitted_count(rows, run, "ranks", v->ranks.n, RANKS_MAX);
    put_omitted_count(rows, run, "tensors", v->layers.n, TENSORS_MAX);
    put_table_metrics(table, run, &v->panel);
    event_rows e = {rows, run};
    return bt_db_query(
        bt_api_db(a, err),
        &(bt_query){.sql = "SELECT kind, level, count(*) FROM events WHERE run = ?1 GROUP BY kind, "
                           "level ORDER BY kind, level",
                    .params = &run,
                    .n_params = 1,
                    .max_rows = 100,
                    .max_s = 2},
        put_event_count, &e, err);
}

typedef struct live {
    char run[LIVE_MAX][BT_NAME_MAX];
    int n, live, left_out;
} live;

static bool keep_live_run(void *ctx, const bt_row *row) {
    live *l = ctx;
    if (row->nums[1] > 0) l->live++;
    if (l->n == LIVE_MAX)
        l->left_out++;
    else
        snprintf(l->run[l->n++], BT_NAME_MAX, "%s", row->cells[0]);
    return true;
}

/* Runs are loaded one at a time, but the format requires the samples of a family together: they are collected by
 * family. */
bt_code bt_api_prometheus(bt_api *a, const bt_req *r, const char *unused, bt_answer *out,
                          bt_err *err) {
    (void)r;
    (void)unused;
    live l = {.n = 0};
    bt_text rows[N_FAMILIES] = {{0}}, table[BT_METRICS_COUNT] = {{0}};
    bt_db *db = bt_api_db(a, err);
    if (!db) return err->code;
    bt_code code = bt_db_query(
        db,
        &(bt_query){
            .sql =
                "SELECT run, ended_s IS NULL AND state <> 'lost' AS live FROM runs WHERE live OR "
                "coalesce(ended_s, updated_s) > unixepoch() - " ENDED_S
                " ORDER BY live DESC, started_s DESC",
            .max_rows = COUNTED_MAX,
            .max_s = 2},
        keep_live_run, &l, err);
    for (int i = 0; i < l.n && code == BT_OK; i++)
        code = put_run_samples(a, rows, table, l.run[i], err);
    bt_text_printf(&rows[LEFT_OUT], "bitrain_left_out{run=\"\",of=\"runs\"} %d\n", l.left_out);
    out->type = "text/plain; version=0.0.4; charset=utf-8";
    for (int f = 0; f < (int)N_FAMILIES; f++) {
        const family *x = &families[f];
        if (rows[f].failed) out->body.failed = true;
        if (rows[f].len)
            bt_text_printf(&out->body, "# HELP bitrain_%s %s\n# TYPE bitrain_%s %s\n", x->name,
                           x->help, x->name, x->type);
        bt_text_put(&out->body, bt_text_str(&rows[f]));
        bt_text_release(&rows[f]);
    }
    print_prometheus(&out->body, table);
    bt_text_printf(&out->body,
                   "# HELP bitrain_live_runs runs that have not ended\n# TYPE bitrain_live_runs "
                   "gauge\nbitrain_live_runs %d\n"
                   "# HELP bitrain_build_info version of the program that answers\n# TYPE "
                   "bitrain_build_info gauge\nbitrain_build_info{version=\"%s\"} 1\n",
                   l.live, BITRAIN_VERSION);
    return code;
}
