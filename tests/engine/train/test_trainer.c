// ctest: timeout=120
/* The trainer in one process: the loss falls, phases add up to the step, gradients accumulate, requests and bad steps
 * are handled, and a step allocates nothing. */
#include "tests/tiny_run.h"

#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/model/net/model.h"
#include "engine/observe/meter.h"
#include "engine/plan/plan.h"

static bt_run_cfg cfg;
static fake_sink sink, other;

static void the_loss_falls_and_every_step_is_recorded(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "80", "--lr", "1e-2");
    bt_train_result r = tiny_run(&cfg, &sink, NULL, "");
    assert_int_equal(sink.n_steps, 80);
    for (size_t i = 0; i < 80; i++) {
        const fake_step *s = &sink.steps[i];
        assert_int_equal(s->step, i);
        assert_int_equal(s->n_ranks, 1);
        assert_true(s->v[BT_MS_TOKENS] == 512.0 * (double)(i + 1));
        assert_true(s->v[BT_MS_SKIPPED] == 0);
        assert_true(s->v[BT_MS_GRAD_NORM] > 0 && s->v[BT_MS_LR] > 0);
        assert_true(isfinite(s->v[BT_MS_TOKENS_PER_S]));
        assert_true(s->v[BT_MS_LOSS] == s->r[0][BT_MR_LOSS]);
    }
    /* An untrained model predicts a uniform distribution over the vocabulary. */
    assert_true(fabs(sink.steps[0].v[BT_MS_LOSS] - log(64)) < 0.1);
    assert_true(sink.steps[79].v[BT_MS_LOSS] < 0.6 * sink.steps[0].v[BT_MS_LOSS]);
    assert_true(r.loss == sink.steps[79].v[BT_MS_LOSS]);
    assert_int_equal(r.steps, 80);
    assert_int_equal(r.tokens, 80 * 512);
    assert_false(r.stopped);
    assert_true(r.tokens_per_s > 0 && r.memory_mib > 1);
    assert_int_equal(fake_events_of(&sink, "started"), 1);
    assert_int_equal(fake_events_of(&sink, "stopped"), 1);
}

static void facts_and_ranks_are_recorded_once(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "1");
    bt_train_result r = tiny_run(&cfg, &sink, NULL, "");
    char params[32];
    snprintf(params, sizeof params, "%llu", (unsigned long long)r.params);
    assert_string_equal(fake_fact(&sink, "params"), params);
    assert_string_equal(fake_fact(&sink, "isa"), "generic");
    assert_string_equal(fake_fact(&sink, "kernel.gemm"), "generic");
    assert_string_equal(fake_fact(&sink, "world_size"), "1");
    assert_string_equal(fake_fact(&sink, "batch_tokens"), "512");
    assert_string_equal(fake_fact(&sink, "accum"), "4");
    assert_non_null(fake_fact(&sink, "flop_token"));
    assert_true(atof(fake_fact(&sink, "arena.params")) >= 4.0 * (double)r.params);
    assert_true(atof(fake_fact(&sink, "arena.optimizer")) >= 8.0 * (double)r.params);
    assert_int_equal(sink.n_ranks, 1);
    assert_int_equal(sink.ranks[0].pid, getpid());
    assert_string_equal(sink.ranks[0].isa, "generic");
}

/* Counts the facts whose key begins with this text. */
static size_t count_facts_with_prefix(const char *begin) {
    size_t n = 0;
    for (size_t i = 0; i < sink.n_facts; i++)
        n += strncmp(sink.facts[i].key, begin, strlen(begin)) == 0;
    return n;
}

