/* Alerts of a run: the events that raise one, and its forms: an event, a command with the alert in its environment, a
 * webhook by curl (here a script). Started programs inherit nothing from the supervisor. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "job_test.h"

static void use_rules(desk *d, const char *list) {
    static bt_alert_rules parsed;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_alert_parse(&parsed, list, &err), BT_OK);
    d->setup.alert.rules = &parsed;
    bt_job_alerts_open(&d->job);
}

/* Emits an event of the supervisor and discards the line it prints. */
static void emit_supervisor_event(desk *d, bt_event_kind kind, const char *title) {
    char *own = d->shown + strlen(d->shown);
    bt_job_event(&d->job, kind, -1, "%s", title);
    char *end = strchr(own, '\n') + 1;
    memmove(own, end, strlen(end) + 1);
}

static void events_with_an_alert(void **state) {
    desk *d = *state;
    bt_job_alerts_open(&d->job); /* no rules */
    emit_supervisor_event(d, BT_EVENT_FAILURE, "rank 1 died");
    bt_job_alerts_tick(&d->job, 1);
    desk_shows(d, "");
    assert_int_equal(d->job.alert_disk_ns, 0); /* the disk is not checked */
    use_rules(d, "rank lost\nrun stalled\nrun failed\nrun done");
    static const bt_event_kind none[] = {BT_EVENT_WARNING, BT_EVENT_NOTICE, BT_EVENT_ALERT,
                                         BT_EVENT_HOST_BACK};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        emit_supervisor_event(d, none[i], "not this");
    desk_shows(d, "");
    emit_supervisor_event(d, BT_EVENT_FAILURE, "rank 1 died");
    emit_supervisor_event(d, BT_EVENT_HOST_LOST, "host b");
    emit_supervisor_event(d, BT_EVENT_STALLED, "no step");
    desk_shows(d, "alert -1 rank lost: rank 1 died\nalert -1 rank lost: host b\n"
                  "alert -1 run stalled: no step\n");
}

/* The loss of an evaluation that no record follows is counted at the next tick, once for each step of training. */
static void losses_of_evaluations(void **state) {
    desk *d = *state;
    static const struct {
        int step;
        const char *body, *shows;
    } rows[] = {{7, "{\"val_loss\":2.5,\"n\":1}", ""},
                {8, "{\"n\":1}", ""},
                {8, NULL, ""},
                {9, "{\"val_loss\":3.5}", "alert -1 val_loss > 3: it is 3.5000 at step 10\n"},
                {10, "{\"val_loss\":1}", ""},
                {10, "{\"val_loss\":4}", ""},
                {11, "{\"val_loss\":null}", "alert -1 val_loss > 3: it is - at step 12\n"}};
    use_rules(d, "val_loss > 3");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        d->job.last_step = rows[i].step;
        bt_job_alerts_evaluation(&d->job, &(bt_event){.kind = BT_EVENT_EVALUATION,
                                                      .body = rows[i].body,
                                                      .step = rows[i].step});
        desk_shows(d, "");
        bt_job_alerts_tick(&d->job, 1);
        desk_shows(d, rows[i].shows);
    }
}

/* The disk of the run's folder is checked every ten seconds. */
static void the_disk_is_checked(void **state) {
    desk *d = *state;
    use_rules(d, "disk < 100000000 GiB");
    bt_job_alerts_tick(&d->job, 5);
    assert_int_equal(d->job.alert_disk_ns, 10000000005);
    assert_non_null(strstr(d->shown, "alert -1 disk < 100000000 GiB: "));
    assert_non_null(strstr(d->shown, " is free where the run keeps its checkpoints\n"));
    double free_pc = -1;
    assert_int_equal(sscanf(strchr(d->shown, '(') + 1, "%lf %%", &free_pc), 1);
    assert_true(free_pc >= 0 && free_pc <= 100);
    d->shown[0] = '\0';
    d->job.alerts.rule[0].reported = false;
    bt_job_alerts_tick(&d->job, 10000000004);
    desk_shows(d, "");
    bt_job_alerts_tick(&d->job, 10000000005);
    assert_true(d->shown[0] != '\0');
    assert_int_equal(d->job.alert_disk_ns, 20000000005);
    d->shown[0] = '\0';
    d->job.alerts.rule[0].reported = false;
    d->setup.out_dir = "/nonexistent";
    bt_job_alerts_tick(&d->job, 20000000005);
    desk_shows(d, "");
    use_rules(d, "disk < 0.0000001 %");
    d->setup.out_dir = "/dev/shm";
    bt_job_alerts_tick(&d->job, 30000000005);
    desk_shows(d, "");
}

