// ctest: timeout=60 labels=web
/* Responses of routes for runs with known properties, compared with files in golden/ (BT_UPDATE=1 rewrites them). Parts
 * that a route takes unchanged from the view model are tested in store.view_answers. */
#include <jansson.h>

#include "../../golden_json.h"
#include "../web_test.h"

static const struct row {
    const char *golden, *route, *run, *args;
} rows[] = {
    {"run", "", "base", ""},
    {"superseded", "superseded", "base", ""},
    {"compare", "/api/v1/compare", NULL, "runs=base,other&metric=grad_norm&x=step&width=6"},
    {"compare_live", "/api/v1/compare", NULL, "runs=live,base&width=2"},
    {"curves", "/api/v1/curves", NULL, "runs=base,gone&metric=loss&width=8&runs=other,also-gone"},
    {"curves_by_bytes", "/api/v1/curves", NULL, "runs=base&metric=tokens_per_s&x=bytes&width=3"},
    {"settings", "/api/v1/settings", NULL,
     "a=b&name=optim.lr&metric=val_loss&name=train.steps&metric=loss&x=step"},
    {"no_settings", "/api/v1/settings", NULL, ""},
    {"no_lr_range", "lr_range", "other", ""},
    {"no_log", "log", "base", ""},
    {"series", "series", "base",
     "metric=loss&metric=step_ms&x=tokens&x0=170&x1=190&width=7&baseline=other"},
    {"rank_series", "series", "base", "metric=wait_ms&rank=2&width=4&at=99"},
    {"heatmap", "heatmap", "base", "value=data&x0=50&x1=149&cols=5"},
    {"breakdown", "breakdown", "base", "at=50&window=20"},
    {"events", "events", "base", "limit=2"},
    {"distributions", "distributions", "base", "layer=0&tensor=ffn_up&at=90"},
    {"panel", "panel", "base", "panel=speed&at=90"},
    {"runs", "/api/v1/runs", NULL, "limit=1"},
    {"server", "/api/v1/server", NULL, ""},
};

static void answers_of_routes(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_web_runs(t->db);
    run_sql(t->db, "UPDATE run SET state = 'done', ended_us = last_us WHERE name = 'live'");
    char path[120], sql[300]; /* one of its checkpoints still exists */
    snprintf(path, sizeof path, "%s/manifest.json", t->dir);
    fclose(fopen(path, "w"));
    snprintf(sql, sizeof sql,
             "UPDATE run SET note = 'of the paper', tags = 'paper v2' WHERE name = 'base'; UPDATE "
             "ckpt SET path = "
             "'%s' WHERE step = (SELECT min(step) FROM ckpt)",
             t->dir);
    run_sql(t->db, sql);
    OK(bt_api_open(&api, t->db,
                   &(bt_api_allows){.control = true, .query = true, .program = getenv("BITRAIN")},
                   err));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char file[120];
        bt_answer a;
        OK(bt_web_ask(api, rows[i].route, rows[i].run, rows[i].args, &a, err));
        assert_int_equal(a.status, 200);
        assert_string_equal(a.type, "application/json");
        snprintf(file, sizeof file, "web/api/golden/%s.txt", rows[i].golden);
        bt_golden_json(file, bt_text_str(&a.body), t->dir, "age_s");
        bt_text_release(&a.body);
    }
    bt_api_close(api);
}

/* Formats the line of a metric with its value to nine digits, or "" if the value depends on the clock or the
 * version. */
static void put_line(bt_text *out, const char *line) {
    static const char *const of_now[] = {"bitrain_time_seconds{", "bitrain_goodput_ratio{",
                                         "bitrain_last_record_timestamp_seconds{",
                                         "bitrain_build_info{"};
    const char *space = strrchr(line, ' ');
    for (size_t i = 0; i < sizeof of_now / sizeof *of_now; i++)
        if (strncmp(line, of_now[i], strlen(of_now[i])) == 0) return;
    if (line[0] == '#' || !space)
        bt_text_printf(out, "%s\n", line);
    else
        bt_text_printf(out, "%.*s %.9g\n", (int)(space - line), line, strtod(space, NULL));
}

