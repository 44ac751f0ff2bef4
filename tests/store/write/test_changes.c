/* test_changes.c - changes to recorded runs: tags, names in settings, marks, removal of live runs, and retention. */
#include <sys/stat.h>

#include "store/sql/sql.h"
#include "store/write/manage.h"
#include "tests/message.h"
#include "tests/store/store_test.h"
#include "tests/store/synth_run.h"

static void make_two_attempts(const char *path, const char *name, int64_t steps) {
    bt_synth s = bt_synth_default(name);
    s.steps = steps;
    s.fail_at = steps / 2;
    s.resume_from = steps / 2 - 10;
    OK(bt_synth_make(path, &s, err));
}

/* Returns the cells of the first row separated by blanks. */
static const char *first_row_of(const char *path, const char *sql) {
    static char out[600];
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    out[0] = '\0';
    if (sqlite3_step(st) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(st); i++) {
            const char *c = (const char *)sqlite3_column_text(st, i);
            snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", i ? " " : "",
                     c ? c : "-");
        }
    sqlite3_finalize(st);
    sqlite3_close(db);
    return out;
}

static void begin_run(const char *path, const char *name, const char *out_dir, const char *config) {
    bt_writer *w = NULL;
    int attempt;
    bt_run_start s = bt_fake_run(name);
    s.out_dir = out_dir;
    s.config_json = config;
    OK(bt_writer_open(&w, path, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
}

/* A tag is added or removed as a whole word at any position in the list. */
static void tags_are_words(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        const char *before, *word, *after; /* after NULL: refused */
    } rows[] = {{"", "a", "a"},
                {"", "-a", ""},
                {"a", "a", "a"},
                {"a", "-a", ""},
                {"a b", "-a", "b"},
                {"a b", "-b", "a"},
                {"a b c", "-b", "a c"},
                {"ab b", "-b", "ab"},
                {"ab", "a", "ab a"},
                {"ab", "-a", "ab"},
                {"ba", "-a", "ba"},
                {"a b", "+c", "a b c"},
                {"a b", "+b", "a b"},
                {"a", "--b", NULL},
                {"a", "+", NULL},
                {"a", "-", NULL},
                {"a", "", NULL},
                {"a", "b c", "a b\u00a0c"},
                {"a b\u00a0c", "-b c", "a"},
                {"", "Paper", "Paper"},
                {"", "\u4e2d", "\u4e2d"},
                {"a", "b\n", NULL},
                {"a b c", "-c", "a b"},
                {"abc ab", "-ab", "abc"},
                {"a", "+-b", NULL},
                {"a", "*b", "a *b"},
                {"a", " b", NULL},
                {"a", "#a", "a #a"}};
    char sql[400], tags[256], longest[256];
    bt_err why = BT_ERR_INIT;
    begin_run(t->db, "r", "/tmp", "{}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(sql, sizeof sql, "UPDATE run SET tags = nullif('%s', ''), rev = 7",
                 rows[i].before);
        run_sql(t->db, sql);
        const bt_code code = bt_run_tag(t->db, "r", &rows[i].word, 1, 1, tags, &why);
        if (code != (rows[i].after ? BT_OK : BT_ARG)) fail_msg("row %zu", i);
        if (rows[i].after) assert_string_equal(tags, rows[i].after);
        snprintf(sql, sizeof sql, "%s %d", rows[i].after ? rows[i].after : rows[i].before,
                 rows[i].after ? 8 : 7);
        assert_string_equal(first_row_of(t->db, "SELECT coalesce(tags, ''), rev FROM run"), sql);
    }
    /* All tags together have 255 characters, then one more. */
    static const char word[] = "x1234567890123456789012345678901234567890123456789";
    memset(longest, 'y', sizeof longest);
    longest[203] = longest[204] = '\0';
    for (int k = 0; k < 4; k++) memcpy(longest + 51 * k, word, 50), longest[51 * k + 50] = ' ';
    longest[203] = '\0';
    snprintf(sql, sizeof sql, "UPDATE run SET tags = '%s'", longest);
    run_sql(t->db, sql);
    char last[64];
    memset(last, 'z', sizeof last);
    last[52] = '\0';
    const char *words[] = {last};
    assert_int_equal(bt_run_tag(t->db, "r", words, 1, 1, tags, &why), BT_ARG);
    message_has(why.msg, "too many tags: together they may have 255");
    last[51] = '\0';
    OK(bt_run_tag(t->db, "r", words, 1, 1, tags, err));
    assert_int_equal(strlen(tags), 255);
    assert_string_equal(first_row_of(t->db, "SELECT length(tags) FROM run"), "255");
}

