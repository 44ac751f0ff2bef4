// ctest: labels=web
/* POST requests of a page: annotations of a run, starts of runs, comparison of settings; each with its complete
 * response or the reason of its refusal. Also the cache of responses. */
#include "../../store/wire/answering.h"
#include "../web_test.h"

#include "engine/base/clock.h"
#include "web/api/cache.h"

typedef struct desk {
    char said[1024]; /* arguments with which the program was started */
    bt_code answers;
} desk;

static bt_code on_remove(void *ctx, const char *run, bool checkpoints, char *reply, size_t size,
                         bt_err *err) {
    desk *d = ctx;
    (void)err;
    snprintf(d->said, sizeof d->said, "remove %s%s", run,
             checkpoints ? " and its checkpoints" : "");
    snprintf(reply, size, "gone");
    return BT_OK;
}

static bt_code on_resume(void *ctx, const char *run, bt_err *err) {
    desk *d = ctx;
    snprintf(d->said, sizeof d->said, "resume %s", run);
    return d->answers == BT_OK ? BT_OK : bt_fail(err, d->answers, "no room");
}

static bt_code on_start(void *ctx, int n, const char *const *words, char name[BT_NAME_MAX],
                        bt_err *err) {
    desk *d = ctx;
    snprintf(d->said, sizeof d->said, "start '%s'", name);
    for (int i = 0; i < n; i++)
        snprintf(d->said + strlen(d->said), sizeof d->said - strlen(d->said), " %s", words[i]);
    if (!name[0]) strcpy(name, "made_up");
    return d->answers == BT_OK ? BT_OK : bt_fail(err, d->answers, "no room");
}

static bt_api *api;
static desk asked;

static void open_api(const bt_tmp *t, bool able) {
    bt_api_allows allows = {.control = true, .resume_ctx = &asked};
    if (able) {
        allows.resume = on_resume;
        allows.remove = on_remove;
        allows.start = on_start;
    }
    OK(bt_api_open(&api, t->db, &allows, err));
}

/* Returns the response of a route to a body; for a refusal its code and message. */
static bt_code post_from_page(const char *path, const char *body, char *out, size_t size) {
    static bt_req r;
    bt_answer a = {.status = 200, .type = "application/json"};
    bt_err why = BT_ERR_INIT;
    char run[BT_NAME_MAX];
    bool known;
    memset(&r, 0, sizeof r);
    r.method = "POST";
    r.path = path;
    r.body = body;
    asked.said[0] = '\0';
    const bt_route *route = bt_route_find(&r, run, &known);
    assert_non_null(route);
    bt_text_init(&a.body);
    const bt_code code = route->fn(api, &r, "", &a, &why);
    snprintf(out, size, "%s", code == BT_OK ? bt_text_str(&a.body) : why.msg);
    bt_text_release(&a.body);
    return code;
}

typedef struct row {
    const char *body;
    bt_code code;
    const char *says, *asks; /* expected reply, and expected arguments of the program that runs */
} row;

static void check_answers(const char *path, const row *rows, size_t n) {
    char got[4096];
    for (size_t i = 0; i < n; i++) {
        const bt_code code = post_from_page(path, rows[i].body, got, sizeof got);
        if (code != rows[i].code)
            fail_msg("%s: %d, %s", rows[i].body ? rows[i].body : "", (int)code, got);
        if (rows[i].says)
            assert_string_equal(got, rows[i].says);
        else
            assert_true(got[0] != '\0');
        assert_string_equal(asked.said, rows[i].asks ? rows[i].asks : "");
    }
}
#define ANSWERS(path, rows) check_answers(path, rows, sizeof rows / sizeof *rows)
#define SAID(text) "{\"ok\":true,\"reply\":\"" text "\"}"
#define BASE(verb, more) "{\"run\":\"base\",\"verb\":\"" verb "\"" more "}"
#define VALUE(text) ",\"value\":\"" text "\""