static void metrics_of_live_runs(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_answer a;
    bt_text out;
    bt_web_runs(t->db);
    bt_synth s = bt_synth_default("two");
    s.ranks = 2;
    s.steps = 10;
    s.layers_every = 0;
    s.start_us += 1000000;
    s.live = true;
    OK(bt_synth_make(t->db, &s, err));
    bt_web_odd_run(t->db); /* a run with every metric of a step and of a rank */
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
    OK(bt_web_ask(api, "/metrics", NULL, "", &a, err));
    bt_text_init(&out);
    for (char *next = a.body.data, *line; (line = strsep(&next, "\n")) && next;)
        put_line(&out, line);
    bt_golden_text("web/api/golden/metrics.txt", bt_text_str(&out));
    bt_text_release(&out);
    bt_text_release(&a.body);
    bt_api_close(api);
}

/* The last 64 KiB of a long log are returned without the truncated line: here 4096 lines of 16 bytes, the first of
 * which may be incomplete. */
static void the_end_of_a_long_log(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    char path[120];
    bt_synth s = bt_synth_default("logged");
    s.steps = 2;
    s.out_dir = t->dir;
    OK(bt_synth_make(t->db, &s, err));
    snprintf(path, sizeof path, "%s/log.txt", t->dir);
    for (int n = 4096; n <= 5000; n += 904) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (int i = 0; i < n; i++) fprintf(f, "line %010d\n", i);
        assert_int_equal(fclose(f), 0);
        OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
        json_t *j = bt_web_json(api, "log", "logged", ""), *lines = json_object_get(j, "lines");
        const bool cut = n > 4096;
        const char *first = json_string_value(json_object_get(json_array_get(lines, 0), "text"));
        assert_true(json_is_true(json_object_get(j, "readable")));
        assert_int_equal(json_is_true(json_object_get(j, "cut")), cut);
        assert_int_equal(json_array_size(lines), cut ? 4095 : 4096);
        assert_string_equal(first, cut ? "line 0000000905" : "line 0000000000");
        json_decref(j);
        bt_api_close(api);
    }
}

