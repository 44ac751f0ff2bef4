// ctest: timeout=60 labels=web
/* The JSON of every route: names, types and, if known, values. Scripts and Grafana rely on these names. */
#include "web_test.h"

/* Returns an element: "head.loss" is the member of a member, "rows.0" the first element of an array. */
static json_t *element_at(json_t *j, const char *path) {
    char copy[200], *next = copy;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *word; j && (word = strsep(&next, ".")) && *word;)
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(word)) : json_object_get(j, word);
    return j;
}

static double number_member(json_t *j, const char *path) {
    json_t *x = element_at(j, path);
    if (!json_is_number(x)) fail_msg("'%s' is no number", path);
    return json_number_value(x);
}

static const char *text_member(json_t *j, const char *path) {
    json_t *x = element_at(j, path);
    if (!json_is_string(x)) fail_msg("'%s' is no text", path);
    return json_string_value(x);
}

static bool has_json_type(const json_t *x, char kind) {
    switch (kind) {
    case 's': return json_is_string(x);
    case 'n': return json_is_number(x);
    case '?': return json_is_number(x) || json_is_null(x);
    case 't': return json_is_string(x) || json_is_null(x);
    case 'b': return json_is_boolean(x);
    case 'a': return json_is_array(x);
    case 'o': return json_is_object(x);
    default: return false;
    }
}

/* Checks path and type of a required member. */
static void assert_members(json_t *j, const char *route, const char *list) {
    char copy[2000], *next = copy;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *word; (word = strsep(&next, " "));) {
        json_t *x = element_at(j, word + 2);
        if (!has_json_type(x, word[0]))
            fail_msg("%s: '%s' is not of kind '%c'", route, word + 2, word[0]);
    }
}

