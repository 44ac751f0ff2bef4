/* Changes during a training: requested weights of its sources, ramps of the sequence length and of attention. Each
 * change is reported, gives the same results as that setting from the beginning, and survives a checkpoint. */
#include "tests/tiny_run.h"

#include <math.h>
#include <unistd.h>

#include "engine/train/run_control.h"

enum { STEPS = 8 };

static char dir[64], sources[192], out_path[96];
static bt_request_box box;
static fake_sink sink, other;
static bt_run_cfg cfg;

/* Requests new weights when step `at` is recorded, and again in the pause that follows. */
static struct {
    const char *weights, *again;
    int64_t at;
    uint32_t verbs;
} ask;

static void on_step(void *arg, const bt_step_record *r) {
    (void)arg;
    if (r->step != ask.at || !ask.weights) return;
    assert_true(bt_control_request_mixture(&box, ask.weights));
    atomic_fetch_or(&box.bits, ask.verbs);
}

static void on_event(void *arg, const bt_event *e) {
    (void)arg;
    if (e->kind == BT_EVENT_PAUSED) {
        if (ask.again) assert_true(bt_control_request_mixture(&box, ask.again));
        atomic_fetch_or(&box.bits, ask.again ? 0 : BT_REQ_RESUME);
    } else if (e->kind == BT_EVENT_CONTROL && ask.again)
        atomic_fetch_or(&box.bits, BT_REQ_RESUME);
}

static bt_train_result run_with_requests(fake_sink *f, const char *resume) {
    memset(&box, 0, sizeof box);
    memset(f, 0, sizeof *f);
    f->on_step = on_step;
    f->on_event = on_event;
    const bt_train_result r = tiny_run(&cfg, f, &box, resume);
    memset(&ask, 0, sizeof ask);
    return r;
}

#define OF_TWO(...) \
    do { \
        TINY(&cfg, "--steps", "8", "--set", "ckpt.memory=off", "--set", "model.vocab=256", \
             "--set", "train.log_every=1", "--batch-tokens", "256", __VA_ARGS__); \
        snprintf(cfg.data.path, sizeof cfg.data.path, "%s", sources); \
        snprintf(cfg.run.out, sizeof cfg.run.out, "%s", out_path); \
    } while (0)

/* Returns the events of a kind as "step title" lines. */
static const char *events_of_kind(const fake_sink *f, const char *kind) {
    static char text[2048];
    text[0] = '\0';
    for (size_t i = 0; i < f->n_events; i++)
        if (strcmp(f->events[i].kind, kind) == 0)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%d %s\n",
                     (int)f->events[i].step, f->events[i].title);
    return text;
}

static void same_losses(const fake_sink *a, const fake_sink *b, size_t from) {
    assert_int_equal(a->n_steps, STEPS);
    assert_int_equal(b->n_steps, STEPS - from);
    for (size_t i = 0; i < b->n_steps; i++)
        assert_true(a->steps[from + i].v[BT_MS_LOSS] == b->steps[i].v[BT_MS_LOSS]);
}

static void weights_change_on_request(void **state) {
    (void)state;
    OF_TWO("--set", "data.mixture=3:1");
    ask.weights = "1:3";
    ask.at = 1;
    run_with_requests(&sink, "");
    assert_string_equal(events_of_kind(&sink, "control"),
                        "2 sources weigh 1:3 from now on (data.mixture=3:1,3=1:3)\n");
    OF_TWO("--set", "data.mixture=3:1,3=1:3");
    run_with_requests(&other, "");
    same_losses(&sink, &other, 0);
    OF_TWO("--set", "data.mixture=3:1"); /* The weights influence the losses. */
    run_with_requests(&other, "");
    assert_true(sink.steps[2].v[BT_MS_LOSS] == other.steps[2].v[BT_MS_LOSS]);
    assert_true(sink.steps[5].v[BT_MS_LOSS] != other.steps[5].v[BT_MS_LOSS]);
}

/* A request replaces an earlier one for the same step. */
static void the_newest_of_a_step_counts(void **state) {
    (void)state;
    OF_TWO("--set", "data.mixture=3:1,2=1:1");
    ask.weights = "1:3";
    ask.again = "1:7";
    ask.at = 3;
    ask.verbs = BT_REQ_PAUSE;
    run_with_requests(&sink, "");
    assert_string_equal(events_of_kind(&sink, "control"),
                        "4 sources weigh 1:3 from now on (data.mixture=3:1,2=1:1,5=1:3)\n"
                        "4 sources weigh 1:7 from now on (data.mixture=3:1,2=1:1,5=1:7)\n");
    OF_TWO("--set", "data.mixture=3:1,2=1:1,5=1:7");
    run_with_requests(&other, "");
    same_losses(&sink, &other, 0);
}

