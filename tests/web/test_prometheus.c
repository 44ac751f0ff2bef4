// ctest: timeout=60 labels=web
/* /metrics: every line of the text format is well formed, each family is described once, the values are the run's, and
 * web/grafana.json requests only existing metrics. (`promtool check metrics` agrees: tests/README.md.) */
#include <ctype.h>

#include "web_test.h"

typedef struct seen {
    char name[256][64];
    int n;
} seen;

static bool is_known_family(const seen *s, const char *name, size_t n) {
    for (int i = 0; i < s->n; i++)
        if (strlen(s->name[i]) == n && strncmp(s->name[i], name, n) == 0) return true;
    return false;
}

static size_t name_len(const char *s) {
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    return n;
}

/* Checks a line of the form name{label="value",...} number. */
static void check_sample(const char *line, const seen *families) {
    size_t n = name_len(line);
    if (strncmp(line, "bitrain_", 8) != 0 || !is_known_family(families, line, n))
        fail_msg("a sample without HELP and TYPE before it: %.100s", line);
    const char *p = line + n;
    if (*p == '{') {
        do {
            p++;
            size_t k = name_len(p);
            assert_true(k > 0 && p[k] == '=' && p[k + 1] == '"');
            for (p += k + 2; *p && *p != '"'; p++)
                if (*p == '\\') p++;
            p++;
        } while (*p == ',');
        assert_true(*p++ == '}');
    }
    char *end = NULL;
    assert_true(*p == ' ');
    strtod(p + 1, &end);
    if (end == p + 1 || *end) fail_msg("no number at the end: %.150s", line);
}

static void parse_metrics(char *text, seen *families) {
    char type[64] = "", *next = text;
    for (char *line; (line = strsep(&next, "\n")) && *line;) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            size_t n = name_len(line + 7);
            if (is_known_family(families, line + 7, n)) fail_msg("described twice: %s", line);
            assert_true(line[7 + n] == ' ' && line[8 + n]);
            snprintf(families->name[families->n++], 64, "%.*s", (int)n, line + 7);
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            snprintf(type, sizeof type, "%s", line + 7);
            const char *name = families->name[families->n - 1], *kind = type + strlen(name) + 1;
            assert_true(strncmp(type, name, strlen(name)) == 0 &&
                        (strcmp(kind, "gauge") == 0 || strcmp(kind, "counter") == 0));
            size_t n = strlen(name);
            if ((strcmp(kind, "counter") == 0) != (n > 6 && strcmp(name + n - 6, "_total") == 0))
                fail_msg("only counters end in _total: %s %s", name, kind);
        } else {
            check_sample(line, families);
        }
    }
}

static double value_of(const char *text, const char *sample) {
    const char *p = strstr(text, sample);
    if (!p) fail_msg("no sample %s", sample);
    return strtod(p + strlen(sample), NULL);
}

/* Returns whether the family is generated from a row of metrics.def; the dashboard draws a selection of these. */
static bool is_generated_family(const char *family) {
    char prefix[64];
    for (int k = 0; k < BT_SCOPE_COUNT; k++) {
        snprintf(prefix, sizeof prefix, "bitrain_%s_", bt_scopes[k].view);
        if (strncmp(family, prefix, strlen(prefix)) == 0 &&
            strcmp(family, "bitrain_steps_total") != 0)
            return true;
    }
    return false;
}

static char *metrics_of(const char *db) {
    bt_api *api = NULL;
    bt_answer a;
    OK(bt_api_open(&api, db, &(bt_api_allows){.control = false}, err));
    OK(bt_web_ask(api, "/metrics", NULL, "", &a, err));
    assert_string_equal(a.type, "text/plain; version=0.0.4; charset=utf-8");
    char *text = strdup(bt_text_str(&a.body));
    bt_text_release(&a.body);
    bt_api_close(api);
    return text;
}