typedef struct contract {
    const char *route, *run, *args, *holds;
} contract;
static const contract contracts[] = {
    {"/api/v1/server", NULL, "", "b:control b:query"},
    {"/api/v1/metrics", NULL, "",
     "a:metrics s:metrics.0.scope s:metrics.0.key s:metrics.0.unit s:metrics.0.panel "
     "s:metrics.0.help a:phases s:phases.0.name s:phases.0.key s:phases.0.title s:phases.0.letter "
     "s:phases.0.light s:phases.0.dark a:scopes s:scopes.0.name s:scopes.0.view s:scopes.0.per "
     "a:scopes.0.keys a:panels s:panels.0.name s:panels.0.title s:panels.0.question a:events "
     "s:events.0.kind s:events.0.level s:events.0.mark a:verbs s:verbs.0.verb s:verbs.0.label "
     "s:verbs.0.outcome "
     "a:verbs.0.states a:states s:states.0.name a:figures s:figures.0.key s:figures.0.label "
     "s:figures.0.span "
     "s:figures.0.unit s:figures.0.help a:times s:times.0.key s:times.0.title "
     "s:times.0.light "
     "s:times.0.dark s:times.0.help"},
    {"/api/v1/runs", NULL, "limit=10",
     "s:schema n:runs.total a:runs.rows s:runs.rows.0.run s:runs.rows.0.state s:runs.rows.0.host "
     "s:runs.rows.0.tags s:runs.rows.0.note n:runs.rows.0.ranks "
     "n:runs.rows.0.attempts n:runs.rows.0.steps n:runs.rows.0.tokens n:runs.rows.0.loss "
     "?:runs.rows.0.best_val_loss n:runs.rows.0.tokens_per_s n:runs.rows.0.step_ms "
     "n:runs.rows.0.goodput "
     "n:runs.rows.0.comm_overhead n:runs.rows.0.started_s n:runs.rows.0.duration_s "
     "a:runs.rows.0.loss_spark"},
    {"/api/v1/settings", NULL, "name=optim.lr&name=train.steps",
     "a:names s:names.0 o:settings o:settings.base"},
    {"", "base", "",
     "s:run o:config s:command a:attempts n:attempts.0.attempt n:attempts.0.from_step "
     "n:attempts.0.started_s n:attempts.0.ended_s s:attempts.0.reason n:attempts.0.world_size "
     "a:redone n:redone.0.from_step n:redone.0.to_step n:redone.0.from_s a:ranks a:checkpoints "
     "n:checkpoints.0.step n:checkpoints.0.bytes n:checkpoints.0.took_ms s:checkpoints.0.path "
     "a:kept a:facts s:facts.0.key s:facts.0.value"},
    {"superseded", "base", "",
     "a:superseded n:superseded.0.attempt n:superseded.0.step n:superseded.0.loss"},
    {"head", "base", "",
     "s:schema s:head.run s:head.state b:head.live ?:head.age_s n:head.step n:head.newest_step "
     "n:head.tokens n:head.loss n:head.loss_ema n:head.val_loss n:head.best_val_loss "
     "n:head.grad_norm n:head.lr n:head.tokens_per_s ?:head.mfu n:head.step_p50_ms "
     "n:head.step_p95_ms n:head.overlap n:head.comm_overhead n:head.rss_mib n:head.elapsed_s "
     "n:head.goodput "
     "n:head.productive_s n:head.redone_s n:head.validation_s n:head.paused_s "
     "n:head.finished_s n:head.startup_s n:head.lost_s n:head.down_s n:head.other_s "
     "n:head.checkpoint_s "
     "n:head.warnings n:head.errors n:head.unacknowledged n:head.restarts ?:head.eta_s"},
    {"series", "base", "metric=loss&metric=val_loss&x=tokens&width=50",
     "a:series s:series.0.metric s:series.0.unit s:series.0.x_axis b:series.0.exact "
     "b:series.0.baseline a:series.0.x a:series.0.step "
     "a:series.0.first a:series.0.last a:series.0.min a:series.0.max a:series.0.mean a:series.0.n "
     "s:series.1.metric"},
    {"distributions", "base", "layer=0&tensor=attn_o",
     "n:distribution.layer s:distribution.tensor a:distribution.tensors "
     "s:distribution.tensors.0.tensor b:distribution.tensors.0.ternary a:distribution.sampled "
     "n:distribution.weights_bins.from n:distribution.weights_bins.width "
     "n:distribution.gradients_bins.from a:distribution.weights a:distribution.weights.0 "
     "n:distribution.weights.0.0 a:distribution.gradients.0"},
    {"panel", "base", "panel=comm",
     "s:panel.panel a:panel.scopes s:panel.scopes.0.scope a:panel.scopes.0.sampled "
     "a:panel.metrics s:panel.metrics.0.scope s:panel.metrics.0.key s:panel.metrics.0.unit "
     "n:panel.metrics.0.step n:panel.metrics.0.rows ?:panel.metrics.0.mean "
     "?:panel.metrics.0.least ?:panel.metrics.0.most a:panel.metrics.0.history"},
    {"heatmap", "base", "value=busy&cols=30",
     "s:heatmap.value s:heatmap.unit n:heatmap.rows n:heatmap.cols b:heatmap.exact a:heatmap.step "
     "a:heatmap.time_s a:heatmap.cells a:heatmap.cells.0"},
    {"breakdown", "base", "",
     "n:breakdown.step0 n:breakdown.step1 n:breakdown.steps n:breakdown.step_ms "
     "n:breakdown.busy_median_ms o:breakdown.median n:breakdown.mean_ms o:breakdown.mean "
     "a:breakdown.ranks n:breakdown.ranks.0.rank "
     "n:breakdown.ranks.0.step_ms o:breakdown.ranks.0.phases n:breakdown.ranks.0.phases.other_ms "
     "n:breakdown.ranks.0.comm_busy_ms n:breakdown.ranks.0.comm_hidden_ms "
     "n:breakdown.ranks.0.bytes_wire n:breakdown.skew_p50_ms "
     "n:breakdown.skew_p95_ms n:breakdown.predicted.step_ms n:breakdown.predicted.fwd_ms "
     "?:breakdown.predicted.tried_ms"},
    {"stragglers", "base", "",
     "a:stragglers n:stragglers.0.rank s:stragglers.0.host n:stragglers.0.busy_p50_ms "
     "n:stragglers.0.wait_p50_ms n:stragglers.0.late_p50_ms n:stragglers.0.late_p95_ms "
     "n:stragglers.0.excess_ms n:stragglers.0.score n:stragglers.0.score_own "
     "n:stragglers.0.blame n:stragglers.0.lost_s s:stragglers.0.phase n:stragglers.0.phase_frac "
     "s:stragglers.0.verdict n:stragglers.0.since_step n:stragglers.0.what_if.step_ms "
     "n:stragglers.0.what_if.saved_ms "
     "n:stragglers.0.what_if.saved_frac n:stragglers.0.what_if.tokens_per_day s:stragglers.0.says "
     "a:what_if_worst a:what_if_worst_says a:system n:system.0.pid s:system.0.isa "
     "n:system.0.rss_mib "
     "n:system.0.cpu_frac"},
    {"comm", "base", "",
     "n:head.comm_overhead n:head.overlap n:head.bytes_wire_per_step n:head.bytes_logical_per_step "
     "a:breakdown.ranks n:comm.step0 n:comm.step1 a:comm.rows s:comm.rows.0.op s:comm.rows.0.axis "
     "n:comm.rows.0.ranks n:comm.rows.0.calls n:comm.rows.0.bytes_logical n:comm.rows.0.bytes_wire "
     "?:comm.rows.0.busy_ms ?:comm.rows.0.exposed_ms ?:comm.rows.0.wait_ms ?:comm.rows.0.overlap "
     "?:comm.rows.0.rate_bytes_per_s ?:comm.rows.0.lost_max_ms ?:comm.rows.0.lost_max_rank "
     "?:comm.rows.0.model_ms ?:comm.rows.0.model_frac a:comm.links n:comm.pairs.ranks "
     "n:comm.pairs.step0 "
     "n:comm.pairs.rows.0.rank n:comm.pairs.rows.0.peer n:comm.pairs.rows.0.messages "
     "n:comm.pairs.rows.0.bytes ?:comm.pairs.rows.0.flight_ms"},
    {"layers", "base", "",
     "n:layers.step a:layers.rows n:layers.rows.0.layer s:layers.rows.0.tensor "
     "n:layers.rows.0.zero_frac n:layers.rows.0.pos_frac n:layers.rows.0.neg_frac "
     "n:layers.rows.0.flip_frac "
     "n:layers.rows.0.entropy_bits n:layers.rows.0.scale n:layers.rows.0.grad_norm "
     "a:layers.rows.0.flip_history a:layers.rows.0.zero_history "
     "a:layers.sampled a:layers.rows.0.oscillation_history a:layers.rows.0.boundary_history "
     "a:layers.rows.0.grad_norm_history ?:layers.rows.0.update_ratio "
     "a:layers.rows.0.update_history"},
    {"islands", "base", "",
     "n:islands.step n:islands.training ?:islands.slowest ?:islands.fastest n:islands.sequences "
     "?:islands.tokens_per_update n:islands.bytes_wire n:islands.updates ?:islands.mean_staleness "
     "n:islands.left_out n:islands.joined n:islands.left n:islands.lost n:islands.late "
     "n:islands.refused "
     "a:islands.rows a:islands.staleness"},
    {"lr_range", "base", "",
     "s:run b:is ?:suggested ?:steepest ?:least ?:diverged ?:top n:step t:nothing a:lr a:loss "
     "a:smooth"},
    {"log", "base", "", "s:run b:readable b:cut a:lines"},
    {"events", "base", "limit=5",
     "n:events.total a:events.rows n:events.rows.0.seq n:events.rows.0.time_s "
     "n:events.rows.0.attempt ?:events.rows.0.step ?:events.rows.0.rank s:events.rows.0.kind "
     "s:events.rows.0.level s:events.rows.0.title"},
    {"/api/v1/compare", NULL, "runs=base,other&metric=loss&x=tokens",
     "a:runs a:levels s:levels.0.run n:levels.0.tokens n:levels.0.value "
     "?:levels.0.first_different_step n:levels.1.common_steps a:configs o:configs.0.config "
     "s:configs.0.command"},
    {"/api/v1/curves", NULL, "runs=base,gone,other&metric=loss&width=20",
     "s:metric a:runs s:runs.0.run a:runs.0.curve.series a:runs.1.curve.series.0.mean a:missing "
     "s:missing.0"},
    {"/api/v1/settings", NULL, "name=optim.lr&metric=loss",
     "a:names o:settings n:settings.base.loss"},
    {"/api/v1/query", NULL, "sql=SELECT run, steps FROM runs ORDER BY run",
     "a:columns s:columns.0 a:rows a:rows.0 b:truncated"},
};

