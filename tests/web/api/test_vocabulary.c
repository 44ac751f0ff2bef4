// ctest: timeout=60 labels=web
/* /api/v1/metrics equals the tables, row by row; a run is started with the fields of its form only. */
#include <jansson.h>

#include "../web_test.h"
#include "engine/base/tables/event.h"
#include "engine/base/tables/figure.h"
#include "engine/base/tables/metric.h"
#include "engine/base/tables/start_form.h"
#include "engine/base/tables/time_part.h"
#include "engine/base/tables/verb.h"

static void assert_member_text(const json_t *row, const char *key, const char *want) {
    const char *got = json_string_value(json_object_get(row, key));
    if (!got || strcmp(got, want) != 0)
        fail_msg("%s: '%s' instead of '%s'", key, got ? got : "(none)", want);
}

static const json_t *row_of(const json_t *all, const char *list, size_t i, size_t members) {
    const json_t *row = json_array_get(json_object_get(all, list), i);
    if (json_object_size(row) != members)
        fail_msg("%s.%zu has %zu members", list, i, json_object_size(row));
    return row;
}

static void has_rows(const json_t *all, const char *list, size_t n) {
    assert_int_equal(json_array_size(json_object_get(all, list)), n);
}

static void metrics_scopes_panels_phases(const json_t *all) {
    size_t n = 0;
    for (int k = 0; k < BT_SCOPE_COUNT; k++) {
        const bt_scope_row *s = &bt_scopes[k];
        const json_t *row = row_of(all, "scopes", (size_t)k, 4),
                     *keys = json_object_get(row, "keys");
        assert_member_text(row, "name", s->name);
        assert_member_text(row, "view", s->view);
        assert_member_text(row, "per", s->per);
        assert_int_equal(json_array_size(keys), s->n_keys);
        for (int i = 0; i < s->n_keys; i++)
            assert_string_equal(json_string_value(json_array_get(keys, (size_t)i)), s->key[i].name);
        for (int i = 0; i < s->n; i++, n++) {
            row = row_of(all, "metrics", n, 5);
            assert_member_text(row, "scope", s->name);
            assert_member_text(row, "key", s->metric[i].key);
            assert_member_text(row, "unit", bt_unit_name(s->metric[i].unit));
            assert_member_text(row, "panel", bt_panel_name(s->metric[i].panel));
            assert_member_text(row, "help", s->metric[i].help);
        }
    }
    has_rows(all, "metrics", n);
    has_rows(all, "scopes", BT_SCOPE_COUNT);
    for (int p = 0; p < BT_PANEL_COUNT; p++) {
        const json_t *row = row_of(all, "panels", (size_t)p, 3);
        assert_member_text(row, "name", bt_panel_name((bt_metric_panel)p));
        assert_member_text(row, "title", bt_panel_title((bt_metric_panel)p));
        assert_member_text(row, "question", bt_panel_query((bt_metric_panel)p));
    }
    has_rows(all, "panels", BT_PANEL_COUNT);
    for (int p = 0; p < BT_PHASE_COUNT; p++) {
        const json_t *row = row_of(all, "phases", (size_t)p, 7);
        const char letter[2] = {bt_phases[p].letter, 0};
        assert_member_text(row, "name", bt_phases[p].name);
        assert_member_text(row, "key", bt_rank_metrics[bt_phases[p].metric].key);
        assert_member_text(row, "title", bt_phases[p].title);
        assert_member_text(row, "letter", letter);
        assert_member_text(row, "light", bt_phases[p].light);
        assert_member_text(row, "dark", bt_phases[p].dark);
        assert_int_equal(json_is_true(json_object_get(row, "rest")), bt_phases[p].rest);
    }
    has_rows(all, "phases", BT_PHASE_COUNT);
}

