/* labels: web
 * /metrics without memory: where a request of the program's own code is refused, it is said, and no answer lacks a
 * line. */
#include "../../memory/refuse_memory.h"
#include "../web_test.h"

typedef struct asked {
    const char *db;
    size_t lines; /* of an answer that is whole */
    bool cut;     /* one lacked some of them and did not say so */
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

int main(void) {
    if (!refuse_memory_works()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(metrics_are_whole_or_refused, bt_tmp_make, bt_tmp_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
