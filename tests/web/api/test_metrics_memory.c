// ctest: timeout=120 labels=web
/* /metrics, the routes and a report if memory is refused: each refused request of the program's own code gives an
 * error, and no response lacks a line. */
#include "../../memory/refuse_memory.h"
#include "../web_test.h"
#include "web/api/report.h"

typedef struct asked {
    const char *db;
    size_t lines; /* lines of a complete response */
    bool cut;     /* some lines were missing without an error */
} asked;

static bt_code ask_metrics(void *ctx, bt_err *err) {
    asked *x = ctx;
    bt_api *api = NULL;
    bt_answer a = {.status = 200};
    bt_text_init(&a.body);
    bt_code code = bt_api_open(&api, x->db, &(bt_api_allows){.control = false}, err);
    if (code == BT_OK) code = bt_api_prometheus(api, NULL, "", &a, err);
    if (code == BT_OK && a.body.failed) code = bt_fail(err, BT_NOMEM, "out of memory");
    size_t lines = 0;
    for (const char *p = bt_text_str(&a.body); (p = strchr(p, '\n')); p++) lines++;
    if (x->lines == 0) x->lines = lines;
    if (code == BT_OK && lines != x->lines) x->cut = true;
    bt_text_release(&a.body);
    bt_api_close(api);
    return code;
}

static void metrics_are_whole_or_refused(void **state) {
    const bt_tmp *t = *state;
    asked x = {.db = t->db};
    bt_web_odd_run(t->db);
    assert_true(survives_refusals("/metrics", ask_metrics, &x, true) > 20);
    assert_true(x.lines > 200);
    assert_false(x.cut);
}

typedef struct route_asked {
    const char *db, *path, *args;
    const char *run;
    size_t bytes; /* bytes of a complete response */
} route_asked;

static bt_code ask_route(void *ctx, bt_err *err) {
    enum { AGES = 64 }; /* tolerance for the digits of ages */
    route_asked *x = ctx;
    bt_api *api = NULL;
    bt_answer a;
    bt_text_init(&a.body);
    bt_code code = bt_api_open(&api, x->db, &(bt_api_allows){.control = false}, err);
    if (code == BT_OK) code = bt_web_ask(api, x->path, x->run, x->args, &a, err);
    if (code == BT_OK && a.body.failed) code = bt_fail(err, BT_NOMEM, "out of memory");
    if (code == BT_OK && x->bytes == 0) x->bytes = a.body.len;
    if (code == BT_OK && (a.body.len > x->bytes + AGES || a.body.len + AGES < x->bytes))
        code = bt_fail(err, BT_FORMAT, "%zu bytes, %zu with all memory", a.body.len, x->bytes);
    bt_text_release(&a.body);
    bt_api_close(api);
    return code;
}

static void routes_are_whole_or_refused(void **state) {
    static const struct {
        const char *path, *args;
    } words[] = {{"series", "metric=loss&metric=tokens_per_s&width=40&baseline=other"},
                 {"panel", "panel=speed"},
                 {"heatmap", "value=busy&cols=20"},
                 {"/api/v1/settings", "name=train.steps&metric=loss"},
                 {"/api/v1/compare", "runs=base,other"},
                 {"/api/v1/curves", "runs=base,other&metric=loss&width=40"}};
    const bt_tmp *t = *state;
    bt_web_runs(t->db);
    for (size_t i = 0; i < bt_routes_n; i++) {
        const bt_route *r = &bt_routes[i];
        if (strcmp(r->method, "GET") != 0 || r->guard != BT_ROUTE_TOKEN) continue;
        route_asked x = {
            .db = t->db, .path = r->path, .args = "", .run = r->per_run ? "base" : NULL};
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (strcmp(words[k].path, r->path) == 0) x.args = words[k].args;
        assert_true(survives_refusals(r->path, ask_route, &x, true) >= 2);
    }
}

static bt_code make_report(void *ctx, bt_err *err) {
    enum { AGES = 400 };
    route_asked *x = ctx;
    bt_text page;
    bt_text_init(&page);
    bt_code code = bt_report(&page, x->db, "odd", NULL, err);
    if (code == BT_OK && x->bytes == 0) x->bytes = page.len;
    if (code == BT_OK && (page.len > x->bytes + AGES || page.len + AGES < x->bytes))
        code = bt_fail(err, BT_FORMAT, "%zu bytes, %zu with all memory", page.len, x->bytes);
    bt_text_release(&page);
    return code;
}

static void a_report_is_whole_or_refused(void **state) {
    const bt_tmp *t = *state;
    route_asked x = {.db = t->db};
    bt_web_odd_run_of_state(t->db, true);
    assert_true(survives_refusals("a report", make_report, &x, true) > 20);
}

int main(void) {
    if (!refuse_memory_works()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(metrics_are_whole_or_refused, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(routes_are_whole_or_refused, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_report_is_whole_or_refused, bt_tmp_make, bt_tmp_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