static void equal_weights_are_no_change(void **state) {
    (void)state;
    static char full[512];
    static const struct {
        const char *mixture, *weights, *says;
    } rows[] = {
        {"3:1", "1,3", "2 the mixture stays: '1,3' is not a list of weights (example: 3:1)\n"},
        {"3:1", "1:3,5=1:1",
         "2 the mixture stays: '1:3,5=1:1' is not a list of weights (example: 3:1)\n"},
        {"3:1", "2=1:1", "2 the mixture stays: '2=1:1' is not a list of weights (example: 3:1)\n"},
        {"3:1", "1:2:3", NULL},
        {full, "1:3", "2 the mixture stays: data.mixture has no room for more stages\n"},
    };
    for (int i = 100; strlen(full) + 10 < sizeof full; i++)
        snprintf(full + strlen(full), sizeof full - strlen(full), "%s%.0d%s3:1", full[0] ? "," : "",
                 full[0] ? i : 0, full[0] ? "=" : "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char mixture[560];
        snprintf(mixture, sizeof mixture, "data.mixture=%s", rows[i].mixture);
        OF_TWO("--set", mixture);
        const char *before = rows[i].mixture;
        ask.weights = rows[i].weights;
        ask.at = 1;
        run_with_requests(&sink, "");
        assert_string_equal(events_of_kind(&sink, "control"), "");
        if (rows[i].says)
            assert_string_equal(events_of_kind(&sink, "refused"), rows[i].says);
        else
            assert_non_null(strstr(events_of_kind(&sink, "refused"), "2 the mixture stays: "));
        assert_string_equal(cfg.data.mixture, before);
    }
}

/* A restarted run continues with the newest weights, unless the user changed the setting. */
static void the_newest_weights_survive(void **state) {
    (void)state;
    char at[1024];
    OF_TWO("--set", "data.mixture=3:1", "--stop-after", "5", "--ckpt-every", "5");
    ask.weights = "1:3";
    ask.at = 1;
    run_with_requests(&sink, "");
    assert_int_equal(sink.n_steps, 5);
    snprintf(at, sizeof at, "%s", sink.checkpoint_path);
    OF_TWO("--set", "data.mixture=3:1,3=1:3");
    run_with_requests(&sink, ""); /* both runs from the first step */

    static const char *const began[] = {"data.mixture=3:1", "data.mixture=3:1,3=1:3"};
    for (int i = 0; i < 2; i++) {
        OF_TWO("--set", began[i]);
        run_with_requests(&other, at);
        same_losses(&sink, &other, 5);
    }
}

static void sizes_grow_as_configured(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "8", "--set", "ckpt.memory=off", "--set", "train.log_every=1", "--set",
         "train.seq_ramp=0.375,0.5");
    const bt_train_result r = run_with_requests(&sink, "");
    assert_string_equal(events_of_kind(&sink, "ramp"),
                        "-1 from step 1 on attention sees stretches of 8\n"
                        "2 from step 4 on attention sees stretches of 16\n"
                        "3 from step 5 on attention sees stretches of 32\n");
    assert_int_equal(r.steps, STEPS);
}

/* A run first predicts all following tokens with fading weight, then only the next token. */
static void all_following_tokens_are_learned_first(void **state) {
    (void)state;
    OF_TWO("--set", "train.share_steps=3", "--lr", "2e-2");
    run_with_requests(&sink, "");
    assert_string_equal(events_of_kind(&sink, "ramp"),
                        "-1 soft targets until step 3 (train.share_steps)\n");
    OF_TWO("--lr", "2e-2");
    run_with_requests(&other, "");
    assert_true(other.steps[3].v[BT_MS_LOSS] != sink.steps[3].v[BT_MS_LOSS]);
}

/* The first steps equal those of a dense model bit for bit; afterwards the layers quantise the same weights. */
static void layers_become_ternary(void **state) {
    (void)state;
    static const char *const kinds[][2] = {{"model.linear=bitnet158", "ternary"},
                                           {"model.linear=bitnet1", "binary"}};
    for (int k = 0; k < 2; k++) {
        char want[96];
        OF_TWO("--set", "model.linear=dense");
        run_with_requests(&other, "");
        OF_TWO("--set", "train.dense_steps=3", "--set", kinds[k][0]);
        run_with_requests(&sink, "");
        snprintf(want, sizeof want, "2 from step 4 on linear layers are %s\n", kinds[k][1]);
        assert_string_equal(events_of_kind(&sink, "ramp"), want);
        for (int i = 0; i < 3; i++)
            assert_true(sink.steps[i].v[BT_MS_LOSS] == other.steps[i].v[BT_MS_LOSS]);
        assert_true(sink.steps[3].v[BT_MS_LOSS] != other.steps[3].v[BT_MS_LOSS]);
        assert_true(fabs(sink.steps[3].v[BT_MS_LOSS] - other.steps[3].v[BT_MS_LOSS]) < 0.5);
    }
}

int main(void) {
    char cmd[96], path[96];
    strcpy(dir, "/tmp/bt_change_XXXXXX");
    if (!mkdtemp(dir)) return 1;
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/%c.txt", dir, 'a' + k);
        FILE *f = fopen(path, "w");
        for (int i = 0; f && i < 900; i++)
            fprintf(f, k ? "%d, %d and then %d\n" : "line %d of the text tells of %d and of %d\n",
                    i, i * i, 7 * i);
        if (!f || fclose(f) != 0) return 1;
    }
    snprintf(sources, sizeof sources, "%s/a.txt\n%s/b.txt", dir, dir);
    snprintf(out_path, sizeof out_path, "%s/out", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_change_on_request),
        cmocka_unit_test(the_newest_of_a_step_counts),
        cmocka_unit_test(equal_weights_are_no_change),
        cmocka_unit_test(the_newest_weights_survive),
        cmocka_unit_test(sizes_grow_as_configured),
        cmocka_unit_test(all_following_tokens_are_learned_first),
        cmocka_unit_test(layers_become_ternary),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return failed + system(cmd);
}
