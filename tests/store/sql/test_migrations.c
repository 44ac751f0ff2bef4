/* test_migrations.c - the tables of a new database, the conversion of older tables and rows, and refused files with
 * their messages. A failed update changes nothing. */
#include <fcntl.h>

#include "store/sql/sql.h"
#include "tests/store/old_file.h"

static bt_code apply_schema(const char *path, bt_err *why) {
    sqlite3 *db = NULL;
    OK(bt_sql_open_rw(&db, path, err));
    const bt_code code = bt_schema_apply(db, path, why);
    assert_true(sqlite3_get_autocommit(db));
    sqlite3_close(db);
    return code;
}

static bt_code check_column_texts(const char *path, bool *outdated, bt_err *why) {
    sqlite3 *db = NULL;
    OK(bt_sql_open_ro(&db, path, err));
    const bt_code code = bt_schema_check(db, path, outdated, why);
    sqlite3_close(db);
    return code;
}

/* Returns the contents of the tables `scope` and `metric` that scopes.def and metrics.def define. */
static char *rows_of_definitions(bool metrics) {
    char *text = NULL;
    size_t bytes = 0;
    int pos = 0;
    FILE *out = open_memstream(&text, &bytes);
    for (int s = 0; s < BT_SCOPE_COUNT; s++) {
        const bt_scope_row *row = &bt_scopes[s];
        if (!metrics) fprintf(out, "%s|%s|%s|%s\n", row->name, row->view, row->table, row->per);
        for (int i = 0; metrics && i < row->n; i++) {
            const bt_metric *m = &row->metric[i];
            bt_column c;
            bt_column_of((bt_scope)s, m, &c);
            fprintf(out, "%d|%s|%s|%s|%s|%s|%s|%.1f|%s\n", pos++, row->name, m->key,
                    bt_unit_name(m->unit), bt_panel_name(m->panel), m->help, c.name, c.scale,
                    c.integer ? "INTEGER" : "REAL");
        }
    }
    fclose(out);
    return text;
}

static void a_new_file_holds_its_tables(void **state) {
    const bt_tmp *t = *state;
    OK(apply_schema(t->db, err));
    bt_table_is(t->db,
                "SELECT page_size, auto_vacuum, journal_mode FROM pragma_page_size, "
                "pragma_auto_vacuum, pragma_journal_mode",
                "4096|2|wal\n");
    bt_table_is(t->db, "SELECT key, value FROM meta WHERE key <> 'views' ORDER BY key",
                "keep_rank_steps|50000\nnext_aid|1\n");
    char *want = rows_of_definitions(true);
    bt_table_is(t->db,
                "SELECT m.pos, m.scope, m.key, m.unit, m.panel, m.meaning, m.col, m.scale, (SELECT "
                "type FROM pragma_table_info(s.tbl) WHERE name = m.col) FROM metric m JOIN scope s "
                "ON s.name = m.scope ORDER BY m.pos",
                want);
    free(want);
    want = rows_of_definitions(false);
    size_t at = 0;
    for (int s = 0; s < BT_SCOPE_COUNT; s++) {
        char sql[120], row[200];
        const size_t n = strcspn(want + at, "\n") + 1;
        snprintf(row, sizeof row, "%.*s", (int)n, want + at);
        snprintf(sql, sizeof sql, "SELECT name, view, tbl, per FROM scope WHERE name = '%s'",
                 bt_scopes[s].name);
        bt_table_is(t->db, sql, row);
        at += n;
    }
    free(want);
    char count[20];
    snprintf(count, sizeof count, "%d\n", BT_SCOPE_COUNT);
    bt_table_is(t->db, "SELECT count(*) FROM scope", count);
    char *before = bt_table(t->db, "SELECT schema_version FROM pragma_schema_version");
    OK(apply_schema(t->db, err));
    bt_table_is(t->db, "SELECT schema_version FROM pragma_schema_version", before);
    free(before);
}

/* Lists the names, types, constraints and keys of the columns, and the indexes. */
#define TABLES(which, order) \
    "SELECT s.type, s.name, (SELECT group_concat(name || ' ' || type || ' ' || \"notnull\" || ' " \
    "' || " \
    "coalesce(dflt_value, '') || ' ' || pk, char(10)) FROM (SELECT * FROM " \
    "pragma_table_info(s.name) " \
    "ORDER BY " order \
    ")) FROM sqlite_schema s WHERE s.type IN ('table', 'index') AND s.name NOT LIKE " \
    "'sqlite_%' AND s.name " which " (SELECT tbl FROM scope) ORDER BY s.name"

static void check_same_rows(const char *path, const char *other, const char *sql) {
    char *want = bt_table(other, sql);
    bt_table_is(path, sql, want);
    free(want);
}