static void annotations_of_a_run(void **state) {
    static const row rows[] = {
        {BASE("tag", VALUE("paper draft")), BT_OK, SAID("tags of base: paper draft"), NULL},
        {BASE("tag", VALUE("-draft, +final ,")), BT_OK, SAID("tags of base: paper final"), NULL},
        {BASE("tag", VALUE("-paper -final")), BT_OK, SAID("base has no tags"), NULL},
        {BASE("tag", VALUE("a b c d e f g h i j k l m n o p")), BT_OK,
         SAID("tags of base: a b c d e f g h i j k l m n o p"), NULL},
        {BASE("tag", VALUE("a b c d e f g h i j k l m n o p q")), BT_ARG, "at most 16 tags at once",
         NULL},
        {BASE("note", VALUE("no warm-up")), BT_OK, SAID("base: noted"), NULL},
        {BASE("note", ""), BT_OK, SAID("base has no note"), NULL},
        {BASE("annotate", VALUE("here") ",\"step\":41"), BT_OK, SAID("noted at step 42"), NULL},
        {BASE("annotate", VALUE("here") ",\"step\":0"), BT_OK, SAID("noted at step 1"), NULL},
        {BASE("annotate", VALUE("here") ",\"step\":-3"), BT_OK, SAID("noted at this moment"), NULL},
        {BASE("annotate", VALUE("here") ",\"step\":\"4\""), BT_OK, SAID("noted at this moment"),
         NULL},
        {BASE("annotate", VALUE("here")), BT_OK, SAID("noted at this moment"), NULL},
        {BASE("annotate", ""), BT_ARG, "'value' is missing: the words of the note", NULL},
        {BASE("acknowledge", ""), BT_OK, SAID("warnings and errors of base are marked as seen"),
         NULL},
        {BASE("remove", VALUE("all")), BT_ARG,
         "'value' must be 'records' or 'records and checkpoints'", NULL},
        {BASE("remove", VALUE("records")), BT_OK, SAID("gone"), "remove base"},
        {BASE("remove", VALUE("records and checkpoints")), BT_OK, SAID("gone"),
         "remove base and its checkpoints"},
        {BASE("rename", VALUE("second")), BT_OK, SAID("base is second now"), NULL},
        {BASE("note", VALUE("x")), BT_NOTFOUND, NULL, NULL},
    };
    const bt_tmp *t = *state;
    double n;
    bt_web_runs(t->db);
    open_api(t, true);
    ANSWERS("/api/v1/control", rows);
    bt_db *db = bt_api_db(api, &(bt_err)BT_ERR_INIT);
    OK(bt_db_value(db, "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'annotation'",
                   "second", &n, err));
    assert_true(n == 5);
    OK(bt_db_value(
        db, "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'annotation' AND step = 41",
        "second", &n, err));
    assert_true(n == 1);
    OK(bt_db_value(db,
                   "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'acknowledged' AND "
                   "coalesce(step, -1) = -1",
                   "second", &n, err));
    assert_true(n == 1);
    bt_api_close(api);
    static const row unable[] = {
        {"{\"run\":\"other\",\"verb\":\"remove\",\"value\":\"records\"}", BT_UNSUPPORTED,
         "this server removes nothing: use 'bitrain runs rm other'", NULL}};
    open_api(t, false);
    ANSWERS("/api/v1/control", unable);
    bt_api_close(api);
}

#define OF(run, verb, more) "{\"run\":\"" run "\",\"verb\":\"" verb "\"" more "}"

/* The supervisor receives a request to a live run, and the page receives the response. */
static void requests_reach_a_live_run(void **state) {
    static const struct {
        const char *body, *asks, *script;
        bt_code code;
        const char *says;
    } rows[] = {
        {OF("live", "checkpoint", ""), "checkpoint #dashboard\n", "ok taken\n", BT_OK,
         SAID("taken")},
        {OF("live", "pause", VALUE("")), "pause  #dashboard\n", "ok\n", BT_OK, SAID("")},
        {OF("live", "resume", ""), "resume #dashboard\n", "ok \"a\"\n", BT_OK, SAID("\\\"a\\\"")},
        {OF("live", "set", VALUE("lr=2e-4")), "set lr=2e-4 #dashboard\n", "ok set\n", BT_OK,
         SAID("set")},
        {OF("live", "sample", VALUE("Once\\n#a %")), "sample Once%0A%23a%20%25 #dashboard\n",
         "ok asked\n", BT_OK, SAID("asked")},
        {OF("live", "stop", ""), "stop #dashboard\n", "no 7 not now\n", (bt_code)7, "not now"},
    };
    const bt_tmp *t = *state;
    char path[100], file[100], sql[200], got[400];
    bt_web_runs(t->db);
    snprintf(sql, sizeof sql, "UPDATE run SET out_dir = '%s'", t->dir);
    run_sql(t->db, sql);
    snprintf(path, sizeof path, "%s/sock", t->dir);
    snprintf(file, sizeof file, "%s/control", t->dir);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fprintf(f, "%s\n", path);
    fclose(f);
    open_api(t, true);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        answering a;
        answering_begin(&a, path, rows[i].script);
        const bt_code code = post_from_page("/api/v1/control", rows[i].body, got, sizeof got);
        answering_end(&a, path);
        assert_string_equal(a.asked, rows[i].asks);
        assert_string_equal(got, rows[i].says);
        assert_int_equal(code, rows[i].code);
        assert_string_equal(asked.said, "");
    }
    bt_api_close(api);
}

