/* test_memory_saver.c - states of a training in shared memory: the interval between them, when a state becomes valid,
 * and training without a folder for them. Tests with several ranks and hosts: test_memory_hosts.c,
 * cli.recovery.kill_memory. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/train/parts/memory_states/memory_saver.h"
#include "engine/train/trainer_impl.h"
#include "tests/tiny_run.h"

static void steps_between_two_states(void **state) {
    (void)state;
    static char object;
    static const struct {
        bool to;
        double copy_s, step_s;
        int64_t copies, want;
    } rows[] = {{false, 1, 1, 5, 1},
                {true, 0, 1, 5, 1},
                {true, 0, 0, 0, 1},
                {true, 1, 0, 5, 1},        /* the step time is unknown and a state exists */
                {true, 1, 0, 0, 1000},     /* no state exists yet */
                {true, 0.015, 0.25, 5, 3}, /* a fiftieth of the time */
                {true, 0.0151, 0.25, 5, 4},
                {true, 0.0151, 0.499, 5, 2},
                {true, 0.0051, 0.5, 5, 3}, /* a two-hundredth of the time if steps are slow */
                {true, 0.0001, 0.25, 5, 1},
                {true, 100, 0.25, 5, 1000},
                {true, INFINITY, 0.25, 5, 1000},
                {true, 1, INFINITY, 5, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bt_memory_saver m = {.to = rows[i].to ? (bt_memory_state *)(void *)&object : NULL,
                                   .copy_s = rows[i].copy_s,
                                   .copies = rows[i].copies};
        const int64_t got = bt_memory_saver_interval(&m, rows[i].step_s);
        if (got != rows[i].want) fail_msg("row %zu: %d", i, (int)got);
    }
}

static fake_sink sink;
static char folder[64], out[64];

/* Trains all ten steps; `row` is added to the state unless it is NULL. */
static void train_ten_steps(const char *memory_dir, const bt_state_row *row) {
    bt_err err = BT_ERR_INIT;
    bt_run_cfg cfg;
    bt_trainer *t = NULL;
    bt_train_result r;
    TINY(&cfg, "--out", out, "--set", "ckpt.memory=auto", "--set", "train.log_every=1");
    memset(&sink, 0, offsetof(fake_sink, on_step));
    const bt_sink to = fake_sink_of(&sink);
    if (bt_kernels_select(cfg.launch.isa, &err) != BT_OK || bt_threads_init(1, &err) != BT_OK)
        fail_msg("%s", err.msg);
    const bt_trainer_setup setup = {
        .cfg = &cfg, .sink = &to, .resume_dir = "", .attempt = 1, .memory_dir = memory_dir};
    if (bt_trainer_create(&t, &setup, &err) != BT_OK) fail_msg("%s", err.msg);
    if (row) bt_state_add(&t->saver.state, row);
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(r.steps, 10);
    assert_int_equal(sink.n_steps, 10);
    bt_trainer_destroy(t);
    bt_threads_release();
}

static int newest_step(void) {
    bt_memory_id id;
    return bt_memory_state_find(folder, &id, NULL) ? (int)id.step : 0;
}

static int most_seen;

/* The record already contains every step before the state that a run resumes from. */
static void a_state_is_not_ahead_of_the_record(void *arg, const bt_step_record *r) {
    (void)arg;
    const int step = newest_step();
    if (step > r->step)
        fail_msg("a state of step %d before the record of step %d", step, (int)r->step);
    if (step > most_seen) most_seen = step;
}

static void a_state_becomes_valid_after_its_record(void **state) {
    (void)state;
    most_seen = 0;
    sink.on_step = a_state_is_not_ahead_of_the_record;
    train_ten_steps(folder, NULL);
    sink.on_step = NULL;
    const char *fact = fake_fact(&sink, "memory_states");
    assert_true(fact && strncmp(fact, "two, ", 5) == 0);
    assert_true(most_seen >= 1 && newest_step() >= most_seen && newest_step() <= 10);
    bt_memory_state_drop(folder);
}

static void without_a_folder_training_continues(void **state) {
    (void)state;
    char none[96];
    snprintf(none, sizeof none, "%s/missing", folder);
    train_ten_steps(none, NULL);
    const char *fact = fake_fact(&sink, "memory_states");
    assert_true(fact && strncmp(fact, "none: ", 6) == 0 && strstr(fact, none));
    assert_int_equal(fake_events_of(&sink, "checkpoint_failed"), 0);
}

/* Writes a value that exceeds the space allocated at the start. */
static void write_growing_value(void *ctx, bt_json *j) {
    static int calls;
    (void)ctx;
    for (int i = 0; calls > 3 && i < 1 << 16; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        bt_json_int(j, key, i);
    }
    calls++;
}

static void a_state_that_cannot_be_written_is_the_last(void **state) {
    (void)state;
    train_ten_steps(folder, &(bt_state_row){.name = "growing", .save = write_growing_value});
    assert_int_equal(fake_events_of(&sink, "checkpoint_failed"), 1);
    for (size_t i = 0; i < sink.n_events; i++)
        if (strcmp(sink.events[i].kind, "checkpoint_failed") == 0)
            assert_non_null(strstr(sink.events[i].title, "no state is kept in memory from step"));
    assert_true(newest_step() >= 1 && newest_step() < 10);
    bt_memory_state_drop(folder);
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/dev/shm/bt-saver-XXXXXX");
    strcpy(out, "/tmp/bt-saver-XXXXXX");
    return !mkdtemp(folder) || !mkdtemp(out);
}

static int remove_folder(void **state) {
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", out);
    return rmdir(folder) != 0 ||
           system(command) != 0; /* NOLINT: the folder is created by this test */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_between_two_states),
        cmocka_unit_test(a_state_becomes_valid_after_its_record),
        cmocka_unit_test(without_a_folder_training_continues),
        cmocka_unit_test(a_state_that_cannot_be_written_is_the_last),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