/* A plain run on one rank without prediction, measurement and checkpoints records exactly these facts. */
static void facts_are_complete(void **state) {
    (void)state;
    static const char *const want[][2] = {{"params", NULL},
                                          {"params.linear", "18432"},
                                          {"params.embedding", "2048"},
                                          {"flop_token", NULL},
                                          {"world_size", "1"},
                                          {"codec", "none"},
                                          {"comm.budget", "off"},
                                          {"dp_size", "1"},
                                          {"steps_total", "3"},
                                          {"batch_tokens", "512"},
                                          {"micro_batch", "4"},
                                          {"accum", "4"},
                                          {"data.tokens", "-1"},
                                          {"data.bytes_per_token", "1"},
                                          {"data.val_bytes_per_token", "1"},
                                          {"data.hash", NULL},
                                          {"cpu", NULL},
                                          {"isa", "generic"},
                                          {"threads", "1"}};
    enum { N_WANT = sizeof want / sizeof *want };
    bt_arena_row rows[BT_PLAN_MAX];
    char key[80], bytes[32];
    TINY(&cfg, "--steps", "3", "--set", "data.val_frac=0.1", "--set", "train.eval_tokens=64",
         "--set", "ckpt.memory=off");
    tiny_run(&cfg, &sink, NULL, "");
    for (size_t i = 0; i < N_WANT; i++) {
        assert_int_equal(count_facts_with_prefix(want[i][0]) > 0, 1);
        if (want[i][1]) assert_string_equal(fake_fact(&sink, want[i][0]), want[i][1]);
    }
    const size_t slots = bt_kernels_slots(),
                 arenas = bt_plan_memory(&cfg, 0, bt_parts_memory, rows);
    assert_int_equal(count_facts_with_prefix("kernel."), slots);
    for (size_t i = 0; i < slots; i++) {
        snprintf(key, sizeof key, "kernel.%s", bt_kernels_slot_name(i));
        assert_string_equal(fake_fact(&sink, key), bt_kernels_slot_winner(i));
    }
    assert_true(arenas > 4);
    for (size_t i = 0; i < arenas; i++) {
        snprintf(key, sizeof key, "arena.%s", rows[i].name);
        snprintf(bytes, sizeof bytes, "%zu", rows[i].bytes);
        assert_string_equal(fake_fact(&sink, key), bytes);
    }
    assert_true(atof(fake_fact(&sink, "arena.validation")) > 0);
    assert_int_equal(count_facts_with_prefix("arena."), arenas + 1);
    assert_int_equal(sink.n_facts, N_WANT + slots + arenas + 1);
    assert_int_equal(sink.ranks[0].threads, 1);
    assert_int_equal(sink.ranks[0].rank, 0);
    assert_true(sink.ranks[0].host[0] != 0);
}

/* A sink without callbacks for facts, ranks, rows and checkpoints receives the events. */
static void a_sink_may_take_events_alone(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_trainer *t = NULL;
    bt_train_result r;
    TINY(&cfg, "--steps", "2", "--set", "train.stats_every=1");
    memset(&sink, 0, sizeof sink);
    const bt_sink all = fake_sink_of(&sink), some = {.ctx = &sink, .event = all.event};
    assert_int_equal(bt_kernels_select(cfg.launch.isa, &err), BT_OK);
    assert_int_equal(bt_threads_init(1, &err), BT_OK);
    const bt_trainer_setup s = {.cfg = &cfg, .sink = &some, .resume_dir = "", .attempt = 1};
    assert_int_equal(bt_trainer_create(&t, &s, &err), BT_OK);
    assert_int_equal(bt_trainer_run(t, &r, &err), BT_OK);
    bt_trainer_destroy(t);
    bt_threads_release();
    assert_true(fake_events_of(&sink, "started") == 1 && fake_events_of(&sink, "stopped") == 1);
    assert_int_equal(sink.n_facts + sink.n_steps + sink.n_layer_calls, 0);
}

static void same_seed_same_bits_other_seed_other_bits(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "5");
    tiny_run(&cfg, &sink, NULL, "");
    tiny_run(&cfg, &other, NULL, "");
    for (int i = 0; i < 5; i++)
        assert_true(sink.steps[i].v[BT_MS_LOSS] == other.steps[i].v[BT_MS_LOSS]);
    TINY(&cfg, "--steps", "5", "--seed", "2");
    tiny_run(&cfg, &other, NULL, "");
    assert_true(sink.steps[4].v[BT_MS_LOSS] != other.steps[4].v[BT_MS_LOSS]);
}