static void an_old_file_gets_the_tables_of_a_new_one(void **state) {
    const bt_tmp *t = *state;
    char fresh[128];
    snprintf(fresh, sizeof fresh, "%s/new.db", t->dir);
    bt_old_file(t->db);
    OK(apply_schema(t->db, err));
    OK(apply_schema(fresh, err));
    check_same_rows(t->db, fresh, TABLES("NOT IN", "cid"));
    check_same_rows(t->db, fresh, TABLES("IN", "name")); /* The order of the metrics may differ. */
    check_same_rows(t->db, fresh,
                    "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name");
    bt_table_is(t->db, "SELECT value FROM meta WHERE key = 'next_aid'", "3\n");
    bt_table_is(
        t->db,
        "SELECT min(pos), max(pos) + 1 - count(*), count(DISTINCT pos) = count(*) FROM metric",
        "0|0|1\n");
    bt_table_is(
        t->db,
        "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version",
        "1651078258|11\n");
}

/* A file of any older version is updated by the steps from its version on, each executed once. */
static void each_older_version_is_updated(void **state) {
    static const char *const undo[] = {
        /* 5: */ "DROP TABLE scope",
        "ALTER TABLE run RENAME COLUMN productive_us TO first_time_us; ALTER TABLE run DROP COLUMN "
        "validation_us; ALTER "
        "TABLE run DROP COLUMN checkpoint_us; ALTER TABLE run DROP COLUMN paused_us; ALTER TABLE "
        "run DROP COLUMN "
        "startup_us; ALTER TABLE run DROP COLUMN lost_us",
        "ALTER TABLE run DROP COLUMN energy_j",
        "ALTER TABLE run DROP COLUMN finished_us",
        "DROP TABLE proposal",
        /* Version 10 changes only rows. */ "SELECT 1"};
    const bt_tmp *t = *state;
    char fresh[128], sql[60];
    snprintf(fresh, sizeof fresh, "%s/new.db", t->dir);
    bt_old_file(t->db);
    OK(apply_schema(t->db, err));
    OK(apply_schema(fresh, err));
    char *ranks = bt_table(t->db, "SELECT * FROM rank_step"),
         *steps = bt_table(t->db, "SELECT * FROM step");
    for (int version = 10; version >= 3; version--) {
        char *views = bt_table(
            t->db, "SELECT 'DROP VIEW ' || name || ';' FROM sqlite_schema WHERE type = 'view'");
        run_sql(t->db, views);
        free(views);
        for (int k = 10; k >= version && k >= 5; k--) run_sql(t->db, undo[k - 5]);
        snprintf(sql, sizeof sql, "PRAGMA user_version = %d", version);
        run_sql(t->db, sql);
        OK(apply_schema(t->db, err));
        check_same_rows(t->db, fresh, TABLES("NOT IN", "name"));
        check_same_rows(t->db, fresh, TABLES("IN", "name"));
        bt_table_is(t->db, "SELECT * FROM rank_step", ranks);
        bt_table_is(t->db, "SELECT * FROM step", steps);
        bt_table_is(t->db, "PRAGMA user_version", "11\n");
    }
    free(ranks);
    free(steps);
}

