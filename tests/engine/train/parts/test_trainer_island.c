/* test_trainer_island.c - a training as an island of a scripted hub: the data of its steps, its exchanges with the hub,
 * where it continues after a reply, and its events. */
#include <math.h>
#include <unistd.h>

#include "tests/engine/train/parts/scripted_hub.h"

enum { BATCHES = 20 };

static char dir[64], out_path[128];
static double batch_loss[BATCHES]; /* losses of the initial weights, per batch */
static fake_sink sink;
static bt_request_box box;
static bt_trainer *trainer;
static bt_train_result result;

/* Weights do not change, so the loss of a step identifies its batch. The hub's learning rate is reported, not
 * applied. */
#define FROZEN "--lr", "1e-30", "--set", "train.spike_limit=0", "--set", "ckpt.memory=off"
#define ISLAND FROZEN, "--hub", "127.0.0.1:9", "--keys", "none"

static int begin(void **state) {
    bt_run_cfg cfg;
    (void)state;
    strcpy(dir, "/tmp/bt-trainer-island-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    snprintf(out_path, sizeof out_path, "%s/out", dir);
    TINY(&cfg, FROZEN, "--steps", "20");
    tiny_run(&cfg, &sink, NULL, "");
    for (size_t i = 0; i < BATCHES; i++) batch_loss[i] = sink.steps[i].v[BT_MS_LOSS];
    for (size_t i = 0; i < BATCHES; i++)
        for (size_t k = 0; k < i; k++) assert_true(batch_loss[i] != batch_loss[k]);
    return 0;
}

static int end(void **state) {
    char command[120];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static void new_hub(bt_island_go first) {
    memset(&hub, 0, sizeof hub);
    memset(&box, 0, sizeof box);
    hub.first = first;
}

static bt_code run(const bt_run_cfg *cfg, bt_err *err) {
    memset(&sink, 0, sizeof sink);
    memset(&result, 0, sizeof result);
    trainer = tiny_create(cfg, &sink, &box, NULL);
    const bt_code code = bt_trainer_run(trainer, &result, err);
    bt_trainer_destroy(trainer);
    bt_threads_release();
    return code;
}

static void run_without_error(const bt_run_cfg *cfg) {
    bt_err err = BT_ERR_INIT;
    if (run(cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(hub.n_ends, 1);
}

/* Checks that the recorded steps from `first` on used these batches. */
static void check_batches(int64_t first, const int *batches, size_t n) {
    assert_int_equal(sink.n_steps, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(sink.steps[i].step, first + (int64_t)i);
        if (sink.steps[i].v[BT_MS_LOSS] != batch_loss[batches[i]])
            fail_msg("step %d did not have batch %d", (int)sink.steps[i].step, batches[i]);
    }
}
#define HAD(first, ...) \
    check_batches(first, (const int[]){__VA_ARGS__}, \
                  sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

/* Returns the only event whose title begins with this text. */
static size_t only_event_titled(const char *begins) {
    size_t found = FAKE_EVENTS;
    for (size_t i = 0; i < sink.n_events; i++)
        if (strncmp(sink.events[i].title, begins, strlen(begins)) == 0) {
            assert_int_equal(found, FAKE_EVENTS);
            found = i;
        }
    if (found == FAKE_EVENTS) fail_msg("no event '%s'", begins);
    return found;
}

static void assert_event_told(const char *kind, int64_t step, const char *title) {
    const size_t i = only_event_titled(title);
    assert_string_equal(sink.events[i].title, title);
    assert_string_equal(sink.events[i].kind, kind);
    assert_int_equal(sink.events[i].step, step);
}

static void rounds_use_their_assigned_data(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--mode", "diloco", "--steps", "30");
    new_hub(go_of(BT_PUSH_DELTA, 5, 3, 3, 2));
    hub.answers[0].go = go_of(BT_PUSH_DELTA, 8, 2, 12, 1);
    hub.answers[0].go.lr = 0.25;
    hub.answers[0].go.decay = 0.5;
    hub.answers[0].go.grad_norm = 7;
    hub.answers[1].go = go_of(BT_PUSH_DELTA, 10, 1, 1, 3);
    hub.answers[2].go = go_of(BT_PUSH_DELTA, 11, 0, 0, 1); /* the job is finished */
    hub.count = (bt_island_count){3, 3072, 3, {0, 2, 0, 1}};
    run_without_error(&cfg);
    HAD(5, 3, 5, 7, 12, 13, 1);
    assert_int_equal(hub.n_calls, 3);
    static const int64_t steps[] = {3, 2, 1}, at[] = {7, 9, 10};
    for (size_t i = 0; i < 3; i++) {
        const fake_step *s = &sink.steps[at[i] - 5];
        assert_int_equal(hub.calls[i].kind, DELTA);
        assert_int_equal(hub.calls[i].step, at[i]);
        assert_int_equal(hub.calls[i].work.tokens, steps[i] * STEP_TOKENS);
        assert_true(fabs(hub.calls[i].work.loss - s->v[BT_MS_LOSS]) < 1e-12);
        assert_true(hub.calls[i].work.unscale == 1);
        if (i > 0) assert_true(hub.calls[i].work.grad_norm == s->v[BT_MS_GRAD_NORM]);
    }
    assert_int_equal(hub.n_beats, 2 + 1 + 0);
    assert_true(sink.steps[2].v[BT_MS_LR] == 0.25 && sink.steps[2].v[BT_MS_GRAD_NORM] == 7);
    assert_true(sink.steps[1].v[BT_MS_LR] < 1e-29 && sink.steps[4].v[BT_MS_LR] < 1e-29);
    assert_int_equal(result.steps, 11);
    assert_int_equal(result.tokens, 11 * STEP_TOKENS);
    assert_int_equal(result.skipped, 0);
    assert_false(result.stopped); /* The hub has no further steps. */
    assert_event_told("stopped", 10, "finished: 11 of 11 steps");
    assert_event_told("hub", 4, "joined hub '127.0.0.1:9' at step 5, 2 islands");
    assert_event_told(
        "hub", 10,
        "hub '127.0.0.1:9' has applied 3 updates of this island, 3072 tokens; 3 left out (2 "
        "closed, 1 "
        "poisoned)");
}

/* A round may begin at any step, and its steps may have any distance. */
static void a_round_may_begin_anywhere(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--mode", "diloco", "--steps", "10");
    new_hub(go_of(BT_PUSH_DELTA, 0, 2, 8, 1));
    /* The round begins where the previous one ended. */
    hub.answers[0].go = go_of(BT_PUSH_DELTA, 2, 2, 10, 3);
    hub.answers[1].go = go_of(BT_PUSH_DELTA, 4, 1, 1, 3);
    hub.answers[2].go = go_of(BT_PUSH_DELTA, 5, 2, 4, 2);
    hub.answers[3].go = go_of(BT_PUSH_DELTA, 7, 2, 8, 2);
    hub.answers[4].go = go_of(BT_PUSH_DELTA, 9, 1, 19, 2);
    hub.answers[5].go = go_of(BT_PUSH_DELTA, 10, 0, 0, 1);
    run_without_error(&cfg);
    HAD(0, 8, 9, 10, 13, 1, 4, 6, 8, 10, 19);
}

static void the_last_step_ends_the_job(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--mode", "diloco", "--steps", "2", "--out", out_path);
    new_hub(go_of(BT_PUSH_DELTA, 0, 2, 6, 1));
    hub.answers[0].go = go_of(BT_PUSH_DELTA, 2, 0, 0, 1);
    run_without_error(&cfg);
    HAD(0, 6, 7);
    assert_int_equal(sink.n_checkpoints, 0); /* The run ended without a stop request. */
    assert_event_told("hub", -1, "joined hub '127.0.0.1:9' at step 0, 1 island");
    assert_event_told(
        "hub", 1, "hub '127.0.0.1:9' has applied 0 updates of this island, 0 tokens; 0 left out");
}

/* Steps before the reply (steps ahead) use data of the next round, which is shorter by their number. */
static void steps_ahead_belong_to_the_next_round(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--mode", "diloco", "--steps", "7");
    new_hub(go_of(BT_PUSH_DELTA, 0, 2, 0, 2));
    hub.first.next_begin = 5 * BATCH;
    hub.first.next_steps = 4;
    hub.answers[0].ahead = hub.answers[1].ahead = true;
    hub.answers[2].go = go_of(BT_PUSH_DELTA, 4, 4, 5, 2);
    hub.answers[3].go = go_of(BT_PUSH_DELTA, 6, 1, 19, 1);
    hub.answers[4].go = go_of(BT_PUSH_DELTA, 7, 0, 0, 1);
    run_without_error(&cfg);
    HAD(0, 0, 2, 5, 7, 9, 11, 19);
    assert_int_equal(hub.n_calls, 5);
    static const struct {
        call_kind kind;
        int64_t ahead, step;
    } rows[] = {{DELTA, 0, 1}, {AHEAD, 1, 2}, {AHEAD, 2, 3}, {DELTA, 0, 5}, {DELTA, 0, 6}};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(hub.calls[i].kind, rows[i].kind);
        assert_int_equal(hub.calls[i].ahead, rows[i].ahead);
        assert_int_equal(hub.calls[i].step, rows[i].step);
    }
    assert_int_equal(hub.calls[3].work.tokens, 4 * STEP_TOKENS);
    /* The island sends heartbeats in steps 0, 2, 3 and 4. */
    assert_int_equal(hub.n_beats, 4);
}

/* If the reply arrives with the round's last step, the next delta is sent at once. */
static void a_round_may_be_done_ahead(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--mode", "diloco", "--steps", "4");
    new_hub(go_of(BT_PUSH_DELTA, 0, 1, 0, 1));
    hub.first.next_begin = 8 * BATCH;
    hub.first.next_steps = 2;
    hub.answers[0].ahead = hub.answers[1].ahead = true;
    hub.answers[2].go = go_of(BT_PUSH_DELTA, 3, 2, 8, 1);
    hub.answers[3].go = go_of(BT_PUSH_DELTA, 3, 1, 14, 1);
    hub.answers[4].go = go_of(BT_PUSH_DELTA, 4, 0, 0, 1);
    run_without_error(&cfg);
    HAD(0, 0, 8, 9, 14);
    assert_int_equal(hub.n_calls, 5);
    assert_int_equal(hub.calls[3].kind, DELTA);
    assert_int_equal(hub.calls[3].step, 2);
}

static void steps_with_a_rejected_update_are_repeated(void **state) {
    static const struct {
        bt_update_outcome outcome;
        const char *says;
    } rows[] = {
        {BT_UPDATE_LOST, "joined hub '127.0.0.1:9' again at step 2 (was at 4)"},
        {BT_UPDATE_APPLIED,
         "hub '127.0.0.1:9': at step 2 again (was at 4): steps since the newest update are lost"},
        {BT_UPDATE_LATE,
         "hub '127.0.0.1:9': at step 2 again (was at 4): the newest update was left out"}};
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--mode", "diloco", "--steps", "4", "--out", out_path, "--set",
         "ckpt.every=4");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        new_hub(go_of(BT_PUSH_DELTA, 2, 2, 2, 1));
        hub.answers[0].again = true;
        hub.answers[0].outcome = rows[i].outcome;
        hub.answers[0].go = go_of(BT_PUSH_DELTA, 2, 2, 10, 1);
        hub.answers[1].go = go_of(BT_PUSH_DELTA, 4, 0, 0, 1);
        run_without_error(&cfg);
        assert_event_told("hub", 3, rows[i].says);
        assert_int_equal(hub.n_calls, 2);
        assert_int_equal(hub.calls[1].step, 3);
        assert_int_equal(result.steps, 4);
        assert_int_equal(result.tokens, 4 * STEP_TOKENS);
        const size_t n = sink.n_steps;
        assert_true(n >= 3);
        assert_true(sink.steps[n - 2].v[BT_MS_LOSS] == batch_loss[10]);
        assert_true(sink.steps[n - 1].v[BT_MS_LOSS] == batch_loss[11]);
        assert_int_equal(sink.steps[n - 2].step, 2);
        assert_true(sink.steps[0].v[BT_MS_LOSS] == batch_loss[2]);
    }
}

/* An island that joins again restarts its round and discards the steps made before the reply. */
static void steps_ahead_are_lost_with_the_delta(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--mode", "diloco", "--steps", "6");
    new_hub(go_of(BT_PUSH_DELTA, 0, 1, 0, 1));
    hub.first.next_begin = 1 * BATCH;
    hub.first.next_steps = 3;
    hub.answers[0].ahead = hub.answers[1].ahead = true;
    hub.answers[2].again = true;
    hub.answers[2].outcome = BT_UPDATE_LATE;
    hub.answers[2].go = go_of(BT_PUSH_DELTA, 4, 2, 15, 1);
    hub.answers[3].go = go_of(BT_PUSH_DELTA, 6, 0, 0, 1);
    run_without_error(&cfg);
    assert_int_equal(hub.n_calls, 4);
    assert_int_equal(hub.calls[3].kind, DELTA);
    assert_int_equal(hub.calls[3].step, 5);
    const size_t n = sink.n_steps;
    assert_true(sink.steps[n - 2].v[BT_MS_LOSS] == batch_loss[15]);
    assert_true(sink.steps[n - 1].v[BT_MS_LOSS] == batch_loss[16]);
    assert_int_equal(result.tokens, 6 * STEP_TOKENS);
}

static void check_rows_before_step(bt_trainer *t) {
    assert_int_equal(t->micro.before_rows, 3 * 32);
}

static void gradients_go_to_the_hub(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--steps", "3");
    new_hub(go_of(BT_PUSH_GRADIENT, 0, 1, 4, 1));
    hub.first.offset = 3;
    hub.on_call = check_rows_before_step;
    for (int64_t i = 0; i < 3; i++) {
        hub.answers[i].go = go_of(BT_PUSH_GRADIENT, i + 1, i < 2, 6 + i, 1);
        hub.answers[i].go.offset = 3;
    }
    run_without_error(&cfg);
    HAD(0, 4, 6, 7);
    assert_int_equal(hub.n_calls, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(hub.calls[i].kind, GRADIENT);
        assert_int_equal(hub.calls[i].work.tokens, STEP_TOKENS);
        assert_true(hub.calls[i].work.grad_norm == sink.steps[i].v[BT_MS_GRAD_NORM]);
    }
    assert_int_equal(hub.n_beats, 0);
    assert_int_equal(result.skipped, 0);
}

/* Overflowing fp16 gradients are reported to the hub as a skipped step until the loss scale is small enough. */
static void a_step_that_overflows_is_skipped(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--steps", "2", "--precision", "fp16", "--set",
         "train.loss_scale=1099511627776");
    new_hub(go_of(BT_PUSH_GRADIENT, 0, 1, 0, 1));
    for (int64_t i = 0; i < 2; i++) hub.answers[i].go = go_of(BT_PUSH_GRADIENT, i + 1, i < 1, 1, 1);
    run_without_error(&cfg);
    assert_int_equal(hub.n_calls, 2);
    assert_int_equal(hub.calls[0].kind, SKIP);
    assert_int_equal(hub.calls[1].kind, SKIP);
    assert_int_equal(result.skipped, 2);
    TINY(&cfg, ISLAND, "--steps", "1", "--precision", "fp16", "--set", "train.loss_scale=1024");
    new_hub(go_of(BT_PUSH_GRADIENT, 0, 1, 0, 1));
    hub.answers[0].go = go_of(BT_PUSH_GRADIENT, 1, 0, 0, 1);
    run_without_error(&cfg);
    assert_int_equal(hub.calls[0].kind, GRADIENT);
    assert_true(hub.calls[0].work.unscale == 1.0 / 1024);
    assert_int_equal(result.skipped, 0);
}

static void a_reproducible_island_sends_the_loss_of_all_ranks(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--steps", "1", "--set", "train.reproducible=true");
    new_hub(go_of(BT_PUSH_GRADIENT, 0, 1, 2, 1));
    hub.answers[0].go = go_of(BT_PUSH_GRADIENT, 1, 0, 0, 1);
    run_without_error(&cfg);
    assert_true(hub.calls[0].work.loss == sink.steps[0].v[BT_MS_LOSS]);
}

static bool asked[4];
static int64_t stop_ns;

static void request_stop_before(void *arg, const bt_step_record *r) {
    (void)arg, (void)r;
    atomic_fetch_or(&box.bits, BT_REQ_STOP);
}

/* Sends stop requests to the waiting trainer: one before it waited, one from an hour ago, and one now. */
static void request_stop(bt_trainer *t) {
    const bt_island_cfg *cfg = &hub.island.cfg;
    const int64_t hour_ns = 3600000000000;
    bt_island_part *p = bt_trainer_part(t, "island");
    stop_ns = p->stop_ns;
    p->stop_ns = stop_ns ? bt_now_ns() + hour_ns : 0;
    asked[0] = cfg->interrupted(cfg->ctx);
    p->stop_ns = bt_now_ns() - hour_ns;
    asked[1] = cfg->interrupted(cfg->ctx);
    p->stop_ns = 0;
    atomic_fetch_or(&box.bits, BT_REQ_CHECKPOINT);
    asked[2] = cfg->interrupted(cfg->ctx);
    atomic_fetch_or(&box.bits, BT_REQ_STOP);
    asked[3] = cfg->interrupted(cfg->ctx);
    atomic_store(&box.bits, 0);
}

/* A stop requested in an earlier step ends the wait after a limited time, a new stop at once; the step is not
 * counted. */
static void a_stop_ends_the_wait(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--steps", "9", "--out", out_path);
    for (int known = 0; known < 2; known++) {
        new_hub(go_of(BT_PUSH_GRADIENT, 3, 1, 4, 1));
        hub.on_call = request_stop;
        hub.answers[0].code = BT_STOPPED;
        if (known) atomic_store(&box.bits, BT_REQ_STOP);
        run_without_error(&cfg);
        assert_int_equal(stop_ns != 0, known);
        assert_true(!asked[0] && asked[1] && !asked[2] && asked[3]);
        assert_int_equal(sink.n_steps, 0);
        assert_int_equal(result.steps, 3);
        assert_true(result.stopped);
        assert_int_equal(sink.n_checkpoints, 1);
        assert_int_equal(sink.last_checkpoint.step, 3);
    }
}

/* A stop also ends the wait for a reply after a step that the island made ahead. */
static void a_stop_ends_the_wait_ahead(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--mode", "diloco", "--steps", "9");
    for (int known = 0; known < 2; known++) {
        new_hub(go_of(BT_PUSH_DELTA, 0, 1, 0, 1));
        hub.first.next_begin = BATCH;
        hub.first.next_steps = 3;
        hub.on_call = request_stop;
        hub.answers[0].ahead = true;
        hub.answers[1].code = BT_STOPPED;
        bt_err err = BT_ERR_INIT;
        memset(&sink, 0, sizeof sink);
        trainer = tiny_create(&cfg, &sink, &box, NULL);
        sink.on_step = known ? request_stop_before : NULL;
        assert_int_equal(bt_trainer_run(trainer, &result, &err), BT_OK);
        bt_trainer_destroy(trainer);
        bt_threads_release();
        assert_int_equal(hub.n_calls, 2);
        assert_int_equal(stop_ns != 0, known);
        assert_true(!asked[0] && asked[1] && !asked[2] && asked[3]);
        assert_int_equal(sink.n_steps, 1);
        assert_true(result.stopped);
    }
}

static void a_hub_that_is_lost_ends_the_training(void **state) {
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    char want[1200];
    (void)state;
    TINY(&cfg, ISLAND, "--steps", "9", "--out", out_path);
    new_hub(go_of(BT_PUSH_GRADIENT, 4, 1, 4, 1));
    hub.answers[0].go = go_of(BT_PUSH_GRADIENT, 5, 1, 5, 1);
    hub.answers[1].code = BT_IO;
    hub.gives_up = true;
    assert_int_equal(run(&cfg, &err), BT_IO);
    assert_int_equal(sink.n_steps, 1);
    assert_int_equal(sink.n_checkpoints, 1);
    assert_int_equal(sink.last_checkpoint.step, 5);
    snprintf(want, sizeof want, "hub '127.0.0.1:9': the hub is gone; checkpoint: '%s'",
             sink.checkpoint_path);
    assert_string_equal(err.msg, want);
    assert_int_equal(hub.n_ends, 1);

    /* Any other error ends the wait at once. */
    new_hub(go_of(BT_PUSH_GRADIENT, 4, 1, 4, 1));
    hub.answers[0].code = BT_FORMAT;
    err = (bt_err)BT_ERR_INIT;
    assert_int_equal(run(&cfg, &err), BT_FORMAT);
    assert_string_equal(err.msg, "the hub is gone");
    assert_int_equal(sink.n_checkpoints, 0);
    assert_int_equal(hub.n_ends, 0);
}

static void tell_both(bt_trainer *t) {
    const bt_island_cfg *cfg = &hub.island.cfg;
    (void)t;
    cfg->tell(cfg->ctx, true, "no answer");
    cfg->tell(cfg->ctx, false, "it answers again");
}

static void notes_of_the_island_become_events(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, ISLAND, "--steps", "8");
    new_hub(go_of(BT_PUSH_GRADIENT, 7, 1, 4, 1));
    hub.on_call = tell_both;
    hub.answers[0].go = go_of(BT_PUSH_GRADIENT, 8, 0, 0, 1);
    run_without_error(&cfg);
    assert_event_told("warning", 6, "hub '127.0.0.1:9': no answer");
    assert_event_told("hub", 6, "hub '127.0.0.1:9': it answers again");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_use_their_assigned_data),
        cmocka_unit_test(a_round_may_begin_anywhere),
        cmocka_unit_test(the_last_step_ends_the_job),
        cmocka_unit_test(steps_ahead_belong_to_the_next_round),
        cmocka_unit_test(a_round_may_be_done_ahead),
        cmocka_unit_test(steps_with_a_rejected_update_are_repeated),
        cmocka_unit_test(steps_ahead_are_lost_with_the_delta),
        cmocka_unit_test(gradients_go_to_the_hub),
        cmocka_unit_test(a_step_that_overflows_is_skipped),
        cmocka_unit_test(a_reproducible_island_sends_the_loss_of_all_ranks),
        cmocka_unit_test(a_stop_ends_the_wait),
        cmocka_unit_test(a_stop_ends_the_wait_ahead),
        cmocka_unit_test(a_hub_that_is_lost_ends_the_training),
        cmocka_unit_test(notes_of_the_island_become_events),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