static void the_text_is_well_formed_and_correct(void **state) {
    const bt_tmp *t = *state;
    bt_web_runs(t->db);
    char *text = metrics_of(t->db);
    /* Runs that ended long ago are omitted. */
    assert_null(strstr(text, "run=\"base\""));
    assert_true(value_of(text, "bitrain_run_state{run=\"live\",state=\"stalled\"} ") == 1);
    assert_true(value_of(text, "\nbitrain_live_runs ") == 1);
    assert_true(value_of(text, "bitrain_steps_total{run=\"live\"} ") == 60);
    assert_true(value_of(text, "bitrain_tokens_total{run=\"live\"} ") == 60 * 4096);
    assert_true(fabs(value_of(text, "bitrain_loss{run=\"live\"} ") - bt_synth_loss(59)) < 1e-12);
    assert_true(fabs(value_of(text, "bitrain_step_seconds{run=\"live\"} ") - 0.113) < 1e-9);
    assert_true(
        fabs(value_of(text, "bitrain_rank_phase_seconds{run=\"live\",rank=\"3\",phase=\"data\"} ") -
             0.010) < 1e-9);
    assert_true(value_of(text, "bitrain_resident_memory_bytes{run=\"live\",rank=\"2\"} ") ==
                102.0 * 1048576);
    assert_true(value_of(text, "bitrain_comm_wire_bytes_total{run=\"live\"} ") == 60 * 4e6);
    assert_true(
        value_of(text, "bitrain_events_total{run=\"live\",kind=\"started\",level=\"info\"} ") == 1);
    assert_true(
        fabs(value_of(text, "bitrain_zero_ratio{run=\"live\",layer=\"0\",tensor=\"attn_q\"} ") -
             0.31) < 1e-9);
    /* The other metrics of the tables are in base units and named after the view of their scope; each figure occurs
     * once. */
    static const char *const once[] = {
        "bitrain_steps_loss_nats",         "bitrain_steps_tokens{",
        "bitrain_rank_steps_data_seconds", "bitrain_layers_zero_ratio",
        "bitrain_rank_steps_rss_bytes",    "bitrain_steps_val_loss_nats"};
    for (size_t i = 0; i < sizeof once / sizeof *once; i++)
        if (strstr(text, once[i])) fail_msg("%s is there twice", once[i]);
    assert_true(value_of(text, "bitrain_steps_skipped{run=\"live\",of=\"mean\"} ") == 0);
    seen families = {.n = 0};
    parse_metrics(text, &families);
    assert_true(families.n > 20);
    free(text);
    /* A run whose process died is omitted, too. */
    char here[64] = "", sql[160];
    gethostname(here, sizeof here - 1);
    snprintf(sql, sizeof sql, "UPDATE run SET host = '%s', pid = 2147483646 WHERE name = 'live'",
             here);
    run_sql(t->db, sql);
    text = metrics_of(t->db);
    assert_true(value_of(text, "\nbitrain_live_runs ") == 0);
    assert_null(strstr(text, "run=\"live\""));
    assert_null(strstr(text, "_utilization_ratio")); /* A family without a row is not described. */
    free(text);
}

/* The last values of a run that has just ended remain with its state, and it is not counted as live. */
static void a_run_that_has_just_ended_can_be_scraped(void **state) {
    const bt_tmp *t = *state;
    bt_web_runs(t->db);
    run_sql(t->db, "UPDATE run SET ended_us = (unixepoch() - 100) * 1000000 WHERE name = 'base'; "
                   "UPDATE run SET ended_us = (unixepoch() - 400) * 1000000 WHERE name = 'other'");
    char *text = metrics_of(t->db);
    assert_true(value_of(text, "bitrain_run_state{run=\"base\",state=\"done\"} ") == 1);
    assert_true(value_of(text, "bitrain_steps_total{run=\"base\"} ") > 1);
    assert_non_null(strstr(text, "bitrain_validation_loss{run=\"base\"}"));
    assert_null(strstr(text, "run=\"other\""));
    assert_true(value_of(text, "\nbitrain_live_runs ") == 1);
    free(text);
}

/* Names in records may contain any characters; units and descriptions of families are as documented. */
static void labels_are_escaped_and_names_have_their_unit(void **state) {
    const bt_tmp *t = *state;
    seen families = {.n = 0};
    bt_web_odd_run(t->db);
    char *text = metrics_of(t->db);
    assert_true(value_of(text, "bitrain_zero_ratio{run=\"odd\",layer=\"0\",tensor=\"W.1 "
                               "\\\"a\\\\b\\\"\"} ") == 0.25);
    static const char *const told[] = {
        "# HELP bitrain_step_p95_seconds 95th percentile of the newest steps' times\n",
        "# HELP bitrain_rank_steps_comm_busy_seconds "};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
        if (!strstr(text, told[i])) fail_msg("no line '%s'", told[i]);
    parse_metrics(text, &families);
    free(text);
    /* A label that is too long ends with a complete character. */
    char many[200] = "kind=\"";
    for (int i = 0; i < 39; i++) strcat(many, "\\\"");
    strcat(many, "\",level=");
    run_sql(t->db, "INSERT INTO event(run, t_us, kind, level, title) SELECT id, last_us, "
                   "replace(hex(zeroblob(30)), '0', '\"'), 1, 'x' FROM run");
    text = metrics_of(t->db);
    assert_non_null(strstr(text, many));
    free(text);
}

