// ctest: timeout=120
/* Actions that keys offer in each state of a run, and the message after the run has executed them. */
#include <unistd.h>

#include "played_screens.h"

/* A live process trains the runs running and paused; a dead one trained lost; stopped ended on this host with steps
 * left; done made all steps. */
static const char *const states[] = {"running", "paused", "lost", "stopped", "done"};
enum { STATES = sizeof states / sizeof states[0] };

/* one text per state in the order above; NULL: only a note that the run is not live */
static const struct {
    const char *keys, *says[STATES];
} table[] = {
    {"~P~",
     {"running: pause?", "paused: resume?", "lost: resume the training?",
      "stopped: resume the training?", NULL}},
    {"~C~",
     {"running: write a checkpoint now?", "paused: write a checkpoint now?", NULL, NULL, NULL}},
    {"~S~", {"running: checkpoint and stop?", "paused: checkpoint and stop?", NULL, NULL, NULL}},
    {"~E~",
     {"running: evaluate the validation split?", "paused: evaluate the validation split?", NULL,
      NULL, NULL}},
    {"~L~", {"peak learning rate: _", "peak learning rate: _", NULL, NULL, NULL}},
    {"~W~", {"write on from: _", "write on from: _", NULL, NULL, NULL}},
    {"~m~", {"note: _", "note: _", "note: _", "note: _", "note: _"}},
    {"~M~",
     {"note of the run: _", "note of the run: _", "note of the run: _", "note of the run: _",
      "note of the run: _"}},
    {"~T~",
     {"tags (+add -drop): _", "tags (+add -drop): _", "tags (+add -drop): _",
      "tags (+add -drop): _", "tags (+add -drop): _"}},
    {"~U~",
     {"running is live: it keeps its name", "paused is live: it keeps its name", "new name: lost_",
      "new name: stopped_", "new name: done_"}},
    {"~D~",
     {"running is live: stop it first", "paused is live: stop it first",
      "lost: remove its records for good?", "stopped: remove its records for good?",
      "done: remove its records for good?"}},
};

static void actions_depend_on_the_state(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        for (int s = 0; s < STATES; s++) {
            const char *says = table[i].says[s];
            check(states[s], table[i].keys, says ? says : "the run is not live", true, 110, 30);
            assert_string_equal(done, "");
        }
}

/* Writes the records that a run writes after a request. */
static void write_outcome(const char *run, const char *verb) {
    static const struct {
        const char *verb, *kind, *title;
    } of[] = {{"pause", "paused", "paused after step 13"},
              {"resume", "continued", "resumed after a pause of 2.0 s"},
              {"checkpoint", "checkpoint", "checkpoint of step 13"},
              {"stop", "stopped", "stopped after step 13 of 20"},
              {"eval", "refused", "there is no validation split"},
              {"sample", "sample", "a sample after Once"}};
    char sql[700];
    /* A scheduled sample does not confirm the request. */
    if (strcmp(verb, "sample") == 0) {
        snprintf(
            sql, sizeof sql,
            "INSERT INTO event(run, t_us, step, kind, level, title, body) SELECT id, last_us, 12, "
            "'sample', 0, 'sample: the scheduled one', json_object('text', 'x') FROM run WHERE "
            "name = "
            "'%s'",
            run);
        store_sql(sql);
    }
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        if (strcmp(of[i].verb, verb) != 0) continue;
        snprintf(
            sql, sizeof sql,
            "INSERT INTO event(run, t_us, step, kind, level, title) SELECT id, last_us, 12, "
            "'control', 0, '%s requested by top' FROM run WHERE name = '%s'; "
            "INSERT INTO event(run, t_us, step, kind, level, title, body) SELECT id, last_us, "
            "12, '%s', 0, '%s', json_object('asked', 1, 'text', 'y') FROM run WHERE name = '%s'",
            verb, run, of[i].kind, of[i].title, run);
        store_sql(sql);
    }
}

/* The message after a request is its outcome, which may be a refusal. */
static void the_message_is_the_outcome(void **state) {
    static const struct {
        const char *run, *keys, *does, *says;
    } asks[] = {
        {"running", "~C~y~~", "control running checkpoint", "running: checkpoint of step 13"},
        {"running", "~E~y~~", "control running eval", "running: there is no validation split"},
        {"running", "~WOnce\r~~", "control running sample Once", "running: a sample after Once"},
        {"running", "~P~y~~", "control running pause", "running: paused after step 13"},
        {"running", "~P~y~~", "control running resume", "running: resumed after a pause of 2.0 s"},
        {"running", "~S~y~~", "control running stop", "running: stopped after step 13 of 20"},
    };
    (void)state;
    on_control = write_outcome;
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        check(asks[i].run, asks[i].keys, asks[i].says, true, 110, 30);
        assert_string_equal(done, asks[i].does);
    }
    on_control = NULL;
    /* The request itself is shown until there is an outcome, and no older event is shown as the outcome. */
    check("paused", "~C~y~~", "checkpoint is under way", true, 110, 30);
    check("paused", "~L3e-4\r~~", "set lr=3e-4 is under way", true, 110, 30);
}

static int make_states(void **state) {
    bt_err err = BT_ERR_INIT;
    char here[64] = "", sql[1000];
    if (make_store(state) != 0) return -1;
    FILE *out = stdout;
    stdout = fopen("/dev/null", "w");
    bt_code code = BT_OK;
    /* This process writes the run at the present time. */
    for (int s = 0; s < STATES && code == BT_OK; s++) {
        bt_synth made = bt_synth_default(states[s]);
        made.ranks = 1;
        made.steps = 4;
        made.pace_ms = 1;
        made.live = s < 3;
        made.start_us += s;
        code = bt_synth_make(db_path, &made, &err);
    }
    fclose(stdout);
    stdout = out;
    if (code != BT_OK) return -1;
    gethostname(here, sizeof here - 1);
    snprintf(
        sql, sizeof sql,
        "INSERT INTO event(run, t_us, step, kind, level, title) SELECT id, last_us, 3, 'paused', "
        "0, 'paused after step 4' FROM run WHERE name = 'paused'; "
        "UPDATE run SET state = 'stopped', exit_kind = 'stopped', host = '%s' WHERE name = "
        "'stopped'; "
        "UPDATE run SET pid = 2147483646, host = '%s', last_us = last_us - 100000000 WHERE name = "
        "'lost'; UPDATE attempt SET ended_us = NULL WHERE run IN (SELECT id FROM run WHERE name "
        "= 'lost')",
        here, here);
    store_sql(sql);
    return 0;
}

int main(void) {
    by_the_clock = true;
    const struct CMUnitTest tests[] = {cmocka_unit_test(actions_depend_on_the_state),
                                       cmocka_unit_test(the_message_is_the_outcome)};
    return cmocka_run_group_tests(tests, make_states, drop_store);
}