/* The settings contain the name of the run in one of two forms, or not at all. */
static void a_name_is_changed_in_the_settings(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        const char *before, *after;
    } rows[] = {{"{\"run.name\":{\"value\":\"r\",\"origin\":\"flag\"},\"x\":1}",
                 "{\"run.name\":{\"value\":\"new\",\"origin\":\"flag\"},\"x\":1}"},
                {"{\"run.name\":\"r\",\"x\":1}", "{\"run.name\":\"new\",\"x\":1}"},
                {"{\"x\":1}", "{\"x\":1}"},
                {"{\"run.name\":7}", "{\"run.name\":7}"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *both[] = {"new", "other"};
        begin_run(t->db, "r", "/tmp", rows[i].before);
        begin_run(t->db, "other", "/tmp", rows[0].before);
        run_sql(t->db, "UPDATE run SET rev = 5");
        OK(bt_run_rename(t->db, "r", "new", 1, err));
        assert_string_equal(
            first_row_of(t->db,
                         "SELECT config FROM run_doc JOIN run ON run = id WHERE name = 'new'"),
            rows[i].after);
        assert_string_equal(
            first_row_of(t->db,
                         "SELECT config FROM run_doc JOIN run ON run = id WHERE name = 'other'"),
            rows[0].before);
        assert_string_equal(
            first_row_of(t->db,
                         "SELECT (SELECT rev FROM run WHERE name = 'new'), rev FROM run WHERE name "
                         "= 'other'"),
            "6 5");
        OK(bt_runs_remove(t->db, both, 2, 1, err));
    }
    /* A sweep finds its runs by name. */
    char out[128], list[160];
    bt_err why = BT_ERR_INIT;
    snprintf(out, sizeof out, "%s/sweep/r", t->dir);
    snprintf(list, sizeof list, "%s/sweep", t->dir);
    assert_int_equal(mkdir(list, 0700) + mkdir(out, 0700), 0);
    begin_run(t->db, "r", out, "{}");
    strcat(list, "/sweep.runs");
    fclose(fopen(list, "w"));
    assert_int_equal(bt_run_rename(t->db, "r", "new", 1, &why), BT_BUSY);
    message_has(why.msg, "run 'r' belongs to a sweep");
    assert_int_equal(unlink(list), 0);
    OK(bt_run_rename(t->db, "r", "new", 1, err));
    begin_run(t->db, "empty", "", "{}"); /* The run has no folder. */
    OK(bt_run_rename(t->db, "empty", "full", 1, err));
}

/* A mark is an event of the attempt that recorded the given step; without a step it has the present time and belongs to
 * the newest attempt. */
static void marks_are_events(void **state) {
    const bt_tmp *t = *state;
    make_two_attempts(t->db, "a", 60); /* attempt 1 has steps steps 0 to 29, attempt 2: 20 to 59 */
    begin_run(t->db, "b", "/tmp", "{}");
    run_sql(t->db, "DELETE FROM event; UPDATE run SET rev = 0");
#define MARK \
    "SELECT run, aid, step, kind, level, title, body, rank FROM event ORDER BY seq DESC LIMIT 1"
    OK(bt_run_mark(t->db, "a", 10, BT_EVENT_ANNOTATION, "early", 1, err));
    assert_string_equal(first_row_of(t->db, MARK), "1 1 10 annotation 0 early - -");
    assert_string_equal(
        first_row_of(t->db, "SELECT e.t_us - s.wall_us FROM event e JOIN step s USING (aid, step)"),
        "0");
    OK(bt_run_mark(t->db, "a", 25, BT_EVENT_ANNOTATION, "late", 1, err));
    assert_string_equal(first_row_of(t->db, MARK), "1 2 25 annotation 0 late - -");
    OK(bt_run_mark(t->db, "a", 1000, BT_EVENT_WARNING, "never", 1, err));
    assert_string_equal(first_row_of(t->db, MARK), "1 2 - warning 1 never - -");
    assert_string_equal(first_row_of(t->db, "SELECT max(t_us) > 1750000000000000 FROM event"), "1");
    OK(bt_run_mark(t->db, "b", 10, BT_EVENT_ACKNOWLEDGED, "x", 1, err));
    assert_string_equal(first_row_of(t->db, MARK), "2 3 - acknowledged 0 x - -");
    assert_string_equal(first_row_of(t->db, "SELECT count(*) FROM event"), "4");
}

