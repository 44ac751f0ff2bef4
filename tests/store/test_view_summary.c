// ctest: timeout=60
/* The first page of a run: layout chips, progress, and the message about a run that does not train. */
#include "view_test.h"

enum { STEPS = 120 };

/* Records 120 of 200 steps, with the newest checkpoint at step 100. */
static int64_t record_120_steps(const char *path, const char *sql) {
    bt_synth s = bt_synth_default("s");
    char here[64] = "", set[120];
    double last;
    bt_db *db = NULL;
    s.steps = STEPS;
    s.live = true;
    OK(bt_synth_make(path, &s, err));
    gethostname(here, sizeof here - 1);
    snprintf(set, sizeof set, "UPDATE run SET host = '%s'", here);
    run_sql(path, set);
    run_sql(path, sql);
    OK(bt_db_open(&db, path, err));
    OK(bt_db_value(db, "SELECT updated_s FROM runs WHERE run = ?1", "s", &last, err));
    bt_db_close(db);
    return llround(last * 1e6);
}

/* Opens a view whose present time is this many seconds after the newest record; the caller closes both. */
static bt_view *view_after(double seconds, const char *path, const char *sql, bt_db **db) {
    const int64_t last_us = record_120_steps(path, sql);
    bt_view *v = open_view(path, db);
    bt_view_request a;
    bt_view_request_init(&a);
    a.run = "s";
    a.now_us = last_us + llround(seconds * 1e6);
    OK(bt_view_load(v, &a, err));
    return v;
}

/* Returns the trouble that the view reports this many seconds after the newest record. */
static bt_view_trouble trouble_after(double seconds, const char *path, const char *sql) {
    bt_db *db = NULL;
    bt_view *v = view_after(seconds, path, sql, &db);
    bt_view_trouble t = v->head.trouble;
    bt_view_close(v);
    bt_db_close(db);
    return t;
}

static bt_view_trouble trouble_of(const char *path, const char *sql) {
    return trouble_after(190, path, sql);
}

#define FAILURE(kind, title) \
    "UPDATE run SET state = 'failed', exit_kind = '" kind "', ended_us = last_us; " \
    "INSERT INTO event(run, t_us, step, rank, kind, level, title) SELECT 1, last_us, 119, 1, " \
    "'failure', 2, '" title "' FROM run"

static void a_failed_run_shows_reason_and_remedy(void **state) {
    const bt_tmp *t = *state;
    char want[256];
    char line[200];
    bt_view_trouble x = trouble_of(
        t->db, FAILURE("signal", "rank 1 was ended by signal 9 (Killed) after step 120"));
    assert_true(x.any);
    assert_int_equal(x.level, BT_EV_ERROR);
    assert_string_equal(x.what, "failed after step 120 of 200");
    assert_string_equal(bt_view_trouble_line(&x, line, sizeof line),
                        "failed after step 120 of 200, 3m 10s ago");
    NEAR(x.age_s, 190);
    assert_int_equal(x.step, STEPS - 1);
    assert_string_equal(x.why, "rank 1 was ended by signal 9 (Killed) after step 120");
    assert_string_equal(
        x.advice,
        "resume: training continues from the checkpoint of step 100 and repeats 20 steps");
    snprintf(want, sizeof want, "bitrain train --resume s --store %s", t->db);
    assert_string_equal(x.command, want);
    assert_true(x.resumes);
    assert_int_equal(x.verb, BT_VERB_COUNT);
    NEAR(x.when_s, 1700000000 + STEPS * 0.113);
}

/* The remedy of a run on another machine is a command to execute there. */
static void a_run_of_another_machine_is_resumed_there(void **state) {
    const bt_tmp *t = *state;
    bt_view_trouble x = trouble_of(t->db, FAILURE("signal", "x") "; UPDATE run SET host = 'far'");
    assert_non_null(strstr(x.advice, "resume on far: training continues"));
    assert_non_null(strstr(x.command, "train --resume s"));
    assert_false(x.resumes);
}

