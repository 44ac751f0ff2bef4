/* test_run_requests.c - requests to a running training: evaluation, sample, checkpoint, pause and stop, alone and
 * together, with the steps and titles of their events. The sink makes the request, so that it arrives between two known
 * steps. */
#include "tests/tiny_run.h"

#include <unistd.h>

#include "engine/train/run_control.h"

/* The record of this step triggers the request, which takes effect after the next step. */
enum { ASKED = 1, STEPS = 8 };

static char dir[64], out_path[128], text_path[128];
static bt_request_box box;
static fake_sink sink;
static bt_run_cfg cfg;
static bt_train_result result;

static struct {
    uint32_t verbs;
    const char *prompt, *mixture; /* NULL: no sample, no new mixture */
    /* requests made when the pause begins, and after those took effect */
    uint32_t paused, then;
} ask;

static void on_step(void *arg, const bt_step_record *r) {
    (void)arg;
    if (r->step != ASKED) return;
    if (ask.prompt) assert_true(bt_control_request_sample(&box, ask.prompt));
    if (ask.mixture) assert_true(bt_control_request_mixture(&box, ask.mixture));
    atomic_fetch_or(&box.bits, ask.verbs);
}

static int n_continued; /* evaluations that entered their activity again in their second half */

static void note_evaluation(const char *body) {
    const char *took = strstr(body, "\"took_ms\":");
    const int64_t ns = took ? (int64_t)(1e6 * atof(took + 10)) : 0, now = bt_now_ns();
    n_continued += took && tiny_page.at == BT_AT_EVALUATION && tiny_page.since_ns > now - ns / 2;
}

static void on_event(void *arg, const bt_event *e) {
    (void)arg;
    if (e->kind == BT_EVENT_EVALUATION) note_evaluation(e->body);
    if (e->kind == BT_EVENT_PAUSED)
        atomic_fetch_or(&box.bits, ask.paused);
    else if (ask.then && (e->kind == BT_EVENT_CHECKPOINT || e->kind == BT_EVENT_EVALUATION)) {
        atomic_fetch_or(&box.bits, ask.then);
        ask.then = 0;
    }
}

/* Trains STEPS steps and sends the requests of `ask` meanwhile. Checks that the first event is "started". */
static void run_with_request(void) {
    memset(&box, 0, sizeof box);
    memset(&sink, 0, sizeof sink);
    sink.on_step = on_step;
    sink.on_event = on_event;
    result = tiny_run(&cfg, &sink, &box, "");
    memset(&ask, 0, sizeof ask);
    assert_string_equal(sink.events[0].kind, "started");
    assert_string_equal(sink.events[sink.n_events - 1].kind, "stopped");
}

#define TINY_STEPS(...) TINY(&cfg, "--steps", "8", "--set", "ckpt.memory=off", __VA_ARGS__)

static void on_text(const char *more) {
    TINY_STEPS("--set", "model.vocab=256", "--set", "train.sample_tokens=8", "--set", more);
    snprintf(cfg.data.path, sizeof cfg.data.path, "%s", text_path);
}

/* Checks kind, step and beginning of the title of the i-th event. */
static void event_is(size_t i, const char *kind, int64_t step, const char *begins) {
    assert_true(i < sink.n_events);
    assert_string_equal(sink.events[i].kind, kind);
    assert_int_equal(sink.events[i].step, step);
    if (strncmp(sink.events[i].title, begins, strlen(begins)) != 0)
        fail_msg("'%s' does not begin with '%s'", sink.events[i].title, begins);
}

static void an_evaluation_needs_data(void **state) {
    (void)state;
    TINY_STEPS("--set", "train.log_every=1");
    ask.verbs = BT_REQ_EVAL;
    run_with_request();
    assert_int_equal(sink.n_events, 3);
    event_is(1, "warning", 2, "no validation data: data.val_frac is 0");
    assert_int_equal(result.steps, STEPS);
}