/* A run that ended on this host has no supervisor: the server restarts it, if it is permitted. */
static void an_ended_run_is_restarted(void **state) {
    static const row able[] = {{BASE("resume", ""), BT_OK, SAID("base is started again"),
                                "resume base"},
                               {BASE("checkpoint", ""), BT_BUSY, NULL, NULL},
                               {BASE("stop", ""), BT_BUSY, NULL, NULL}},
                     busy[] = {{BASE("resume", ""), BT_BUSY, "no room", "resume base"}},
                     none[] = {{OF("nobody", "resume", ""), BT_NOTFOUND,
                                "no run 'nobody' (`bitrain runs` lists them)", NULL},
                               {OF("other", "resume", ""), BT_BUSY, NULL,
                                NULL}, /* all steps are done */
                               {OF("live", "resume", ""), BT_BUSY, NULL, NULL}};
    const bt_tmp *t = *state;
    char here[BT_HOST_MAX] = "", sql[300], says[300];
    gethostname(here, sizeof here - 1);
    bt_web_runs(t->db);
    snprintf(sql, sizeof sql,
             "UPDATE run SET state = 'failed', exit_kind = 'signal', exit_code = 137, host = '%s' "
             "WHERE name = 'base'",
             here);
    run_sql(t->db, sql);
    open_api(t, true);
    ANSWERS("/api/v1/control", able);
    ANSWERS("/api/v1/control", none);
    asked.answers = BT_BUSY;
    ANSWERS("/api/v1/control", busy);
    asked.answers = BT_OK;
    bt_api_close(api);
    open_api(t, false);
    snprintf(says, sizeof says,
             "this server starts no runs: use 'bitrain train --resume base --store %s'", t->db);
    const row unable[] = {{BASE("resume", ""), BT_UNSUPPORTED, says, NULL}};
    ANSWERS("/api/v1/control", unable);
    bt_api_close(api);
    run_sql(t->db, "UPDATE run SET host = 'far' WHERE name = 'base'");
    open_api(t, true);
    static const row away[] = {{BASE("resume", ""), BT_BUSY, NULL, NULL}};
    ANSWERS("/api/v1/control", away);
    bt_api_close(api);
}

/* Before the first run there is no database. */
static void a_missing_store(void **state) {
    char got[400];
    const bt_tmp *t = *state;
    open_api(t, true);
    assert_int_equal(post_from_page("/api/v1/control", BASE("stop", ""), got, sizeof got),
                     BT_NOTFOUND);
    assert_non_null(strstr(got, t->db));
    bt_api_close(api);
}

static void invalid_requests_are_refused(void **state) {
#define ONE_OF \
    "'verb' must be one of pause, resume, checkpoint, stop, eval, sample, mixture, set, resize, " \
    "status, tag, note, " \
    "rename, annotate, acknowledge, remove"
    static char longest[2200], longer[2200];
    const row rows[] = {
        {NULL, BT_ARG, NULL, NULL},
        {"[1", BT_ARG, NULL, NULL},
        {"{\"run\":\"base\",\"run\":\"other\",\"verb\":\"stop\"}", BT_ARG, NULL, NULL},
        {"{\"verb\":\"stop\"}", BT_ARG, "'run' must be a run's name", NULL},
        {"{\"run\":7,\"verb\":\"stop\"}", BT_ARG, "'run' must be a run's name", NULL},
        {"{\"run\":\"../x\",\"verb\":\"stop\"}", BT_ARG, "'run' must be a run's name", NULL},
        {"{\"run\":\"base\"}", BT_ARG, ONE_OF, NULL},
        {BASE("halt", ""), BT_ARG, ONE_OF, NULL},
        {BASE("0123456789012345678901234567890", ""), BT_ARG, ONE_OF, NULL},
        {BASE("01234567890123456789012345678901", ""), BT_ARG, ONE_OF, NULL},
        {BASE("set", ""), BT_ARG, "'value' is missing: KEY=VALUE", NULL},
        {BASE("set", VALUE("lr=1#x")), BT_ARG, "'value' of 'set' has no '#'", NULL},
        {BASE("set", VALUE("lr=1\\nx")), BT_ARG, "'value' must be one line", NULL},
        {BASE("note", VALUE("a\\rb")), BT_ARG, "'value' must be one line", NULL},
        {longest, BT_OK, SAID("base: noted"), NULL},
        {longer, BT_ARG, NULL, NULL},
        {"{\"run\":\"nobody\",\"verb\":\"note\",\"value\":\"x\"}", BT_NOTFOUND, NULL, NULL},
        {BASE("stop", ""), BT_BUSY, NULL, NULL}, /* The run has ended. */
    };
    const bt_tmp *t = *state;
    snprintf(longest, sizeof longest, "{\"run\":\"base\",\"verb\":\"note\",\"value\":\"%0*d\"}",
             BT_PROMPT_MAX, 0);
    snprintf(longer, sizeof longer, "{\"run\":\"base\",\"verb\":\"note\",\"value\":\"%0*d\"}",
             BT_PROMPT_MAX + 1, 0);
    bt_web_runs(t->db);
    open_api(t, true);
    ANSWERS("/api/v1/control", rows);
    bt_api_close(api);
}