/* A run that exceeded its memory must be changed before it is resumed; a run without a checkpoint begins at step 0. */
static void the_remedy_follows_the_kind_of_failure(void **state) {
    const bt_tmp *t = *state;
    bt_view_trouble x =
        trouble_of(t->db, FAILURE("out of memory", "rank 0 was killed.") "; DELETE FROM ckpt");
    assert_string_equal(x.why, "rank 0 was killed");
    assert_string_equal(
        x.advice, "use less memory per rank (--micro-batch 1 or --recompute full), then resume: "
                  "no checkpoint was written, so training restarts at step 1");
}

/* The path of the database needs quoting in a shell. */
static void the_command_runs_as_printed(void **state) {
    const bt_tmp *t = *state;
    char odd[160], shell[600], word[400];
    snprintf(odd, sizeof odd, "%s/it's a.db", t->dir);
    bt_view_trouble x = trouble_of(odd, FAILURE("signal", "x"));
    const char *store = strstr(x.command, "--store ");
    assert_non_null(store);
    snprintf(shell, sizeof shell, "printf %%s %s", store + strlen("--store "));
    FILE *f = popen(shell, "r");
    assert_non_null(f);
    word[fread(word, 1, sizeof word - 1, f)] = 0;
    pclose(f);
    assert_string_equal(word, odd);
}

static void a_lost_run_names_its_process(void **state) {
    const bt_tmp *t = *state;
    char sql[200], here[64] = "", want[80];
    gethostname(here, sizeof here - 1);
    snprintf(sql, sizeof sql,
             "UPDATE run SET host = '%s', pid = 4194303; UPDATE attempt SET pid = 4194303", here);
    bt_view_trouble x = trouble_of(t->db, sql);
    assert_int_equal(x.level, BT_EV_ERROR);
    assert_string_equal(x.what, "lost after step 120 of 200");
    snprintf(want, sizeof want, "its supervisor (pid 4194303 on %s) disappeared", here);
    assert_non_null(strstr(x.why, want));
    assert_true(x.resumes);
}

static void a_stalled_run_names_the_waiting_ranks(void **state) {
    const bt_tmp *t = *state;
    bt_view_trouble x = trouble_of(
        t->db, "INSERT INTO event(run, t_us, step, rank, kind, level, title) SELECT 1, last_us, "
               "119, 1, 'stalled', 1, 'no step for 60 s; rank 1 is in backward' FROM run");
    assert_int_equal(x.level, BT_EV_WARN);
    assert_string_equal(x.what, "stalled after step 120 of 200");
    assert_string_equal(x.why, "no step for 60 s; rank 1 is in backward");
    assert_int_equal(x.verb, BT_VERB_STOP);
    assert_false(x.resumes);
}

/* If no event explains the stall, the message shows the usual step time. */
static void an_unexplained_stall_shows_the_usual_step(void **state) {
    const bt_tmp *t = *state;
    char want[200];
    bt_view_trouble x = trouble_of(t->db, "SELECT 1");
    assert_string_equal(x.what, "stalled after step 120 of 200");
    assert_string_equal(x.why, "no step since then; a step usually takes 113 ms");
    assert_non_null(strstr(x.advice, "find the rank that hangs"));
    snprintf(want, sizeof want, "bitrain ctl s stop --store %s", t->db);
    assert_string_equal(x.command, want);
}

/* Between two attempts the view shows the failure, or else the reason of the new attempt. */
static void a_restarted_run_shows_its_failure(void **state) {
    const bt_tmp *t = *state;
    char other[96];
    static const char *const ended = "UPDATE attempt SET ended_us = (SELECT last_us FROM run)";
    char sql[400];
    snprintf(sql, sizeof sql,
             "%s; INSERT INTO event(run, t_us, step, rank, kind, level, title) SELECT 1, last_us, "
             "119, 1, 'failure', 2, 'rank 1 died.' FROM run",
             ended);
    bt_view_trouble x = trouble_of(t->db, sql);
    assert_int_equal(x.level, BT_EV_WARN);
    assert_string_equal(x.what, "restarting after step 120 of 200");
    assert_string_equal(x.why, "rank 1 died");
    NEAR(x.age_s, 190);
    snprintf(other, sizeof other, "%s/o.db", t->dir);
    x = trouble_of(other, ended);
    assert_string_equal(x.why, "start");
    assert_false(x.resumes);
}