/* the last accepted value, and the first refused one */
static const struct refusal {
    const char *route, *run, *taken, *refused;
    bt_code code;
    const char *says;
} refusals[] = {
#define WANTS(key, what) BT_ARG, "query argument '" key "' must be " what
    {"head", "base", "at=-1", "at=-2", WANTS("at", "a step")},
    {"head", "base", "at=0", "at=1.5", WANTS("at", "a step")},
    {"head", "base", "x0=0&x1=0", "x0=-1", WANTS("x0", "a step")},
    {"head", "base", "x0=5&x1=5", "x0=5&x1=4", WANTS("x1", "not below x0")},
    {"head", "base", "x1=0", "x1=-1", WANTS("x1", "a step")},
    {"head", "base", "x0=5", NULL, BT_OK, ""}, /* to its end */
    {"breakdown", "base", "window=1", "window=0", WANTS("window", "1 to 100000 steps")},
    {"breakdown", "base", "window=100000", "window=100001", WANTS("window", "1 to 100000 steps")},
    {"series", "base", "metric=loss&width=1", "metric=loss&width=0",
     WANTS("width", "1 to 4096 pixels")},
    {"series", "base", "metric=loss&width=4096", "metric=loss&width=4097",
     WANTS("width", "1 to 4096 pixels")},
    {"series", "base", "metric=loss&x=active", "metric=loss&x=Step",
     WANTS("x", "step, tokens, time, active or bytes")},
    {"series", "base", "metric=wait_ms&rank=0", "metric=wait_ms&rank=-2",
     WANTS("rank", "a rank, or absent for all together")},
    {"series", "base", "metric=loss&rank=-1", "metric=loss&rank=1000001",
     WANTS("rank", "a rank, or absent for all together")},
    {"series", "base", "metric=data_ms&rank=1", "metric=lr&rank=1", BT_ARG,
     "no metric 'lr' of a rank (`bitrain help metrics` lists them)"},
    {"series", "base", "metric=lr", "metric=data_ms", BT_ARG,
     "no metric 'data_ms' of a step (`bitrain help metrics` lists them)"},
    /* the last metric of each table */
    {"series", "base", "metric=micro_batches&rank=0", "metric=micro_batches", BT_ARG,
     "no metric 'micro_batches' of a step (`bitrain help metrics` lists them)"},
    {"series", "base", "metric=plan_ratio", "metric=plan_ratio&rank=0", BT_ARG,
     "no metric 'plan_ratio' of a rank (`bitrain help metrics` lists them)"},
    {"series", "base", "metric=energy_j", NULL, BT_OK, ""},
    {"series", "base", "metric=lr", "rank=1", BT_ARG, "query argument 'metric' is missing"},
    {"series", "base", "metric=lr&baseline=other", "metric=lr&baseline=nobody", BT_NOTFOUND,
     "no run 'nobody' (`bitrain runs` lists them)"},
    {"heatmap", "base", "cols=1", "cols=0", WANTS("cols", "1 to 4096")},
    {"heatmap", "base", "cols=4096", "cols=4097", WANTS("cols", "1 to 4096")},
    {"heatmap", "base", "value=loss", "value=mood",
     WANTS("value", "busy, step, wait, data, comm, memory, fwd, bwd, optim or loss")},
    {"events", "base", "limit=1", "limit=0", WANTS("limit", "1 to 10000")},
    {"events", "base", "limit=10000", "limit=10001", WANTS("limit", "1 to 10000")},
    {"/api/v1/runs", NULL, "limit=1", "limit=0", WANTS("limit", "1 to 10000")},
    {"/api/v1/runs", NULL, "limit=10000", "limit=10001", WANTS("limit", "1 to 10000")},
    {"distributions", "base", "layer=-1", "layer=-2",
     WANTS("layer", "a layer's number, -1: of none")},
    {"distributions", "base", "layer=1000000", "layer=1000001",
     WANTS("layer", "a layer's number, -1: of none")},
    {"panel", "base", "panel=", "panel=mood", WANTS("panel", "a panel of /api/v1/metrics")},
    {"/api/v1/curves", NULL, "runs=base&width=1", "runs=base&width=0",
     WANTS("width", "1 to 4096 pixels")},
    {"/api/v1/curves", NULL, "runs=base&width=4096", "runs=base&width=4097",
     WANTS("width", "1 to 4096 pixels")},
    {"/api/v1/curves", NULL, "runs=base&x=bytes", "runs=base&x=parsecs",
     WANTS("x", "step, tokens, time, active or bytes")},
    {"/api/v1/curves", NULL, "runs=base&metric=", "runs=base&metric=mood", BT_ARG,
     "no metric 'mood' of a step (`bitrain help metrics` lists them)"},
    {"/api/v1/curves", NULL, "runs=gone", "runs=", BT_ARG,
     "query argument 'runs' is missing (runs=a,b)"},
    {"/api/v1/curves", NULL, "runs=base", "runs=base,.base", BT_ARG,
     "'runs' must be run names separated by commas"},
    {"/api/v1/compare", NULL, "runs=base,other&width=4096", "runs=base&width=4097",
     WANTS("width", "1 to 4096 pixels")},
    {"/api/v1/compare", NULL, "runs=base,other&width=1", "runs=base&width=0",
     WANTS("width", "1 to 4096 pixels")},
    {"/api/v1/compare", NULL, "runs=base&x=time", "runs=base&x=parsecs",
     WANTS("x", "step, tokens, time, active or bytes")},
    {"/api/v1/compare", NULL, "runs=base&metric=mfu", "runs=base&metric=mood", BT_ARG,
     "no metric 'mood' of a step (`bitrain help metrics` lists them)"},
    {"/api/v1/compare", NULL, "runs=base", "runs=", BT_ARG,
     "query argument 'runs' is missing (runs=a,b)"},
    {"/api/v1/compare", NULL, "runs=base,base,base,base,base,base,base,base,base,base,base,base",
     "runs=base,base,base,base,base,base,base,base,base,base,base,base,base", BT_ARG,
     "at most 12 runs are compared"},
    {"/api/v1/compare", NULL, "runs=base,", "runs=,base", BT_ARG,
     "'runs' must be run names separated by commas"},
    {"/api/v1/settings", NULL, "name=optim.lr", "name=", BT_ARG,
     "query argument 'name' must name a setting, like optim.lr"},
    {"/api/v1/settings", NULL,
     "name=a123456789b123456789c123456789d123456789e123456789f123456789g123",
     "name=a123456789b123456789c123456789d123456789e123456789f123456789g1234", BT_ARG,
     "query argument 'name' must name a setting, like optim.lr"},
    {"/api/v1/settings", NULL, "name=az09_.", "name=a-b", BT_ARG,
     "query argument 'name' must name a setting, like optim.lr"},
    {"/api/v1/settings", NULL, "metric=loss", "metric=mood", BT_ARG,
     "no metric 'mood' of a step (`bitrain help metrics` lists them)"},
    {"/api/v1/query", NULL, NULL, "sql=", BT_ARG, "query argument 'sql' is missing"},
    {"lr_range", "base", "", NULL, BT_OK, ""},
    {"log", "base", "", NULL, BT_OK, ""},
#undef WANTS
};