static void accumulation_equals_one_large_batch(void **state) {
    (void)state;
    static const char *const sizes[] = {"1", "2", "4", "8"};
    TINY(&cfg, "--steps", "10", "--micro-batch", "16");
    tiny_run(&cfg, &sink, NULL, "");
    for (int k = 0; k < 4; k++) {
        TINY(&cfg, "--steps", "10", "--micro-batch", sizes[k]);
        tiny_run(&cfg, &other, NULL, "");
        assert_true(other.steps[0].r[0][BT_MR_MICRO_BATCHES] == 16 / atof(sizes[k]));
        for (int i = 0; i < 10; i++) {
            double a = sink.steps[i].v[BT_MS_LOSS], b = other.steps[i].v[BT_MS_LOSS];
            if (fabs(a - b) > 1e-4 * a)
                fail_msg("step %d: %.9g with one micro-batch, %.9g with micro-batches of %s", i, a,
                         b, sizes[k]);
        }
        double n0 = sink.steps[0].v[BT_MS_GRAD_NORM], n1 = other.steps[0].v[BT_MS_GRAD_NORM];
        assert_true(fabs(n0 - n1) <= 1e-5 * n0);
    }
}

static void threads_do_not_change_a_bit(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "4");
    tiny_run(&cfg, &sink, NULL, "");
    TINY(&cfg, "--steps", "4", "--threads", "3");
    tiny_run(&cfg, &other, NULL, "");
    for (int i = 0; i < 4; i++) {
        assert_true(sink.steps[i].v[BT_MS_LOSS] == other.steps[i].v[BT_MS_LOSS]);
        assert_true(sink.steps[i].v[BT_MS_GRAD_NORM] == other.steps[i].v[BT_MS_GRAD_NORM]);
    }
}

static void phases_add_up_to_the_step(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "12", "--set", "data.val_frac=0.1", "--set", "train.eval_every=3",
         "--set", "train.eval_tokens=64");
    tiny_run(&cfg, &sink, NULL, "");
    assert_int_equal(sink.n_steps, 12);
    for (size_t i = 0; i < sink.n_steps; i++) {
        const double *r = sink.steps[i].r[0];
        double step = r[BT_MR_STEP_TIME];
        assert_true(fabs(fake_phases_ms(r) - step) < 1e-6);
        assert_true(r[BT_MR_OTHER] > -0.001); /* may be -1 us */
        assert_true(r[BT_MR_FWD] > 0 && r[BT_MR_BWD] > 0 && r[BT_MR_OPTIM] > 0);
        assert_true(r[BT_MR_COMM_EXPOSED] == 0 && r[BT_MR_WAIT] == 0 && r[BT_MR_COMM_BUSY] == 0 &&
                    r[BT_MR_BYTES_WIRE] == 0);
        assert_true(isnan(sink.steps[i].v[BT_MS_OVERLAP]));
        assert_true(r[BT_MR_RSS] > 1);
        assert_true(r[BT_MR_LOAD] > 0); /* This rank itself causes some load. */
        assert_true(sink.steps[i].v[BT_MS_STEP_TIME] == step);
        assert_int_equal(isfinite(sink.steps[i].v[BT_MS_VAL_LOSS]) != 0, (i + 1) % 3 == 0);
    }
}

/* Spans nest: time is charged to the innermost span, transferred spans move, and an excluded interval counts in no
 * phase whatever spans it contains. The sum equals the elapsed time between a clock read inside the window and one read
 * around it. */
static void the_meter_is_a_conservation_law(void **state) {
    (void)state;
    bt_meter m;
    double v[BT_MR_COUNT];
    int64_t around = bt_now_ns();
    bt_meter_open(&m);
    int64_t inside = bt_now_ns();
    bt_span_begin(BT_MR_FWD);
    bt_sleep_ns(2000000);
    bt_span_begin(BT_MR_WAIT);
    bt_sleep_ns(1000000);
    bt_span_end();
    bt_span_transfer(BT_MR_BWD, 500000);
    bt_span_end();
    bt_meter_busy(&m, 300000);
    inside = bt_now_ns() - inside;
    int64_t closing = bt_now_ns();
    bt_meter_close(&m, v);
    around = bt_now_ns() - around;
    assert_true(v[BT_MR_BWD] == 0.5 && v[BT_MR_COMM_BUSY] == 0.3);
    assert_true(v[BT_MR_FWD] >= 1.5 && v[BT_MR_WAIT] >= 1);
    assert_true(v[BT_MR_STEP_TIME] >= (double)inside / 1e6 &&
                v[BT_MR_STEP_TIME] <= (double)around / 1e6);

    bt_span_begin(BT_SPAN_EXCLUDED);
    bt_span_begin(BT_MR_COMM_EXPOSED);
    bt_sleep_ns(3000000);
    bt_span_transfer(BT_MR_WAIT, 1000);
    bt_span_end();
    bt_span_end();
    bt_meter_close(&m, v);
    assert_true(v[BT_MR_COMM_EXPOSED] == 0 && v[BT_MR_WAIT] == 0 && v[BT_MR_FWD] == 0);
    assert_true(v[BT_MR_STEP_TIME] + 3 <= (double)(bt_now_ns() - closing) / 1e6);
}