static void every_route_keeps_its_names(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_web_runs(t->db);
    OK(bt_api_open(&api, t->db,
                   &(bt_api_allows){.control = true, .query = true, .program = getenv("BITRAIN")},
                   err));
    for (size_t i = 0; i < sizeof contracts / sizeof contracts[0]; i++) {
        const contract *c = &contracts[i];
        json_t *j = bt_web_json(api, c->route, c->run, c->args);
        assert_members(j, c->route, c->holds);
        json_decref(j);
    }
    for (size_t r = 0; r < bt_routes_n; r++) { /* Every route has a contract. */
        bool there = bt_routes[r].guard == BT_ROUTE_CONTROL || bt_routes[r].path[0] == '\0';
        for (size_t i = 0; i < sizeof contracts / sizeof contracts[0]; i++)
            there |= strcmp(contracts[i].route, bt_routes[r].path) == 0;
        if (!there && strcmp(bt_routes[r].path, "/healthz") != 0 &&
            strcmp(bt_routes[r].path, "/metrics") != 0)
            fail_msg("no contract for route '%s'", bt_routes[r].path);
    }
    bt_api_close(api);
}

static void the_numbers_are_those_of_the_run(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_web_runs(t->db);
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.query = true, .program = getenv("BITRAIN")},
                   err));
    json_t *j = bt_web_json(api, "stragglers", "base", "");
    assert_int_equal((int)number_member(j, "stragglers.0.rank"), 2);
    assert_string_equal(text_member(j, "stragglers.0.phase"), "data");
    assert_string_equal(text_member(j, "stragglers.0.verdict"), "late");
    assert_true(fabs(number_member(j, "stragglers.0.excess_ms") - 40) < 1e-9 &&
                fabs(number_member(j, "stragglers.0.what_if.step_ms") - 113) < 1e-9);
    assert_true(fabs(number_member(j, "what_if_worst.0") - 113) < 1e-9 &&
                fabs(number_member(j, "breakdown.step_ms") - 153) < 1e-9);
    /* The page shows the value unchanged. */
    assert_non_null(
        strstr(text_member(j, "what_if_worst_says.0"),
               "With the slowest rank at the median: 153 ms → 113 ms a step, 26.1 % less"));
    assert_non_null(strstr(text_member(j, "what_if_worst_says.1"), "With the slowest 2 ranks"));
    json_decref(j);
    j = bt_web_json(api, "", "base", "");
    assert_int_equal((int)number_member(j, "redone.0.from_step"), 180);
    assert_int_equal((int)number_member(j, "redone.0.to_step"), 199);
    assert_int_equal((int)json_array_size(element_at(j, "redone")), 1);
    json_decref(j);
    bt_synth again = bt_synth_default("again"); /* one step */
    again.steps = 60;
    again.fail_at = 50;
    again.resume_from = 49;
    OK(bt_synth_make(t->db, &again, err));
    j = bt_web_json(api, "", "again", "");
    assert_int_equal((int)number_member(j, "redone.0.from_step"), 49);
    assert_int_equal((int)number_member(j, "redone.0.to_step"), 49);
    json_decref(j);
    j = bt_web_json(api, "series", "base", "metric=loss&x0=100&x1=109&width=50");
    assert_int_equal((int)json_array_size(element_at(j, "series.0.step")), 10);
    assert_true(fabs(number_member(j, "series.0.mean.3") - bt_synth_loss(103)) < 1e-12);
    json_decref(j);
    j = bt_web_json(api, "series", "base", "metric=loss&width=16"); /* extreme values are kept */
    size_t n = json_array_size(element_at(j, "series.0.min"));
    assert_true(n > 0 && n <= 16);
    assert_true(fabs(number_member(j, "series.0.max.0") - bt_synth_loss(0)) < 1e-12);
    json_decref(j);
    j = bt_web_json(api, "/api/v1/query", NULL, "sql=SELECT steps FROM runs WHERE run = 'base'");
    assert_int_equal((int)number_member(j, "rows.0.0"), 300);
    json_decref(j);
    j = bt_web_json(api, "/api/v1/query", NULL,
                    "sql=WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 20000) "
                    "SELECT x FROM c");
    assert_int_equal((int)json_array_size(element_at(j, "rows")), 10000);
    assert_true(json_is_true(element_at(j, "truncated")));
    json_decref(j);
    j = bt_web_json(api, "/api/v1/query", NULL,
                    "sql=WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 9000) "
                    "SELECT printf('%01000d', x) FROM c");
    /* The rows have 4 MiB. */
    assert_true(json_array_size(element_at(j, "rows")) > 4000 &&
                json_array_size(element_at(j, "rows")) < 4400);
    assert_true(json_is_true(element_at(j, "truncated")));
    json_decref(j);
    j = bt_web_json(api, "/api/v1/compare", NULL, "runs=base,other");
    assert_true(json_is_null(element_at(j, "levels.1.first_different_step")));
    assert_int_equal((int)number_member(j, "levels.1.common_steps"), 200);
    assert_string_equal(json_string_value(element_at(j, "levels.0.run")), "base");
    assert_string_equal(json_string_value(element_at(j, "levels.1.run")), "other");
    assert_string_equal(json_string_value(element_at(j, "configs.1.run")), "other");
    json_decref(j);
    bt_web_odd_run(t->db);
    j = bt_web_json(api, "/api/v1/compare", NULL, "runs=base,odd");
    assert_true(json_is_null(element_at(j, "levels.0.first_different_step")));
    assert_true(json_is_integer(element_at(j, "levels.1.first_different_step")));
    assert_int_equal((int)number_member(j, "levels.1.first_different_step"), 0);
    assert_int_equal((int)number_member(j, "levels.1.common_steps"), 1);
    json_decref(j);
    j = bt_web_json(api, "series", "base", "metric=loss&baseline=");
    assert_true(json_is_false(element_at(j, "series.0.baseline")));
    json_decref(j);
    bt_api_close(api);
}

