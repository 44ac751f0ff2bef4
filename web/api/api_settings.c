/* api_settings.c - settings of all runs, by which the table of runs can be filtered.
 *
 *     {"names": ["data.path", ...], "settings": {"base": {"optim.lr": 0.002}, ...}}       names: those of the newest
 *                                                                                         run; settings: the requested
 *                                                                                         ones */
#include <stdio.h>
#include <string.h>

#include "web/api/api.h"
#include "web/api/row_limits.h"

enum { MOST = 16 };

typedef struct asked {
    bt_json *j;
    const char *name[MOST]; /* settings, then metrics of a step */
    int n, n_settings;
} asked;

static bool put_run_name(void *ctx, const bt_row *row) {
    bt_json_str(ctx, NULL, row->cells[0]);
    return true;
}

static bool put_run_settings(void *ctx, const bt_row *row) {
    asked *a = ctx;
    bt_json_object(a->j, row->cells[0]);
    for (int k = 0; k < a->n; k++) bt_row_cell_json(a->j, a->name[k], row, k + 1);
    bt_json_end(a->j, '}');
    return true;
}

static bt_code read_setting_names(const bt_req *r, asked *a, bt_err *err) {
    for (int k = 0; k < r->n_args; k++) {
        const char *name = r->arg[k].value;
        if (strcmp(r->arg[k].key, "name") != 0) continue;
        if (a->n == MOST) return bt_fail(err, BT_ARG, "at most %d settings a request", (int)MOST);
        if (!*name || strlen(name) > 64 ||
            strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") != strlen(name))
            return bt_fail(err, BT_ARG, "query argument 'name' must name a setting, like optim.lr");
        a->name[a->n++] = name;
    }
    return BT_OK;
}

/* Only names of the metrics table are accepted, so they are safe in an SQL statement. */
static bt_code read_metric_arguments(const bt_req *r, asked *a, bt_err *err) {
    a->n_settings = a->n;
    for (int k = 0; k < r->n_args; k++) {
        if (strcmp(r->arg[k].key, "metric") != 0) continue;
        const int m = bt_metric_find(BT_SCOPE_STEP, r->arg[k].value);
        if (m < 0)
            return bt_fail(err, BT_ARG,
                           "no metric '%s' of a step (`bitrain help metrics` lists them)",
                           r->arg[k].value);
        if (a->n == MOST)
            return bt_fail(err, BT_ARG, "at most %d settings and metrics a request", (int)MOST);
        a->name[a->n++] = bt_step_metrics[m].key;
    }
    return BT_OK;
}

/* Writes the newest value of a metric among the last 200 steps of a run. */
static bt_code put_runs(bt_db *db, asked *a, bt_err *err) {
    char path[MOST][80];
    const char *params[MOST];
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT run");
    for (int k = 0; k < a->n_settings; k++) {
        snprintf(path[k], sizeof path[k], "$.\"%s\".value", a->name[k]);
        params[k] = path[k];
        bt_text_printf(&sql, ", json_extract(config, ?%d)", k + 1);
    }
    for (int k = a->n_settings; k < a->n; k++)
        bt_text_printf(&sql,
                       ", (SELECT \"%s\" FROM steps s WHERE s.run = runs.run AND s.step >= "
                       "runs.steps - 200 AND \"%s\" IS NOT NULL ORDER BY s.step DESC LIMIT 1)",
                       a->name[k], a->name[k]);
    bt_text_put(&sql, " FROM runs ORDER BY started_s DESC, run");
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "no memory for a query")
                              : bt_db_query(db,
                                            &(bt_query){.sql = bt_text_str(&sql),
                                                        .params = params,
                                                        .n_params = a->n_settings,
                                                        .max_rows = 10000,
                                                        .max_s = BT_WEB_QUERY_S},
                                            put_run_settings, a, err);
    bt_text_release(&sql);
    return code;
}

bt_code bt_api_settings(bt_api *api, const bt_req *r, const char *run, bt_answer *out,
                        bt_err *err) {
    (void)run;
    bt_json j;
    asked a = {.j = &j};
    BT_TRY(read_setting_names(r, &a, err));
    BT_TRY(read_metric_arguments(r, &a, err));
    bt_db *db = bt_api_db(api, err);
    if (!db) return err->code;
    bt_json_begin(&j, &out->body);
    bt_json_object(&j, NULL);
    bt_json_array(&j, "names");
    BT_TRY(bt_db_query(
        db,
        &(bt_query){.sql = "SELECT key FROM json_each((SELECT config FROM runs WHERE config IS NOT "
                           "NULL ORDER BY started_s DESC LIMIT 1))",
                    .max_rows = BT_WEB_ROWS_MAX,
                    .max_s = BT_WEB_QUERY_S},
        put_run_name, &j, err));
    bt_json_end(&j, ']');
    bt_json_object(&j, "settings");
    if (a.n) BT_TRY(put_runs(db, &a, err));
    bt_json_end(&j, '}');
    bt_json_end(&j, '}');
    return BT_OK;
}
