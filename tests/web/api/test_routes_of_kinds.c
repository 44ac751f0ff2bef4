// ctest: timeout=60
/* Every route returns JSON without NaN and infinity for a run of each kind. */
#include "tests/store/kinds_of_runs.h"
#include "tests/web/web_test.h"

static const char *const runs[] = {"one",      "four", "resumed",      "live", "hub",   "import-a",
                                   "import-b", "sft",  "failed-first", "dpo",  "labels"};
enum { N_RUNS = sizeof runs / sizeof *runs };

/* Returns the arguments that a route needs; NULL: not tested, because it streams, changes data or needs a query. */
static const char *arguments_of(const bt_route *r) {
    static const char *const left_out[] = {"stream", "/api/v1/control", "/api/v1/start",
                                           "/api/v1/query", "/api/v1/login"};
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strstr(r->path, left_out[i])) return NULL;
    return strcmp(r->path, "series") == 0             ? "metric=loss,val_loss,accuracy,mfu"
           : strcmp(r->path, "/api/v1/curves") == 0   ? "runs=one,hub,import-a,dpo&metric=loss"
           : strcmp(r->path, "/api/v1/compare") == 0  ? "runs=import-a,import-b"
           : strcmp(r->path, "/api/v1/settings") == 0 ? "name=data.form&metric=val_accuracy"
                                                      : "";
}

static void check_route(bt_api *api, const bt_route *r, const char *run, const char *args) {
    bt_err err = BT_ERR_INIT;
    bt_answer a;
    const bt_code code = bt_web_ask(api, r->path, run, args, &a, &err);
    if (code != BT_OK)
        fail_msg("%s of %s: %s: %s", r->path, run ? run : "all", bt_code_name(code), err.msg);
    if (a.type && strstr(a.type, "json")) {
        json_t *root = json_loads(bt_text_str(&a.body), 0, NULL);
        if (!root)
            fail_msg("%s of %s is no JSON: %.200s", r->path, run ? run : "all",
                     bt_text_str(&a.body));
        json_decref(root);
    }
    bt_text_release(&a.body);
}

static void every_route_answers_for_every_kind(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    int asked = 0;
    bt_kinds_of_runs(t->db);
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
    for (size_t i = 0; i < bt_routes_n; i++) {
        const bt_route *r = &bt_routes[i];
        const char *args = arguments_of(r);
        for (size_t k = 0; args && r->per_run && k < N_RUNS; k++, asked++)
            check_route(api, r, runs[k], args);
        if (args && !r->per_run) check_route(api, r, NULL, args), asked++;
    }
    assert_true(asked > 12 * N_RUNS);
    bt_api_close(api);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        every_route_answers_for_every_kind, bt_tmp_make, bt_tmp_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
