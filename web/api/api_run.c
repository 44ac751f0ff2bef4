/* api_run.c - responses about one run, several compared runs, and SQL. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/system/json_fields.h"
#include "engine/base/tables/fact.h"
#include "store/read/compare_runs.h"
#include "store/read/lr_range.h"
#include "store/read/run_log.h"
#include "store/store.h"
#include "web/api/api.h"
#include "web/api/query_process.h"
#include "web/api/row_limits.h"

/* ---- one run ---- */

static bool put_run_state(void *ctx, const bt_row *row) {
    bt_json_str(ctx, "state", row->cells[0]);
    return false;
}

static bool put_fact(void *ctx, const bt_row *row) {
    bt_json *j = ctx;
    char text[300];
    const char *key = row->cells[0] ? row->cells[0] : "";
    bt_json_object(j, NULL);
    bt_json_str(j, "key", key);
    bt_json_str(j, "value", row->cells[1]);
    bt_json_str(j, "text", bt_fact_format(text, sizeof text, key, row->cells[1]));
    bt_json_num(j, "noise", bt_fact_noise(key));
    bt_json_end(j, '}');
    return true;
}

static bool put_run_config(void *ctx, const bt_row *row) {
    bt_row_cell_document(ctx, "config", row, 0);
    bt_json_str(ctx, "command", row->cells[1]);
    if (row->n < 4) return false;
    bt_json_str(ctx, "tags", row->cells[2]);
    bt_json_str(ctx, "note", row->cells[3]);
    return false;
}

static bool put_existing_checkpoint(void *ctx, const bt_row *row) {
    if (bt_checkpoint_there(row->cells[1])) bt_json_int(ctx, NULL, (int64_t)row->nums[0]);
    return true;
}

static bt_code begin_run_object(bt_api *a, const char *run, bt_db **db, char name[BT_NAME_MAX],
                                bt_answer *out, bt_json *j, bt_err *err) {
    *db = bt_api_db(a, err);
    if (!*db) return err->code;
    BT_TRY(bt_db_run(*db, run, name, err));
    bt_json_begin(j, &out->body);
    bt_json_object(j, NULL);
    bt_json_str(j, "run", name);
    return BT_OK;
}

bt_code bt_api_run(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    static const struct {
        const char *key, *sql;
    } parts[] = {
        {"attempts", "SELECT attempt, from_step, started_s, ended_s, reason, world_size, "
                     "exit_kind, exit_code FROM attempts WHERE run = ?1 ORDER BY attempt"},
        {"redone",
         "SELECT a.attempt, a.live_to AS from_step, (SELECT s.step FROM all_steps s WHERE s.run = "
         "?1 AND s.attempt = a.attempt ORDER BY s.step DESC LIMIT 1) AS to_step,"
         " (SELECT s.time_s FROM all_steps s WHERE s.run = ?1 AND s.attempt = a.attempt AND s.step "
         ">= a.live_to ORDER BY s.step LIMIT 1) AS from_s"
         " FROM attempts a WHERE a.run = ?1 AND a.live_to IS NOT NULL AND to_step >= a.live_to "
         "ORDER BY a.attempt"},
        {"ranks", "SELECT * FROM ranks WHERE run = ?1 AND attempt = (SELECT max(attempt) FROM "
                  "ranks WHERE run = ?1) ORDER BY rank"},
        {"checkpoints", "SELECT step, attempt, time_s, bytes, took_ms, path, hash FROM checkpoints "
                        "WHERE run = ?1 ORDER BY attempt DESC, step DESC LIMIT 100"},
    };
    (void)r;
    char name[BT_NAME_MAX];
    const char *p = name;
    bt_db *db;
    bt_json j;
    BT_TRY(begin_run_object(a, run, &db, name, out, &j, err));
    BT_TRY(
        bt_db_query(db,
                    &(bt_query){.sql = "SELECT config, argv, tags, note FROM runs WHERE run = ?1",
                                .params = &p,
                                .n_params = 1,
                                .max_rows = 1,
                                .max_s = BT_WEB_QUERY_S},
                    put_run_config, &j, err));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        BT_TRY(bt_rows_json(&j, parts[i].key, db,
                            &(bt_query){.sql = parts[i].sql,
                                        .params = &p,
                                        .n_params = 1,
                                        .max_rows = BT_WEB_ROWS_MAX,
                                        .max_s = BT_WEB_QUERY_S},
                            err));
    bt_json_array(&j, "kept"); /* steps of the checkpoints that exist on this machine */
    BT_TRY(bt_db_query(
        db,
        &(bt_query){.sql = "SELECT DISTINCT step, path FROM checkpoints WHERE run = ?1 ORDER BY "
                           "time_s DESC LIMIT 100",
                    .params = &p,
                    .n_params = 1,
                    .max_s = BT_WEB_QUERY_S},
        put_existing_checkpoint, &j, err));
    bt_json_end(&j, ']');
    bt_json_array(&j, "facts");
    BT_TRY(
        bt_db_query(db,
                    &(bt_query){.sql = "SELECT key, value FROM facts WHERE run = ?1 ORDER BY key",
                                .params = &p,
                                .n_params = 1,
                                .max_rows = BT_WEB_ROWS_MAX,
                                .max_s = BT_WEB_QUERY_S},
                    put_fact, &j, err));
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    return BT_OK;
}

