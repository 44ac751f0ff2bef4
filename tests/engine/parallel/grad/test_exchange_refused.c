/* test_exchange_refused.c - whichever request for memory fails, the creation of a gradient exchange returns one error
 * and frees everything. */
#include "tests/memory/refuse_memory.h"

#include "tests/engine/parallel/grad/exchange_ranks.h"

#include "engine/parallel/mpi/comm_internal.h"

enum { WHOLE = 6 * 16 * 2 * BUCKETS };

static const layout layouts[] = {
    {.ranks = 2, .shards = 1, .hosts = "2"},
    {.ranks = 4, .shards = 2, .hosts = "2", .units = 13},
    {.ranks = 6, .shards = 1, .hosts = "2,1,3"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static bt_code create_with_refusals(void *ctx, bt_err *e) {
    (void)ctx;
    ranks[0].x = (bt_exchange *)(void *)&shape;
    const bt_code code = create_one(0, false);
    assert_true((ranks[0].x != NULL) == (code == BT_OK));
    bt_exchange_destroy(ranks[0].x);
    ranks[0].x = NULL;
    if (code != BT_OK) *e = err;
    return code;
}

static void each_refused_request_fails_creation(void **state) {
    (void)state;
    if (!refuse_memory_works()) skip();
    for (size_t l = 0; l < LAYOUTS; l++)
        for (int encoded = 0; encoded < 2; encoded++) {
            layout one = layouts[l];
            if (encoded) one.codec = bt_codec_at(BT_CODEC_SIGN);
            memory_refused = true; /* the shared memory is refused */
            create_all(&one, WHOLE, false);
            destroy_all();
            const long refused =
                survives_refusals("an exchange", create_with_refusals, NULL, true) / 2;
            assert_true(refused > 15);
            for (long k = 0; k < refused; k++) {
                refuse_memory(&(refusal){.after = k, .own = true});
                const bt_code code = create_with_refusals(NULL, &err);
                assert_true(grant_memory());
                if (code != BT_NOMEM) fail_msg("layout %zu does without request %ld", l, k);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_refused_request_fails_creation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