static void starts_of_runs(void **state) {
#define STARTING(name) "{\"ok\":true,\"run\":\"" name "\",\"reply\":\"run " name " is starting\"}"
    static char longest[700], longer[700], asks[700];
    const row rows[] = {
        {"{}", BT_OK, STARTING("made_up"), "start ''"},
        {"{\"name\":\"demo\",\"settings\":{}}", BT_OK, STARTING("demo"), "start 'demo'"},
        {"{\"name\":\"demo\",\"settings\":{\"steps\":\"10\",\"preset\":\"small\",\"lr\":\"\"}}",
         BT_OK, STARTING("demo"), "start 'demo' --preset small --steps 10"},
        {"[]", BT_ARG, NULL, NULL},
        {"", BT_ARG, NULL, NULL},
        {NULL, BT_ARG, NULL, NULL},
        {"{\"name\":\"up!\"}", BT_ARG, NULL, NULL},
        {"{\"name\":7}", BT_ARG, NULL, NULL},
        {"{\"settings\":[]}", BT_ARG, "'settings' must be an object of texts", NULL},
        {"{\"settings\":{\"hosts\":\"h\"}}", BT_ARG,
         "'hosts' is no field of the form that starts a run", NULL},
        {"{\"settings\":{\"steps\":10}}", BT_ARG, "'steps' must be a text", NULL},
        {"{\"settings\":{\"steps\":\"-1\"}}", BT_ARG,
         "'steps' must be one line that does not begin with '-'", NULL},
        {"{\"settings\":{\"data\":\"a\\nb\"}}", BT_ARG,
         "'data' must be one line that does not begin with '-'", NULL},
        {"{\"settings\":{\"preset\":\"nan\"}}", BT_ARG,
         "'preset' must be one of nano|small|base|bitnet-2b4t|qwen3-0.6b", NULL},
        {"{\"settings\":{\"preset\":\"nano|small\"}}", BT_ARG,
         "'preset' must be one of nano|small|base|bitnet-2b4t|qwen3-0.6b", NULL},
        {"{\"settings\":{\"preset\":\"qwen3-0.6b\"}}", BT_OK, STARTING("made_up"),
         "start '' --preset qwen3-0.6b"},
        {longest, BT_OK, STARTING("made_up"), asks},
        {longer, BT_ARG, "'data' has 513 bytes, at most 512 are possible", NULL},
    };
    const bt_tmp *t = *state;
    snprintf(longest, sizeof longest, "{\"settings\":{\"data\":\"%0512d\"}}", 0);
    snprintf(longer, sizeof longer, "{\"settings\":{\"data\":\"%0513d\"}}", 0);
    snprintf(asks, sizeof asks, "start '' --data %0512d", 0);
    open_api(t, true);
    ANSWERS("/api/v1/start", rows);
    asked.answers = BT_BUSY;
    static const row busy[] = {{"{\"name\":\"demo\"}", BT_BUSY, "no room", "start 'demo'"}};
    ANSWERS("/api/v1/start", busy);
    asked.answers = BT_OK;
    bt_api_close(api);
    open_api(t, false);
    static const row unable[] = {
        {"{}", BT_UNSUPPORTED, "this server starts no runs: use 'bitrain train'", NULL}};
    ANSWERS("/api/v1/start", unable);
    bt_api_close(api);
}