static void statistics_describe_every_tensor(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "5", "--set", "train.stats_every=2");
    tiny_run(&cfg, &sink, NULL, "");
    assert_int_equal(sink.n_layer_calls, 3); /* steps 0, 2, 4 */
    int ternary = 0;
    double squares = 0;
    for (size_t i = 0; i < sink.n_layers; i++) {
        const double *v = sink.layers[i].v;
        assert_null(strchr(sink.layers[i].tensor, '.'));
        squares += v[BT_ML_GRAD_NORM] * v[BT_ML_GRAD_NORM];
        assert_true(v[BT_ML_UPDATE] > 1e-6 && v[BT_ML_UPDATE] < 0.5);
        if (isnan(v[BT_ML_ZERO])) continue;
        ternary++;
        assert_true(v[BT_ML_ZERO] > 0.1 && v[BT_ML_ZERO] < 0.6 && v[BT_ML_POS] > 0.1 &&
                    v[BT_ML_SCALE] > 0);
        assert_true(v[BT_ML_FLIP] > 0 && v[BT_ML_FLIP] < 0.5);
        assert_true(v[BT_ML_SIGN_FLIP] >= 0 && v[BT_ML_SIGN_FLIP] <= v[BT_ML_FLIP] &&
                    v[BT_ML_OSCILLATION] >= 0 && v[BT_ML_OSCILLATION] <= v[BT_ML_FLIP]);
        assert_true(v[BT_ML_BOUNDARY] > 0.01 && v[BT_ML_BOUNDARY] < 0.15);
    }
    assert_int_equal(ternary, 2 * 7);
    assert_true(fabs(sqrt(squares) - sink.steps[4].v[BT_MS_GRAD_NORM]) < 1e-6 * sqrt(squares));
}

/* The heap must not change between two steps; the sink checks it at the end of each step. */
static struct {
    size_t arena, steps;
    bool moved;
} heap;
static void check_heap(void *arg, const bt_step_record *r) {
    (void)arg;
    struct mallinfo2 now = mallinfo2();
    size_t used = now.uordblks + now.hblkhd;
    if (r->step >= 3 && used != heap.arena) heap.moved = true;
    heap.arena = used;
    heap.steps++;
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    memset(&heap, 0, sizeof heap);
    TINY(&cfg, "--steps", "12", "--set", "train.stats_every=2");
    sink.on_step = check_heap;
    tiny_run(&cfg, &sink, NULL, "");
    sink.on_step = NULL;
    assert_int_equal(heap.steps, 12);
    assert_false(heap.moved);
}

static struct {
    bt_trainer *t;
    int64_t at;
    float kept;
} poison;

static void poison_after(void *arg, const bt_step_record *r) {
    (void)arg;
    /* The next forward pass computes a NaN. */
    if (r->step == poison.at) {
        const bt_params *p = bt_model_params(bt_trainer_model(poison.t));
        float *w = bt_model_weights(bt_trainer_model(poison.t)) +
                   bt_params_get(p, -1, BT_P_FINAL_NORM)->offset;
        poison.kept = *w;
        *w = NAN;
    }
}

static void heal_on_warning(void *arg, const bt_event *e) {
    (void)arg;
    if (e->kind != BT_EVENT_BAD_STEP) return;
    const bt_params *p = bt_model_params(bt_trainer_model(poison.t));
    bt_model_weights(bt_trainer_model(poison.t))[bt_params_get(p, -1, BT_P_FINAL_NORM)->offset] =
        poison.kept;
}