/* A run may be removed or renamed unless a live process of this machine trains it. */
static void live_runs_are_recognized(void **state) {
    const bt_tmp *t = *state;
    char host[BT_HOST_MAX] = "", sql[700], says[400];
    bt_err why = BT_ERR_INIT;
    gethostname(host, sizeof host - 1);
    static const struct {
        const char *run_state, *of_host; /* NULL: this host */
        int pid; /* 0: none; 1: another process; 2: this process; 3: a dead process */
        bool lives;
    } rows[] = {{"running", NULL, 2, true},     {"running", NULL, 1, true},
                {"running", NULL, 3, false},    {"running", NULL, 0, false},
                {"running", "'far'", 2, false}, {"done", NULL, 2, false},
                {"running", "NULL", 2, true}};
    begin_run(t->db, "r", "/tmp", "{}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int pid = rows[i].pid == 3   ? 2147483000
                        : rows[i].pid == 2 ? (int)getpid()
                                           : rows[i].pid;
        snprintf(says, sizeof says, "'%s'", host);
        snprintf(sql, sizeof sql, "UPDATE run SET state = '%s', host = %s, pid = %d, name = 'r'",
                 rows[i].run_state, rows[i].of_host ? rows[i].of_host : says, pid);
        run_sql(t->db, sql);
        const bt_code code = bt_run_rename(t->db, "r", "s", 1, &why);
        if (code != (rows[i].lives ? BT_BUSY : BT_OK))
            fail_msg("row %zu: %s", i, bt_code_name(code));
        snprintf(
            says, sizeof says,
            "run 'r' is being trained by pid %d (stop it first: bitrain ctl r stop --store %s)",
            pid, t->db);
        if (code != BT_OK) assert_string_equal(why.msg, says);
    }
}

static int64_t file_and_log_bytes(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : 0;
}

/* gc deletes old rank rows and keeps the other rows. */
static void retention_is_kept(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int64_t keep;
        const char *is;
    } rows[] = {{-1, "50000"}, {77, "77"}, {-1, "77"}, {0, "0"}};
    bt_gc_result r;
    char wal[128];
    make_two_attempts(t->db, "a", 60);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(&r, 0x5a, sizeof r);
        OK(bt_store_gc(t->db, &(bt_gc_cfg){.keep_rank_steps = rows[i].keep}, 1, &r, err));
        assert_string_equal(first_row_of(t->db,
                                         "SELECT value FROM meta WHERE key = 'keep_rank_steps'"),
                            rows[i].is);
        assert_true(r.orphan_rows == 0 && r.rank_rows == 0);
    }
    snprintf(wal, sizeof wal, "%s-wal", t->db);
    for (int k = 0; k < 2; k++) { /* The log is counted too; compacting empties it. */
        const int64_t before = file_and_log_bytes(t->db) + file_and_log_bytes(wal);
        OK(bt_store_gc(t->db, &(bt_gc_cfg){.keep_rank_steps = 5, .compact = k == 1}, 1, &r, err));
        assert_int_equal(r.bytes_before, before);
        assert_int_equal(r.bytes_after, file_and_log_bytes(t->db) + file_and_log_bytes(wal));
        assert_int_equal(file_and_log_bytes(wal) > 0, k == 0);
    }
}

/* gc computes missing summaries from the rows, and existing ones only on request. It skips attempts that are in
 * progress or have deleted rows. */