static void ends_of_runs(void **state) {
    desk *d = *state;
    use_rules(d, "run failed\nrun done");
    d->job.last_step = 41;
    d->result.end = (bt_end){.kind = BT_END_DONE};
    bt_job_alerts_end(&d->job);
    desk_shows(d, "alert -1 run done: after step 42\n");
    d->result.end = (bt_end){.kind = BT_END_HUNG, .step = 41, .rank = -1};
    bt_job_alerts_end(&d->job);
    desk_shows(d, "alert -1 run failed: no progress after step 42\n");
    d->result.end = (bt_end){.kind = BT_END_STOPPED_NOW, .step = 41};
    bt_job_alerts_end(&d->job);
    d->result.end = (bt_end){.kind = BT_END_DONE};
    d->job.stop_asked = true;
    bt_job_alerts_end(&d->job);
    desk_shows(d, ""); /* The user requested the end, so there is no alert. */
}

static void wait_for_output(const char *path, const char *want) {
    char got[2048] = "";
    for (int i = 0; i < 20000; i++) {
        FILE *f = fopen(path, "r");
        if (f) {
            got[fread(got, 1, sizeof got - 1, f)] = '\0';
            fclose(f);
        }
        if (strstr(got, "\nend\n")) break;
        bt_sleep_ns(1000000);
    }
    assert_string_equal(got, want);
}

/* Checks for a clean environment: no terminal, signals, descriptors or children of the supervisor. */
#define OF_ITSELF \
    "[ $(cut -d' ' -f6 /proc/$$/stat) != %d ] && echo own session; readlink /proc/$$/fd/0 " \
    "/proc/$$/fd/2; " \
    "ls -l /proc/$$/fd | grep -c /status; grep -E 'Sig(Blk|Ign)' /proc/$$/status | cut -f2; "

static void a_command_is_run(void **state) {
    desk *d = *state;
    char command[1024], path[128];
    sigset_t hup, before;
    snprintf(path, sizeof path, "%s/told", d->dir);
    snprintf(command, sizeof command,
             "{ echo \"$BITRAIN_RUN|$BITRAIN_ALERT|$BITRAIN_STEP|$KEPT\"; " OF_ITSELF
             "echo end; } > %s.new; mv %s.new %s",
             (int)getsid(0), path, path, path);
    setenv("KEPT", "of ours", 1);
    sigemptyset(&hup);
    sigaddset(&hup, SIGHUP);
    sigprocmask(SIG_BLOCK, &hup, &before);
    signal(SIGUSR1, SIG_IGN);
    const int open_here = open("/proc/self/status", O_RDONLY), in = dup(0), out = dup(2);
    dup2(open_here, 0);
    dup2(open_here, 2);
    d->setup.alert.command = command;
    d->job.last_step = 6;
    use_rules(d, "run done");
    d->result.end = (bt_end){.kind = BT_END_DONE};
    bt_job_alerts_end(&d->job);
    dup2(in, 0);
    dup2(out, 2);
    close(in);
    close(out);
    wait_for_output(path, "r|run done: after step 7|7|of ours\nown "
                          "session\n/dev/null\n/dev/null\n0\n0000000000000000\n"
                          "0000000000000000\nend\n");
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGUSR1, SIG_DFL);
    close(open_here);
    desk_shows(d, "alert -1 run done: after step 7\n");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* The process was reaped. */
}

static void a_webhook_is_called(void **state) {
    desk *d = *state;
    char curl[128], path[128];
    snprintf(curl, sizeof curl, "%s/curl", d->dir);
    snprintf(path, sizeof path, "%s/told", d->dir);
    FILE *f = fopen(curl, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n{ for w; do echo \"$w\"; done; echo end; } > %s.new\nmv %s.new %s\n",
            path, path, path);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(curl, 0700), 0);
    d->setup.alert.curl = curl;
    d->setup.alert.webhook = "http://there/\"hook\"";
    d->job.last_step = 6;
    use_rules(d, "rank lost");
    emit_supervisor_event(d, BT_EVENT_FAILURE, "a \"word\"");
    wait_for_output(path, "-sS\n-m\n10\n-H\nContent-Type: application/json\n--data-binary\n"
                          "{\"run\":\"r\",\"step\":7,\"alert\":\"rank lost: a \\\"word\\\"\"}\n--\n"
                          "http://there/\"hook\"\nend\n");
    desk_shows(d, "alert -1 rank lost: a \"word\"\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(events_with_an_alert, desk_open, desk_close),
        cmocka_unit_test_setup_teardown(losses_of_evaluations, desk_open, desk_close),
        cmocka_unit_test_setup_teardown(the_disk_is_checked, desk_open, desk_close),
        cmocka_unit_test_setup_teardown(ends_of_runs, desk_open, desk_close),
        cmocka_unit_test_setup_teardown(a_command_is_run, desk_open, desk_close),
        cmocka_unit_test_setup_teardown(a_webhook_is_called, desk_open, desk_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