/* An argument holds 2047 bytes, less than a hundred long names, so it is repeated. */
static void the_longest_names_are_drawn_together(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_text args;
    bt_web_runs(t->db);
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.query = false}, err));
    bt_text_init(&args);
    bt_text_put(&args, "metric=loss&runs=base");
    for (int i = 0; i < 99; i++) bt_text_printf(&args, "%s%060d", i % 30 ? "," : "&runs=", i);
    json_t *j = bt_web_json(api, "/api/v1/curves", NULL, bt_text_str(&args));
    assert_string_equal(json_string_value(element_at(j, "runs.0.run")), "base");
    assert_int_equal(json_array_size(element_at(j, "missing")), 99);
    json_decref(j);
    bt_text_release(&args);
    bt_api_close(api);
}

static void bad_questions_are_refused_with_a_reason(void **state) {
    static const struct {
        const char *route, *run, *args;
        bt_code code;
        const char *says;
    } rows[] = {
        {"series", "base", "", BT_ARG, "'metric' is missing"},
        {"series", "base", "metric=nonsense", BT_ARG, "no metric 'nonsense'"},
        {"series", "base", "metric=loss&rank=99999999", BT_ARG, "'rank'"},
        {"series", "base", "metric=data_ms", BT_ARG, "no metric 'data_ms' of a step"},
        {"series", "base", "metric=loss&width=0", BT_ARG, "'width'"},
        {"series", "base", "metric=loss&x=parsecs", BT_ARG, "'x'"},
        {"series", "base", "metric=loss&x0=9&x1=3", BT_ARG, "'x1'"},
        {"series", "nobody", "metric=loss", BT_NOTFOUND, "nobody"},
        {"heatmap", "base", "value=mood", BT_ARG, "'value'"},
        {"heatmap", "base", "cols=99999", BT_ARG, "'cols'"},
        {"events", "base", "limit=-1", BT_ARG, "'limit'"},
        {"head", "base", "at=x", BT_ARG, "'at'"},
        {"/api/v1/compare", NULL, "", BT_ARG, "'runs' is missing"},
        {"/api/v1/compare", NULL, "runs=../etc,base", BT_ARG, "run names"},
        {"/api/v1/compare", NULL, "runs=base,nobody", BT_NOTFOUND, "nobody"},
        {"/api/v1/curves", NULL, "", BT_ARG, "'runs' is missing"},
        {"/api/v1/curves", NULL, "runs=base,../x", BT_ARG, "run names"},
        {"/api/v1/curves", NULL, "runs=base&metric=mood", BT_ARG, "no metric 'mood'"},
        {"/api/v1/settings", NULL, "metric=mood", BT_ARG, "no metric 'mood'"},
        {"/api/v1/settings", NULL, "name=optim.lr'--", BT_ARG, "must name a setting"},
        {"/api/v1/query", NULL, "sql=SELECT 1; SELECT 2", BT_ARG, ""},
        {"/api/v1/query", NULL, "sql=DELETE FROM run", BT_ARG, ""},
        {"/api/v1/query", NULL, "sql=ATTACH '/etc/passwd' AS x", BT_ARG, ""},
        {"/api/v1/query", NULL, "sql=SELECT load_extension('x')", BT_ARG, ""},
        {"/api/v1/query", NULL, "sql=PRAGMA journal_mode=DELETE", BT_ARG, "may only read"},
        {"/api/v1/query", NULL, "sql=BEGIN", BT_ARG, "may only read"},
        /* SQLite's full-text search accepts a pointer as a blob and returns the address of a function. */
        {"/api/v1/query", NULL, "sql=SELECT fts3_tokenizer('simple', x'4141414141414141')", BT_ARG,
         "not authorized to use function: fts3_tokenizer"},
        {"/api/v1/query", NULL, "sql=SELECT fts3_tokenizer('porter')", BT_ARG,
         "not authorized to use function: fts3_tokenizer"},
        {"/api/v1/query", NULL, "sql=SELECT * FROM fts3tokenize('simple', 'a b')", BT_ARG,
         "no such table: fts3tokenize"},
        {"/api/v1/query", NULL, "sql=SELECT readfile('/etc/passwd')", BT_ARG, "no such function"},
        {"/api/v1/query", NULL, "sql=SELECT * FROM dbstat", BT_ARG, "no such table: dbstat"},
        /* an operation that SQLite does not interrupt; unlimited memory */
        {"/api/v1/query", NULL,
         "sql=SELECT instr(hex(zeroblob(16000000)), hex(zeroblob(8000000))||'1')", BT_BUSY,
         "took longer than 2 s"},
        {"/api/v1/query", NULL,
         "sql=WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 100000) SELECT "
         "randomblob(1000000) r FROM c ORDER BY r",
         BT_BUSY, ""},
        {"/api/v1/query", NULL,
         "sql=WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT sum(x) FROM c",
         BT_BUSY, "took longer than 2 s"},
    };
    const bt_tmp *t = *state;
    bt_api *api = NULL, *closed = NULL;
    bt_web_runs(t->db);
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.query = true, .program = getenv("BITRAIN")},
                   err));
    OK(bt_api_open(&closed, t->db, &(bt_api_allows){.query = false}, err));
    bt_err err = BT_ERR_INIT;
    bt_answer a;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        err = (bt_err)BT_ERR_INIT;
        bt_code code = bt_web_ask(api, rows[i].route, rows[i].run, rows[i].args, &a, &err);
        bt_text_release(&a.body);
        if (code == BT_OK || (rows[i].code != BT_OK && code != rows[i].code && rows[i].says[0]) ||
            !err.msg[0] || !strstr(err.msg, rows[i].says))
            fail_msg("%s?%s: %s: %s", rows[i].route, rows[i].args, bt_code_name(code), err.msg);
    }
    assert_int_equal(bt_web_ask(closed, "/api/v1/query", NULL, "sql=SELECT 1", &a, &err),
                     BT_UNSUPPORTED);
    bt_text_release(&a.body);
    bt_api_close(api);
    bt_api_close(closed);
}

