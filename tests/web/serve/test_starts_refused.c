// ctest: labels=web
/* Servers that are refused memory, files or threads one by one while they start: they return an error and leak no
 * socket, thread or memory. */
#include "tests/memory/refuse_memory.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "web/api/cache.h"
#include "web/http/links.h"
#include "web/serve/serve.h"
#include "web/web.h"

static char dir[64], store[96];
static atomic_int threads = INT_MAX; /* number of threads that may be created */

/* Replaces the function of the C library. */
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *ctx) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return atomic_fetch_sub(&threads, 1) > 0 ? create(t, a, run, ctx) : EAGAIN;
}

static int entries_of(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void accept_nothing(void *ctx, bt_reply *r, const char *method, const char *path,
                           const char *body, size_t n) {
    (void)ctx, (void)method, (void)path, (void)body, (void)n;
    bt_reply_end(r);
}
static void ignore_gone_client(void *ctx, void *work) { (void)ctx, (void)work; }

static bt_code start_and_stop_serve(bt_err *err) {
    bt_serve *s = NULL;
    const bt_serve_cfg cfg = {.host = "127.0.0.1",
                              .max_replies = 1,
                              .source = {NULL, accept_nothing, ignore_gone_client}};
    const bt_code code = bt_serve_start(&s, &cfg, err);
    assert_true((s != NULL) == (code == BT_OK));
    bt_serve_stop(s);
    return code;
}

static bt_code start_and_stop_web(bt_err *err) {
    bt_web *w = NULL;
    const bt_web_cfg cfg = {.store = store, .host = "127.0.0.1", .socket = ""};
    const bt_code code = bt_web_start(&w, &cfg, err);
    assert_true((w != NULL) == (code == BT_OK));
    bt_web_stop(w);
    return code;
}

typedef struct kept {
    int files, threads;
    long blocks;
} kept;

static kept start_now(void) {
    return (kept){entries_of("/proc/self/fd"), entries_of("/proc/self/task"), memory_blocks(false)};
}

static void check_same_counts(const char *what, long k, const kept *before, bt_code code,
                              const bt_err *err) {
    const kept after = start_now();
    if (after.files == before->files && after.threads == before->threads &&
        after.blocks == before->blocks && (code == BT_OK || (err->code == code && err->msg[0])))
        return;
    tell_refused();
    fail_msg("%s, refusal %ld: '%s', %d files, %d threads, %ld blocks are left", what, k, err->msg,
             after.files - before->files, after.threads - before->threads,
             after.blocks - before->blocks);
}

/* Refuses only requests of our own code, because libmicrohttpd leaks a descriptor after its own failures. */
static void assert_start_refused(const char *what, bt_code (*start)(bt_err *err)) {
    bt_err err = BT_ERR_INIT;
    struct rlimit given, limit;
    if (!refuse_memory_works()) skip();
    for (int i = 0; i < 2; i++) /* memory kept by libraries */
        if (start(&err) != BT_OK) fail_msg("%s: %s", what, err.msg);
    int failed = 0;
    for (long k = 0;; k++) {
        const kept before = start_now();
        err = (bt_err)BT_ERR_INIT;
        refuse_memory(&(refusal){.after = k, .own = true});
        const bt_code code = start(&err);
        const bool any = grant_memory();
        check_same_counts(what, k, &before, code, &err);
        failed += code == BT_NOMEM;
        if (!any) break;
    }
    assert_true(failed > 0);
    failed = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &given), 0);
    for (int more = 0; more < 3; more++) {
        const kept before = start_now();
        err = (bt_err)BT_ERR_INIT;
        const int next = dup(0);
        close(next);
        limit = (struct rlimit){(rlim_t)(next + more), given.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        const bt_code code = start(&err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &given), 0);
        check_same_counts(what, more, &before, code, &err);
        failed += code == BT_IO;
    }
    assert_int_equal(failed, 3);
    for (int more = 0; more < 3; more++) { /* refuses libmicrohttpd's thread, our own, then none */
        const kept before = start_now();
        err = (bt_err)BT_ERR_INIT;
        atomic_store(&threads, more);
        const bt_code code = start(&err);
        atomic_store(&threads, INT_MAX);
        check_same_counts(what, more, &before, code, &err);
        assert_int_equal(code, more == 0 ? BT_IO : more == 1 ? BT_NOMEM : BT_OK);
    }
}

