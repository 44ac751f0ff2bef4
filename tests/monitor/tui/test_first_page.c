// ctest: timeout=120
/* The first page at 80x24: events of a run, the model, progress, sample text, a crowded machine instead of a rank;
 * settings found by the filter; charts of the usual range of values. */
#include <sqlite3.h>

#include "screens_test.h"

static void run_sql(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    char *why = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) fail_msg("%s: %s", sql, why);
    sqlite3_close(db);
}

/* Makes a database of one run and executes this SQL in it. */
static void make_page_database(const char *name, const bt_synth *s, const char *sql) {
    bt_err err = BT_ERR_INIT;
    snprintf(db_path, sizeof db_path, "%s/%s.db", dir, name);
    if (bt_synth_make(db_path, s, &err) != BT_OK) fail_msg("%s", err.msg);
    run_sql(db_path, sql);
}

/* Returns the frame of a screen, 100 s after the run's newest record. */
static char *frame_of_screen(const char *run, int screen, int w, int h, bt_color_depth depth) {
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    bt_term *term = NULL;
    char *text = NULL;
    size_t size = 0;
    double last = NAN;
    FILE *to = open_memstream(&text, &size);
    assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
    assert_int_equal(bt_db_value(db, "SELECT updated_s FROM runs WHERE run = ?1", run, &last, &err),
                     BT_OK);
    bt_top_cfg cfg = config(db);
    cfg.run = run;
    cfg.screen = screen;
    cfg.now_us = llround((last + 100) * 1e6);
    assert_int_equal(bt_term_open_text(&term, to, (bt_term_caps){BT_CHARS_BRAILLE, depth, true}, w,
                                       h, false, &err),
                     BT_OK);
    if (bt_top_frame(&cfg, term, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_term_close(term);
    fclose(to);
    bt_db_close(db);
    return text;
}

static void assert_text_has(const char *text, const char *want) {
    if (!strstr(text, want)) fail_msg("no '%s' in:\n%s", want, text);
}

static void assert_text_lacks(const char *text, const char *word) {
    if (strstr(text, word)) fail_msg("'%s' in:\n%s", word, text);
}

#define SETTINGS \
    "UPDATE run_doc SET config = '{\"model.preset\":{\"value\":\"nano\"},\"optim.lr\":{\"value\":" \
    "0.002},\"optim.schedule\":{\"value\":\"cosine\"},\"model.seq_len\":{\"value\":256}," \
    "\"data.path\":{\"value\":[\"book.txt\"]},\"train.steps\":{\"value\":240}," \
    "\"mesh.zero\":{\"value\":0}}'; INSERT INTO fact VALUES (1, 'data.tokens', '409600', 0), (1, " \
    "'batch_tokens', '4096', 0);"
#define SAMPLES \
    "INSERT INTO event(run, t_us, step, kind, level, title, body) VALUES (1, 1, 49, 'sample', 0, " \
    "'a', '{\"prompt\":\"Now\",\"text\":\"\\n  the of of\"}'), (1, 2, 99, 'sample', 0, 'b', " \
    "'{\"prompt\":\"Now\",\"text\":\"In the beginning\\u001b[2J\"}');"

static void a_failed_run_at_80_columns(void **state) {
    bt_synth s = bt_synth_default("bad");
    (void)state;
    s.steps = 120;
    s.live = true;
    char sql[2048], here[64] = "";
    gethostname(here, sizeof here - 1);
    snprintf(sql, sizeof sql, "%s; UPDATE run SET host = '%s'",
             SETTINGS
             "UPDATE run SET state = 'failed', exit_kind = 'signal', ended_us = last_us; "
             "INSERT INTO event(run, t_us, step, rank, kind, level, title) SELECT 1, last_us, "
             "119, 1, 'failure', 2, 'rank 1 was ended by signal 9 (Killed)' FROM run",
             here);
    make_page_database("bad", &s, sql);
    char *x = frame_of_screen("bad", 1, 80, 24, BT_DEPTH_MONO);
    assert_text_has(x, "failed after step 120 of 240, 1m 40s ago");
    assert_text_has(x, "press P to resume");
    assert_text_has(x, "why    rank 1 was ended by signal 9 (Killed)");
    assert_text_has(
        x, "to do  resume: training continues from the checkpoint of step 100 and repeats");
    assert_text_has(x, "bitrain train --resume bad --store ");
    assert_text_has(x, "loss ─");
    assert_text_has(x, "████░░░░ 50 %");
    free(x);
    x = frame_of_screen("bad", 1, 60, 14, BT_DEPTH_MONO);
    assert_text_has(x, "rank 1 was ended by signal 9");
    free(x);
}

static void header_chips_and_samples_at_80_columns(void **state) {
    bt_synth s = bt_synth_default("fine");
    (void)state;
    make_page_database("fine", &s, SETTINGS SAMPLES);
    char *x = frame_of_screen("fine", 1, 80, 24, BT_DEPTH_MONO);
    assert_text_has(x, "██████▋░ 83 %");
    assert_text_has(x, "val 2.460 best 2.460");
    assert_text_has(x, "passes 2.00");
    assert_text_has(x, "nano, 3.14 M parameters");
    assert_text_has(x, "book.txt, 410 k tokens");
    assert_text_has(x, "4 ranks x 2 threads, dp 4");
    assert_text_has(x, "lr 0.002, cosine");
    assert_text_has(x, "4096 tokens (16 x 256)");
    assert_text_has(x, "best val 2.460");
    assert_text_has(x, "the model writes, step 100");
    assert_text_has(x, "In the beginning");
    assert_text_has(x, "before, step 50");
    /* The text begins with an empty line, and two lines are shown. */
    assert_text_has(x, "the of of");
    assert_text_lacks(x, "\033[2J");
    free(x);
}

static void the_machine_is_named_before_a_rank(void **state) {
    bt_synth s = bt_synth_default("crowd");
    (void)state;
    s.straggler = 2;
    s.excess = 3;
    s.load = 4;
    make_page_database("crowd", &s, "SELECT 1");
    for (int screen = 1; screen <= 2; screen++) {
        char *x = frame_of_screen("crowd", screen, 80, 24, BT_DEPTH_MONO);
        const char *machine = strstr(x, "host node0 was overloaded"),
                   *rank = screen == 1 ? strstr(x, "rank 2 ") : strstr(x, "without rank 2");
        if (!machine) fail_msg("no machine:\n%s", x);
        if (rank && rank < machine) fail_msg("a rank before the machine:\n%s", x);
        free(x);
    }
}

/* Losses of the first steps are outside the range and marked; a chart without colours has one line. */
static void the_chart_shows_the_run(void **state) {
    bt_synth s = bt_synth_default("run");
    (void)state;
    s.steps = 400;
    make_page_database("run", &s, "UPDATE step SET loss = loss + 90 WHERE step < 5");
    char *x = frame_of_screen("run", 1, 80, 24, BT_DEPTH_MONO), *chart = strstr(x, " loss ─");
    assert_non_null(chart);
    assert_text_has(chart, "▲");
    assert_text_has(chart, "4┤");
    assert_text_lacks(chart, "50┤");
    free(x);
}

/* 7 columns of 4 steps each contain values from 1 to 9, whose band would fill the plot. */
static void charts_without_colour_have_no_band(void **state) {
    bt_synth s = bt_synth_default("band");
    (void)state;
    s.steps = 2000;
    make_page_database("band", &s, "UPDATE step SET grad_norm = 1 + 8 * (step % 2)");
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    bt_term *term = NULL;
    char *text = NULL;
    size_t size = 0, dots = 0;
    FILE *to = open_memstream(&text, &size);
    assert_int_equal(bt_db_open(&db, db_path, &err), BT_OK);
    bt_top_cfg cfg = config(db);
    cfg.run = "band";
    cfg.screen = bt_top_screen_by_name("step");
    assert_int_equal(bt_term_open_text(&term, to,
                                       (bt_term_caps){BT_CHARS_BRAILLE, BT_DEPTH_MONO, true}, 80,
                                       24, false, &err),
                     BT_OK);
    if (bt_top_frame(&cfg, term, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_term_close(term);
    fclose(to);
    for (const char *p = text; *p; p++) dots += strncmp(p, "\xe2\xa3\xbf", 3) == 0; /* all eight */
    assert_int_equal(dots, 0);
    free(text);
    bt_db_close(db);
}

/* If a busy machine prevented the measurement of the link, no rate is shown. */
static void a_link_is_shown_or_marked_unknown(void **state) {
    bt_synth s = bt_synth_default("links");
    const int comm = bt_top_screen_by_name("comm");
    (void)state;
    make_page_database("links", &s, "SELECT 1");
    char *x = frame_of_screen("links", comm, 160, 40, BT_DEPTH_MONO);
    assert_text_has(x, "dp link 20 us + 76.3 MiB/s");
    free(x);
    make_page_database("busy", &s,
                       "DELETE FROM fact WHERE key LIKE 'link.%'; INSERT INTO fact SELECT id, "
                       "'link.dp.measured', 'no: the machine was busy', 0 FROM run");
    x = frame_of_screen("links", comm, 160, 40, BT_DEPTH_MONO);
    assert_text_has(x, "dp link not measurable");
    free(x);
}

static void system_lists_every_setting(void **state) {
    bt_synth s = bt_synth_default("fine");
    (void)state;
    make_page_database("settings", &s, SETTINGS);
    char *x = frame_of_screen("fine", bt_top_screen_by_name("system"), 80, 30, BT_DEPTH_MONO);
    assert_text_has(x, "/ searches all 14");
    assert_text_has(x, "model.preset");
    free(x);
}

/* A single rank exchanges nothing: its share of communication is 0.0 % everywhere, with a readable axis. */
static void an_axis_of_zeros_is_of_readable_values(void **state) {
    bt_synth s = bt_synth_default("alone");
    (void)state;
    s.ranks = 1;
    make_page_database("alone", &s,
                       "UPDATE step SET comm_overhead = 0, overlap = NULL, bytes_wire = 0");
    char *x = frame_of_screen("alone", bt_top_screen_by_name("comm"), 120, 40, BT_DEPTH_MONO);
    assert_text_has(x, "0.5 %");
    assert_text_lacks(x, "e-");
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_run_at_80_columns),
        cmocka_unit_test(header_chips_and_samples_at_80_columns),
        cmocka_unit_test(the_machine_is_named_before_a_rank),
        cmocka_unit_test(the_chart_shows_the_run),
        cmocka_unit_test(charts_without_colour_have_no_band),
        cmocka_unit_test(a_link_is_shown_or_marked_unknown),
        cmocka_unit_test(system_lists_every_setting),
        cmocka_unit_test(an_axis_of_zeros_is_of_readable_values),
    };
    return cmocka_run_group_tests(tests, make_store, drop_store);
}