static void events_verbs_states(const json_t *all) {
    for (int e = 0; e < BT_EVENT_COUNT; e++) {
        const json_t *row = row_of(all, "events", (size_t)e, 4);
        assert_member_text(row, "kind", bt_events[e].name);
        assert_member_text(row, "level", bt_event_level_name(bt_events[e].level));
        assert_member_text(row, "mark", bt_event_mark_name(bt_events[e].mark));
        assert_member_text(row, "help", bt_events[e].help);
    }
    has_rows(all, "events", BT_EVENT_COUNT);
    for (int v = 0; v < BT_VERB_COUNT; v++) {
        const json_t *row = row_of(all, "verbs", (size_t)v, 6),
                     *states = json_object_get(row, "states");
        const bt_event_kind outcome = bt_verbs[v].outcome;
        size_t n = 0;
        assert_member_text(row, "verb", bt_verbs[v].word);
        assert_member_text(row, "argument", bt_verbs[v].argument);
        assert_member_text(row, "label", bt_verbs[v].label);
        assert_member_text(row, "help", bt_verbs[v].help);
        assert_member_text(row, "outcome",
                           outcome == BT_EVENT_COUNT ? "" : bt_events[outcome].name);
        for (int s = 0; s < BT_STATE_COUNT; s++)
            if (bt_verb_offered((bt_verb)v, (bt_run_state)s))
                assert_string_equal(json_string_value(json_array_get(states, n++)),
                                    bt_run_states[s].name);
        assert_int_equal(json_array_size(states), n);
    }
    has_rows(all, "verbs", BT_VERB_COUNT);
    for (int s = 0; s < BT_STATE_COUNT; s++) {
        const json_t *row = row_of(all, "states", (size_t)s, 3);
        assert_member_text(row, "name", bt_run_states[s].name);
        assert_member_text(row, "help", bt_run_states[s].help);
        assert_int_equal(json_is_true(json_object_get(row, "live")), bt_run_states[s].live);
    }
    has_rows(all, "states", BT_STATE_COUNT);
}

static void figures_and_times(const json_t *all) {
    for (int f = 0; f < BT_FIGURES; f++) {
        const json_t *row = row_of(all, "figures", (size_t)f, 5);
        assert_member_text(row, "key", bt_figures[f].key);
        assert_member_text(row, "label", bt_figures[f].label);
        assert_member_text(row, "span", bt_figure_span_name(bt_figures[f].span));
        assert_member_text(row, "unit", bt_unit_name(bt_figures[f].unit));
        assert_member_text(row, "help", bt_figures[f].help);
    }
    has_rows(all, "figures", BT_FIGURES);
    for (int p = 0; p < BT_TIME_PARTS; p++) {
        const json_t *row = row_of(all, "times", (size_t)p, 5);
        assert_member_text(row, "key", bt_times[p].key);
        assert_member_text(row, "title", bt_times[p].title);
        assert_member_text(row, "light", bt_times[p].light);
        assert_member_text(row, "dark", bt_times[p].dark);
        assert_member_text(row, "help", bt_times[p].help);
    }
    has_rows(all, "times", BT_TIME_PARTS);
}

static void the_tables_as_they_are(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
    json_t *all = bt_web_json(api, "/api/v1/metrics", NULL, "");
    metrics_scopes_panels_phases(all);
    events_verbs_states(all);
    figures_and_times(all);
    json_decref(all);
    bt_api_close(api);
}

typedef struct begun {
    char words[600], name[BT_NAME_MAX];
    int n;
} begun;

static bt_code record_started_run(void *ctx, int n, const char *const *words,
                                  char name[BT_NAME_MAX], bt_err *err) {
    begun *b = ctx;
    b->words[0] = '\0';
    for (int i = 0; i < n; i++) {
        const size_t at = strlen(b->words);
        snprintf(b->words + at, sizeof b->words - at, "%s ", words[i]);
    }
    snprintf(b->name, sizeof b->name, "%s", name);
    b->n++;
    if (strcmp(name, "taken") == 0) return bt_fail(err, BT_BUSY, "there is such a run");
    if (!name[0]) strcpy(name, "made-up");
    return BT_OK;
}

/* Returns the response, or the error. */
static bt_code post_start(bt_api *api, const char *body, char *said, size_t size) {
    bt_req *r = calloc(1, sizeof *r);
    bt_answer a = {.status = 200, .type = "application/json"};
    bt_err why = BT_ERR_INIT;
    r->body = body;
    bt_text_init(&a.body);
    const bt_code code = bt_api_start(api, r, "", &a, &why);
    snprintf(said, size, "%s", code == BT_OK ? bt_text_str(&a.body) : why.msg);
    bt_text_release(&a.body);
    free(r);
    return code;
}