static void check_refusal(bt_api *api, const char *route, const char *run, const char *args,
                          bt_code want, const char *says) {
    bt_answer a;
    bt_err why = BT_ERR_INIT;
    const bt_code code = bt_web_ask(api, route, run, args, &a, &why);
    bt_text_release(&a.body);
    if (code != want || (want != BT_OK && strcmp(why.msg, says) != 0))
        fail_msg("%s?%s: %s: %s", route, args, bt_code_name(code), why.msg);
}

/* A per cent sign in the path of the database is not a format directive. */
static void a_database_with_a_per_cent_sign(void **state) {
    const bt_tmp *t = *state;
    char path[200];
    bt_api *api = NULL;
    bt_synth s = bt_synth_default("base");
    snprintf(path, sizeof path, "%s/100%%d.db", t->dir);
    OK(bt_synth_make(path, &s, err));
    OK(bt_api_open(&api, path, &(bt_api_allows){.control = false}, err));
    assert_string_equal(bt_api_store(api), path);
    check_refusal(api, "head", "base", "", BT_OK, "");
    bt_api_close(api);
}

static void arguments_at_their_bounds(void **state) {
    static const char *const records[] = {"", "superseded", "lr_range", "log"};
    static const char *const views[] = {"head", "breakdown", "layers", "islands", "comm"};
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_text many;
    bt_web_runs(t->db);
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.query = true, .program = getenv("BITRAIN")},
                   err));
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        if (r->taken) check_refusal(api, r->route, r->run, r->taken, BT_OK, "");
        if (r->refused) check_refusal(api, r->route, r->run, r->refused, r->code, r->says);
    }
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        check_refusal(api, records[i], "nobody", "", BT_NOTFOUND,
                      "no run 'nobody' (`bitrain runs` lists them)");
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        check_refusal(api, views[i], "nobody", "", BT_NOTFOUND, "no run 'nobody'");
    /* the maximum number, and one more */
    static const struct {
        const char *route, *word, *also;
        int most;
        const char *says, *run;
    } counts[] = {
        {"series", "metric=loss,loss&", "", BT_VIEW_SERIES_MAX / 2, "at most 26 metrics a request",
         "base"},
        {"/api/v1/curves", "runs=base&", "", 100, "at most 100 runs are drawn together", NULL},
        {"/api/v1/settings", "name=optim.lr&", "", 16, "at most 16 settings a request", NULL},
        {"/api/v1/settings", "metric=lr&", "", 16, "at most 16 settings and metrics a request",
         NULL},
        {"/api/v1/settings", "metric=lr&", "name=optim.lr", 15,
         "at most 16 settings and metrics a request", NULL}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int more = 0; more < 2; more++) {
            bt_text_init(&many);
            for (int k = 0; k < counts[i].most + more && k < 23; k++)
                bt_text_put(&many, counts[i].word);
            if (counts[i].most == 100) {
                bt_text_put(&many, "runs=gone");
                for (int k = 24; k < 100 + more; k++) bt_text_put(&many, ",gone");
            }
            bt_text_put(&many, counts[i].also);
            check_refusal(api, counts[i].route, counts[i].run, bt_text_str(&many),
                          more ? BT_ARG : BT_OK, more ? counts[i].says : "");
            bt_text_release(&many);
        }
    }
    bt_text_init(&many); /* the maximum number of arguments in a request */
    for (int k = 0; k < BT_REQ_ARGS - 1; k++) bt_text_put(&many, "width=9&");
    bt_text_put(&many, "metric=loss");
    check_refusal(api, "series", "base", bt_text_str(&many), BT_OK, "");
    bt_text_release(&many);
    bt_api_close(api);
}