bt_code bt_api_superseded(bt_api *a, const bt_req *r, const char *run, bt_answer *out,
                          bt_err *err) {
    static const char sql[] =
        "SELECT s.attempt, s.step, s.loss FROM (SELECT a.attempt AS attempt, a.live_to AS live_to, "
        "(SELECT t.step FROM all_steps t WHERE t.run = ?1 AND t.attempt = a.attempt"
        " ORDER BY t.step DESC LIMIT 1) AS last FROM attempts a WHERE a.run = ?1 AND a.live_to IS "
        "NOT NULL) r JOIN all_steps s ON s.run = ?1 AND s.attempt = r.attempt AND"
        " s.step >= r.live_to WHERE (s.step - r.live_to) % (1 + (r.last - r.live_to) / 256) = 0 "
        "ORDER BY s.attempt, s.step";
    (void)r;
    char name[BT_NAME_MAX];
    const char *p = name;
    bt_db *db;
    bt_json j;
    BT_TRY(begin_run_object(a, run, &db, name, out, &j, err));
    BT_TRY(bt_rows_json(&j, "superseded", db,
                        &(bt_query){.sql = sql,
                                    .params = &p,
                                    .n_params = 1,
                                    .max_rows = BT_WEB_ROWS_MAX,
                                    .max_s = BT_WEB_QUERY_S},
                        err));
    bt_json_end(&j, '}');
    return BT_OK;
}

/* ---- comparison --- */
enum { COMPARE_MAX = 12, QUERY_ROWS = 10000, QUERY_BYTES = 16 << 20, QUERY_MIB = 256 };

static bt_code put_compared_series(bt_api *a, const bt_req *r, const char *run, bt_x_axis x,
                                   int metric, bt_json *j, bt_err *err) {
    bt_view_request ask;
    int64_t width = 0;
    bt_view_request_init(&ask);
    ask.parts = BT_VIEW_HEAD | BT_VIEW_SERIES;
    ask.run = run;
    ask.x = x;
    ask.series[0] = (bt_series_request){.rank = -1, .metric = metric};
    ask.n_series = 1;
    if (!bt_req_int(r, "width", 1, 4096, &width))
        return bt_fail(err, BT_ARG, "query argument 'width' must be 1 to 4096 pixels");
    ask.columns = (int)width;
    bt_view *v = bt_api_view(a, run, err);
    if (!v) return err->code;
    BT_TRY(bt_view_load(v, &ask, err));
    bt_view_json(v, ask.parts, j, NULL);
    return BT_OK;
}

