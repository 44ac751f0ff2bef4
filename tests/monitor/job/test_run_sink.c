// ctest: timeout=60
/* Records of the ranks reach the supervisor, the screen and the database; events of the supervisor, their alerts and
 * their format. */
#include <math.h>
#include <sys/stat.h>

#include <sqlite3.h>

#include "job_test.h"

static double value_of(const desk *d, const char *sql) {
    char path[96];
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    double x = NAN;
    snprintf(path, sizeof path, "%s/m.db", d->dir);
    assert_int_equal(bt_db_open(&db, path, &err), BT_OK);
    assert_int_equal(bt_db_value(db, sql, "r", &x, &err), BT_OK);
    bt_db_close(db);
    return x;
}

static void write_to_a_database(desk *d) {
    const bt_run_start start = {.name = "r",
                                .reason = "start",
                                .argv = "",
                                .config_json = "{}",
                                .host = "h",
                                .user = "",
                                .build = "",
                                .mpi = "",
                                .note = "",
                                .out_dir = d->dir,
                                .world_size = 2,
                                .pid = 1};
    char path[96];
    int attempt;
    bt_err err = BT_ERR_INIT;
    snprintf(path, sizeof path, "%s/m.db", d->dir);
    assert_int_equal(bt_writer_open(&d->setup.writer, path, 1, &err), BT_OK);
    assert_int_equal(bt_writer_begin(d->setup.writer, &start, &attempt, &err), BT_OK);
    bt_job_run_sink(&d->job);
}

static void write_all(desk *d) {
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_writer_flush(d->setup.writer, &err), BT_OK);
}

static void on_step(void *ctx, const bt_step_record *r) {
    desk *d = ctx;
    const size_t n = strlen(d->shown);
    snprintf(d->shown + n, sizeof d->shown - n, "step %d\n", (int)r->step);
}

/* The supervisor inspects, shows and stores every record of a rank. */
static void records_of_ranks(void **state) {
    desk *d = *state;
    double values[BT_MS_COUNT];
    bt_rank_info ranks[3] = {{.rank = 0, .pid = 70, .isa = "x"},
                             {.rank = 1, .pid = 71, .isa = "x"},
                             {.rank = 2, .pid = 72, .isa = "x"}};
    gethostname(ranks[0].host, sizeof ranks[0].host - 1);
    strcpy(ranks[1].host, "far.example");
    gethostname(ranks[2].host, sizeof ranks[2].host - 1);
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = i + 0.5;
    write_to_a_database(d);
    d->setup.ui.step = on_step;
    desk_connect(d);
    const bt_sink *to = bt_wire_sink(d->rank);
    to->ranks(to->ctx, ranks, 3);
    to->step(to->ctx, &(bt_step_record){.step = 0, .wall_us = 1700000000000000, .values = values});
    to->step(to->ctx, &(bt_step_record){.step = 1, .wall_us = 1700000001000000, .values = values});
    to->event(to->ctx, &(bt_event){.kind = BT_EVENT_RANK_LEAVES,
                                   .step = 1,
                                   .rank = 1,
                                   .wall_us = 1700000001000000,
                                   .title = "leaves"});
    to->checkpoint(to->ctx, &(bt_ckpt_record){
                                .step = 2, .wall_us = 1700000001000000, .path = "/c", .hash = "h"});
    to->result(to->ctx, "{\"first\":1}");
    to->result(to->ctx, "{\"stopped\":true}");
    while (!d->job.complete || strcmp(d->result.result_json, "{\"stopped\":true}") != 0)
        desk_serve(d);
    assert_int_equal(d->job.n_ranks, 2);
    assert_int_equal(d->job.ranks[0].rank, 0);
    assert_int_equal(d->job.ranks[0].pid, 70);
    assert_int_equal(d->job.ranks[1].rank, 2);
    assert_int_equal(d->job.ranks[1].pid, 72);
    assert_int_equal(d->job.n_remote, 1);
    assert_int_equal(d->job.far[0].rank, 1);
    assert_string_equal(d->job.far[0].host, "far.example");
    assert_int_equal(d->job.last_step, 1);
    assert_int_equal(d->job.leaving, 1);
    assert_true(d->job.health.n == 1 && d->job.health.last_ns > 0);
    desk_shows(d, "step 0\nstep 1\nrank_leaves 1 leaves\n");
    write_all(d);
    assert_int_equal((int)value_of(d, "SELECT count(*) FROM steps WHERE run = ?1"), 2);
    assert_int_equal((int)value_of(d, "SELECT count(*) FROM ranks WHERE run = ?1"), 3);
    assert_int_equal((int)value_of(d, "SELECT count(*) FROM checkpoints WHERE run = ?1"), 1);
    assert_int_equal(
        (int)value_of(d, "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'rank_leaves'"), 1);
    bt_job_view v;
    bt_job_read_view(&d->job, &v);
    assert_int_equal(v.committed_step, 1);
    assert_int_equal(v.step, 1);
    /* Ranks of the next attempt replace these. */
    to->ranks(to->ctx, ranks + 1, 1);
    while (d->job.n_ranks) desk_serve(d);
    assert_int_equal(d->job.n_remote, 1);
    bt_writer_close(d->setup.writer);
}