/* Rows in the format of an older version are converted. */
static void rows_of_old_files_are_rewritten(void **state) {
    const bt_tmp *t = *state;
    bt_old_file(t->db);
    run_sql(
        t->db,
        "DELETE FROM event; UPDATE run SET first_time_us = 77, redone_us = 5;"
        "INSERT INTO event(run, aid, t_us, step, kind, level, title) VALUES"
        " (1, 1, 10, 1, 'control', 0, 'paused'), (1, 1, 11, 1, 'notice', 0, 'paused'),"
        " (1, 1, 12, 1, 'control', 0, 'continued after a pause of 3 s'),"
        " (1, 1, 13, 1, 'notice', 0, 'continued after a pause of 3 s'),"
        " (1, 1, 14, 1, 'control', 0, 'eval asked for by ctl'),"
        " (1, 1, 15, 1, 'checkpoint', 2, 'cannot write'), (1, 1, 16, 1, 'checkpoint', 1, 'late'),"
        " (1, 1, 17, 1, 'warning', 2, 'odd'), (1, 2, 18, 6, 'checkpoint', 0, 'of the second "
        "attempt'),"
        " (1, 2, 19, 6, 'checkpoint', 0, 'once more'), (1, 2, 20, 6, 'notice', 0, 'later'),"
        " (1, 1, 21, 6, 'checkpoint', 0, 'of the first attempt');"
        "INSERT INTO ckpt(run, step, attempt, t_us, path) VALUES (1, 7, 1, 90, 'a'), (1, 7, 0, 91, "
        "'b'),"
        " (1, 6, 1, 92, 'c'), (1, 8, 1, 93, 'd');"
        "INSERT INTO rank_step(aid, step, rank, step_us) VALUES (3, 1073741823, 65535, 1),"
        " (3, 1073741824, 0, 2), (3, 0, 65536, 3)");
    OK(apply_schema(t->db, err));
    bt_table_is(
        t->db, "SELECT t_us, kind FROM event ORDER BY t_us",
        "10|paused\n11|notice\n12|continued\n13|notice\n14|control\n15|checkpoint_failed\n"
        "16|checkpoint\n17|warning\n18|checkpoint\n19|checkpoint\n20|notice\n21|checkpoint\n");
    /* The time of a checkpoint becomes the time of the event of its last step in the same attempt; without such an
     * event the time is unchanged. */
    bt_table_is(t->db, "SELECT path, t_us FROM ckpt ORDER BY path", "a|19\nb|21\nc|92\nd|93\n");
    bt_table_is(
        t->db,
        "SELECT productive_us, redone_us, validation_us, checkpoint_us, paused_us, startup_us, "
        "lost_us, finished_us, energy_j FROM run",
        "77|5|-|-|-|-|-|-|-\n");
    bt_table_is(t->db, "SELECT id, raw_from FROM attempt ORDER BY id", "1|0\n2|0\n");
    bt_table_is(t->db, "SELECT count(*), max(step_us = 2), max(step_us = 3) FROM rank_step",
                "29|0|0\n");
    bt_table_is(t->db, "SELECT key, step_us FROM rank_step WHERE key >= 3 << 46",
                "281474976710655|1\n");
    bt_table_is(
        t->db,
        "SELECT key - (2 << 46) - (11 << 16), loss_unats, step_us, data_us, fwd_us, bwd_us, "
        "comm_exposed_us, comm_busy_us, wait_us, optim_us, bytes_logical, bytes_wire, rss_kib, "
        "cpu_us, "
        "micro_batches FROM rank_step WHERE key BETWEEN (2 << 46) + (11 << 16) AND (3 << 46) - 1",
        "0|4687502|113000|10000|30000|60000|8000|16000|0|5000|4000000|1000000|102400|113000|1\n"
        "1|4687502|113000|10000|30000|60000|8000|16000|0|5000|4000000|1000000|103424|113000|1\n");
}

/* ---- foreign files ---------------------------------------------------------------------------------- */

static void refused_files_have_their_messages(void **state) {
    static const struct {
        const char *sql, *says; /* %s: path of the file */
    } rows[] = {
        {"CREATE TABLE songs(a)",
         "'%s' is a database of another program, not of bitrain (choose another --store)"},
        {"PRAGMA user_version = 3",
         "'%s' is a database of another program, not of bitrain (choose another --store)"},
        {"PRAGMA application_id = 1651078259",
         "'%s' is a database of another program, not of bitrain (choose another --store)"},
        {"PRAGMA application_id = 1651078258",
         "metrics database '%s' has the impossible schema version 0"},
        {"PRAGMA application_id = 1651078258; PRAGMA user_version = -1",
         "metrics database '%s' has the impossible schema version -1"},
        {"PRAGMA application_id = 1651078258; PRAGMA user_version = 12",
         "metrics database '%s' was written by a newer bitrain (schema 12, this program supports "
         "11): upgrade bitrain"},
    };
    const bt_tmp *t = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[400];
        bt_err why = BT_ERR_INIT;
        bool outdated = false;
        unlink(t->db);
        run_sql(t->db, rows[i].sql);
        snprintf(want, sizeof want, rows[i].says, t->db);
        assert_int_equal(apply_schema(t->db, &why), BT_FORMAT);
        assert_string_equal(why.msg, want);
        why = (bt_err)BT_ERR_INIT;
        assert_int_equal(check_column_texts(t->db, &outdated, &why), BT_FORMAT);
        assert_string_equal(why.msg, want);
    }
}

static void an_empty_file_has_no_run(void **state) {
    const bt_tmp *t = *state;
    char want[200];
    bt_err why = BT_ERR_INIT;
    bool outdated = false;
    close(open(t->db, O_CREAT | O_WRONLY, 0600));
    snprintf(want, sizeof want, "no run is recorded in '%s' yet (an empty file)", t->db);
    assert_int_equal(check_column_texts(t->db, &outdated, &why), BT_NOTFOUND);
    assert_string_equal(why.msg, want);
}