static const char *find_cached(bt_cache *c, const bt_req *r, int64_t version, int64_t now_ns) {
    const bt_answer *a = bt_cache_find(c, r, version, now_ns);
    if (!a) return "";
    assert_int_equal(a->status, 200);
    assert_string_equal(a->type, "text/x");
    return bt_text_str(&a->body);
}

static void store_cached_answer(bt_cache *c, const bt_req *r, int64_t version, int64_t now_ns,
                                int status, const char *text, size_t n) {
    bt_answer a = {.status = status, .type = "text/x"};
    bt_text_init(&a.body);
    bt_text_putn(&a.body, text, n);
    bt_cache_keep(c, r, version, now_ns, &a);
    bt_text_release(&a.body);
}

static bt_req request_of(const char *path, const char *key, const char *value) {
    bt_req r = {.path = path};
    if (key) bt_req_add_arg(&r, key, value);
    return r;
}

static void responses_are_cached_for_a_limited_time(void **state) {
    (void)state;
    bt_cache *c = bt_cache_open();
    const bt_req r = request_of("/a", "x", "1");
    assert_string_equal(find_cached(c, &r, 0, 1), "");
    store_cached_answer(c, &r, 7, 1000, 200, "one", 3);
    assert_string_equal(find_cached(c, &r, 7, 1000), "one");
    assert_string_equal(find_cached(c, &r, 7, 1000 + BT_CACHE_NS - 1), "one");
    assert_string_equal(find_cached(c, &r, 7, 1000 + BT_CACHE_NS), ""); /* too old */
    assert_string_equal(find_cached(c, &r, 8, 1000), ""); /* for another version of the store */
    const bt_req others[] = {request_of("/b", "x", "1"), request_of("/a", "y", "1"),
                             request_of("/a", "x", "2"), request_of("/a", "x1", ""),
                             request_of("/a", NULL, NULL)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_string_equal(find_cached(c, &others[i], 7, 1000), "");
    bt_req two = request_of("/a", "x", "1\n1 1 y2"), one = request_of("/a", "x", "1");
    bt_req_add_arg(&one, "y", "2"); /* A value cannot imitate a separator. */
    store_cached_answer(c, &two, 7, 1000, 200, "two", 3);
    assert_string_equal(find_cached(c, &one, 7, 1000), "");
    /* Errors and responses that are too long are not cached. */
    store_cached_answer(c, &one, 7, 1000, 404, "no", 2);
    static char body[BT_CACHE_BYTES + 1];
    memset(body, 'b', sizeof body);
    store_cached_answer(c, &one, 7, 1000, 200, body, BT_CACHE_BYTES + 1);
    assert_string_equal(find_cached(c, &one, 7, 1000), "");
    store_cached_answer(c, &one, 7, 1000, 200, body, BT_CACHE_BYTES);
    assert_int_equal(strlen(find_cached(c, &one, 7, 1000)), BT_CACHE_BYTES);
    bt_cache_close(c);
    assert_null(bt_cache_find(NULL, &r, 7, 1000)); /* Nothing is cached if memory is refused. */
    store_cached_answer(NULL, &r, 7, 1000, 200, "x", 1);
    bt_cache_close(NULL);
}

static void the_oldest_response_is_replaced(void **state) {
    (void)state;
    bt_cache *c = bt_cache_open();
    char path[BT_CACHE_ANSWERS + 1][16];
    for (int i = 0; i <= BT_CACHE_ANSWERS; i++) {
        snprintf(path[i], sizeof path[i], "/%d", i);
        const bt_req r = request_of(path[i], NULL, NULL), first = request_of("/0", NULL, NULL);
        store_cached_answer(c, &r, 1, 5, 200, path[i], strlen(path[i]));
        assert_string_equal(find_cached(c, &first, 1, 5), i < BT_CACHE_ANSWERS ? "/0" : "");
    }
    for (int i = 1; i <= BT_CACHE_ANSWERS; i++) {
        const bt_req r = request_of(path[i], NULL, NULL);
        assert_string_equal(find_cached(c, &r, 1, 5), path[i]);
    }
    bt_cache_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(annotations_of_a_run, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(requests_reach_a_live_run, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(an_ended_run_is_restarted, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_missing_store, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(invalid_requests_are_refused, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(starts_of_runs, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test(responses_are_cached_for_a_limited_time),
        cmocka_unit_test(the_oldest_response_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