/* Records before the end of a step count as signs of progress. */
static void signs_of_life(void **state) {
    desk *d = *state;
    const bt_sink *look = &d->job.into.look;
    int64_t *last_ns = &d->job.health.last_ns;
    *last_ns = 1;
    look->event(look->ctx, &(bt_event){.kind = BT_EVENT_NOTICE, .title = "t"});
    assert_true(*last_ns > 1);
    *last_ns = 1;
    look->checkpoint(look->ctx, &(bt_ckpt_record){.step = 2, .path = "/c", .hash = "h"});
    assert_true(*last_ns > 1);
}

/* If there are more ranks than the sink can store, the first ones are kept. */
static void ranks_beyond_the_capacity_are_dropped(void **state) {
    desk *d = *state;
    enum { MANY = 700 };
    bt_rank_info *ranks = calloc(MANY, sizeof *ranks);
    const bt_sink *look = &d->job.into.look;
    for (int r = 0; r < MANY; r++) {
        ranks[r] = (bt_rank_info){.rank = r, .pid = 1000 + r};
        if (r % 2)
            strcpy(ranks[r].host, "far.example");
        else
            gethostname(ranks[r].host, sizeof ranks[r].host - 1);
    }
    look->ranks(look->ctx, ranks, MANY);
    assert_int_equal(d->job.n_ranks, BT_JOB_LOCAL_RANKS);
    assert_int_equal(d->job.ranks[BT_JOB_LOCAL_RANKS - 1].rank, 2 * (BT_JOB_LOCAL_RANKS - 1));
    assert_int_equal(d->job.n_remote, BT_JOB_REMOTE_RANKS);
    assert_int_equal(d->job.far[BT_JOB_REMOTE_RANKS - 1].rank, 2 * BT_JOB_REMOTE_RANKS - 1);
    free(ranks);
}

/* Each event goes to the screen, the record, or both; a failure contains the positions of the ranks. */
static void events_of_the_supervisor(void **state) {
    desk *d = *state;
    write_to_a_database(d);
    d->job.last_step = 7;
    bt_job_event(&d->job, BT_EVENT_FAILURE, 1, "rank %d died", 1);
    strcpy(d->job.where, "rank 1 is in data");
    bt_job_event(&d->job, BT_EVENT_FAILURE, 1, "again");
    bt_job_event(&d->job, BT_EVENT_WARNING, -1, "other");
    bt_job_stalled(&d->job, 0, 12.3456, "silent");
    bt_job_event_body(&d->job, BT_EVENT_RESIZED, "sized", "{\"from\":1}");
    bt_job_show(&d->job, BT_EVENT_NOTICE, "shown");
    bt_job_record(&d->job, BT_EVENT_FAILURE, 2, "recorded");
    desk_shows(d, "failure 1 rank 1 died\nfailure 1 again {\"places\":\"rank 1 is in "
                  "data\"}\nwarning -1 other\n"
                  "stalled 0 silent {\"silent_ms\":12345.600}\nresized -1 sized "
                  "{\"from\":1}\nnotice -1 shown\n");
    write_all(d);
    assert_int_equal((int)value_of(d, "SELECT count(*) FROM events WHERE run = ?1 AND step = 7"),
                     6);
    assert_int_equal(
        (int)value_of(d, "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'notice'"), 0);
    assert_int_equal(
        (int)value_of(d,
                      "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'failure' AND body = "
                      "'{\"places\":\"rank 1 is in data\"}'"),
        2);
    assert_int_equal(
        (int)value_of(d, "SELECT rank FROM events WHERE run = ?1 AND title = 'recorded'"), 2);
    bt_writer_close(d->setup.writer);
}

static bt_alert_rules rules_of(const char *text) {
    bt_alert_rules rules;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_alert_parse(&rules, text, &err), BT_OK);
    return rules;
}