/* The number of steps to repeat is counted from the newest checkpoint, which may be the last step. */
static void steps_to_repeat_are_counted(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        const char *sql, *advice;
    } rows[] = {{"UPDATE ckpt SET step = 119",
                 "resume: training continues from the checkpoint of step 119 and repeats 1 step"},
                {"UPDATE ckpt SET step = 0",
                 "resume: training continues from the checkpoint of step 0 "
                 "and repeats 120 steps"},
                {"UPDATE ckpt SET step = 120",
                 "resume: training continues from the checkpoint of step 120"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[96], sql[512];
        snprintf(path, sizeof path, "%s/%zu.db", t->dir, i);
        snprintf(sql, sizeof sql, "%s; %s", FAILURE("signal", "x"), rows[i].sql);
        assert_string_equal(trouble_of(path, sql).advice, rows[i].advice);
    }
}

static void each_kind_of_failure_has_its_remedy(void **state) {
    const bt_tmp *t = *state;
    static const char *const rows[][2] = {
        {"node lost", "check that every host responds (bitrain doctor), then resume"},
        {"hung", "find the rank that hung (end of log.txt, page Ranks), then resume"},
        {"launch", "fix what mpirun reports (bitrain doctor checks for it), then resume"},
        {"error", "fix the cause, then resume"},
        {"signal", "resume: training continues"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[96], sql[200];
        snprintf(path, sizeof path, "%s/%zu.db", t->dir, i);
        snprintf(sql, sizeof sql,
                 "UPDATE run SET state = 'failed', exit_kind = '%s', ended_us = last_us",
                 rows[i][0]);
        const bt_view_trouble x = trouble_of(path, sql);
        if (!strstr(x.advice, rows[i][1])) fail_msg("%s: %s", rows[i][0], x.advice);
        assert_string_equal(x.why, rows[i][0]);
    }
}

static void a_run_without_a_step_is_marked(void **state) {
    const bt_tmp *t = *state;
    const bt_view_trouble x =
        trouble_of(t->db, FAILURE("error", "no room") "; DELETE FROM ckpt; DELETE FROM step; "
                                                      "UPDATE run SET last_step = NULL");
    assert_string_equal(x.what, "failed before the first step");
    assert_int_equal(x.step, -1);
    assert_non_null(strstr(x.advice, "no checkpoint was written, so training restarts at step 1"));
}

static void paused_and_stopped_runs_continue_by_command(void **state) {
    const bt_tmp *t = *state;
    char want[256], other[96];
    bt_view_trouble x = trouble_of(
        t->db, "INSERT INTO event(run, t_us, step, kind, level, title) SELECT 1, last_us, 119, "
               "'paused', 0, 'paused' FROM run");
    assert_string_equal(x.what, "paused after step 120 of 200");
    snprintf(want, sizeof want, "bitrain ctl s resume --store %s", t->db);
    assert_string_equal(x.command, want);
    assert_int_equal(x.verb, BT_VERB_RESUME);
    /* A request made during the pause does not count as its reason. */
    snprintf(other, sizeof other, "%s/asked.db", t->dir);
    x = trouble_of(other,
                   "INSERT INTO event(run, t_us, step, kind, level, title) SELECT 1, last_us, 119, "
                   "'control', 0, 'pause requested by ctl' FROM run; INSERT INTO event(run, t_us, "
                   "step, kind, level, title) SELECT 1, last_us, 119, 'paused', 0, 'paused' FROM "
                   "run; INSERT INTO event(run, t_us, step, kind, level, title) SELECT 1, last_us, "
                   "119, 'control', 0, 'eval requested by ctl' FROM run");
    assert_string_equal(x.why, "pause requested by ctl");
    snprintf(other, sizeof other, "%s/o.db", t->dir);
    x = trouble_of(other, "UPDATE run SET state = 'stopped', exit_kind = 'stopped', ended_us = "
                          "last_us");
    assert_int_equal(x.level, BT_EV_INFO);
    assert_string_equal(x.what, "stopped after step 120 of 200");
    assert_true(x.resumes);
}

/* The remaining time is shown only while the run trains. */
static void remaining_time_is_shown_while_a_run_trains(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        const char *sql;
        double after_s;
        bool left;
    } rows[] = {{"SELECT 1", 1, true},
                {"SELECT 1", 190, false}, /* stalled */
                {"INSERT INTO event(run, t_us, step, kind, level, title) SELECT 1, last_us, 119, "
                 "'paused', 0, 'paused' FROM run",
                 1, false},
                {"UPDATE attempt SET ended_us = (SELECT last_us FROM run)", 1, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bt_db *db = NULL;
        char path[96];
        snprintf(path, sizeof path, "%s/%zu.db", t->dir, i);
        bt_view *v = view_after(rows[i].after_s, path, rows[i].sql, &db);
        assert_int_equal(!isnan(v->head.eta_s), rows[i].left);
        if (rows[i].left) NEAR(v->head.eta_s, 80 * 0.113);
        bt_view_close(v);
        bt_db_close(db);
    }
}

static void has_json(const bt_view_head *h, const char *const *want) {
    bt_text out;
    bt_json j;
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    bt_view_trouble_json(&h->trouble, &j);
    bt_view_chips_json(h, &j);
    bt_json_end(&j, '}');
    for (; *want; want++)
        if (!strstr(bt_text_str(&out), *want)) fail_msg("no %s in %s", *want, bt_text_str(&out));
    bt_text_release(&out);
}

static void trouble_and_chips_as_json(void **state) {
    const bt_tmp *t = *state;
    static const char *const failed[] = {
        "{\"trouble\":{\"level\":\"error\",\"what\":\"failed after step 120 of 200\",\"when_s\":17",
        ",\"step\":119,\"why\":\"x\",\"advice\":\"resume: ",
        "\"command\":\"bitrain train --resume s --store ",
        "\",\"verb\":null,\"resumes\":true},\"chips\":[{\"name\":\"model\",\"text\":\"3.14 M "
        "parameters\"},",
        "{\"name\":\"lr\",\"text\":\"0.002\"}]}",
        NULL};
    static const char *const fine[] = {"{\"trouble\":null,\"chips\":[{", NULL};
    static const char *const paused[] = {"\"level\":\"info\",\"what\":\"paused",
                                         "\"verb\":\"resume\"", NULL};
    static const struct {
        const char *sql, *const *want;
    } rows[] = {{FAILURE("signal", "x"), failed},
                {"SELECT 1", fine},
                {"INSERT INTO event(run, t_us, step, kind, level, title) SELECT 1, last_us, 119, "
                 "'paused', 0, 'paused' FROM run",
                 paused}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bt_db *db = NULL;
        char path[96];
        snprintf(path, sizeof path, "%s/%zu.db", t->dir, i);
        bt_view *v = view_after(1, path, rows[i].sql, &db);
        has_json(&v->head, rows[i].want);
        bt_view_close(v);
        bt_db_close(db);
    }
}

/* A run whose process died is `lost` on screens, in SQL and in filters. Only attempts that the supervisor began count
 * as restarts. */
static void a_run_without_its_process_is_lost(void **state) {
    const bt_tmp *t = *state;
    static const char gone[] =
        "UPDATE run SET pid = 2147483646, n_attempts = 3; INSERT INTO event(run, t_us, step, kind, "
        "level, title) SELECT 1, last_us, 119, 'restarted', 1, 'attempt 1 continues' FROM run";
    bt_db *db = NULL;
    double n = 0;
    bt_view *v = view_after(1, t->db, gone, &db);
    assert_int_equal(v->head.state, BT_STATE_LOST);
    assert_false(v->head.live);
    assert_int_equal(v->head.restarts, 1);
    assert_string_equal(v->head.trouble.what, "lost after step 120 of 200");
    OK(bt_db_value(db, "SELECT count(*) FROM runs WHERE state = ?1", "lost", &n, err));
    assert_true(n == 1);
    OK(bt_db_value(db, "SELECT count(*) FROM runs WHERE state = ?1", "running", &n, err));
    assert_true(n == 0);
    /* These columns are stored in the file in this order. */
    OK(bt_db_value(db,
                   "SELECT (SELECT group_concat(name) FROM pragma_table_info('runs', 'main')) = "
                   "(SELECT group_concat(name) FROM pragma_table_info('runs', ?1))",
                   "temp", &n, err));
    assert_true(n == 1);
    bt_view_close(v);
    bt_db_close(db);
    /* The state of a process on another host is unknown. */
    run_sql(t->db, "UPDATE run SET host = 'another host'");
    OK(bt_db_open(&db, t->db, err));
    OK(bt_db_value(db, "SELECT count(*) FROM runs WHERE state = ?1", "running", &n, err));
    assert_true(n == 1);
    bt_db_close(db);
}

/* A training run shows no trouble; after a restart it shows the reason. */
static void a_training_run_shows_only_a_restart(void **state) {
    const bt_tmp *t = *state;
    bt_view_trouble x = trouble_after(1, t->db, "SELECT 1");
    assert_false(x.any);
    char other[96];
    bt_synth s = bt_synth_default("s");
    bt_db *db = NULL;
    s.fail_at = 120;
    s.resume_from = 100;
    s.live = true;
    snprintf(other, sizeof other, "%s/o.db", t->dir);
    OK(bt_synth_make(other, &s, err));
    run_sql(other, "INSERT INTO event(run, t_us, step, kind, level, title) SELECT 1, created_us, "
                   "119, 'failure', 2, 'rank 1 died' FROM run");
    bt_view *v = open_view(other, &db);
    bt_view_request a;
    bt_view_request_init(&a);
    a.run = "s";
    a.now_us = s.start_us + 25 * INT64_C(1000000);
    OK(bt_view_load(v, &a, err));
    assert_true(v->head.trouble.any);
    assert_string_equal(v->head.trouble.what, "restarted once");
    assert_string_equal(v->head.trouble.why, "rank 1 died");
    assert_string_equal(v->head.trouble.command, "");
    bt_view_close(v);
    bt_db_close(db);
}

static void chips_and_progress(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    record_120_steps(
        t->db,
        "UPDATE run_doc SET config = '{\"model.preset\":{\"value\":\"nano\"},\"optim.lr\":{"
        "\"value\":0.002},\"optim.schedule\":{\"value\":\"cosine\"},\"model.seq_len\":{\"value\":"
        "256},\"data.path\":{\"value\":[\"a.txt\",\"b.txt\"]},\"train.steps\":{\"value\":200}}'; "
        "INSERT INTO fact VALUES (1, 'data.tokens', '983040', 0), (1, 'batch_tokens', '4096', 0)");
    bt_view *v = open_view(t->db, &db);
    bt_view_request a;
    bt_view_request_init(&a);
    a.run = "s";
    OK(bt_view_load(v, &a, err));
    static const char *const want[BT_VIEW_CHIPS][2] = {
        {"model", "nano, 3.14 M parameters"},    {"data", "a.txt, b.txt, 983 k tokens"},
        {"layout", "4 ranks x 2 threads, dp 4"}, {"lr", "0.002, cosine"},
        {"batch", "4096 tokens (16 x 256)"},
    };
    assert_int_equal(v->head.n_chips, BT_VIEW_CHIPS);
    for (int i = 0; i < BT_VIEW_CHIPS; i++) {
        assert_string_equal(v->head.chip[i].name, want[i][0]);
        assert_string_equal(v->head.chip[i].text, want[i][1]);
    }
    /* The chip shows the peak rate of the newest request. */
    static const char *const peaks[] = {
        "peak learning rate 0.002 -> 0.004 (requested by ctl)",
        "learning rate times 0.25 asked for by ctl: its peak is 0.0005"};
    for (int i = 0; i < 2; i++) {
        char sql[240];
        snprintf(sql, sizeof sql,
                 "INSERT INTO event(run, t_us, kind, level, title) SELECT id, last_us, 'control', "
                 "0, '%s' FROM run",
                 peaks[i]);
        run_sql(t->db, sql);
    }
    OK(bt_view_load(v, &a, err));
    assert_string_equal(v->head.chip[3].text, "0.0005, cosine, began as 0.002");
    NEAR(v->head.progress, 120.0 / 200);
    NEAR(v->head.passes, 120.0 * 4096 / 983040);
    assert_int_equal(v->head.best_val_step, 99);
    bt_view_close(v);
    bt_db_close(db);
}

/* The number of parameters of a tiny model is shown without rounding to millions. */
static void few_parameters_are_shown(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_view *v = view_after(1, t->db, "UPDATE fact SET value = '7' WHERE key = 'params'", &db);
    assert_string_equal(v->head.chip[0].name, "model");
    assert_string_equal(v->head.chip[0].text, "7 parameters");
    bt_view_close(v);
    bt_db_close(db);
}

static void check_chip(const char *path, const char *settings, const char *name, const char *want) {
    bt_db *db = NULL;
    char sql[400];
    snprintf(sql, sizeof sql, "UPDATE run_doc SET config = '%s'", settings);
    bt_view *v = view_after(1, path, sql, &db);
    const char *text = "";
    assert_true(isnan(v->head.progress)); /* These settings lack the total number of steps. */
    for (int i = 0; i < v->head.n_chips; i++)
        if (strcmp(v->head.chip[i].name, name) == 0) text = v->head.chip[i].text;
    assert_string_equal(text, want);
    bt_view_close(v);
    bt_db_close(db);
}

/* Unknown parts of a chip are omitted; a long path is shortened at its beginning. */
static void chips_of_few_settings(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        const char *settings, *name, *want;
    } rows[] = {{"{\"data.path\":{\"value\":[\"/home/somebody/with/a/long/name/and/folders/corpora/"
                 "bible/kjv.txt\"]}}",
                 "data", "a/long/name/and/folders/corpora/bible/kjv.txt"},
                {"{}", "data", ""},
                {"{\"data.path\":{\"value\":[]}}", "data", "built-in corpus"},
                {"{\"optim.lr\":{\"value\":0.00123456}}", "lr", "0.00123"},
                {"{\"train.batch_tokens\":{\"value\":4096}}", "batch", "4096 tokens"},
                {"{\"train.batch_tokens\":{\"value\":4096},\"model.seq_len\":{\"value\":250}}",
                 "batch", "4096 tokens (17 x 250)"},
                {"{\"model.seq_len\":{\"value\":250}}", "batch", ""},
                {"{\"model.preset\":{\"value\":\"small\"}}", "model", "small, 3.14 M parameters"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char db[96];
        snprintf(db, sizeof db, "%s/%zu.db", t->dir, i);
        check_chip(db, rows[i].settings, rows[i].name, rows[i].want);
    }
}

/* Two stages with two chunks of layers each, and two replicas. */
static void virtual_stages_are_shown_beside_the_pipeline(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_view *v =
        view_after(1, t->db,
                   "UPDATE run_doc SET config = '{\"parallel.virtual_stages\":{\"value\":2}}'; "
                   "UPDATE rank SET pp = rank / 2, dp_replicate = rank % 2",
                   &db);
    const char *layout = "";
    for (int i = 0; i < v->head.n_chips; i++)
        if (strcmp(v->head.chip[i].name, "layout") == 0) layout = v->head.chip[i].text;
    assert_string_equal(layout, "4 ranks x 2 threads, pp 2 (2 virtual), dp 2");
    bt_view_close(v);
    bt_db_close(db);
}

/* Checks the layout chip of a run with these settings and rank positions. */
static void check_layout(const char *path, const char *sql, const char *want) {
    bt_db *db = NULL;
    bt_view *v = view_after(1, path, sql, &db);
    const char *layout = "";
    for (int i = 0; i < v->head.n_chips; i++) {
        assert_string_not_equal(v->head.chip[i].name, "lr");
        if (strcmp(v->head.chip[i].name, "layout") == 0) layout = v->head.chip[i].text;
    }
    assert_string_equal(layout, want);
    bt_view_close(v);
    bt_db_close(db);
}

/* The ZeRO stage is shown only beside the axis over which it divides the state. */
static void zero_is_shown_with_the_axis_it_divides(void **state) {
    const bt_tmp *t = *state;
    char other[120];
    check_layout(t->db,
                 "UPDATE run_doc SET config = '{\"mesh.zero\":{\"value\":3}}'; "
                 "UPDATE rank SET dp_replicate = 0, dp_shard = rank",
                 "4 ranks x 2 threads, shard 4 (ZeRO 3)");
    snprintf(other, sizeof other, "%s/hosts.db", t->dir);
    check_layout(other, "UPDATE run_doc SET config = '{}'; UPDATE rank SET host = rank / 2",
                 "4 ranks x 2 threads on 2 hosts, dp 4");
    snprintf(other, sizeof other, "%s/thread.db", t->dir);
    check_layout(other, "UPDATE run_doc SET config = '{}'; UPDATE rank SET threads = 1",
                 "4 ranks x 1 thread, dp 4");
    snprintf(other, sizeof other, "%s/tp.db", t->dir);
    check_layout(other,
                 "UPDATE run_doc SET config = '{\"mesh.zero\":{\"value\":1}}'; "
                 "UPDATE rank SET dp_replicate = 0, tp = rank",
                 "4 ranks x 2 threads, tp 4");
}

/* Steps count from 0, but one completed step of two is half of the progress. */
static void the_first_step_is_progress(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_synth s = bt_synth_default("s");
    s.steps = 1;
    s.live = true;
    OK(bt_synth_make(t->db, &s, err));
    run_sql(t->db, "UPDATE run_doc SET config = '{\"train.steps\":{\"value\":2}}'");
    bt_view *v = open_view(t->db, &db);
    bt_view_request a;
    bt_view_request_init(&a);
    a.run = "s";
    OK(bt_view_load(v, &a, err));
    NEAR(v->head.progress, 0.5);
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        TEST(a_failed_run_shows_reason_and_remedy),
        TEST(a_run_of_another_machine_is_resumed_there),
        TEST(the_remedy_follows_the_kind_of_failure),
        TEST(the_command_runs_as_printed),
        TEST(a_lost_run_names_its_process),
        TEST(a_stalled_run_names_the_waiting_ranks),
        TEST(an_unexplained_stall_shows_the_usual_step),
        TEST(a_restarted_run_shows_its_failure),
        TEST(steps_to_repeat_are_counted),
        TEST(each_kind_of_failure_has_its_remedy),
        TEST(a_run_without_a_step_is_marked),
        TEST(a_run_without_its_process_is_lost),
        TEST(paused_and_stopped_runs_continue_by_command),
        TEST(remaining_time_is_shown_while_a_run_trains),
        TEST(trouble_and_chips_as_json),
        TEST(a_training_run_shows_only_a_restart),
        TEST(chips_and_progress),
        TEST(few_parameters_are_shown),
        TEST(chips_of_few_settings),
        TEST(virtual_stages_are_shown_beside_the_pipeline),
        TEST(zero_is_shown_with_the_axis_it_divides),
        TEST(the_first_step_is_progress),
    };
    return cmocka_run_group_tests_name("view_summary", tests, NULL, NULL);
}
