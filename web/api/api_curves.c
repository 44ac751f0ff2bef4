/* api_curves.c - one metric of many runs on one axis, for the chart beside the table of runs.
 *
 *     {"metric": "loss", "runs": [{"run": "base", "curve": {"series": [{"metric", "unit", "low", "high",
 *      "x", "step", "mean", "n"}]}}, ...], "missing": ["gone"]}
 * in the form of the route `series`, with seven digits; missing: requested runs that do not exist. */
#include <stdio.h>
#include <string.h>

#include "web/api/api.h"

enum { CURVES_MOST = 100, DIGITS = 7 };

static void put_number_array(bt_json *j, const char *key, const double *v, size_t n) {
    bt_json_array(j, key);
    for (size_t i = 0; i < n; i++) bt_json_rounded(j, NULL, v[i], DIGITS);
    bt_json_end(j, ']');
}

static void put_series(const bt_view_series *s, bt_json *j) {
    bt_json_object(j, NULL);
    bt_json_str(j, "metric", s->key);
    bt_json_str(j, "unit", bt_unit_name(s->unit));
    bt_json_num(j, "low", s->low);
    bt_json_num(j, "high", s->high);
    bt_json_array(
        j, "x"); /* not rounded, because tokens and bytes are integers of more than seven digits */
    for (size_t i = 0; i < s->n; i++) bt_json_rounded(j, NULL, s->x[i], 15);
    bt_json_end(j, ']');
    bt_json_ints(j, "step", s->step, s->n);
    put_number_array(j, "mean", s->mean, s->n);
    bt_json_ints(j, "n", s->count, s->n);
    bt_json_end(j, '}');
}

/* BT_NOTFOUND: there is no such run. */
static bt_code put_run_curve(bt_api *a, const char *run, const bt_view_request *ask, bt_json *j,
                             bt_err *err) {
    bt_view *v = bt_api_view(a, run, err);
    if (!v) return err->code;
    BT_TRY(bt_view_load(v, ask, err));
    bt_json_object(j, NULL);
    bt_json_str(j, "run", run);
    bt_json_object(j, "curve");
    bt_json_array(j, "series");
    for (int i = 0; i < v->n_series; i++) put_series(&v->series[i], j);
    bt_json_end(j, ']');
    bt_json_end(j, '}');
    bt_json_end(j, '}');
    return BT_OK;
}

static bt_code read_curves_request(const bt_req *r, bt_view_request *ask, bt_err *err) {
    const char *key = bt_req_arg(r, "metric"), *axis = bt_req_arg(r, "x");
    int64_t width = 200;
    bt_view_request_init(ask);
    ask->parts = BT_VIEW_SERIES;
    ask->bare = true;
    ask->x = BT_X_TOKENS;
    if (axis && !bt_x_axis_parse(axis, &ask->x))
        return bt_fail(err, BT_ARG,
                       "query argument 'x' must be step, tokens, time, active or bytes");
    if (!bt_req_int(r, "width", 1, 4096, &width))
        return bt_fail(err, BT_ARG, "query argument 'width' must be 1 to 4096 pixels");
    ask->columns = (int)width;
    const int metric = bt_metric_find(BT_SCOPE_STEP, key && *key ? key : "loss");
    if (metric < 0)
        return bt_fail(err, BT_ARG, "no metric '%s' of a step (`bitrain help metrics` lists them)",
                       key);
    ask->series[0] = (bt_series_request){.rank = -1, .metric = metric};
    ask->n_series = 1;
    return BT_OK;
}

typedef struct curves { /* state while the response is written */
    int n;
    bt_text missing; /* names separated by commas */
} curves;

/* list: names separated by commas. */
static bt_code put_curves(bt_api *a, const char *list, bt_view_request *ask, curves *c, bt_json *j,
                          bt_err *err) {
    for (; *list; list += strcspn(list, ","), list += *list == ',') {
        const size_t len = strcspn(list, ",");
        char name[BT_NAME_MAX];
        snprintf(name, sizeof name, "%.*s", (int)len, list);
        if (len >= sizeof name || !bt_name_ok(name))
            return bt_fail(err, BT_ARG, "'runs' must be run names separated by commas");
        if (++c->n > CURVES_MOST)
            return bt_fail(err, BT_ARG, "at most %d runs are drawn together", CURVES_MOST);
        ask->run = name;
        const bt_code code = put_run_curve(a, name, ask, j, err);
        if (code == BT_NOTFOUND)
            bt_text_printf(&c->missing, "%s%s", c->missing.len ? "," : "", name);
        else if (code != BT_OK)
            return code;
    }
    return BT_OK;
}

bt_code bt_api_curves(bt_api *a, const bt_req *r, const char *unused, bt_answer *out, bt_err *err) {
    (void)unused;
    bt_view_request ask;
    bt_json j;
    curves c = {.n = 0};
    bt_code code = BT_OK;
    BT_TRY(read_curves_request(r, &ask, err));
    bt_text_init(&c.missing);
    bt_json_begin(&j, &out->body);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "metric", bt_step_metrics[ask.series[0].metric].key);
    bt_json_array(&j, "runs");
    /* the argument may be repeated, because long names may exceed the size of one argument */
    for (int i = 0; i < r->n_args && code == BT_OK; i++)
        if (strcmp(r->arg[i].key, "runs") == 0)
            code = put_curves(a, r->arg[i].value, &ask, &c, &j, err);
    if (code == BT_OK && c.n == 0)
        code = bt_fail(err, BT_ARG, "query argument 'runs' is missing (runs=a,b)");
    bt_json_end(&j, ']');
    bt_json_array(&j, "missing");
    for (char *rest = c.missing.data, *name; rest && (name = strsep(&rest, ",")) != NULL;)
        bt_json_str(&j, NULL, name);
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    bt_text_release(&c.missing);
    return code;
}
