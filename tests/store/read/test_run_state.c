/* The state of a run follows from its row, its process and the time since its newest record; so does the time at which
 * the run ended. */
#include "../store_test.h"
#include "store/read/run_state.h"

enum { NO_PROCESS = 0x7ffffff0 }; /* No process has this number. */

static void a_dead_process_has_lost_its_run(void **state) {
    (void)state;
    char here[BT_HOST_MAX] = "";
    const int mine = (int)getpid();
    gethostname(here, sizeof here - 1);
    const struct {
        const char *state, *host;
        int pid;
        const char *want;
    } rows[] = {{"running", here, mine, "running"},
                {"running", here, NO_PROCESS, "lost"},
                {"paused", here, mine, "paused"},
                {"paused", here, NO_PROCESS, "lost"},
                {"running", "elsewhere", NO_PROCESS, "running"},
                {"running", "", NO_PROCESS, "running"},
                {"running", here, 0, "running"},
                {"running", here, -5, "running"},
                {"done", here, NO_PROCESS, "done"},
                {"failed", here, NO_PROCESS, "failed"},
                {"stopped", here, NO_PROCESS, "stopped"},
                {"lost", here, mine, "lost"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(bt_run_state_word(rows[i].state, rows[i].host, rows[i].pid),
                            rows[i].want);
}

static void silence_of_half_a_minute_or_ten_steps(void **state) {
    (void)state;
    static const struct {
        const char *state;
        double age_s, step_s;
        bool ended;
        bt_run_state want;
    } rows[] = {{"running", 0, NAN, false, BT_STATE_RUNNING},
                {"running", 30, NAN, false, BT_STATE_RUNNING},
                {"running", 30.1, NAN, false, BT_STATE_STALLED},
                {"running", 30, 1, false, BT_STATE_RUNNING},
                {"running", 30.1, 1, false, BT_STATE_STALLED},
                {"running", 40, 4, false, BT_STATE_RUNNING},
                {"running", 40.1, 4, false, BT_STATE_STALLED},
                {"running", 0, 1, true, BT_STATE_RESTARTING},
                {"running", 1000, 1, true, BT_STATE_RESTARTING},
                {"paused", 1000, 1, false, BT_STATE_PAUSED},
                {"paused", 0, 1, true, BT_STATE_RESTARTING},
                {"lost", 1000, 1, true, BT_STATE_LOST},
                {"done", 1000, 1, true, BT_STATE_DONE},
                {"stopped", 0, 1, true, BT_STATE_STOPPED},
                {"failed", 1000, 1, false, BT_STATE_FAILED},
                {"of a later bitrain", 0, 1, false, BT_STATE_RUNNING}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const bt_run_state got = bt_run_state_of(rows[i].state, rows[i].age_s, rows[i].step_s,
                                                 rows[i].ended);
        if (got != rows[i].want) fail_msg("row %zu: %s", i, bt_run_states[got].name);
    }
}

static void the_time_of_a_live_run_counts(void **state) {
    (void)state;
    for (int k = 0; k < BT_STATE_COUNT; k++) {
        const bt_ledger_until u = bt_run_until((bt_run_state)k, 77);
        const bool alive = k == BT_STATE_STARTING || k == BT_STATE_RUNNING ||
                           k == BT_STATE_PAUSED || k == BT_STATE_STOPPING ||
                           k == BT_STATE_RESTARTING || k == BT_STATE_LOST;
        assert_int_equal(u.alive, alive);
        assert_int_equal(u.now_us, k == BT_STATE_LOST ? 0 : 77);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_dead_process_has_lost_its_run),
                                       cmocka_unit_test(silence_of_half_a_minute_or_ten_steps),
                                       cmocka_unit_test(the_time_of_a_live_run_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