static void a_bad_step_is_not_applied_and_the_run_continues(void **state) {
    (void)state;
    memset(&sink, 0, sizeof sink);
    TINY(&cfg, "--steps", "8");
    poison.at = 2;
    sink.on_step = poison_after;
    sink.on_event = heal_on_warning;
    poison.t = tiny_create(&cfg, &sink, NULL, "");
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_trainer_run(poison.t, &r, &err), BT_OK);
    bt_trainer_destroy(poison.t);
    assert_int_equal(sink.n_steps, 8);
    for (int i = 0; i < 8; i++) assert_true((sink.steps[i].v[BT_MS_SKIPPED] == 1) == (i == 3));
    assert_int_equal(fake_events_of(&sink, "bad_step"), 1);
    assert_true(isfinite(r.loss));
    assert_true(sink.steps[4].v[BT_MS_LOSS] < sink.steps[0].v[BT_MS_LOSS] + 0.5);
}

static void bad_steps_in_a_row_end_the_run_and_name_the_tensor(void **state) {
    (void)state;
    memset(&sink, 0, sizeof sink);
    TINY(&cfg, "--steps", "50");
    poison.at = 2;
    sink.on_step = poison_after;
    poison.t = tiny_create(&cfg, &sink, NULL, "");
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_trainer_run(poison.t, &r, &err), BT_CHECK);
    bt_trainer_destroy(poison.t);
    memset(&sink, 0, sizeof sink);
    assert_non_null(strstr(err.msg, "5 consecutive steps"));
    assert_non_null(strstr(err.msg, "'embed'"));
}

static bt_request_box box;

static void ask_stop_after_three(void *arg, const bt_step_record *r) {
    (void)arg;
    if (r->step == 2) atomic_fetch_or(&box.bits, BT_REQ_STOP);
}

static void a_stop_ends_the_run_cleanly(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "50");
    memset(&sink, 0, sizeof sink);
    sink.on_step = ask_stop_after_three;
    bt_train_result r = tiny_run(&cfg, &sink, &box, "");
    sink.on_step = NULL;
    assert_true(r.stopped);
    /* The request arrives after step 2 and takes effect in step 3. */
    assert_int_equal(r.steps, 4);
    assert_int_equal(sink.n_steps, 4);
    assert_int_equal(fake_events_of(&sink, "stopped"), 1);
    /* The supervisor, which forwards the request, records its sender. */
    assert_int_equal(fake_events_of(&sink, "control"), 0);
}

static void halve_after_two(void *arg, const bt_step_record *r) {
    (void)arg;
    if (r->step != 1) return;
    double half = 0.5;
    uint64_t bits;
    memcpy(&bits, &half, sizeof bits);
    atomic_store(&box.lr_factor_bits, bits);
    atomic_fetch_or(&box.bits, BT_REQ_LR);
}

static void a_learning_rate_factor_scales_the_schedule(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "6", "--lr-schedule", "constant");
    memset(&sink, 0, sizeof sink);
    sink.on_step = halve_after_two;
    tiny_run(&cfg, &sink, &box, "");
    sink.on_step = NULL;
    assert_true(fabs(sink.steps[2].v[BT_MS_LR] - 3e-3) < 1e-12);
    assert_true(fabs(sink.steps[3].v[BT_MS_LR] - 1.5e-3) < 1e-12);
    assert_int_equal(fake_events_of(&sink, "control"), 1);
    assert_string_equal(sink.events[1].body, "{\"lr_factor\":0.5}");
    assert_string_equal(sink.events[1].title, "learning rate factor 0.5 from this step on");
    /* The request takes effect one step after it arrives. */
    assert_int_equal(sink.events[1].step, 2);
}

static void *resume_when_paused(void *arg) {
    (void)arg;
    /* Once the request is taken, the trainer is about to pause. */
    while (atomic_load(&box.bits) & BT_REQ_PAUSE) bt_sleep_ns(1000000);
    bt_sleep_ns(60000000);
    atomic_fetch_or(&box.bits, BT_REQ_EVAL);
    bt_sleep_ns(60000000);
    atomic_fetch_or(&box.bits, BT_REQ_RESUME);
    return NULL;
}

static pthread_t resumer;
static void pause_after_two(void *arg, const bt_step_record *r) {
    (void)arg;
    if (r->step != 1) return;
    atomic_fetch_or(&box.bits, BT_REQ_PAUSE);
    assert_int_equal(pthread_create(&resumer, NULL, resume_when_paused, NULL), 0);
}

