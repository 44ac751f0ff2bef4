/* timeout: 60
 * labels: web
 * The answers of routes about runs of known truth, held against files that a person can read, in golden
 * (BT_UPDATE=1 writes them anew). What a route takes from the view alone is held by store.view_answers. */
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
     "name=optim.lr&metric=val_loss&name=train.steps&metric=loss"},
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
    {"runs", "/api/v1/runs", NULL, "limit=2"},
    {"query", "/api/v1/query", NULL,
     "sql=SELECT run, steps, NULL AS n, 1.5 AS x FROM runs ORDER BY run"},
    {"server", "/api/v1/server", NULL, ""},
};

static void answers_of_routes(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_web_runs(t->db);
    run_sql(t->db, "UPDATE run SET state = 'done', ended_us = last_us WHERE name = 'live'");
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers_of_routes, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