static char *read_all(const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", getenv("BT_SRC"), name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

/* web/README.md contains each route of routes.def, and no other. */
static void the_documentation_names_the_routes(void **state) {
    (void)state;
    char *doc = read_all("web/README.md");
    int listed = 0;
    for (size_t i = 0; i < bt_routes_n; i++) {
        char word[120];
        const bt_route *r = &bt_routes[i];
        if (r->per_run)
            snprintf(word, sizeof word, r->path[0] ? "/%s`" : "/api/v1/runs/RUN%s`", r->path);
        else
            snprintf(word, sizeof word, "`%s %s`", r->method, r->path);
        if (!strstr(doc, word)) fail_msg("web/README.md does not name %s", word);
        listed++;
    }
    int in_doc = 0;
    for (char *line = doc; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, "| `GET /", 8) != 0 && strncmp(line, "| `POST /", 9) != 0) continue;
        char *end = strchr(line + 2, '|');
        for (char *p = line; p < end; p++) in_doc += *p == '`';
    }
    /* The server itself has the routes login and stream. */
    assert_int_equal(in_doc / 2, listed + 2);
    free(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_route_keeps_its_names, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(the_numbers_are_those_of_the_run, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(the_longest_names_are_drawn_together, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(bad_questions_are_refused_with_a_reason, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test(the_documentation_names_the_routes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