static void a_pause_waits_evaluates_and_belongs_to_no_step(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "6", "--set", "data.val_frac=0.1", "--set", "train.eval_tokens=64",
         "--set", "train.eval_every=1000");
    memset(&sink, 0, sizeof sink);
    sink.on_step = pause_after_two;
    int64_t start = bt_now_ns();
    bt_train_result r = tiny_run(&cfg, &sink, &box, "");
    double whole_ms = (double)(bt_now_ns() - start) / 1e6, steps_ms = 0;
    pthread_join(resumer, NULL);
    sink.on_step = NULL;
    assert_int_equal(r.steps, 6);
    assert_int_equal(sink.n_steps, 6);
    for (int i = 0; i < 6; i++) steps_ms += sink.steps[i].v[BT_MS_STEP_TIME];
    /* No step includes the time of the pause. */
    assert_true(whole_ms - steps_ms >= 100);
    /* one evaluation requested during the pause, and one at the end */
    assert_int_equal(fake_events_of(&sink, "evaluation"), 2);
    assert_int_equal(fake_events_of(&sink, "paused"), 1);
    assert_int_equal(fake_events_of(&sink, "control"), 0);
    assert_int_equal(fake_events_of(&sink, "continued"), 1);
    for (size_t i = 0; i < sink.n_events; i++) {
        double pause_s;
        const char *title = sink.events[i].title;
        if (strcmp(sink.events[i].kind, "paused") == 0)
            assert_string_equal(title, "paused after step 3");
        if (strcmp(sink.events[i].kind, "continued") != 0) continue;
        assert_int_equal(sscanf(title, "resumed after a pause of %lf s", &pause_s), 1);
        assert_true(pause_s >= 0.1 && 1e3 * pause_s <= whole_ms + 50);
        assert_int_equal(sink.events[i].step, 2);
    }
}

static void validation_repeats_and_ends_the_run(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "7", "--set", "data.val_frac=0.1", "--set", "train.eval_every=3", "--set",
         "train.eval_tokens=300", "--lr", "1e-30");
    bt_train_result r = tiny_run(&cfg, &sink, NULL, "");
    assert_int_equal(fake_events_of(&sink, "evaluation"), 3);
    double a = sink.steps[2].v[BT_MS_VAL_LOSS], b = sink.steps[5].v[BT_MS_VAL_LOSS],
           c = sink.steps[6].v[BT_MS_VAL_LOSS];
    /* The weights are constant and the same sequences are evaluated each time. */
    assert_true(a == b && b == c && a == r.val_loss);
    assert_true(fabs(r.val_bits_per_byte - a / log(2)) < 1e-12);
    /* whole sequences of 32 */
    for (size_t i = 0, n = 0; i < sink.n_events; i++) {
        static const int64_t steps[] = {2, 5, 6};
        char begin[120];
        if (strcmp(sink.events[i].kind, "evaluation") != 0) continue;
        snprintf(begin, sizeof begin,
                 "{\"val_loss\":%.9g,\"bits_per_byte\":%.9g,\"tokens\":288,\"took_ms\":", a,
                 r.val_bits_per_byte);
        assert_memory_equal(sink.events[i].body, begin, strlen(begin));
        assert_true(atof(sink.events[i].body + strlen(begin)) > 0);
        snprintf(begin, sizeof begin,
                 "validation %.4f nats per token, %.4f bits per byte (288 tokens)", a,
                 r.val_bits_per_byte);
        assert_string_equal(sink.events[i].title, begin);
        assert_int_equal(sink.events[i].step, steps[n++]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_falls_and_every_step_is_recorded),
        cmocka_unit_test(facts_and_ranks_are_recorded_once),
        cmocka_unit_test(facts_are_complete),
        cmocka_unit_test(a_sink_may_take_events_alone),
        cmocka_unit_test(same_seed_same_bits_other_seed_other_bits),
        cmocka_unit_test(accumulation_equals_one_large_batch),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(phases_add_up_to_the_step),
        cmocka_unit_test(the_meter_is_a_conservation_law),
        cmocka_unit_test(statistics_describe_every_tensor),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(a_bad_step_is_not_applied_and_the_run_continues),
        cmocka_unit_test(bad_steps_in_a_row_end_the_run_and_name_the_tensor),
        cmocka_unit_test(a_stop_ends_the_run_cleanly),
        cmocka_unit_test(a_learning_rate_factor_scales_the_schedule),
        cmocka_unit_test(a_pause_waits_evaluates_and_belongs_to_no_step),
        cmocka_unit_test(validation_repeats_and_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
