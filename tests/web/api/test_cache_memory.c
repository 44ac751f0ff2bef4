// ctest: labels=web
/* Cached responses if memory is refused: no response is stored under an incomplete key, and later requests are cached
 * as usual. */
#include "../../memory/refuse_memory.h"
#include "web/api/cache.h"

static bt_answer answer_of(size_t n) {
    bt_answer a = {.status = 200, .type = "text/x"};
    bt_text_init(&a.body);
    for (size_t i = 0; i < n; i++) bt_text_put(&a.body, "x");
    return a;
}

/* Refuses memory request number k during an insertion or a search; returns false if there is no such request. */
static bool refused_once(bool finding, long k) {
    enum { LONG = 3000 };
    static char path[LONG + 1], half[LONG / 2 + 1];
    memset(path, 'p', LONG);
    memset(half, 'p', LONG / 2);
    const bt_req r = {.path = path}, shorter = {.path = half}, none = {.path = ""};
    bt_cache *c = bt_cache_open();
    bt_answer a = answer_of(2000);
    assert_non_null(c);
    if (finding) bt_cache_keep(c, &r, 1, 5, &a);
    refuse_memory(&(refusal){.after = k});
    if (finding)
        assert_true(bt_cache_find(c, &r, 1, 5) == NULL || k > 0);
    else
        bt_cache_keep(c, &r, 1, 5, &a);
    const bool any = grant_memory();
    if (any && !finding) {
        assert_null(bt_cache_find(c, &r, 1, 5));
        assert_null(bt_cache_find(c, &shorter, 1, 5));
        assert_null(bt_cache_find(c, &none, 1, 5));
    }
    for (int i = 0; i < BT_CACHE_ANSWERS; i++)
        bt_cache_keep(c, &r, 2, 5, &a); /* uses each slot once */
    assert_int_equal(bt_cache_find(c, &r, 2, 5)->body.len, 2000);
    const bt_answer other = {.status = 200, .type = "text/x"};
    for (int i = 0; i < BT_CACHE_ANSWERS; i++) { /* no slot is lost */
        assert_non_null(bt_cache_find(c, &r, 2, 5));
        bt_cache_keep(c, &shorter, 2, 5, &other);
    }
    assert_null(bt_cache_find(c, &r, 2, 5));
    bt_cache_close(c);
    bt_text_release(&a.body);
    return any;
}

static void refused_memory_stores_no_response(void **state) {
    (void)state;
    for (int finding = 0; finding < 2; finding++) {
        long k = 0;
        while (refused_once(finding, k)) k++;
        assert_true(k >= 1);
    }
}

int main(void) {
    if (!refuse_memory_works()) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_memory_stores_no_response)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
