/* api.c - responses about one run: the parts of its view model as JSON. */
#include "web/api/api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/tables/metric.h"

/* number of cached runs; the least recently used one is evicted */
enum { VIEWS = 64 };

struct bt_api {
    char store[1024];
    bt_db *db;
    int64_t files; /* opened views */
    struct {
        char run[BT_NAME_MAX];
        bt_view *view;
        uint64_t used;
    } view[VIEWS];
    uint64_t clock;
    bt_api_allows allows;
};

bt_code bt_api_open(bt_api **out, const char *store, const bt_api_allows *allows, bt_err *err) {
    bt_api *a = calloc(1, sizeof *a);
    if (!a) return bt_fail(err, BT_NOMEM, "no memory for the dashboard");
    snprintf(a->store, sizeof a->store, "%s", store);
    a->allows = *allows;
    *out = a;
    return BT_OK;
}

bt_api_allows bt_api_allowed(const bt_api *a) { return a->allows; }
const char *bt_api_store(const bt_api *a) { return a->store; }

static void close_database_and_views(bt_api *a) {
    for (int i = 0; i < VIEWS; i++) {
        bt_view_close(a->view[i].view);
        a->view[i].view = NULL;
    }
    bt_db_close(a->db);
    a->db = NULL;
}

void bt_api_close(bt_api *a) {
    if (!a) return;
    close_database_and_views(a);
    free(a);
}

void bt_api_refresh(bt_api *a) {
    if (a->db && bt_db_moved(a->db)) close_database_and_views(a);
}

int64_t bt_api_version(bt_api *a) {
    bt_err none = BT_ERR_INIT;
    bt_db *db = bt_api_db(a, &none);
    const int64_t version = db ? bt_db_version(db) : -1;
    /* each connection counts versions from 0, so the upper half contains the number of opened files */
    return version < 0 ? -1 : version + (a->files << 32);
}

bt_db *bt_api_db(bt_api *a, bt_err *err) {
    if (a->db) return a->db;
    if (bt_db_open(&a->db, a->store, err) != BT_OK) return a->db = NULL;
    a->files++;
    return a->db;
}

bt_view *bt_api_view(bt_api *a, const char *run, bt_err *err) {
    bt_db *db = bt_api_db(a, err);
    if (!db) return NULL;
    int oldest = 0;
    for (int i = 0; i < VIEWS; i++) {
        if (a->view[i].view && strcmp(a->view[i].run, run) == 0) {
            a->view[i].used = ++a->clock;
            return a->view[i].view;
        }
        if (a->view[i].used < a->view[oldest].used) oldest = i;
    }
    bt_view_close(a->view[oldest].view);
    a->view[oldest].view = NULL;
    if (bt_view_open(&a->view[oldest].view, db, err) != BT_OK) return NULL;
    snprintf(a->view[oldest].run, BT_NAME_MAX, "%s", run);
    a->view[oldest].used = ++a->clock;
    return a->view[oldest].view;
}

static bt_code fail_query_argument(bt_err *err, const char *key, const char *want) {
    return bt_fail(err, BT_ARG, "query argument '%s' must be %s", key, want);
}

/* Parses at, x0, x1, window, width and x. A field of an absent argument remains unchanged. */
static bt_code read_view_params(const bt_req *r, bt_view_request *ask, bt_err *err) {
    int64_t window = ask->window, width = ask->columns;
    if (!bt_req_int(r, "at", -1, INT64_MAX / 2, &ask->at_step))
        return fail_query_argument(err, "at", "a step");
    if (!bt_req_int(r, "x0", 0, INT64_MAX / 2, &ask->step0))
        return fail_query_argument(err, "x0", "a step");
    if (!bt_req_int(r, "x1", 0, INT64_MAX / 2, &ask->step1))
        return fail_query_argument(err, "x1", "a step");
    if (ask->step1 && ask->step1 < ask->step0)
        return fail_query_argument(err, "x1", "not below x0");
    if (!bt_req_int(r, "window", 1, 100000, &window))
        return fail_query_argument(err, "window", "1 to 100000 steps");
    if (!bt_req_int(r, "width", 1, 4096, &width))
        return fail_query_argument(err, "width", "1 to 4096 pixels");
    ask->window = (int)window;
    ask->columns = (int)width;
    const char *x = bt_req_arg(r, "x");
    if (x && !bt_x_axis_parse(x, &ask->x))
        return fail_query_argument(err, "x", "step, tokens, time, active or bytes");
    return BT_OK;
}