static void a_run_is_started_by_its_form_fields(void **state) {
    const bt_tmp *t = *state;
    const bt_start_field *first = &bt_start_fields[0],
                         *last = &bt_start_fields[BT_START_FIELDS - 1];
    char body[1400], said[600], want[700], longest[514];
    begun b = {.n = 0};
    bt_api *api = NULL, *closed = NULL;
    OK(bt_api_open(&api, t->db,
                   &(bt_api_allows){.control = true, .start = record_started_run, .resume_ctx = &b},
                   err));
    OK(bt_api_open(&closed, t->db, &(bt_api_allows){.control = true}, err));
    assert_int_equal(post_start(api, "{}", said, sizeof said), BT_OK);
    assert_string_equal(said,
                        "{\"ok\":true,\"run\":\"made-up\",\"reply\":\"run made-up is starting\"}");
    assert_string_equal(b.words, "");
    assert_int_equal(
        post_start(api, "{\"name\":\"demo\",\"settings\":{\"steps\":\"100\",\"preset\":\"\"}}",
                   said, sizeof said),
        BT_OK);
    assert_string_equal(said, "{\"ok\":true,\"run\":\"demo\",\"reply\":\"run demo is starting\"}");
    snprintf(want, sizeof want, "%s 100 ", bt_start_field_find("steps")->flag);
    assert_string_equal(b.words, want);
    assert_string_equal(b.name, "demo");
    assert_int_equal(post_start(api, "{\"name\":\"taken\"}", said, sizeof said), BT_BUSY);
    assert_string_equal(said, "there is such a run");
    /* in the order of the table, not of the request */
    const char *choice = first->choices[0] ? first->choices : "x";
    snprintf(body, sizeof body, "{\"settings\":{\"%s\":\"%.*s\",\"%s\":\"%.*s\"}}", last->name,
             (int)strcspn(last->choices[0] ? last->choices : "y", "|"),
             last->choices[0] ? last->choices : "y", first->name, (int)strcspn(choice, "|"),
             choice);
    assert_int_equal(post_start(api, body, said, sizeof said), BT_OK);
    assert_true(strncmp(b.words, first->flag, strlen(first->flag)) == 0 &&
                strstr(b.words, last->flag));
    const int n = b.n;
    static const struct {
        const char *body, *says;
    } refused[] = {
        {"[]", NULL},
        {"", NULL},
        {"{\"name\":1}",
         "'name' must be of letters, digits, . _ - and at most 64 characters, or empty"},
        {"{\"name\":\"n o\"}",
         "'name' must be of letters, digits, . _ - and at most 64 characters, or empty"},
        {"{\"settings\":[]}", "'settings' must be an object of texts"},
        {"{\"settings\":{\"out\":\"x\"}}", "'out' is no field of the form that starts a run"},
        {"{\"settings\":{\"steps\":7}}", "'steps' must be a text"},
        {"{\"settings\":{\"steps\":\"-1\"}}",
         "'steps' must be one line that does not begin with '-'"},
        {"{\"settings\":{\"steps\":\"1\\n2\"}}",
         "'steps' must be one line that does not begin with '-'"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const bt_code code = post_start(api, refused[i].body, said, sizeof said);
        if (code != BT_ARG ||
            (refused[i].says ? strcmp(said, refused[i].says) != 0
                             : strncmp(said, "the body is no JSON object: ", 28) != 0))
            fail_msg("%s: %s: %s", refused[i].body, bt_code_name(code), said);
    }
    for (size_t i = 0; i < BT_START_FIELDS; i++) {
        if (!bt_start_fields[i].choices[0]) continue;
        snprintf(body, sizeof body, "{\"settings\":{\"%s\":\"no such\"}}", bt_start_fields[i].name);
        snprintf(want, sizeof want, "'%s' must be one of %s", bt_start_fields[i].name,
                 bt_start_fields[i].choices);
        assert_int_equal(post_start(api, body, said, sizeof said), BT_ARG);
        assert_string_equal(said, want);
    }
    memset(longest, '1', sizeof longest);
    longest[513] = '\0';
    snprintf(body, sizeof body, "{\"settings\":{\"steps\":\"%s\"}}", longest);
    assert_int_equal(post_start(api, body, said, sizeof said), BT_ARG);
    assert_string_equal(said, "'steps' has 513 bytes, at most 512 are possible");
    assert_int_equal(b.n, n);
    snprintf(body, sizeof body, "{\"settings\":{\"steps\":\"%s\"}}", longest + 1);
    assert_int_equal(post_start(api, body, said, sizeof said), BT_OK);
    assert_int_equal(post_start(closed, "{}", said, sizeof said), BT_UNSUPPORTED);
    assert_string_equal(said, "this server starts no runs: use 'bitrain train'");
    /* The page receives the list of fields. */
    json_t *server = bt_web_json(api, "/api/v1/server", NULL, "");
    for (size_t i = 0; i < BT_START_FIELDS; i++) {
        const json_t *row = row_of(server, "start", i, 5);
        assert_member_text(row, "name", bt_start_fields[i].name);
        assert_member_text(row, "option", bt_start_fields[i].flag);
        assert_member_text(row, "first", bt_start_fields[i].first);
        assert_member_text(row, "choices", bt_start_fields[i].choices);
        assert_member_text(row, "help", bt_start_fields[i].help);
    }
    has_rows(server, "start", BT_START_FIELDS);
    json_decref(server);
    bt_api_close(api);
    bt_api_close(closed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_tables_as_they_are, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_run_is_started_by_its_form_fields, bt_tmp_make,
                                        bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