bt_code bt_api_compare(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    (void)run;
    char names[COMPARE_MAX][BT_NAME_MAX];
    int n = 0, metric = BT_MS_LOSS;
    bt_x_axis x = BT_X_TOKENS;
    const char *list = bt_req_arg(r, "runs"), *key = bt_req_arg(r, "metric"),
               *axis = bt_req_arg(r, "x");
    bt_db *db = bt_api_db(a, err);
    if (!db) return err->code;
    for (; list && *list; list += strcspn(list, ","), list += *list == ',') {
        size_t len = strcspn(list, ",");
        char name[BT_NAME_MAX];
        if (n == COMPARE_MAX)
            return bt_fail(err, BT_ARG, "at most %d runs are compared", COMPARE_MAX);
        snprintf(name, sizeof name, "%.*s", (int)len, list);
        if (len >= sizeof name || !bt_name_ok(name))
            return bt_fail(err, BT_ARG, "'runs' must be run names separated by commas");
        BT_TRY(bt_db_run(db, name, names[n++], err));
    }
    if (n == 0) return bt_fail(err, BT_ARG, "query argument 'runs' is missing (runs=a,b)");
    if (axis && !bt_x_axis_parse(axis, &x))
        return bt_fail(err, BT_ARG,
                       "query argument 'x' must be step, tokens, time, active or bytes");
    if (key) {
        for (metric = 0; metric < (int)BT_MS_COUNT && strcmp(bt_step_metrics[metric].key, key) != 0;
             metric++) {}
        if (metric == (int)BT_MS_COUNT)
            return bt_fail(err, BT_ARG,
                           "no metric '%s' of a step (`bitrain help metrics` lists them)", key);
    }
    bt_json j;
    bt_json_begin(&j, &out->body);
    bt_json_object(&j, NULL);
    bt_json_array(&j, "runs");
    for (int i = 0; i < n; i++) BT_TRY(put_compared_series(a, r, names[i], x, metric, &j, err));
    bt_json_end(&j, ']');
    /* values of the metric at the end of the shortest run */
    bt_json_array(&j, "levels");
    double end = NAN;
    const char *all[COMPARE_MAX];
    for (int i = 0; i < n; i++) all[i] = names[i];
    BT_TRY(bt_db_common_end(db, all, (size_t)n, BT_AT_TOKENS, &end, err));
    for (int i = 0; i < n; i++) {
        bt_level level = {NAN, NAN, NAN, 0};
        bt_at at = {BT_AT_TOKENS, end};
        bt_first_difference diff = {0, -1, NAN, NAN};
        BT_TRY(bt_db_level(db, names[i], bt_step_metrics[metric].key, &at, 20, &level, err));
        if (i > 0) BT_TRY(bt_db_first_difference(db, names[0], names[i], &diff, err));
        bt_json_object(&j, NULL);
        bt_json_str(&j, "run", names[i]);
        BT_TRY(bt_db_query(db,
                           &(bt_query){.sql = "SELECT state FROM runs WHERE run = ?1",
                                       .params = &all[i],
                                       .n_params = 1,
                                       .max_rows = 1,
                                       .max_s = BT_WEB_QUERY_S},
                           put_run_state, &j, err));
        BT_JSON_FIELDS(&j, &level, F_AS("tokens", x), F(value), F(noise));
        if (i > 0 && diff.step >= 0)
            bt_json_int(&j, "first_different_step", diff.step);
        else
            bt_json_null(&j, "first_different_step");
        bt_json_int(&j, "common_steps", diff.common);
        bt_json_end(&j, '}');
    }
    bt_json_end(&j, ']');
    bt_json_array(&j, "configs");
    for (int i = 0; i < n; i++) {
        const char *p = names[i];
        bt_json_object(&j, NULL);
        bt_json_str(&j, "run", names[i]);
        BT_TRY(bt_db_query(db,
                           &(bt_query){.sql = "SELECT config, argv FROM runs WHERE run = ?1",
                                       .params = &p,
                                       .n_params = 1,
                                       .max_rows = 1,
                                       .max_s = BT_WEB_QUERY_S},
                           put_run_config, &j, err));
        bt_json_end(&j, '}');
    }
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    return BT_OK;
}

/* ---- a learning-rate range test ---- */

bt_code bt_api_lr_range(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    char name[BT_NAME_MAX];
    bt_db *db;
    bt_json j;
    bool is = false;
    (void)r;
    bt_lr_range *range = malloc(sizeof *range);
    if (!range) return bt_fail(err, BT_NOMEM, "no memory for a range test");
    bt_code code = begin_run_object(a, run, &db, name, out, &j, err);
    if (code == BT_OK) code = bt_db_lr_range(db, name, &is, range, err);
    if (code == BT_OK) {
        bt_json_bool(&j, "is", is);
        bt_lr_range_json(range, &j);
        bt_json_end(&j, '}');
    }
    free(range);
    return code;
}

/* ---- the log ---- */

bt_code bt_api_log(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    enum { LOG_BYTES = 64 << 10, LOG_LINES = 1000 };
    const char *text = bt_req_arg(r, "grep");
    char name[BT_NAME_MAX];
    bt_db *db;
    bt_json j;
    BT_TRY(begin_run_object(a, run, &db, name, out, &j, err));
    if (text && *text)
        BT_TRY(bt_run_log_search_json(db, name, text, LOG_LINES, &j, err));
    else
        BT_TRY(bt_run_log_json(db, name, LOG_BYTES, &j, err));
    bt_json_end(&j, '}');
    return BT_OK;
}

/* ---- SQL ---- */
bt_code bt_api_query(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    (void)run;
    const bt_api_allows allows = bt_api_allowed(a);
    const bt_query_process q = {.program = allows.program,
                                .store = bt_api_store(a),
                                .sql = bt_req_arg(r, "sql"),
                                .rows = QUERY_ROWS,
                                .memory_mib = QUERY_MIB,
                                .seconds = BT_WEB_QUERY_S,
                                .bytes = QUERY_BYTES};
    if (!allows.query)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "this server takes no SQL (start it with --enable-query, or use `bitrain query`)");
    if (!q.sql || !*q.sql) return bt_fail(err, BT_ARG, "query argument 'sql' is missing");
    return bt_query_process_run(&q, &out->body, err);
}