static bt_code answer_view(bt_api *a, const bt_req *r, const char *run, bt_view_request *ask,
                           bt_answer *out, bt_err *err) {
    BT_TRY(read_view_params(r, ask, err));
    ask->run = run;
    bt_view *v = bt_api_view(a, run, err);
    if (!v) return err->code;
    BT_TRY(bt_view_load(v, ask, err));
    bt_json j;
    bt_json_begin(&j, &out->body);
    bt_view_json(v, ask->parts, &j, NULL);
    return BT_OK;
}

static bt_code answer_view_parts(bt_api *a, const bt_req *r, const char *run, unsigned parts,
                                 bt_answer *out, bt_err *err) {
    bt_view_request ask;
    bt_view_request_init(&ask);
    ask.parts = parts;
    return answer_view(a, r, run, &ask, out, err);
}

bt_code bt_api_head(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    return answer_view_parts(a, r, run, BT_VIEW_HEAD, out, err);
}

bt_code bt_api_ranks(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    return answer_view_parts(a, r, run, BT_VIEW_HEAD | BT_VIEW_RANKS, out, err);
}

bt_code bt_api_comm(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    return answer_view_parts(a, r, run, BT_VIEW_HEAD | BT_VIEW_RANKS | BT_VIEW_COMM, out, err);
}

bt_code bt_api_layers(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    return answer_view_parts(a, r, run, BT_VIEW_LAYERS, out, err);
}

bt_code bt_api_islands(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    return answer_view_parts(a, r, run, BT_VIEW_HEAD | BT_VIEW_ISLANDS, out, err);
}

/* Returns the distribution of the named tensor or, without a name, of the first ternary one. */
bt_code bt_api_distributions(bt_api *a, const bt_req *r, const char *run, bt_answer *out,
                             bt_err *err) {
    bt_view_request ask;
    int64_t layer = -1;
    bt_view_request_init(&ask);
    ask.parts = BT_VIEW_DISTRIBUTION;
    if (!bt_req_int(r, "layer", -1, 1000000, &layer))
        return fail_query_argument(err, "layer", "a layer's number, -1: of none");
    ask.layer = (int)layer;
    ask.tensor = bt_req_arg(r, "tensor");
    return answer_view(a, r, run, &ask, out, err);
}

bt_code bt_api_events(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    bt_view_request ask;
    int64_t limit = 0, marks = 0;
    bt_view_request_init(&ask);
    ask.parts = BT_VIEW_HEAD | BT_VIEW_EVENTS;
    if (!bt_req_int(r, "limit", 1, 10000, &limit))
        return fail_query_argument(err, "limit", "1 to 10000");
    if (!bt_req_int(r, "marks", 1, 10000, &marks))
        return fail_query_argument(err, "marks", "1 to 10000");
    ask.max_events = (int)limit;
    ask.max_marks = (int)marks;
    return answer_view(a, r, run, &ask, out, err);
}

/* Returns the metrics of one panel, or of all panels if none is named. */
bt_code bt_api_panel(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    bt_view_request ask;
    const char *panel = bt_req_arg(r, "panel");
    bt_view_request_init(&ask);
    ask.parts = BT_VIEW_PANEL;
    ask.panel = panel && *panel ? bt_panel_find(panel) : BT_PANEL_COUNT;
    if (panel && *panel && ask.panel == BT_PANEL_COUNT)
        return fail_query_argument(err, "panel", "a panel of /api/v1/metrics");
    return answer_view(a, r, run, &ask, out, err);
}