/* The views show each time in UTC with milliseconds and in seconds. A run that has not ended has no end time. */
static void times_have_two_forms(void **state) {
    const bt_tmp *t = *state;
    bt_old_file(t->db);
    OK(apply_schema(t->db, err));
    bt_table_is(t->db, "SELECT started, ended, started_s, ended_s FROM runs",
                "2023-11-14T22:13:20.000Z|2023-11-14T22:13:23.582Z|1700000000.0|1700000003.582\n");
    bt_table_is(
        t->db, "SELECT attempt, started, ended, started_s, ended_s FROM attempts",
        "0|2023-11-14T22:13:20.000Z|2023-11-14T22:13:20.904Z|1700000000.0|1700000000.904\n1|2023-"
        "11-14T22:13:22.904Z|2023-11-14T22:13:23.582Z|1700000002.904|1700000003.582\n");
    bt_table_is(t->db, "SELECT time, kind FROM events ORDER BY time LIMIT 2",
                "2023-11-14T22:13:20.000Z|started\n2023-11-14T22:13:22.904Z|resumed\n");
    run_sql(t->db, "UPDATE run SET ended_us = NULL; UPDATE attempt SET ended_us = NULL");
    bt_table_is(t->db,
                "SELECT r.ended, r.ended_s, a.ended, a.ended_s FROM runs r, attempts a LIMIT 1",
                "-|-|-|-\n");
}

static void outdated_files(void **state) {
    static const char *const changes[] = {"DELETE FROM metric WHERE key = 'mfu'",
                                          "DELETE FROM scope WHERE name = 'pair'",
                                          "UPDATE meta SET value = 1 WHERE key = 'views'",
                                          "DELETE FROM meta WHERE key = 'views'",
                                          "PRAGMA user_version = 8"};
    const bt_tmp *t = *state;
    bool outdated = true;
    OK(apply_schema(t->db, err));
    OK(check_column_texts(t->db, &outdated, err));
    assert_false(outdated);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        unlink(t->db);
        OK(apply_schema(t->db, err));
        run_sql(t->db, changes[i]);
        outdated = false;
        OK(check_column_texts(t->db, &outdated, err));
        if (!outdated) fail_msg("%s", changes[i]);
    }
    unlink(t->db);
    OK(apply_schema(t->db, err));
    run_sql(t->db, "UPDATE meta SET value = 1 WHERE key = 'views'; DROP VIEW facts");
    /* Views are created again only when their definition has changed. */
    OK(apply_schema(t->db, err));
    bt_table_is(t->db, "SELECT name FROM sqlite_schema WHERE name = 'facts'", "facts\n");
    OK(check_column_texts(t->db, &outdated, err));
    assert_false(outdated);
}

/* The update is one transaction. */
static void an_update_that_fails_changes_nothing(void **state) {
    const bt_tmp *t = *state;
    char want[300];
    bt_err why = BT_ERR_INIT;
    bt_old_file(t->db);
    run_sql(t->db, "CREATE TABLE scope(a)"); /* version 6 adds a table of this name */
    char *before = bt_table(t->db, "SELECT type, name, sql FROM sqlite_schema");
    snprintf(want, sizeof want, "cannot use '%s': table scope already exists", t->db);
    assert_int_equal(apply_schema(t->db, &why), BT_DB);
    assert_string_equal(why.msg, want);
    bt_table_is(t->db, "SELECT type, name, sql FROM sqlite_schema", before);
    bt_table_is(t->db, "PRAGMA user_version", "1\n");
    free(before);
    bt_db *db = NULL;
    snprintf(want, sizeof want,
             "metrics database '%s' is of an older bitrain and cannot be updated: cannot use '%s': "
             "table scope "
             "already exists",
             t->db, t->db);
    assert_int_equal(bt_db_open(&db, t->db, &why), BT_FORMAT);
    assert_string_equal(why.msg, want);
    assert_null(db);
    /* The file has the present version but lacks a table. */
    unlink(t->db);
    OK(apply_schema(t->db, err));
    run_sql(t->db, "DROP TABLE scope");
    bool outdated = false;
    snprintf(want, sizeof want, "cannot use '%s': no such table: scope", t->db);
    why = (bt_err)BT_ERR_INIT;
    assert_int_equal(check_column_texts(t->db, &outdated, &why), BT_DB);
    assert_string_equal(why.msg, want);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        TEST(a_new_file_holds_its_tables),
        TEST(an_old_file_gets_the_tables_of_a_new_one),
        TEST(rows_of_old_files_are_rewritten),
        TEST(each_older_version_is_updated),
        TEST(refused_files_have_their_messages),
        TEST(an_empty_file_has_no_run),
        TEST(times_have_two_forms),
        TEST(outdated_files),
        TEST(an_update_that_fails_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