static void missing_summaries_are_recomputed(void **state) {
    static const struct {
        const char *harm;
        bool rebuild, mended;
    } rows[] = {{"DELETE FROM roll WHERE key >> 42 = 1", false, true},
                {"DELETE FROM roll WHERE key >> 42 = 2", false, true},
                {"DELETE FROM roll", false, true},
                {"UPDATE roll SET data = x'00'", false, false},
                {"UPDATE roll SET data = x'00'", true, true},
                {"UPDATE attempt SET raw_from = 1; DELETE FROM roll", true, false},
                {"UPDATE attempt SET ended_us = NULL; DELETE FROM roll", true, false}};
    static const char *const all = "SELECT key, hex(data) FROM roll ORDER BY key",
                             *const each = "SELECT key >> 42, count(*) > 0 FROM roll GROUP BY 1";
    const bt_tmp *t = *state;
    make_two_attempts(t->db, "a", 60);
    bt_table_is(t->db, each, "1|1\n2|1\n");
    bt_table_is(t->db, "SELECT min(raw_from), max(raw_from), count(ended_us) FROM attempt",
                "0|0|2\n");
    char *whole = bt_table(t->db, all);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_gc_result r;
        run_sql(t->db, rows[i].harm);
        char *harmed = bt_table(t->db, all);
        OK(bt_store_gc(t->db, &(bt_gc_cfg){.keep_rank_steps = -1, .rebuild = rows[i].rebuild}, 1,
                       &r, err));
        bt_table_is(t->db, all, rows[i].mended ? whole : harmed);
        free(harmed);
        run_sql(t->db, "UPDATE attempt SET raw_from = 0, ended_us = 1");
        OK(bt_store_gc(t->db, &(bt_gc_cfg){.keep_rank_steps = -1, .rebuild = true}, 1, &r, err));
    }
    free(whole);
}

/* Makes one of the changes that a user can request. */
static bt_code change_by_number(const bt_tmp *t, int what, bt_err *err) {
    const char *run = "r", *word = "x";
    char tags[256];
    bt_gc_result result;
    switch (what) {
    case 0: return bt_runs_remove(t->db, &run, 1, 0, err);
    case 1: return bt_run_tag(t->db, "r", &word, 1, 0, tags, err);
    case 2: return bt_run_note(t->db, "r", "x", 0, err);
    case 3: return bt_run_rename(t->db, "r", "x", 0, err);
    case 4: return bt_run_mark(t->db, "r", 0, BT_EVENT_ANNOTATION, "x", 0, err);
    default: return bt_store_gc(t->db, &(bt_gc_cfg){.keep_rank_steps = 1}, 0, &result, err);
    }
}

static void is_unchanged(const bt_tmp *t) {
    assert_string_equal(first_row_of(t->db, "SELECT group_concat(name) FROM run"), "r");
    assert_string_equal(
        first_row_of(t->db, "SELECT coalesce(note, '') || coalesce(tags, '') FROM run"), "");
    assert_string_equal(first_row_of(t->db, "SELECT count(*) FROM event WHERE title = 'x'"), "0");
}

/* While another process holds the lock or a transaction, changes are refused with an error. */
static void changes_are_refused_beside_a_writer(void **state) {
    const bt_tmp *t = *state;
    bt_lock l = {.fd = -1};
    sqlite3 *db = NULL;
    make_two_attempts(t->db, "r", 40);
    OK(bt_lock_open(&l, t->db, err));
    OK(bt_lock_take(&l, 0, err));
    for (int what = 0; what < 6; what++) {
        bt_err why = BT_ERR_INIT;
        assert_int_equal(change_by_number(t, what, &why), BT_BUSY);
        assert_non_null(strstr(why.msg, "metrics database is being written by pid "));
    }
    bt_lock_drop(&l);
    bt_lock_close(&l);
    is_unchanged(t);
    assert_int_equal(sqlite3_open(t->db, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    for (int what = 0; what < 2; what++) { /* Each request waits for two seconds. */
        bt_err why = BT_ERR_INIT;
        assert_int_not_equal(change_by_number(t, what, &why), BT_OK);
        assert_true(why.msg[0] != '\0');
    }
    sqlite3_close(db);
    is_unchanged(t);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {TEST(tags_are_words),
                                       TEST(a_name_is_changed_in_the_settings),
                                       TEST(marks_are_events),
                                       TEST(live_runs_are_recognized),
                                       TEST(retention_is_kept),
                                       TEST(missing_summaries_are_recomputed),
                                       TEST(changes_are_refused_beside_a_writer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
