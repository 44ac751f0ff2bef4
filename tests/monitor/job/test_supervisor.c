// ctest: timeout=110
/* Whole runs: how attempts end, the next action, stop requests, and which delays are reported. */
#include <sys/syscall.h>

#include "run_stage.h"

/* The test replaces the creation of a folder for states in memory, which then fails. */
static bool no_states;
int mkdir(const char *path, mode_t mode) {
    const char *name = strrchr(path, '/');
    if (no_states && name && strcmp(name, "/states") == 0) return -1;
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

static void a_run_that_is_done(void **state) {
    stage *s = *state;
    char path[96], log[600] = "";
    run(s, PLAYS("ranks;steps 2;says hello;result {\"loss\":1}"),
        "attempt 0 from 0\nstep 0\nstep 1\n");
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_string_equal(s->result.result_json, "{\"loss\":1}");
    assert_true(!s->result.stopped && !s->result.signal);
    assert_int_equal(s->result.attempts, 1);
    assert_int_equal(s->result.restarts, 0);
    assert_string_equal(s->result.why_not_again, "");
    assert_int_equal(s->asked, 0);
    snprintf(path, sizeof path, "%s/log.txt", s->dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    log[fread(log, 1, sizeof log - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(log, "--- attempt 0\nhello\n");
    snprintf(path, sizeof path, "%s/control", s->dir); /* The control socket has been removed. */
    assert_int_not_equal(access(path, F_OK), 0);
}

/* A rank that is killed after a new step is started again at once; without a new step it is started after a delay, at
 * step 0 if there is no checkpoint. */
static void a_killed_rank_is_started_again(void **state) {
    stage *s = *state;
    s->resume_at = 1;
    /* Another process removes the map of the machine: the second attempt has it again. */
    run(s, PLAYS("maps;steps 3;unmaps;leaves;die 9", "maps;steps 3;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nstep 2\n"
        "failure -1 a rank was ended by signal 9 (Killed) after step 3\n"
        "ckpt_damaged -1 a newer one is damaged\nckpt_damaged -1 and another\n"
        "restarted -1 attempt 1 continues after step 1: a rank was ended by signal 9 (Killed) "
        "after "
        "step 3\n"
        "attempt 1 from 1\nstep 1\nstep 2\nstep 3\n");
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_int_equal(s->result.attempts, 2);
    assert_int_equal(s->result.restarts, 1);
    assert_int_equal(s->asked, 1);
}

/* mpirun of Open MPI 5 exits with 0 after it lost a host: the run is not done, and continues. */
static void an_early_end_with_code_0_is_no_end(void **state) {
    stage *s = *state;
    s->resume_at = 2;
    s->asked = 1; /* no damaged checkpoint */
    run(s, PLAYS("steps 3;says gone;leaves;exit 0", "steps 1;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nstep 2\n"
        "failure -1 mpirun ended with exit code 0 after step 3, before rank 0 had finished the "
        "run: gone\n"
        "restarted -1 attempt 1 continues after step 2: mpirun ended with exit code 0 after step "
        "3, before rank 0 had finished the run: gone\n"
        "attempt 1 from 2\nstep 2\n");
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_int_equal(s->result.restarts, 1);
}

static void an_early_end_without_restarts_fails(void **state) {
    stage *s = *state;
    s->setup.max_restarts = 0;
    run(s, PLAYS("steps 1;leaves;exit 0"), "attempt 0 from 0\nstep 0\n");
    assert_int_equal(s->result.end.kind, BT_END_OTHER);
    assert_int_equal(bt_end_exit_code(&s->result.end), 1);
    assert_string_equal(s->result.why_not_again, "0 restarts are allowed (launch.max_restarts)");
}

/* If the folder of checkpoints is missing, for example because it is not mounted, the supervisor waits: training does
 * not restart at step 0. */
static void missing_checkpoints_are_awaited(void **state) {
    stage *s = *state;
    char want[700];
    s->away = 1;
    s->resume_at = 2;
    snprintf(want, sizeof want,
             "attempt 0 from 0\nstep 0\nstep 1\n"
             "failure -1 a rank was ended by signal 9 (Killed) after step 2\n"
             "warning -1 attempt 1 cannot start: the checkpoint after step 2 is not in '%s' any "
             "more; next try in 1 s\n"
             "restarted -1 attempt 1 continues after step 2: a rank was ended by signal 9 (Killed) "
             "after step 2\nattempt 1 from 2\nstep 2\n",
             s->dir);
    run(s, PLAYS("steps 2;saves;leaves;die 9", "steps 1;result {}"), want);
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_int_equal(s->asked, 2);
}

/* A run that began from a checkpoint of another folder and saved none of its own begins there again. */
static void a_branch_begins_again_where_it_began(void **state) {
    stage *s = *state;
    s->setup.from = (bt_resume_point){.step = 5, .dir = "/5", .lr_factor = 1};
    run(s, PLAYS("steps 1;leaves;die 9", "steps 1;result {}"),
        "attempt 0 from 5\nstep 5\n"
        "failure -1 a rank was ended by signal 9 (Killed) after step 6\n"
        "restarted -1 attempt 1 continues after step 5: a rank was ended by signal 9 (Killed) "
        "after "
        "step 6\nattempt 1 from 5\nstep 5\n");
    assert_int_equal(s->result.end.kind, BT_END_DONE);
}

static void a_restart_without_a_new_step_is_delayed(void **state) {
    stage *s = *state;
    const int64_t began = bt_now_ns();
    run(s, PLAYS("alone;die 9", "steps 1;result {}"),
        "attempt 0 from 0\nfailure -1 a rank was ended by signal 9 (Killed) before the first step\n"
        "restarted -1 attempt 1 continues after step 0: a rank was ended by signal 9 (Killed) "
        "before "
        "the first step\n"
        "attempt 1 from 0\nstep 0\n");
    assert_true(bt_now_ns() - began >= 1000000000);
    assert_int_equal(s->result.restarts, 1);
}

/* A stop request ends the delay, and nothing is started. */
static void a_stop_ends_the_wait(void **state) {
    stage *s = *state;
    s->when = "before the first step\n";
    s->verb = "stop";
    run(s, PLAYS("alone;die 9", "steps 1;result {}"),
        "attempt 0 from 0\nfailure -1 a rank was ended by signal 9 (Killed) before the first step\n"
        "control -1 stop requested by key\n");
    assert_int_equal(s->result.end.kind, BT_END_SIGNAL);
    assert_string_equal(s->result.why_not_again, "a stop was requested");
    assert_int_equal(s->result.attempts, 1);
    assert_int_equal(s->result.restarts, 0);
    assert_false(s->result.stopped);
}

static void a_rank_that_dies_while_stopping(void **state) {
    stage *s = *state;
    s->when = "step 0\n";
    s->verb = "stop";
    run(s, PLAYS("steps 1;until stop;leaves;die 9", "steps 1;result {}"),
        "attempt 0 from 0\nstep 0\ncontrol -1 stop requested by key\n"
        "failure -1 a rank was ended by signal 9 (Killed) after step 1\n");
    assert_string_equal(s->result.why_not_again, "a stop was requested");
    assert_int_equal(s->result.attempts, 1);
    assert_false(s->result.stopped);
}

/* Restarted ranks are paused, too. */
static void a_paused_run_remains_paused(void **state) {
    stage *s = *state;
    s->when = "step 0\n";
    s->verb = "pause";
    run(s, PLAYS("steps 1;until pause;leaves;die 9", "until pause;steps 1;result {}"),
        "attempt 0 from 0\nstep 0\ncontrol -1 pause requested by key\n"
        "failure -1 a rank was ended by signal 9 (Killed) after step 1\n"
        "restarted -1 attempt 1 continues after step 0: a rank was ended by signal 9 (Killed) "
        "after "
        "step 1\n"
        "attempt 1 from 0\nstep 0\n");
    assert_int_equal(s->result.restarts, 1);
}

/* The same error ends a run whose ranks resumed from the disk. */
static void damaged_states_in_memory_are_no_end(void **state) {
    stage *s = *state;
    s->resume_at = 2;
    s->from_memory = true;
    run(s,
        PLAYS("steps 3;leaves;die 9", "says bitrain rank 0: error 4: 'x' is damaged;exit 3",
              "steps 1;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nstep 2\n"
        "failure -1 a rank was ended by signal 9 (Killed) after step 3\n"
        "ckpt_damaged -1 a newer one is damaged\nckpt_damaged -1 and another\n"
        "restarted -1 attempt 1 continues after step 2: a rank was ended by signal 9 (Killed) "
        "after "
        "step 3\n"
        "attempt 1 from 2\n"
        "failure 0 rank 0 failed after step 2: 'x' is damaged\n"
        "restarted -1 attempt 2 continues after step 2: rank 0 failed after step 2: 'x' is "
        "damaged\n"
        "attempt 2 from 2\nstep 2\n");
    assert_int_equal(s->result.restarts, 2);
    assert_int_equal(s->asked, 2);
}

static void without_memory_for_states_a_run_continues(void **state) {
    stage *s = *state;
    no_states = s->no_memory = true;
    s->resume_at = 1;
    run(s, PLAYS("steps 1;leaves;die 9", "steps 1;result {}"),
        "attempt 0 from 0\nstep 0\n"
        "failure -1 a rank was ended by signal 9 (Killed) after step 1\n"
        "ckpt_damaged -1 a newer one is damaged\nckpt_damaged -1 and another\n"
        "restarted -1 attempt 1 continues after step 1: a rank was ended by signal 9 (Killed) "
        "after "
        "step 1\n"
        "attempt 1 from 1\nstep 1\n");
    no_states = false;
    assert_int_equal(s->asked, 1);
}

/* If there is no keyboard input no key is read. */
static void keys_are_not_read_without_an_input(void **state) {
    stage *s = *state;
    s->setup.ui.input = NULL;
    assert_int_equal(write(s->key, "k", 1), 1);
    run(s, PLAYS("steps 1;result {}"), "attempt 0 from 0\nstep 0\n");
    char key = 0;
    assert_int_equal(read(s->setup.ui.input_fd, &key, 1), 1);
    assert_int_equal(key, 'k');
}

/* If the folders of the job cannot be created, nothing is started, no files remain, and the reason is reported. */
static void a_job_without_folders_does_not_begin(void **state) {
    stage *s = *state;
    char control[96], *before = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    bt_err err = BT_ERR_INIT;
    snprintf(control, sizeof control, "%s/control", s->dir);
    setenv("TMPDIR", "/nowhere", 1);
    assert_int_equal(bt_job_run(&s->setup, &s->result, &err), BT_IO);
    assert_non_null(strstr(err.msg, "cannot create '/nowhere/bitrain-"));
    assert_non_null(strstr(
        err.msg, " (set TMPDIR to a folder that can be written): No such file or directory"));
    assert_string_equal(s->shown, "");
    assert_int_equal(s->result.attempts, 0);
    assert_int_not_equal(access(control, F_OK), 0);
    if (before)
        setenv("TMPDIR", before, 1);
    else
        unsetenv("TMPDIR");
    free(before);
}

/* The reason given by a rank is reported; because it recurs there is no third attempt. */
static void an_error_that_recurs_is_not_tried_again(void **state) {
    stage *s = *state;
    run(s, PLAYS("steps 1;says bitrain rank 0: error 4: 'x' is damaged;exit 3"),
        "attempt 0 from 0\nstep 0\n");
    assert_int_equal(s->result.end.kind, BT_END_ERROR);
    assert_int_equal(s->result.end.rank, 0);
    assert_int_equal(s->result.end.code, 4);
    assert_string_equal(s->result.end.message, "'x' is damaged");
    assert_string_equal(s->result.why_not_again, "a restart would not help");
    assert_int_equal(s->result.restarts, 0);
}

static void no_restart_is_allowed(void **state) {
    stage *s = *state;
    s->setup.max_restarts = 0;
    run(s, PLAYS("steps 1;leaves;die 9"), "attempt 0 from 0\nstep 0\n");
    assert_int_equal(s->result.end.kind, BT_END_SIGNAL);
    assert_int_equal(s->result.end.step, 0);
    assert_string_equal(s->result.why_not_again, "0 restarts are allowed (launch.max_restarts)");
}

/* The training is finished and saved, so a rank that fails while exiting is no failure. */
static void a_rank_that_fails_after_the_end_is_no_failure(void **state) {
    stage *s = *state;
    run(s, PLAYS("steps 1;result {};leaves;exit 7"),
        "attempt 0 from 0\nstep 0\n"
        "warning -1 the run was complete, but mpirun then ended with exit code 7 (see log.txt)\n");
    assert_int_equal(s->result.end.kind, BT_END_DONE);
}

static void a_run_stops_on_request(void **state) {
    stage *s = *state;
    s->when = "step 0\n";
    s->verb = "stop";
    run(s, PLAYS("steps 1;until stop;steps 1;result {\"stopped\":true}"),
        "attempt 0 from 0\nstep 0\ncontrol -1 stop requested by key\nstep 1\n");
    assert_true(s->result.stopped);
    assert_int_equal(s->result.attempts, 1);
    assert_int_equal(s->result.signal, 0);
    assert_true(s->ticks > 0);
}

static bool had_no_terminal(void *ctx) {
    (void)ctx;
    return false;
}

static void stopped_by(stage *s, int signal, const char *name) {
    char shows[120];
    snprintf(shows, sizeof shows, "attempt 0 from 0\nstep 0\ncontrol -1 stop requested by %s\n",
             name);
    s->shown[0] = '\0';
    s->when = "step 0\n";
    s->signal = signal;
    run(s, PLAYS("steps 1;until stop;result {\"stopped\":true}"), shows);
    assert_true(s->result.stopped);
    assert_int_equal(s->result.signal, signal);
    bt_job_result_release(&s->result);
    memset(&s->result, 0, sizeof s->result);
}

/* The end of the terminal (SIGHUP) stops the run too, even if there is no terminal or no handler. */
static void a_signal_stops_it(void **state) {
    stage *s = *state;
    stopped_by(s, SIGTERM, "SIGTERM");
    stopped_by(s, SIGINT, "Ctrl-C");
    stopped_by(s, SIGUSR2, "SIGUSR2");
    stopped_by(s, SIGXCPU, "SIGXCPU (limit of processor time)");
    stopped_by(s, SIGHUP, "SIGHUP");
    s->setup.ui.hangup = had_no_terminal;
    stopped_by(s, SIGHUP, "SIGHUP");
}

/* A quit request kills the ranks at once, and nothing is started again. */
static void quit_stops_at_once(void **state) {
    stage *s = *state;
    s->when = "step 0\n";
    s->signal = SIGQUIT;
    run(s, PLAYS("steps 1;waits", "steps 1"),
        "attempt 0 from 0\nstep 0\nwarning -1 stopping at once, without a checkpoint\n");
    assert_int_equal(s->result.end.kind, BT_END_STOPPED_NOW);
    assert_int_equal(s->result.signal, SIGQUIT);
    assert_false(s->result.stopped);
    assert_int_equal(s->result.attempts, 1);
}

static bool had_terminal(void *ctx) {
    (void)ctx;
    return true;
}

static void on_away(void *ctx, bool away) { show(ctx, "away %d\n", (int)away); }

/* After a stop by the shell the screen is drawn again. */
static void a_run_continues_after_a_stop_signal(void **state) {
    stage *s = *state;
    s->when = "step 0\n";
    s->signal = SIGCONT;
    s->verb = "checkpoint";
    s->setup.ui.away = on_away;
    run(s, PLAYS("steps 1;until checkpoint;steps 1;result {}"),
        "attempt 0 from 0\nstep 0\ncontrol -1 checkpoint requested by key\naway 0\nstep 1\n");
    assert_int_equal(s->result.signal, 0);
}

static void the_terminal_is_closed(void **state) {
    stage *s = *state;
    s->when = "step 0\n";
    s->signal = SIGHUP;
    s->verb = "checkpoint";
    s->setup.ui.hangup = had_terminal;
    run(s, PLAYS("steps 1;until checkpoint;says x;says x;steps 1;result {}"),
        "attempt 0 from 0\nstep 0\ncontrol -1 checkpoint requested by key\n"
        "terminal -1 the terminal was closed; training continues\nstep 1\n");
    assert_false(s->result.stopped);
}

/* The pause was requested before a rank was connected. */
static void a_pause_is_shown(void **state) {
    stage *s = *state;
    s->when = "attempt 0";
    s->verb = "pause";
    run(s, PLAYS("until pause;steps 1;result {}"),
        "attempt 0 from 0\ncontrol -1 pause requested by key\nstep 0\n");
    assert_true(s->paused || s->ticks > 0);
}

/* If no step arrives for longer than the limit, the ranks are ended and restarted. */
static void ranks_that_hang_are_ended(void **state) {
    stage *s = *state;
    s->setup.hang_s = 2;
    run(s, PLAYS("steps 5;waits", "result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nstep 2\nstep 3\nstep 4\nfailure -1 no step for 2 s: the "
        "ranks are ended\n"
        "failure -1 no progress after step 5\n"
        "restarted -1 attempt 1 continues after step 0: no progress after step 5\nattempt 1 from "
        "0\n");
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_int_equal(s->result.restarts, 1);
}

/* The message contains a rank stopped by a signal; the rank is ended if a restart is permitted. */
static void a_stopped_rank_is_named(void **state) {
    stage *s = *state;
    s->setup.hang_s = 60;
    s->when = "step 4\n";
    s->verb = "checkpoint";
    run(s, PLAYS("ranks;steps 5;until checkpoint;die 19;waits", "result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nstep 2\nstep 3\nstep 4\n"
        "control -1 checkpoint requested by key\n"
        "stalled 0 rank 0 (pid) is stopped by a signal; the ranks are started again in 2 s, unless "
        "it continues (kill "
        "-CONT)\n"
        "failure 0 rank 0 (pid) is stopped by a signal: the ranks are ended after 2 s\n"
        "failure -1 no progress after step 5\n"
        "restarted -1 attempt 1 continues after step 0: no progress after step 5\nattempt 1 from "
        "0\n");
    assert_int_equal(s->result.restarts, 1);
}

/* Each warning of the ranks becomes an event, once. */
static void warnings_of_ranks_are_events(void **state) {
    stage *s = *state;
    s->when = "warning -1 odd";
    s->verb = "stop"; /* The supervisor waits for a rank. */
    run(s,
        PLAYS("says bitrain: warning: odd;says bitrain: warning: odd;until stop;steps 1;"
              "result {\"stopped\":true}"),
        "attempt 0 from 0\nwarning -1 odd\ncontrol -1 stop requested by key\nstep 0\n");
    assert_true(s->result.stopped);
}

static void status_by_the_socket(void **state) {
    stage *s = *state;
    int ends[2];
    char told[300] = "";
    assert_int_equal(pipe(ends), 0);
    const pid_t asker = fork();
    if (asker == 0) {
        char file[96], path[200] = "", reply[300] = "";
        bt_err err = BT_ERR_INIT;
        snprintf(file, sizeof file, "%s/control", s->dir);
        for (int i = 0; i < 20000; i++, bt_sleep_ns(1000000)) {
            FILE *f = fopen(file, "r");
            if (!f) continue;
            if (!fgets(path, sizeof path, f)) path[0] = '\0';
            fclose(f);
            path[strcspn(path, "\n")] = '\0';
            if (path[0] &&
                bt_control_call(path, "status #test", reply, sizeof reply, &err) == BT_OK &&
                strstr(reply, "\"step\":1"))
                break;
        }
        reply[strcspn(reply, ",") + 1] = '\0';
        (void)!write(ends[1], reply, strlen(reply));
        while (bt_control_call(path, "stop #test", reply, sizeof reply, &err) != BT_OK)
            bt_sleep_ns(1000000);
        _exit(0);
    }
    run(s, PLAYS("ranks;steps 2;until stop;result {\"stopped\":true}"),
        "attempt 0 from 0\nstep 0\nstep 1\ncontrol -1 stop requested by test\n");
    assert_true(read(ends[0], told, sizeof told - 1) > 0);
    assert_string_equal(told, "{\"run\":\"r\",");
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(asker, NULL, 0), asker);
}

static int tests(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, open_stage, close_stage)
    const struct CMUnitTest all[] = {
        T(a_run_that_is_done),
        T(an_early_end_with_code_0_is_no_end),
        T(an_early_end_without_restarts_fails),
        T(a_killed_rank_is_started_again),
        T(missing_checkpoints_are_awaited),
        T(a_branch_begins_again_where_it_began),
        T(a_restart_without_a_new_step_is_delayed),
        T(a_stop_ends_the_wait),
        T(a_rank_that_dies_while_stopping),
        T(a_paused_run_remains_paused),
        T(damaged_states_in_memory_are_no_end),
        T(without_memory_for_states_a_run_continues),
        T(keys_are_not_read_without_an_input),
        T(a_job_without_folders_does_not_begin),
        T(a_run_continues_after_a_stop_signal),
        T(an_error_that_recurs_is_not_tried_again),
        T(no_restart_is_allowed),
        T(a_rank_that_fails_after_the_end_is_no_failure),
        T(a_run_stops_on_request),
        T(a_signal_stops_it),
        T(quit_stops_at_once),
        T(the_terminal_is_closed),
        T(a_pause_is_shown),
        T(ranks_that_hang_are_ended),
        T(a_stopped_rank_is_named),
        T(warnings_of_ranks_are_events),
        T(status_by_the_socket),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(int argc, char **argv) { return stage_main(argc, argv, tests); }