/* The weights after the step are evaluated once, and the record of that step contains the loss, whatever other requests
 * arrive. */
static void an_evaluation_belongs_to_its_step(void **state) {
    (void)state;
    TINY_STEPS("--set", "data.val_frac=0.1", "--set", "train.eval_tokens=64", "--set",
               "train.eval_every=1000", "--set", "train.log_every=1");
    ask.verbs = BT_REQ_EVAL;
    run_with_request();
    assert_int_equal(sink.n_events, 4);
    event_is(1, "evaluation", 2, "validation ");
    event_is(2, "evaluation", STEPS - 1, "validation ");
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(sink.steps[i].v[BT_MS_VAL_LOSS] > 0, i == 2 || i == STEPS - 1);
    assert_true(result.val_loss == sink.steps[STEPS - 1].v[BT_MS_VAL_LOSS]);
}

/* The supervisor takes a long activity for a hang. */
static void an_evaluation_shows_that_it_continues(void **state) {
    (void)state;
    TINY_STEPS("--set", "data.val_frac=0.1", "--set", "train.eval_tokens=4096", "--set",
               "train.eval_every=1");
    n_continued = 0;
    run_with_request();
    assert_true(n_continued > 0);
}

static void a_sample_is_written_from_the_prompt(void **state) {
    (void)state;
    on_text("train.log_every=1");
    ask.prompt = "line 1";
    run_with_request();
    assert_int_equal(sink.n_events, 3);
    event_is(1, "sample", 2, "sample after '");
    const char *body = sink.events[1].body;
    assert_non_null(strstr(body, "\"prompt\":\"line 1\""));
    assert_non_null(strstr(body, "\"asked\":true"));
    const char *took = strstr(body, "\"took_ms\":");
    assert_true(took && atof(took + 10) > 0 && atof(took + 10) < 1e5);
    assert_int_equal(result.steps, STEPS);
}

static void an_impossible_sample_is_refused(void **state) {
    (void)state;
    on_text("train.log_every=1");
    ask.prompt = "";
    run_with_request();
    assert_int_equal(sink.n_events, 3);
    event_is(1, "refused", 2, "no sample: the prompt is empty");
    TINY_STEPS("--set", "train.log_every=1");
    ask.prompt = "line 1";
    run_with_request();
    assert_int_equal(sink.n_events, 3);
    event_is(1, "refused", 2, "no sample: the data 'synth:chain' are not text");
    assert_int_equal(result.steps, STEPS);
}

static void a_run_without_a_mixture_keeps_its_data(void **state) {
    (void)state;
    TINY_STEPS("--set", "train.log_every=1");
    ask.mixture = "3:1";
    run_with_request();
    assert_int_equal(sink.n_events, 3);
    event_is(1, "refused", 2, "the mixture stays: the run has no data.mixture");
    assert_int_equal(result.steps, STEPS);
}

static void a_checkpoint_holds_its_step(void **state) {
    (void)state;
    for (int beside = 0; beside < 2; beside++) {
        TINY_STEPS("--out", out_path, "--ckpt-every", "1000", "--set",
                   beside ? "ckpt.async=true" : "ckpt.async=false");
        ask.verbs = BT_REQ_CHECKPOINT;
        run_with_request();
        assert_int_equal(sink.n_checkpoints, 1);
        assert_int_equal(sink.last_checkpoint.step, 3);
        event_is(1, "checkpoint", 2, "checkpoint after step 3: ");
    }
    /* A run without an output folder has no checkpoint. */
    TINY_STEPS("--set", "train.log_every=1");
    ask.verbs = BT_REQ_CHECKPOINT;
    run_with_request();
    assert_int_equal(sink.n_checkpoints, 0);
    assert_int_equal(sink.n_events, 2);
}