/* The database is created later; SQL is sent although it is not permitted. */
static void a_store_created_later(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_answer a;
    bt_err why = BT_ERR_INIT;
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
    assert_string_equal(bt_api_store(api), t->db);
    assert_int_equal(bt_api_version(api), -1);
    /* Routes that need no database respond, all other routes return an error. */
    for (size_t i = 0; i < bt_routes_n; i++) {
        const bt_route *r = &bt_routes[i];
        static const char *const needs_none[] = {"/healthz", "/api/v1/server", "/api/v1/metrics",
                                                 "/api/v1/query", "/api/v1/curves"};
        bool needs = r->guard != BT_ROUTE_CONTROL;
        for (size_t k = 0; k < sizeof needs_none / sizeof *needs_none; k++)
            needs = needs && strcmp(r->path, needs_none[k]) != 0;
        if (!needs) continue;
        const bt_code code = bt_web_ask(api, r->path, r->per_run ? "base" : NULL,
                                        "runs=base&metric=loss", &a, &why);
        bt_text_release(&a.body);
        if (code != BT_NOTFOUND || !strstr(why.msg, t->db))
            fail_msg("%s: %s: %s", r->path, bt_code_name(code), why.msg);
    }
    assert_int_equal(bt_web_ask(api, "head", "base", "", &a, &why), BT_NOTFOUND);
    bt_text_release(&a.body);
    bt_web_runs(t->db);
    OK(bt_web_ask(api, "head", "base", "", &a, err));
    bt_text_release(&a.body);
    const int64_t first = bt_api_version(api);
    assert_true(first > 0);
    /* The same file has the same version; another file with its name has another version. */
    bt_api_refresh(api);
    assert_int_equal(bt_api_version(api), first);
    char other[120];
    snprintf(other, sizeof other, "rm -f %s*", t->db);
    assert_int_equal(system(other), 0);
    bt_synth s = bt_synth_default("new");
    s.steps = 20;
    OK(bt_synth_make(t->db, &s, err));
    bt_api_refresh(api);
    assert_true(bt_api_version(api) >> 32 > first >> 32);
    assert_int_equal(bt_web_ask(api, "head", "base", "", &a, &why), BT_NOTFOUND);
    bt_text_release(&a.body);
    OK(bt_web_ask(api, "head", "new", "", &a, err));
    bt_text_release(&a.body);
    check_refusal(
        api, "/api/v1/query", NULL, "sql=SELECT 1", BT_UNSUPPORTED,
        "this server takes no SQL (start it with --enable-query, or use `bitrain query`)");
    bt_api_close(api);
}

