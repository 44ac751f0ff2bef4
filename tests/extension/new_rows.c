/* new_rows.c - a new row in a table needs no change of another file: this program is compiled with additional rows in
 * metrics.def, scopes.def and phases.def (added by tests/CMakeLists.txt) and the unchanged store, screens and
 * dashboard. The new metric, scope and phase must appear in SQL, the API, Prometheus and the screen Metrics. */
#include "../monitor/tui/tui_test.h"
#include "../web/web_test.h"
#include "engine/observe/sample.h"
#include "monitor/tui/top.h"
#include "store/record/record.h"
#include "store/write/manage.h"

enum { STEPS = 40, NEWEST_SAMPLE = 30 };

/* Records run "a": a new metric of each step, the new phase of each rank, and the new scope every tenth step. */
static void record_run(const char *path) {
    bt_writer *w = NULL;
    bt_sample caches;
    bt_fake f;
    int attempt;
    bt_run_start start = bt_fake_run("a");
    OK(bt_sample_init(&caches, BT_SCOPE_CACHE, 2, err));
    OK(bt_writer_open(&w, path, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 0; step < STEPS; step++) {
        sink->step(sink->ctx, bt_fake_step(&f, step, 3));
        for (int rank = 0; step % 10 == 0 && rank < 2; rank++) {
            const bt_key keys[] = {{.i = rank}, {.s = "L2"}};
            double *v = bt_sample_add(&caches, keys);
            v[BT_MK_MISSES] = (double)step + 1000 * rank;
        }
        bt_sample_send(&caches, sink, step);
    }
    OK(bt_writer_flush(w, err));
    bt_writer_close(w);
    bt_sample_release(&caches);
}

static void rows_are_in_sql(void **state) {
    const bt_tmp *t = *state;
    assert_true(bt_number(t->db, "SELECT spread FROM steps WHERE run = ?1 AND step = 17", "a") ==
                bt_truth(17, BT_MS_SPREAD));
    assert_true(bt_number(t->db,
                          "SELECT misses FROM caches WHERE run = ?1 AND step = 30 AND rank = 1 AND "
                          "level = 'L2'",
                          "a") == 1030);
    assert_true(bt_number(t->db, "SELECT count(*) FROM caches WHERE run = ?1 AND stall_ms IS NULL",
                          "a") == 8);
    assert_true(fabs(bt_number(t->db,
                               "SELECT ms FROM rank_phases WHERE run = ?1 AND step = 17 AND rank = "
                               "2 AND phase = 'compressing'",
                               "a") -
                     bt_rank_truth(17, 2, BT_MR_COMPRESS)) < 1e-9);
    assert_string_equal(bt_word(t->db,
                                "SELECT m.view || ' ' || m.meaning FROM metrics m, runs r WHERE "
                                "r.run = ?1 AND key = 'misses'",
                                "a"),
                        "caches lines that were not there");
}

static void rows_are_in_the_api(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    size_t i;
    json_t *x;
    int seen = 0;
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
    json_t *tables = bt_web_json(api, "/api/v1/metrics", NULL, "");
    json_array_foreach(json_object_get(tables, "scopes"), i, x)
        seen += strcmp(json_string_value(json_object_get(x, "name")), "cache") == 0;
    json_array_foreach(json_object_get(tables, "phases"), i, x)
        seen += strcmp(json_string_value(json_object_get(x, "key")), "compress_ms") == 0;
    assert_int_equal(seen, 2);
    json_decref(tables);
    json_t *panel = bt_web_json(api, "panel", "a", "panel=train");
    json_array_foreach(json_object_get(json_object_get(panel, "panel"), "metrics"), i, x) {
        const char *key = json_string_value(json_object_get(x, "key"));
        double mean = json_number_value(json_object_get(x, "mean"));
        if (strcmp(key, "spread") == 0) {
            assert_true(mean == bt_truth(STEPS - 1, BT_MS_SPREAD));
            seen++;
        } else if (strcmp(key, "misses") == 0) {
            assert_true(mean == NEWEST_SAMPLE + 500);
            assert_int_equal(json_integer_value(json_object_get(x, "step")), NEWEST_SAMPLE);
            assert_int_equal(json_integer_value(json_object_get(x, "rows")), 2);
            assert_int_equal(json_array_size(json_object_get(x, "history")), 4);
            seen++;
        }
    }
    assert_int_equal(seen, 4);
    json_decref(panel);
    json_t *series = bt_web_json(api, "series", "a", "metric=spread");
    json_decref(series);
    bt_api_close(api);
}

static void rows_are_in_prometheus(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_answer a;
    char want[200];
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
    OK(bt_web_ask(api, "/metrics", NULL, "", &a, err));
    const char *text = bt_text_str(&a.body);
    snprintf(want, sizeof want, "\nbitrain_steps_spread_nats{run=\"a\",of=\"mean\"} %.17g\n",
             bt_truth(STEPS - 1, BT_MS_SPREAD));
    if (!strstr(text, want)) fail_msg("no line %s", want);
    assert_non_null(strstr(text, "\nbitrain_caches_misses{run=\"a\",of=\"most\"} 1030\n"));
    assert_non_null(strstr(text, "phase=\"compress\""));
    bt_text_release(&a.body);
    bt_api_close(api);
}

static void rows_are_on_the_screen(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_term *term = NULL;
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    OK(bt_db_open(&db, t->db, err));
    OK(bt_term_open_text(&term, to, (bt_term_caps){BT_CHARS_ASCII, BT_DEPTH_MONO, false}, 120, 40,
                         false, err));
    bt_top_cfg cfg = {.db = db,
                      .store = t->db,
                      .run = "a",
                      .screen = bt_top_screen_by_name("metrics"),
                      .at_step = -1,
                      .baseline = ""};
    OK(bt_top_frame(&cfg, term, err));
    bt_term_close(term);
    fclose(to);
    bt_db_close(db);
    const char *spread = strstr(text, " spread "), *misses = strstr(text, " misses ");
    if (!spread || !misses) fail_msg("the screen lacks a metric:\n%s", text);
    assert_true(strncmp(misses, " misses              cache", 25) == 0);
    char most[32];
    bt_metric_format(most, sizeof most, NEWEST_SAMPLE + 1000, BT_UNIT_COUNT);
    assert_non_null(strstr(misses, most));
    free(text);
}

/* A record sent by a rank is checked and delivered unchanged. */
static int delivered;
static void take_rows(void *ctx, const bt_row_record *r) {
    (void)ctx;
    assert_int_equal(r->scope, BT_SCOPE_CACHE);
    assert_string_equal(r->keys[1].s, "L3");
    assert_true(r->values[BT_MK_STALL] == 1.5);
    delivered++;
}

static void new_rows_are_transmitted(void **state) {
    (void)state;
    const bt_key keys[] = {{.i = 5}, {.s = "L3"}};
    const double values[BT_MK_COUNT] = {[BT_MK_MISSES] = 7, [BT_MK_STALL] = 1.5};
    const bt_row_record r = {
        .scope = BT_SCOPE_CACHE, .step = 3, .n = 1, .keys = keys, .values = values};
    bt_record *sent = bt_record_rows(&r);
    assert_non_null(sent);
    assert_true(bt_record_deliver(&sent->head, sent->data, &(bt_sink){.rows = take_rows}));
    sent->head.rows = 2; /* more rows than it contains */
    assert_false(bt_record_deliver(&sent->head, sent->data, &(bt_sink){.rows = take_rows}));
    assert_int_equal(delivered, 1);
    bt_records_free(sent);
}

static int make(void **state) {
    if (bt_tmp_make(state) != 0) return -1;
    record_run(((bt_tmp *)*state)->db);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_in_sql),
                                       cmocka_unit_test(rows_are_in_the_api),
                                       cmocka_unit_test(rows_are_in_prometheus),
                                       cmocka_unit_test(rows_are_on_the_screen),
                                       cmocka_unit_test(new_rows_are_transmitted)};
    return cmocka_run_group_tests(tests, make, bt_tmp_drop);
}