bt_code bt_api_heatmap(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    bt_view_request ask;
    int64_t cols = 0;
    bt_view_request_init(&ask);
    ask.parts = BT_VIEW_HEAT;
    if (!bt_req_int(r, "cols", 1, 4096, &cols))
        return fail_query_argument(err, "cols", "1 to 4096");
    ask.heat_columns = (int)cols;
    const char *value = bt_req_arg(r, "value");
    int i = 0;
    while (value && i < BT_HEAT_VALUES && strcmp(bt_heat_value_name((bt_heat_value)i), value) != 0)
        i++;
    if (i == BT_HEAT_VALUES)
        return fail_query_argument(err, "value",
                                   "busy, step, wait, data, comm, memory, fwd, bwd, optim or loss");
    ask.heat = (bt_heat_value)i;
    return answer_view(a, r, run, &ask, out, err);
}

/* Adds the metrics of one argument: a name or a list a,b. */
static bt_code add_requested_series(bt_view_request *ask, int rank, const char *list, bt_err *err) {
    const bt_metric *table = rank < 0 ? bt_step_metrics : bt_rank_metrics;
    const int n = rank < 0 ? (int)BT_MS_COUNT : (int)BT_MR_COUNT;
    while (true) {
        const size_t length = strcspn(list, ",");
        int m = 0;
        while (m < n &&
               (strlen(table[m].key) != length || strncmp(table[m].key, list, length) != 0))
            m++;
        if (m == n)
            return bt_fail(err, BT_ARG, "no metric '%.*s' %s (`bitrain help metrics` lists them)",
                           (int)length, list, rank < 0 ? "of a step" : "of a rank");
        if (ask->n_series == BT_VIEW_SERIES_MAX)
            return bt_fail(err, BT_ARG, "at most %d metrics a request", BT_VIEW_SERIES_MAX);
        ask->series[ask->n_series++] = (bt_series_request){.rank = rank, .metric = m};
        if (!list[length]) return BT_OK;
        list += length + 1;
    }
}

/* Adds the series of all `metric` arguments, for the whole run or for one rank. */
static bt_code read_series_arguments(const bt_req *r, bt_view_request *ask, bt_err *err) {
    int64_t rank = -1;
    if (!bt_req_int(r, "rank", -1, 1000000, &rank))
        return fail_query_argument(err, "rank", "a rank, or absent for all together");
    for (int k = 0; k < r->n_args; k++)
        if (strcmp(r->arg[k].key, "metric") == 0)
            BT_TRY(add_requested_series(ask, (int)rank, r->arg[k].value, err));
    if (ask->n_series == 0) return bt_fail(err, BT_ARG, "query argument 'metric' is missing");
    return BT_OK;
}

bt_code bt_api_series(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    bt_view_request ask;
    char base[BT_NAME_MAX];
    bt_view_request_init(&ask);
    ask.parts = BT_VIEW_SERIES;
    ask.ends = true;
    BT_TRY(read_series_arguments(r, &ask, err));
    const char *baseline = bt_req_arg(r, "baseline");
    if (baseline && *baseline) {
        bt_db *db = bt_api_db(a, err);
        if (!db) return err->code;
        BT_TRY(bt_db_run(db, baseline, base, err));
        ask.baseline = base;
    }
    return answer_view(a, r, run, &ask, out, err);
}

bt_code bt_api_runs(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    bt_view_request ask;
    int64_t limit = 0;
    (void)run;
    bt_view_request_init(&ask);
    ask.parts = BT_VIEW_RUNS;
    if (!bt_req_int(r, "limit", 1, 10000, &limit))
        return fail_query_argument(err, "limit", "1 to 10000");
    ask.max_runs = (int)limit;
    bt_view *v = bt_api_view(a, "", err);
    if (!v) return err->code;
    BT_TRY(bt_view_load(v, &ask, err));
    bt_json j;
    bt_json_begin(&j, &out->body);
    bt_view_json(v, ask.parts, &j, NULL);
    return BT_OK;
}

bt_code bt_api_health(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    (void)a;
    (void)r;
    (void)run;
    (void)err;
    out->type = "text/plain; charset=utf-8";
    bt_text_put(&out->body, "ok\n");
    return BT_OK;
}