static void alerts_are_raised_once_for_each_cause(void **state) {
    desk *d = *state;
    const bt_alert_rules rules = rules_of(
        "loss > 3\nval_loss > 2\nrank lost\nrun stalled\nrun failed\nrun done\n"
        "disk < 99.99999 %");
    const bt_sink *look = &d->job.into.look;
    double values[BT_MS_COUNT];
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    bt_job_alerts_tick(&d->job, 1); /* no rules, no check */
    assert_int_equal(d->job.alert_disk_ns, 0);
    d->setup.alert.rules = &rules;
    bt_job_alerts_open(&d->job);
    values[BT_MS_LOSS] = 4;
    look->step(look->ctx, &(bt_step_record){.step = 4, .values = values});
    desk_shows(d, "alert -1 loss > 3: it is 4.0000 at step 5\n");
    /* the event of an evaluation, then the record of its step */
    look->event(look->ctx, &(bt_event){.kind = BT_EVENT_EVALUATION,
                                       .step = 5,
                                       .title = "e",
                                       .body = "{\"n\":1,\"val_loss\":2.5,\"x\":0}"});
    desk_shows(d, "evaluation 0 e {\"n\":1,\"val_loss\":2.5,\"x\":0}\n");
    values[BT_MS_LOSS] = 2;
    values[BT_MS_VAL_LOSS] = 2.5;
    look->step(look->ctx, &(bt_step_record){.step = 5, .values = values});
    desk_shows(d, "alert -1 val_loss > 2: it is 2.5000 at step 6\n");
    /* A loss within the limit, then one that is not finite, which exceeds every limit. */
    static const char *const bodies[] = {"{\"val_loss\":1}", "{\"val_loss\":null}"};
    for (int i = 0; i < 2; i++) {
        values[BT_MS_VAL_LOSS] = i == 0 ? 1 : NAN;
        look->event(look->ctx, &(bt_event){.kind = BT_EVENT_EVALUATION,
                                           .step = 6 + i,
                                           .title = "e",
                                           .body = bodies[i]});
        d->shown[0] = '\0';
        look->step(look->ctx, &(bt_step_record){.step = 6 + i, .values = values});
        desk_shows(d, i == 0 ? "" : "alert -1 val_loss > 2: it is - at step 8\n");
    }
    look->event(look->ctx, &(bt_event){.kind = BT_EVENT_EVALUATION, .title = "e", .body = "{}"});
    look->event(look->ctx, &(bt_event){.kind = BT_EVENT_EVALUATION, .title = "e"});
    look->event(look->ctx,
                &(bt_event){.kind = BT_EVENT_WARNING, .title = "w", .body = "{\"val_loss\":9}"});
    assert_null(strstr(d->shown, "alert"));
    d->shown[0] = '\0';
    d->shown[0] = '\0';
    bt_job_event(&d->job, BT_EVENT_FAILURE, 1, "f");
    bt_job_event(&d->job, BT_EVENT_HOST_LOST, -1, "h");
    bt_job_stalled(&d->job, 0, 1, "s");
    bt_job_event(&d->job, BT_EVENT_WARNING, -1, "w");
    bt_job_show(&d->job, BT_EVENT_FAILURE, "shown only");
    desk_shows(d, "failure 1 f\nalert -1 rank lost: f\nhost_lost -1 h\nalert -1 rank lost: h\n"
                  "stalled 0 s {\"silent_ms\":1000.000}\nalert -1 run stalled: s\nwarning -1 "
                  "w\nfailure -1 shown only\n");
    bt_job_alerts_tick(&d->job, 5);
    assert_non_null(strstr(d->shown, "alert -1 disk < 99.99999 %: "));
    assert_int_equal(d->job.alert_disk_ns, INT64_C(10000000005));
    d->shown[0] = '\0';
    bt_job_alerts_tick(&d->job, INT64_C(10000000004));
    assert_int_equal(d->job.alert_disk_ns, INT64_C(10000000005));
    bt_job_alerts_tick(&d->job, INT64_C(10000000005));
    assert_int_equal(d->job.alert_disk_ns, INT64_C(20000000005));
    desk_shows(d, ""); /* The condition is still true. */
}

/* An evaluation arrives as an event and in the record of its step, and the rules count it once. The alert has the
 * evaluation's step and follows it in the record. */
