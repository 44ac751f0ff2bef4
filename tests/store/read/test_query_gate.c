/* test_query_gate.c - SQL of a user may call the permitted functions, pragmas and table-valued functions of this
 * SQLite; every write is refused. */
#include "store/sql/sql.h"
#include "tests/store/store_test.h"

static const char allowed_functions[] =
    " abs changes char coalesce concat concat_ws format glob hex ifnull iif instr "
    "last_insert_rowid length like "
    "likelihood likely lower ltrim max min nullif octet_length printf quote random randomblob "
    "replace round rtrim sign "
    "soundex sqlite_version substr substring total_changes trim typeof unhex unicode unlikely "
    "upper zeroblob "
    "run_state bt_live_s current_date current_time current_timestamp date datetime "
    "julianday strftime time "
    "timediff unixepoch acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp "
    "floor ln log log10 log2 "
    "mod pi pow power radians sin sinh sqrt tan tanh trunc avg count cume_dist dense_rank "
    "first_value group_concat lag "
    "last_value lead median nth_value ntile percent_rank percentile percentile_cont "
    "percentile_disc rank row_number "
    "string_agg sum total -> ->> json json_array json_array_length json_error_position "
    "json_extract json_group_array "
    "json_group_object json_insert json_object json_patch json_pretty json_quote json_remove "
    "json_replace json_set "
    "json_type json_valid ";

static const char allowed_pragmas[] = " table_info table_xinfo table_list index_list index_info "
                                      "index_xinfo database_list data_version user_version "
                                      "application_id page_count page_size freelist_count "
                                      "function_list compile_options quick_check integrity_check "
                                      "collation_list ";

static bool is_listed_function(const char *list, const char *word) {
    char with[80];
    snprintf(with, sizeof with, " %s ", word);
    return strstr(list, with) != NULL;
}

static int is_prepared(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st = NULL;
    const int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    sqlite3_finalize(st);
    return rc;
}

static sqlite3 *open_guarded(const bt_tmp *t, bt_db **db) {
    bt_writer *w = NULL;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_writer_close(w);
    OK(bt_db_open(db, t->db, err));
    return bt_db_handle(*db);
}

/* Checks every function of SQLite with each number of arguments that it accepts. */
static void functions_are_listed(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    sqlite3 *guarded = open_guarded(t, &db);
    int allowed = 0, refused = 0;
    char *all =
             bt_table(":memory:",
                      "SELECT DISTINCT name, narg FROM pragma_function_list WHERE name <> 'match'"),
         *next = all;
    for (char *line; (line = strsep(&next, "\n")) && *line;) {
        char sql[200], *bar = strrchr(line, '|');
        *bar = '\0';
        int n = snprintf(sql, sizeof sql, "SELECT \"%s\"(", line);
        for (int k = 0; k < atoi(bar + 1) || (k == 0 && atoi(bar + 1) < 0); k++)
            n += snprintf(sql + n, sizeof sql - (size_t)n, "%s1", k ? "," : "");
        snprintf(sql + n, sizeof sql - (size_t)n, ")");
        const int rc = is_prepared(guarded, sql);
        const bool may = is_listed_function(allowed_functions, line);
        const bool denied = strstr(sqlite3_errmsg(guarded), "not authorized to use function") !=
                            NULL;
        if (may ? denied : rc == SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(guarded));
        allowed += may && rc == SQLITE_OK;
        refused += denied;
    }
    free(all);
    assert_true(allowed > 80 && refused > 3);
    assert_int_equal(is_prepared(guarded, "SELECT load_extension('x')"), SQLITE_ERROR);
    assert_string_equal(sqlite3_errmsg(guarded), "not authorized to use function: load_extension");
    assert_int_equal(
        is_prepared(guarded, "SELECT ABS(-1), '{}' -> 'a', '{}' ->> 'a', 'a' LIKE 'A'"), SQLITE_OK);
    bt_db_close(db);
}

static void pragmas_are_listed(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    sqlite3 *guarded = open_guarded(t, &db);
    int allowed = 0;
    char *all = bt_table(":memory:", "SELECT name FROM pragma_pragma_list"), *next = all;
    for (char *line; (line = strsep(&next, "\n")) && *line;) {
        char sql[100];
        snprintf(sql, sizeof sql, "PRAGMA %s", line);
        const bool may = is_listed_function(allowed_pragmas, line);
        const int rc = is_prepared(guarded, sql);
        if (rc != (may ? SQLITE_OK : SQLITE_AUTH)) fail_msg("%s: %s", sql, sqlite3_errmsg(guarded));
        allowed += may;
    }
    free(all);
    assert_true(allowed > 12);
    assert_int_equal(is_prepared(guarded, "PRAGMA user_version = 1"), SQLITE_AUTH);
    assert_int_equal(is_prepared(guarded, "PRAGMA table_info(run)"), SQLITE_OK);
    assert_int_equal(is_prepared(guarded, "SELECT * FROM pragma_table_info('run')"), SQLITE_OK);
    bt_db_close(db);
}

static void statements_only_read(void **state) {
    static const char *const refused[] = {
        "INSERT INTO meta VALUES ('a', 1)",
        "UPDATE run SET note = 'x'",
        "DELETE FROM run",
        "UPDATE sqlite_master SET sql = ''",
        "CREATE TABLE x(a)",
        "CREATE TEMP TABLE x(a)",
        "CREATE INDEX x ON run(note)",
        "CREATE VIEW x AS SELECT 1",
        "CREATE TEMP VIEW x AS SELECT 1",
        "CREATE VIRTUAL TABLE x USING fts3(a)",
        "CREATE TEMP TRIGGER x AFTER INSERT ON run BEGIN SELECT 1; END",
        "DROP TABLE run",
        "DROP VIEW runs",
        "ALTER TABLE run ADD COLUMN x",
        "ATTACH ':memory:' AS x",
        "DETACH main",
        "REINDEX",
        "ANALYZE",
        "VACUUM",
        "VACUUM INTO '/tmp/x'",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT x"};
    static const char *const read[] = {
        "SELECT * FROM runs",
        "EXPLAIN SELECT 1",
        "VALUES (1)",
        "SELECT * FROM run r JOIN attempt a ON a.run = r.id",
        "SELECT value FROM json_each('[1]')",
        "SELECT value FROM json_tree('[1]')",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 3) SELECT x FROM c"};
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    sqlite3 *guarded = open_guarded(t, &db);
    for (int round = 0; round < 2; round++) { /* The second round runs inside a snapshot. */
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
            double x;
            if (bt_db_value(db, refused[i], NULL, &x, &why) != BT_ARG)
                fail_msg("%s: %s", refused[i], why.msg);
        }
        for (size_t i = 0; i < sizeof read / sizeof *read; i++)
            if (is_prepared(guarded, read[i]) != SQLITE_OK)
                fail_msg("%s: %s", read[i], sqlite3_errmsg(guarded));
        if (round == 0) OK(bt_db_snapshot(db, err));
    }
    bt_db_snapshot_end(db);
    static const char *const modules[] = {"SELECT * FROM fts3tokenize('simple', 'a b')",
                                          "SELECT * FROM dbstat",
                                          "SELECT * FROM bytecode('SELECT 1')",
                                          "SELECT * FROM sqlite_stmt"};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (is_prepared(guarded, modules[i]) == SQLITE_OK) fail_msg("%s", modules[i]);
    bt_db_close(db);
    bt_table_is(t->db, "SELECT count(*) FROM sqlite_schema WHERE name = 'x'", "0\n");
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {TEST(functions_are_listed), TEST(pragmas_are_listed),
                                       TEST(statements_only_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
