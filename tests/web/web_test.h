/* web_test.h - helpers for tests of the dashboard's responses: a store with known runs, a request, its response as
 * JSON. */
#ifndef BT_TESTS_WEB_TEST_H
#define BT_TESTS_WEB_TEST_H

#include <jansson.h>

#include "../store/store_test.h"
#include "../store/synth_run.h"
#include "web/api/api.h"

/* Records these runs. base: 4 ranks, 300 steps, rank 2 loads data slowly, failed at 200 and repeated from 180. other:
 * the same losses, no straggler. live: 60 steps, not ended. */
static inline void bt_web_runs(const char *db) {
    bt_err err = BT_ERR_INIT;
    bt_synth s = bt_synth_default("base");
    s.planned = true;
    s.straggler = 2;
    s.excess = 4;
    s.steps = 300;
    s.fail_at = 200;
    s.resume_from = 180;
    s.down_s = 4;
    assert_int_equal(bt_synth_make(db, &s, &err), BT_OK);
    s = bt_synth_default("other");
    s.slow = 0.9;
    assert_int_equal(bt_synth_make(db, &s, &err), BT_OK);
    s = bt_synth_default("live");
    s.steps = 60;
    s.live = true;
    assert_int_equal(bt_synth_make(db, &s, &err), BT_OK);
}

/* Records the run odd: one step, and a tensor with an unusual name. Figures of a run that has not ended change with its
 * age: after some seconds without a record it is stalled. */
static inline void bt_web_odd_run_of_state(const char *db, bool ended) {
    static const double values[BT_ML_COUNT] = {[BT_ML_ZERO] = 0.25};
    bt_writer *w = NULL;
    bt_fake f;
    int attempt;
    bt_run_start s = bt_fake_run("odd");
    s.host = "nodes";
    OK(bt_writer_open(&w, db, 10, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    sink->step(sink->ctx, bt_fake_step(&f, 0, 2));
    sink->rows(sink->ctx,
               &(bt_row_record){.scope = BT_SCOPE_LAYER,
                                .n = 1,
                                .keys = (const bt_key[]){{.i = 0}, {.s = "W.1 \"a\\b\""}},
                                .values = values});
    OK(ended ? bt_writer_end(w, "done", "finished", 0, err) : bt_writer_flush(w, err));
    bt_writer_close(w);
}

static inline void bt_web_odd_run(const char *db) { bt_web_odd_run_of_state(db, false); }

/* Returns the response of a route ("series" of a run, or "/api/v1/runs"); args are like "metric=loss&x=tokens", without
 * escapes. The caller frees the JSON. */
static inline bt_code bt_web_ask(bt_api *api, const char *route, const char *run, const char *args,
                                 bt_answer *a, bt_err *err) {
    bt_req *r = calloc(1, sizeof *r);
    char copy[8192], *next = copy;
    if (!r) return bt_fail(err, BT_NOMEM, "no memory for the test's own request");
    snprintf(copy, sizeof copy, "%s", args);
    for (char *word; (word = strsep(&next, "&")) && *word;) {
        char *eq = strchr(word, '=');
        if (eq) *eq++ = '\0';
        bt_req_add_arg(r, word, eq);
    }
    const bt_route *found = NULL;
    for (size_t i = 0; i < bt_routes_n; i++)
        if (strcmp(bt_routes[i].path, route) == 0 && bt_routes[i].per_run == (run != NULL))
            found = &bt_routes[i];
    assert_non_null(found);
    *a = (bt_answer){.status = 200, .type = "application/json"};
    bt_text_init(&a->body);
    bt_code code = found->fn(api, r, run ? run : "", a, err);
    free(r);
    return code;
}

static inline json_t *bt_web_json(bt_api *api, const char *route, const char *run,
                                  const char *args) {
    bt_err err = BT_ERR_INIT;
    bt_answer a;
    json_error_t why;
    if (bt_web_ask(api, route, run, args, &a, &err) != BT_OK)
        fail_msg("%s?%s: %s", route, args, err.msg);
    json_t *j = json_loads(bt_text_str(&a.body), JSON_REJECT_DUPLICATES, &why);
    if (!j) fail_msg("%s?%s is no JSON: %s", route, args, why.text);
    bt_text_release(&a.body);
    return j;
}

#endif