static size_t length_of(bt_api *api, const char *route, const char *run, const char *args,
                        const char *path) {
    char copy[120], *next = copy;
    json_t *all = bt_web_json(api, route, run, args), *j = all;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *word; (word = strsep(&next, "."));)
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(word)) : json_object_get(j, word);
    const size_t n = json_array_size(j);
    json_decref(all);
    return n;
}

/* The default sizes are buckets of a power of two steps. */
static void default_sizes(void **state) {
    static const struct {
        const char *route, *run, *args, *path;
        size_t n;
    } sizes[] = {
        {"/api/v1/curves", NULL, "runs=wide&metric=loss", "runs.0.curve.series.0.x",
         115}, /* steps in 200 columns */
        {"/api/v1/curves", NULL, "runs=longer&metric=loss", "runs.0.curve.series.0.x", 101},
        {"/api/v1/compare", NULL, "runs=wide&metric=loss", "runs.0.series.0.x",
         230}, /* steps in 256 columns */
        {"series", "wide", "metric=loss", "series.0.x", 230},
        {"heatmap", "wide", "", "heatmap.step", 115}, /* steps in 120 columns */
        {"events", "wide", "", "events.rows", 200},
        {"panel", "wide", "", "panel.metrics.0.history", 32},
        {"stragglers", "wide", "", "stragglers", 4},
        {"distributions", "wide", "", "distribution.sampled", 6},
    };
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_synth s = bt_synth_default("wide");
    s.steps = 230;
    OK(bt_synth_make(t->db, &s, err));
    s = bt_synth_default("longer"); /* one step longer than 200 */
    s.steps = 201;
    OK(bt_synth_make(t->db, &s, err));
    run_sql(t->db, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 205) INSERT "
                   "INTO event(run, t_us, "
                   "kind, level, title) SELECT 1, last_us, 'warning', 1, x FROM run, c WHERE "
                   "run.name = 'wide'");
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = length_of(api, sizes[i].route, sizes[i].run, sizes[i].args, sizes[i].path);
        if (n != sizes[i].n) fail_msg("%s: %zu of %s", sizes[i].route, n, sizes[i].path);
    }
    bt_api_close(api);
}

/* 64 views are kept, each for one run; one more replaces the least recently used. */
static void views_of_runs(void **state) {
    enum { KEPT = 64 };
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_view *view[KEPT];
    char name[BT_NAME_MAX];
    bt_err why = BT_ERR_INIT;
    bt_web_runs(t->db);
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
    /* The names precede and follow each other in sorted order. */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < KEPT; i++) {
            snprintf(name, sizeof name, "run-%d", i * 37 % KEPT);
            bt_view *v = bt_api_view(api, name, &why);
            assert_non_null(v);
            for (int k = 0; k < (round ? 0 : i); k++) assert_ptr_not_equal(view[k], v);
            if (round) assert_ptr_equal(view[i], v);
            view[i] = v;
        }
    }
    snprintf(name, sizeof name, "run-0"); /* The oldest run is now the second. */
    assert_ptr_equal(bt_api_view(api, name, &why), view[0]);
    assert_non_null(bt_api_view(api, "one-more", &why));
    for (int i = 0; i < KEPT; i++) {
        snprintf(name, sizeof name, "run-%d", i * 37 % KEPT);
        if (i != 1) assert_ptr_equal(bt_api_view(api, name, &why), view[i]);
    }
    bt_api_close(api);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        T(answers_of_routes),
        T(metrics_of_live_runs),
        T(the_end_of_a_long_log),
        T(a_database_with_a_per_cent_sign),
        T(arguments_at_their_bounds),
        T(a_store_created_later),
        T(default_sizes),
        T(views_of_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