static void an_evaluation_is_counted_once(void **state) {
    desk *d = *state;
    const bt_alert_rules rules = rules_of("val_loss not better for 3");
    static const double losses[] = {2.12345678901, 2.5, 2.4, 2.3, 2.2};
    double values[BT_MS_COUNT];
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    values[BT_MS_LOSS] = 1;
    write_to_a_database(d);
    d->setup.alert.rules = &rules;
    bt_job_alerts_open(&d->job);
    desk_connect(d);
    const bt_sink *to = bt_wire_sink(d->rank);
    for (int step = 0; step < 50; step++) {
        char body[80];
        values[BT_MS_VAL_LOSS] = step % 10 == 9 ? losses[step / 10] : NAN;
        snprintf(body, sizeof body, "{\"val_loss\":%.9g}", values[BT_MS_VAL_LOSS]);
        if (step % 10 == 9)
            to->event(to->ctx, &(bt_event){.kind = BT_EVENT_EVALUATION,
                                           .step = step,
                                           .wall_us = 1700000000000000 + step,
                                           .title = "e",
                                           .body = body});
        to->step(to->ctx, &(bt_step_record){
                              .step = step, .wall_us = 1700000000000000 + step, .values = values});
    }
    while (d->job.last_step < 49) desk_serve(d);
    write_all(d);
    assert_int_equal(
        (int)value_of(d, "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'alert'"), 1);
    assert_int_equal((int)value_of(d, "SELECT step FROM events WHERE run = ?1 AND kind = 'alert'"),
                     39);
    assert_int_equal(
        (int)value_of(d, "SELECT a.seq > e.seq FROM events a JOIN events e ON e.run = a.run AND "
                         "e.kind = 'evaluation' AND e.step = a.step "
                         "WHERE a.run = ?1 AND a.kind = 'alert'"),
        1);
    bt_writer_close(d->setup.writer);
}

/* Alerts at the end of a run; a run stopped by request has none. */
static void alerts_at_the_end(void **state) {
    desk *d = *state;
    const bt_alert_rules rules = rules_of("run failed\nrun done");
    d->setup.alert.rules = &rules;
    bt_job_alerts_open(&d->job);
    d->job.last_step = 9;
    d->result.end = (bt_end){.kind = BT_END_DONE};
    bt_job_alerts_end(&d->job);
    desk_shows(d, "alert -1 run done: after step 10\n");
    d->result.end = (bt_end){.kind = BT_END_SIGNAL, .rank = 1, .signal = 9, .step = 9};
    bt_job_alerts_end(&d->job);
    desk_shows(d, "alert -1 run failed: rank 1 was ended by signal 9 (Killed) after step 10\n");
    d->result.end = (bt_end){.kind = BT_END_STOPPED_NOW};
    bt_job_alerts_end(&d->job);
    d->job.stop_asked = true;
    d->result.end = (bt_end){.kind = BT_END_DONE};
    bt_job_alerts_end(&d->job);
    desk_shows(d, "");
}

/* Waits for a file, which is renamed to its name when it is complete. */
static void assert_file_content(const desk *d, const char *name, const char *want) {
    char path[96], text[600] = "";
    snprintf(path, sizeof path, "%s/%s", d->dir, name);
    for (int i = 0; i < 20000 && access(path, R_OK) != 0; i++) bt_sleep_ns(1000000);
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("no '%s'", path);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(text, want);
    unlink(path);
}

/* A command receives the alert in its environment and no descriptors of the supervisor; a webhook receives it as
 * JSON. */
static void an_alert_starts_programs(void **state) {
    desk *d = *state;
    const bt_alert_rules rules = rules_of("run done");
    char command[400], curl[96];
    int ours[2];
    assert_int_equal(pipe(ours), 0);
    snprintf(command, sizeof command,
             "cd %s && { echo \"$BITRAIN_RUN|$BITRAIN_ALERT|$BITRAIN_STEP|$KEPT\"; [ -e "
             "/proc/self/fd/%d ] && echo "
             "open; readlink /proc/self/fd/0; } > new; mv new told",
             d->dir, ours[1]);
    snprintf(curl, sizeof curl, "%s/curl", d->dir);
    FILE *f = fopen(curl, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\nprintf '%%s\\n' \"$@\" > %s/args && mv %s/args %s/called\n", d->dir,
            d->dir, d->dir);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(curl, 0700), 0);
    setenv("KEPT", "kept", 1);
    d->setup.alert.rules = &rules;
    d->setup.alert.command = command;
    d->setup.alert.webhook = "http://h/x";
    d->setup.alert.curl = curl;
    bt_job_alerts_open(&d->job);
    d->job.last_step = 2;
    d->result.end = (bt_end){.kind = BT_END_DONE};
    bt_job_alerts_end(&d->job);
    assert_file_content(d, "told", "r|run done: after step 3|3|kept\n/dev/null\n");
    assert_file_content(
        d, "called",
        "-sS\n-m\n10\n-H\nContent-Type: application/json\n--data-binary\n"
        "{\"run\":\"r\",\"step\":3,\"alert\":\"run done: after step 3\"}\n--\nhttp://h/x\n");
    close(ours[0]);
    close(ours[1]);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, desk_open, desk_close)
    const struct CMUnitTest tests[] = {
        T(records_of_ranks),
        T(ranks_beyond_the_capacity_are_dropped),
        T(signs_of_life),
        T(events_of_the_supervisor),
        T(alerts_are_raised_once_for_each_cause),
        T(an_evaluation_is_counted_once),
        T(alerts_at_the_end),
        T(an_alert_starts_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