/* A run of 60 steps of 113 ms began at a known time and is read a second after its end: the parts of its time add
 * up. */
static void times_of_a_live_run(void **state) {
    const bt_tmp *t = *state;
    bt_web_runs(t->db);
    char *text = metrics_of(t->db);
    const double began = 1700000000,
                 last = value_of(text, "bitrain_last_record_timestamp_seconds{run=\"live\"} ");
    assert_true(fabs(last - began - 60 * 0.113) < 1);
    assert_true(fabs(value_of(text, "bitrain_time_seconds{run=\"live\",part=\"productive\"} ") -
                     60 * 0.113) < 1e-6);
    double sum = 0;
    for (int p = 0; p < BT_TIME_PARTS; p++) {
        char sample[120];
        snprintf(sample, sizeof sample, "bitrain_time_seconds{run=\"live\",part=\"%s\"} ",
                 bt_times[p].key);
        sum += value_of(text, sample);
    }
    const double goodput = value_of(text, "bitrain_goodput_ratio{run=\"live\"} ");
    assert_true(fabs(goodput - 60 * 0.113 / sum) < 1e-9 * goodput);
    const char *build = strstr(text, "\nbitrain_build_info{version=\"");
    assert_non_null(build);
    assert_string_equal(strchr(build, '}'), "} 1\n");
    free(text);
}

/* The most recently started of more than 64 live runs are included, each with its own rows. */
static void a_limited_number_of_runs_is_included(void **state) {
    const bt_tmp *t = *state;
    bt_web_odd_run(t->db);
    run_sql(t->db, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 65) "
                   "INSERT INTO run(name, "
                   "created_us, host, state, world, n_attempts) SELECT 'r' || i, 1000000 * i, "
                   "host, state, i, 1 FROM "
                   "run, n WHERE name = 'odd'");
    char *text = metrics_of(t->db);
    assert_true(value_of(text, "\nbitrain_live_runs ") == 66);
    assert_true(value_of(text, "\nbitrain_left_out{run=\"\",of=\"runs\"} ") == 2);
    for (int i = 1; i <= 65; i++) {
        char sample[80];
        snprintf(sample, sizeof sample, "bitrain_ranks{run=\"r%d\"} ", i);
        if (i <= 2)
            assert_null(strstr(text, sample));
        else
            assert_true(value_of(text, sample) == i);
    }
    assert_true(value_of(text, "bitrain_ranks{run=\"odd\"} ") == 2);
    free(text);
}

static void grafana_requests_existing_metrics(void **state) {
    const bt_tmp *t = *state;
    char path[600];
    json_error_t why;
    seen families = {.n = 0};
    bt_web_runs(t->db);
    char *text = metrics_of(t->db);
    parse_metrics(text, &families);
    snprintf(path, sizeof path, "%s/web/grafana.json", getenv("BT_SRC"));
    json_t *board = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!board) fail_msg("%s:%d: %s", path, why.line, why.text);
    char *all = json_dumps(board, JSON_COMPACT);
    int asked = 0;
    for (const char *p = all; (p = strstr(p, "bitrain_")); asked++) {
        size_t n = name_len(p);
        if (!is_known_family(&families, p, n))
            fail_msg("the Grafana dashboard requests '%.*s', which /metrics lacks", (int)n, p);
        p += n;
    }
    assert_true(asked > 20);
    size_t i;
    json_t *panel;
    json_array_foreach(json_object_get(board, "panels"), i, panel) {
        assert_true(json_string_length(json_object_get(panel, "title")) > 0);
        assert_true(json_array_size(json_object_get(panel, "targets")) > 0);
    }
    assert_true(i > 10);
    for (int f = 0; f < families.n; f++) { /* the dashboard draws all of them */
        if (strstr(all, families.name[f]) || strcmp(families.name[f], "bitrain_live_runs") == 0 ||
            strcmp(families.name[f], "bitrain_build_info") == 0 ||
            strcmp(families.name[f], "bitrain_left_out") == 0 ||
            is_generated_family(families.name[f]))
            continue;
        fail_msg("no panel draws %s", families.name[f]);
    }
    free(all);
    free(text);
    json_decref(board);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_that_has_just_ended_can_be_scraped, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(the_text_is_well_formed_and_correct, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(labels_are_escaped_and_names_have_their_unit, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(times_of_a_live_run, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_limited_number_of_runs_is_included, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(grafana_requests_existing_metrics, bt_tmp_make,
                                        bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