static void a_stop_saves_a_checkpoint(void **state) {
    (void)state;
    TINY_STEPS("--out", out_path, "--ckpt-every", "1000");
    ask.verbs = BT_REQ_STOP;
    run_with_request();
    assert_true(result.stopped);
    assert_int_equal(result.steps, 3);
    assert_int_equal(sink.n_checkpoints, 1);
    assert_int_equal(sink.last_checkpoint.step, 3);
    assert_int_equal(sink.n_steps, 3);
}

/* The step before a pause is recorded, whatever train.log_every is. */
static void a_cancelled_pause_does_not_pause(void **state) {
    (void)state;
    TINY_STEPS("--set", "train.log_every=100");
    ask.verbs = 0;
    run_with_request();
    assert_int_equal(sink.n_steps, 2);
    assert_true(sink.steps[0].step == 0 && sink.steps[1].step == STEPS - 1);
    TINY_STEPS("--set", "train.log_every=1");
    ask.verbs = BT_REQ_PAUSE | BT_REQ_RESUME;
    run_with_request();
    assert_int_equal(sink.n_events, 2);
    ask.verbs = BT_REQ_PAUSE | BT_REQ_STOP;
    run_with_request();
    assert_int_equal(sink.n_events, 2);
    assert_true(result.stopped && result.steps == 3);
}

static void requests_take_effect_during_a_pause(void **state) {
    (void)state;
    TINY_STEPS("--out", out_path, "--ckpt-every", "1000", "--set", "train.log_every=1");
    ask.verbs = BT_REQ_PAUSE;
    ask.paused = BT_REQ_CHECKPOINT;
    ask.then = BT_REQ_RESUME;
    run_with_request();
    assert_int_equal(sink.n_events, 5);
    event_is(1, "paused", 2, "paused after step 3");
    event_is(2, "checkpoint", 2, "checkpoint after step 3: ");
    event_is(3, "continued", 2, "resumed after a pause of ");
    assert_int_equal(sink.last_checkpoint.step, 3);
    assert_int_equal(result.steps, STEPS);
    assert_false(result.stopped);
}

/* A run that is stopped during a pause trains no further step. */
static void a_pause_may_end_the_run(void **state) {
    (void)state;
    TINY_STEPS("--set", "data.val_frac=0.1", "--set", "train.eval_tokens=64", "--set",
               "train.eval_every=1000", "--set", "train.log_every=1");
    ask.verbs = BT_REQ_PAUSE;
    ask.paused = BT_REQ_EVAL;
    ask.then = BT_REQ_STOP;
    run_with_request();
    assert_int_equal(sink.n_events, 5);
    event_is(1, "paused", 2, "paused after step 3");
    event_is(2, "evaluation", 2, "validation ");
    event_is(3, "continued", 2, "stopping after a pause of ");
    assert_true(result.stopped);
    assert_int_equal(result.steps, 3);
}

static int make_dirs(void **state) {
    (void)state;
    strcpy(dir, "/tmp/bt-requests-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    snprintf(out_path, sizeof out_path, "%s/out", dir);
    snprintf(text_path, sizeof text_path, "%s/text.txt", dir);
    FILE *f = fopen(text_path, "w");
    if (!f) return 1;
    for (int i = 0; i < 1500; i++) fprintf(f, "line %d is not line %d.\n", i, i * i);
    return fclose(f);
}

static int remove_dirs(void **state) {
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_evaluation_needs_data),
        cmocka_unit_test(an_evaluation_belongs_to_its_step),
        cmocka_unit_test(an_evaluation_shows_that_it_continues),
        cmocka_unit_test(a_sample_is_written_from_the_prompt),
        cmocka_unit_test(an_impossible_sample_is_refused),
        cmocka_unit_test(a_run_without_a_mixture_keeps_its_data),
        cmocka_unit_test(a_checkpoint_holds_its_step),
        cmocka_unit_test(a_stop_saves_a_checkpoint),
        cmocka_unit_test(a_cancelled_pause_does_not_pause),
        cmocka_unit_test(requests_take_effect_during_a_pause),
        cmocka_unit_test(a_pause_may_end_the_run),
    };
    return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