/* A key may contain any character except those that would end or change a header, a cookie or a quoted text. */
static void invalid_tokens_are_refused(void **state) {
    (void)state;
    char token[] = "0123456789abcdef0123456789abcde?";
    bt_serve_cfg cfg = {.host = "127.0.0.1",
                        .max_replies = 1,
                        .token = token,
                        .source = {NULL, accept_nothing, ignore_gone_client}};
    for (int c = 1; c < 256; c++) {
        bt_serve *s = NULL;
        bt_err err = BT_ERR_INIT;
        token[sizeof token - 2] = (char)c;
        const bool good = c > ' ' && c < 127 && !strchr("\"',;\\", c);
        const bt_code code = bt_serve_start(&s, &cfg, &err);
        bt_serve_stop(s);
        if (code != (good ? BT_OK : BT_ARG)) fail_msg("'%s': %s", token, err.msg);
    }
}

/* Before any thread is created the first error is returned, and no socket is opened. */
static void bad_starts_of_the_dashboard(void **state) {
    bt_web *w = NULL, *other = NULL;
    char want[100];
    bt_err err = BT_ERR_INIT;
    bt_web_cfg cfg = {.store = store, .host = "127.0.0.1", .socket = ""};
    (void)state;
    assert_int_equal(bt_web_start(&w, &cfg, &err), BT_OK);
    const kept before = start_now();
    atomic_store(&threads, 0);
    cfg.port = bt_web_port(w);
    assert_int_equal(bt_web_start(&other, &cfg, &err), BT_BUSY);
    snprintf(want, sizeof want, "port %d of 127.0.0.1 is in use by ", cfg.port);
    assert_int_equal(strncmp(err.msg, want, strlen(want)), 0);
    cfg.port = 0;
    cfg.token = "short";
    assert_int_equal(bt_web_start(&other, &cfg, &err), BT_ARG);
    assert_string_equal(err.msg, "the token must be 32 hex digits");
    atomic_store(&threads, INT_MAX);
    assert_null(other);
    const kept after = start_now();
    assert_int_equal(after.files, before.files);
    bt_web_stop(w);
}

static void the_server_of_a_model(void **state) {
    (void)state;
    assert_start_refused("serve", start_and_stop_serve);
}

/* A request whose arguments do not fit in memory is not confused with a shorter cached one. */
static void a_request_without_memory(void **state) {
    (void)state;
    static bt_req shorter = {.path = "/a"}, longer = {.path = "/a"};
    char value[BT_REQ_VALUE];
    bt_cache *c = bt_cache_open();
    bt_answer a = {.status = 200, .type = "text/x"};
    if (!refuse_memory_works()) skip();
    memset(value, 'v', sizeof value);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < 3; i++) bt_req_add_arg(&longer, "x", value);
    bt_text_init(&a.body);
    bt_text_put(&a.body, "one");
    bt_cache_keep(c, &shorter, 1, 5, &a);
    assert_non_null(bt_cache_find(c, &shorter, 1, 5));
    refuse_memory(&(refusal){.all = true});
    const bt_answer *found = bt_cache_find(c, &longer, 1, 5);
    assert_true(grant_memory());
    assert_null(found);
    bt_text_release(&a.body);
    bt_cache_close(c);
}

/* A connection without memory for its entry is not in the list and is not served. */
static void a_connection_without_memory(void **state) {
    (void)state;
    bt_links l;
    if (!refuse_memory_works()) skip();
    bt_links_init(&l);
    refuse_memory(&(refusal){.all = true});
    bt_link *k = bt_links_add(&l, 7);
    assert_true(grant_memory());
    assert_null(k);
    bt_links_begin(&l, k);
    bt_links_end(&l, k);
    bt_links_exempt(&l, k);
    bt_links_remove(&l, k);
    assert_true(l.n == 0 && !l.first);
    bt_links_release(&l);
}

static void the_dashboard(void **state) {
    (void)state;
    assert_start_refused("dash", start_and_stop_web);
}

int main(void) {
    char cmd[96];
    strcpy(dir, "/tmp/bt_start_XXXXXX");
    if (!mkdtemp(dir)) return 1;
    snprintf(store, sizeof store, "%s/m.db", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_of_a_model),
        cmocka_unit_test(invalid_tokens_are_refused),
        cmocka_unit_test(the_dashboard),
        cmocka_unit_test(bad_starts_of_the_dashboard),
        cmocka_unit_test(a_request_without_memory),
        cmocka_unit_test(a_connection_without_memory),
    };
    alarm(60); /* a test that hangs is ended */
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return failed + system(cmd);
}
