// ctest: ranks=2
/* An island of several ranks reports the steps of all its ranks to the hub. */
#include <math.h>

#include "tests/engine/train/parts/scripted_hub.h"

static fake_sink sink;

static void tells_the_loss_of_all_ranks(const char *const *words) {
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    bt_train_result result;
    memset(&hub, 0, sizeof hub);
    memset(&sink, 0, sizeof sink);
    tiny_cfg(&cfg, words);
    hub.first = go_of(BT_PUSH_DELTA, 0, 2, 3, 1);
    hub.answers[0].go = go_of(BT_PUSH_DELTA, 2, 1, 7, 1);
    hub.answers[1].go = go_of(BT_PUSH_DELTA, 3, 0, 0, 1);
    bt_trainer *t = tiny_create(&cfg, &sink, NULL, NULL);
    if (bt_trainer_run(t, &result, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_trainer_destroy(t);
    bt_threads_release();
    assert_int_equal(hub.n_calls, 2);
    assert_int_equal(hub.calls[0].work.tokens, 2 * STEP_TOKENS);
    assert_int_equal(hub.calls[1].work.tokens, STEP_TOKENS);
    assert_true(hub.calls[0].work.loss > 1 && hub.calls[0].work.loss < 20);
    if (bt_comm_rank(bt_comm_world()) != 0) return;
    for (size_t i = 0; i < 2; i++)
        assert_true(fabs(hub.calls[i].work.loss - sink.steps[1 + i].v[BT_MS_LOSS]) < 1e-6);
}
#define TELLS(...) tells_the_loss_of_all_ranks((const char *const[]){__VA_ARGS__, NULL})
#define ISLAND "--steps", "3", "--mode", "diloco", "--hub", "127.0.0.1:9", "--keys", "none"

static void an_island_of_data_parallel_ranks(void **state) {
    (void)state;
    TELLS(ISLAND);
    TELLS(ISLAND, "--balance", "3,1");
}

static void an_island_of_a_pipeline(void **state) {
    (void)state;
    TELLS(ISLAND, "--pp", "2");
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_island_of_data_parallel_ranks),
        cmocka_unit_test(an_island_of_a_pipeline),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed)
        bt_comm_abort(1); /* The other rank may wait for this rank, so the job is aborted. */
    bt_comm_finalize();
    return failed;
}
