// ctest: timeout=60
/* Queries of users: the format of results, refusals and their reasons, names of runs, and the last lines of a run's
 * log. */
#include "store/read/run_log.h"
#include "store_test.h"

#include "store/sql/sql.h"
#include "tests/message.h"

static void record_named_run(const char *path, const char *name, const char *out_dir,
                             int64_t began_us) {
    bt_run_start start = bt_fake_run(name);
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    start.out_dir = out_dir;
    start.started_us = began_us;
    start.host = "nodes";
    OK(bt_writer_open(&w, path, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    for (int64_t step = 0; step < 3; step++) {
        bt_fake_step(&f, step, 2);
        f.r.wall_us = began_us + 1000000 * (step + 1);
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, &f.r);
    }
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
}

typedef struct seen {
    char text[600];
    int rows, most; /* the query stops after this many rows */
} seen;

/* Formats each row as "a=i:1 b=t:x", with its number if it has one. */
static bool format_seen_row(void *ctx, const bt_row *row) {
    seen *s = ctx;
    for (int i = 0; i < row->n; i++) {
        const size_t n = strlen(s->text);
        snprintf(s->text + n, sizeof s->text - n, "%s%s=%c:%s", i ? " " : "", row->names[i],
                 row->types[i], row->cells[i] ? row->cells[i] : "-");
        const bool number = row->types[i] == 'i' || row->types[i] == 'r';
        assert_true(number ? row->nums[i] == strtod(row->cells[i], NULL) : isnan(row->nums[i]));
    }
    strcat(s->text, ";");
    return ++s->rows != s->most;
}

static bt_code query_seen_rows(bt_db *db, const char *sql, seen *s, bt_err *err) {
    const char *params[] = {"one", NULL};
    return bt_db_query(db, &(bt_query){.sql = sql, .params = params, .n_params = 2},
                       format_seen_row, s, err);
}

static void cells_in_every_form(void **state) {
    static const struct {
        const char *sql, *want;
    } rows[] = {
        {"SELECT 1 AS a, 'x' AS b, NULL AS c, x'4142' AS d, 1.5 AS e",
         "a=i:1 b=t:x c=n:- d=b:AB e=r:1.5;"},
        {"SELECT 2.0 AS a, -0.0 AS b, 1e300 AS c, 1e15 AS d",
         "a=r:2.0 b=r:-0.0 c=r:1e+300 d=r:1e+15;"},
        {"SELECT 0.1 AS a, 1/3.0 AS b, 0.1+0.2 AS c",
         "a=r:0.1 b=r:0.3333333333333333 c=r:0.30000000000000004;"},
        {"SELECT 123456789012345.0 AS a, 9007199254740993 AS b",
         "a=r:123456789012345.0 b=i:9007199254740993;"},
        {"SELECT ?1 AS a, ?2 AS b", "a=t:one b=n:-;"},
        {"SELECT 1 AS a ; \n\r\t;", "a=i:1;"},
        {"SELECT 1 AS a WHERE 0", ""},
        {"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 3) SELECT x FROM c",
         "x=i:1;x=i:2;x=i:3;"},
        {"SELECT run, steps, state FROM runs ORDER BY run", "run=t:r steps=i:3 state=t:done;"},
    };
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    record_named_run(t->db, "r", "/tmp", 1700000000000000);
    OK(bt_db_open(&db, t->db, err));
    assert_string_equal(bt_db_path(db), t->db);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        seen s = {0};
        OK(query_seen_rows(db, rows[i].sql, &s, err));
        assert_string_equal(s.text, rows[i].want);
    }
    bt_db_close(db);
}

static void questions_are_limited(void **state) {
    static const char three[] = "SELECT 1 AS a UNION ALL SELECT 2 UNION ALL SELECT 3";
    static const struct {
        int max_rows, most, rows;
        bool truncated;
    } rows[] = {{0, 0, 3, false}, {3, 0, 3, false}, {2, 0, 2, true},
                {1, 0, 1, true},  {2, 1, 1, false}, {0, 2, 2, false}};
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    record_named_run(t->db, "r", "/tmp", 1700000000000000);
    OK(bt_db_open(&db, t->db, err));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        seen s = {.most = rows[i].most};
        bool truncated = true;
        OK(bt_db_query(
            db, &(bt_query){.sql = three, .max_rows = rows[i].max_rows, .truncated = &truncated},
            format_seen_row, &s, err));
        assert_int_equal(s.rows, rows[i].rows);
        assert_int_equal(truncated, rows[i].truncated);
    }
    seen s = {0};
    const bt_query endless = {
        .sql = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT sum(x) FROM c",
        .max_s = 0.05};
    assert_int_equal(bt_db_query(db, &endless, format_seen_row, &s, &why), BT_BUSY);
    message_has(why.msg, "query took longer than 0.05 s and was");
    /* The previous query's time limit no longer applies. */
    OK(query_seen_rows(db, three, &s, err));
    /* A query with much work ends within its time limit, and a query with endless rows ends at the requested number. */
    double n = 0;
    bool truncated = false;
    seen few = {0};
    OK(bt_db_query(db,
                   &(bt_query){.sql = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 "
                                      "FROM c LIMIT 50000) SELECT sum(x) "
                                      "FROM c",
                               .max_s = 100},
                   format_seen_row, &few, err));
    assert_string_equal(few.text, "sum(x)=i:1250025000;");
    few = (seen){0};
    OK(bt_db_query(
        db,
        &(bt_query){
            .sql = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x FROM c",
            .max_rows = 2,
            .max_s = 5,
            .truncated = &truncated},
        format_seen_row, &few, err));
    assert_true(truncated);
    assert_string_equal(few.text, "x=i:1;x=i:2;");
    assert_int_equal(
        sqlite3_exec(
            bt_db_handle(db),
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 50000) SELECT "
            "sum(x) FROM c",
            NULL, NULL, NULL),
        SQLITE_OK); /* Statements of the program itself have no time limit. */
    bt_db_limit_memory(8 << 20);
    for (int k = 0; k < 2; k++) /* The memory limit also holds for the next query. */
        assert_int_equal(bt_db_value(db, "SELECT length(hex(zeroblob(6000000)))", NULL, &n, &why),
                         BT_BUSY);
    bt_db_limit_memory(0);
    message_has(why.msg, "query takes more than 8 MiB of memory and");
    OK(bt_db_value(db, "SELECT length(hex(zeroblob(6000000)))", NULL, &n, err));
    assert_int_equal((int)n, 12000000);
    bt_db_close(db);
}

static void invalid_queries(void **state) {
    static const struct {
        const char *sql, *says;
    } rows[] = {
        {"", "query is empty"},
        {" -- nothing", "query is empty"},
        {"SELECT 1; SELECT 2", "query has a second statement: ' SELECT 2'"},
        {"SELECT 1; x", "query has a second statement: ' x'"},
        {"SELECT nope FROM runs", "SQL error: no such column: nope, at 'nope FROM runs'"},
        {"SELEC 1", "SQL error: near \"SELEC\": syntax error, at 'SELEC 1'"},
        {"SELECT abs(1, 2)",
         "SQL error: wrong number of arguments to function abs(), at 'abs(1, 2)'"},
        {"SELECT abs(-9223372036854775807 - 1)", "SQL error: integer overflow"},
        {"SELECT zeroblob(100000000)", "query makes a text or a row that is too long"},
        {"DELETE FROM run", "query may only read: not authorized"},
        {"BEGIN", "query may only read: not authorized"},
        {"PRAGMA application_id = 7", "query may only read the database"},
    };
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    record_named_run(t->db, "r", "/tmp", 1700000000000000);
    OK(bt_db_open(&db, t->db, err));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        seen s = {0};
        bt_err why = BT_ERR_INIT;
        const bt_code code = query_seen_rows(db, rows[i].sql, &s, &why);
        if (code != BT_ARG || strcmp(why.msg, rows[i].says) != 0)
            fail_msg("%s: %s: %s", rows[i].sql, bt_code_name(code), why.msg);
        assert_int_equal(s.rows, 0);
    }
    bt_db_close(db);
}

/* Tries the longest query and the widest row, then one byte or column more. */
static void queries_have_limits(void **state) {
    enum { SQL_BYTES = 1 << 20, COLUMNS = 256 };
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    char *sql = malloc(SQL_BYTES + 2);
    assert_non_null(sql);
    record_named_run(t->db, "r", "/tmp", 1700000000000000);
    OK(bt_db_open(&db, t->db, err));
    seen s = {0};
    for (int more = 0; more < 2; more++) {
        static const char *const lengths[] = {"SELECT length(zeroblob(67108864)) AS n",
                                              "SELECT length(zeroblob(67108865)) AS n"};
        assert_int_equal(query_seen_rows(db, lengths[more], &s, &why), more ? BT_ARG : BT_OK);
        memset(sql, ' ', SQL_BYTES + 1);
        memcpy(sql, "SELECT 1 AS a", 13);
        sql[SQL_BYTES + more] = '\0';
        assert_int_equal(query_seen_rows(db, sql, &s, &why), more ? BT_ARG : BT_OK);
        assert_string_equal(more ? why.msg : "",
                            more ? "query makes a text or a row that is too long" : "");
        strcpy(sql, "SELECT 1");
        for (int i = 1; i < COLUMNS + more; i++) strcat(sql, ",1");
        double first = 0;
        assert_int_equal(bt_db_value(db, sql, NULL, &first, &why), more ? BT_ARG : BT_OK);
        assert_true(more ? isnan(first) : first > 0);
    }
    message_has(why.msg, "SQL error: too many columns in result");
    assert_string_equal(s.text, "n=i:67108864;a=i:1;");
    static const char *const refused[] = {"ATTACH 'x' AS x", "PRAGMA user_version = 1",
                                          "CREATE TEMP TABLE x(a)", "SELECT load_extension('x')"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_int_equal(query_seen_rows(db, refused[i], &s, &why), BT_ARG);
    free(sql);
    bt_db_close(db);
}

/* All queries in a snapshot see the same data; writes of other connections appear after it. */
static void a_snapshot_is_one_instant(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    double n = 0;
    record_named_run(t->db, "r", "/tmp", 1700000000000000);
    OK(bt_db_open(&db, t->db, err));
    const int64_t version = bt_db_version(db);
    assert_true(version > 0);
    assert_int_equal(bt_db_version(db), version);
    bt_db_snapshot_end(db);
    for (int round = 0; round < 2; round++) {
        static const char length[] = "SELECT length(note) FROM runs WHERE run = ?1";
        OK(bt_db_snapshot(db, err));
        OK(bt_db_value(db, length, "r", &n, err));
        assert_int_equal((int)n, round);
        run_sql(t->db, "UPDATE run SET note = note || 'x'");
        OK(bt_db_value(db, length, "r", &n, err));
        assert_int_equal((int)n, round);
        bt_db_snapshot_end(db);
        OK(bt_db_value(db, length, "r", &n, err));
        assert_int_equal((int)n, 1 + round);
    }
    assert_true(bt_db_version(db) != version);
    assert_false(bt_db_moved(db));
    OK(bt_db_value(db, "SELECT 1 WHERE ?1 = 'x'", "r", &n, err));
    assert_true(isnan(n));
    OK(bt_db_value(db, "SELECT steps FROM runs WHERE run = ?1", "r", &n, err));
    assert_int_equal((int)n, 3);
    char other[120];
    snprintf(other, sizeof other, "%s.old", t->db);
    assert_int_equal(rename(t->db, other), 0);
    assert_true(bt_db_moved(db));
    record_named_run(t->db, "new", "/tmp", 1700000000000000);
    OK(bt_db_reopen(db, err));
    assert_false(bt_db_moved(db));
    OK(bt_db_value(db, "SELECT count(*) FROM runs", NULL, &n, err));
    assert_int_equal((int)n, 1);
    seen s = {0};
    bt_err why = BT_ERR_INIT;
    /* The connection refuses writes again. */
    assert_int_equal(query_seen_rows(db, "DELETE FROM run", &s, &why), BT_ARG);
    bt_db_close(db);
}

static void names_of_runs(void **state) {
    static const struct {
        const char *wanted, *says;
    } none[] = {{"alpa", "no run 'alpa' (did you mean 'alpha'?)"},
                {"zzzzzzzz", "no run 'zzzzzzzz' (`bitrain runs` lists them)"},
                {"al\033[1m", "no run 'al[1m' (`bitrain runs` lists them)"}};
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_writer *w = NULL;
    char run[BT_NAME_MAX], folder[8], says[200];
    bt_err why = BT_ERR_INIT;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    assert_int_equal(bt_db_run(db, "last", run, &why), BT_NOTFOUND);
    snprintf(says, sizeof says, "no run in '%s' yet (start one with `bitrain train`)", t->db);
    assert_string_equal(why.msg, says);
    record_named_run(t->db, "alpha", "/tmp/a", 1700000000000000);
    record_named_run(t->db, "beta", "/tmp/longer", 1600000000000000);
    OK(bt_db_run(db, "beta", run, err));
    assert_string_equal(run, "beta");
    /* The newest run has the newest record, not the highest number. */
    OK(bt_db_run(db, "last", run, err));
    assert_string_equal(run, "alpha");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(bt_db_run(db, none[i].wanted, run, &why), BT_NOTFOUND);
        assert_string_equal(why.msg, none[i].says);
    }
    run_sql(
        t->db,
        "UPDATE run SET created_us = 1, last_us = 5; UPDATE run SET last_us = NULL, created_us = 5 "
        "WHERE name = 'beta'");
    /* If two runs have equal times, the later row is the newest. */
    OK(bt_db_run(db, "last", run, err));
    assert_string_equal(run, "beta");
    run_sql(t->db, "UPDATE run SET last_us = 6 WHERE name = 'alpha'");
    OK(bt_db_run(db, "last", run, err));
    assert_string_equal(run, "alpha");
    /* An error proposes similar names among the newest 512 runs. */
    run_sql(t->db,
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 511) INSERT INTO "
            "run(name, created_us, state) SELECT 'q' || x, 2, 'done' FROM c");
    assert_int_equal(bt_db_run(db, "bet", run, &why), BT_NOTFOUND);
    assert_string_equal(why.msg, "no run 'bet' (did you mean 'beta'?)");
    assert_int_equal(bt_db_run(db, "alpa", run, &why), BT_NOTFOUND);
    message_has(why.msg, "no run 'alpa' (`bitrain runs` lists");
    OK(bt_db_run(db, "alpha", run, err));
    OK(bt_db_run_folder(db, "alpha", folder, sizeof folder, err));
    assert_string_equal(folder, "/tmp/a");
    OK(bt_db_run_folder(db, "beta", folder, sizeof folder, err)); /* The buffer is too small. */
    assert_string_equal(folder, "");
    for (int more = 0; more < 2; more++) { /* the maximum length, then one character more */
        run_sql(t->db, more ? "UPDATE run SET out_dir = '/tmp/abc'"
                            : "UPDATE run SET out_dir = '/tmp/ab'");
        OK(bt_db_run_folder(db, "beta", folder, sizeof folder, err));
        assert_string_equal(folder, more ? "" : "/tmp/ab");
    }
    OK(bt_db_run_folder(db, "gone", folder, sizeof folder, err));
    assert_string_equal(folder, "");
    bt_db_close(db);
}

/* ---- the log --------------------------------------------------------------------------------- */

static void levels_and_ranks_of_lines(void **state) {
    static const struct {
        const char *line;
        bt_event_level level;
        int rank;
    } rows[] = {{"hello", BT_EV_INFO, -1},
                {"bitrain rank 3: ERROR 4: x", BT_EV_ERROR, 3},
                {"MPI_ABORT was invoked on Rank 12", BT_EV_ERROR, 12},
                {"exited on signal 9", BT_EV_ERROR, -1},
                {"a Warning", BT_EV_WARN, -1},
                {"rank 0", BT_EV_INFO, 0},
                {"rank -1", BT_EV_INFO, -1},
                {"rank x", BT_EV_INFO, -1},
                {"rank 999999", BT_EV_INFO, 999999},
                {"rank 1000000", BT_EV_INFO, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(bt_run_log_level(rows[i].line), rows[i].level);
        assert_int_equal(bt_run_log_rank(rows[i].line), rows[i].rank);
    }
}

static void check_log_end(bt_db *db, size_t bytes, const char *want) {
    bt_text out;
    bt_json j;
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    OK(bt_run_log_json(db, "r", bytes, &j, err));
    bt_json_end(&j, '}');
    assert_string_equal(bt_text_str(&out), want);
    bt_text_release(&out);
}

/* bt_setting finds the same values in the text of a configuration as the view `configs`. */
static void settings_are_found_without_parsing(void **state) {
    static const char config[] =
        "{\"a.text\":{\"value\":\"x \\\"b.fake\\\":1, \\\\ "
        "\\n\\u00e9\\u20ac\",\"origin\":\"flag\"},"
        "\"b.number\":{\"value\":0.002,\"origin\":\"file\"}, \"c.flag\" : { \"value\" : true },"
        "\"d.none\":{\"value\":null},\"e.plain\":12,\"f.word\":\"cosine\",\"g.last\":false}";
    static const char *const keys[] = {"a.text", "b.number", "c.flag", "d.none", "e.plain",
                                       "f.word", "g.last",   "b.fake", "text"};
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    int attempt;
    bt_run_start s = bt_fake_run("r");
    s.config_json = config;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double same = 0, there = 0;
        OK(bt_db_value(
            db,
            "SELECT bt_setting((SELECT config FROM runs), ?1) IS (SELECT CAST(value AS TEXT) "
            "FROM configs WHERE key = ?1)",
            keys[i], &same, err));
        OK(bt_db_value(db, "SELECT bt_setting((SELECT config FROM runs), ?1) IS NOT NULL", keys[i],
                       &there, err));
        if (same != 1) fail_msg("'%s' is another value", keys[i]);
        assert_int_equal(there, i < 7 && i != 3);
    }
    bt_db_close(db);
}

/* Lines printed by ranks appear in log_lines with the host of their rank, and do not appear in events. */
static void printed_lines(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    bt_text out;
    bt_json j;
    int attempt;
    double n;
    const bt_run_start s = bt_fake_run("r");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    sink->ranks(sink->ctx, (bt_rank_info[]){{.rank = 0, .host = "n1"}, {.rank = 1, .host = "n2"}},
                2);
    static const char *const lines[] = {"hello", "rank 1: Out of memory, an error", "warned twice"};
    for (int i = 0; i < 3; i++)
        sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_OUTPUT,
                                           .step = -1,
                                           .rank = i == 1 ? 1 : -1,
                                           .wall_us = s.started_us + i,
                                           .title = lines[i]});
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    OK(bt_db_value(db, "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'output'", "r", &n,
                   err));
    assert_true(n == 0);
    for (int most = 1; most < 4; most += 2) {
        bt_text_init(&out);
        bt_json_begin(&j, &out);
        bt_json_object(&j, NULL);
        OK(bt_run_log_search_json(db, "r", "E", most, &j, err));
        bt_json_end(&j, '}');
        const char *text = bt_text_str(&out);
        assert_true((strstr(text, "\"cut\":true") != NULL) == (most == 1));
        assert_true((strstr(text, "hello") != NULL) == (most == 3));
        assert_true((strstr(text, "\"level\":\"error\",\"rank\":1,\"host\":\"n2\"") != NULL) ==
                    (most == 3));
        assert_non_null(strstr(text, "\"level\":\"warning\",\"rank\":null,\"host\":null"));
        bt_text_release(&out);
    }
    bt_db_close(db);
}

static void the_end_of_a_log(void **state) {
#define LINE(level, rank, text) "{\"level\":\"" level "\",\"rank\":" rank ",\"text\":\"" text "\"}"
    static const char text[] = "first\n\nrank 1: warning\0x\nlast error";
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    char path[96];
    record_named_run(t->db, "r", t->dir, 1700000000000000);
    OK(bt_db_open(&db, t->db, err));
    check_log_end(db, 100, "{\"readable\":false,\"cut\":false,\"lines\":[]}");
    snprintf(path, sizeof path, "%s/log.txt", t->dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(text, 1, sizeof text - 1, f);
    assert_int_equal(fclose(f), 0);
#define REST LINE("warning", "1", "rank 1: warning x") "," LINE("error", "null", "last error") "]}"
    check_log_end(db, sizeof text - 1,
                  "{\"readable\":true,\"cut\":false,\"lines\":[" LINE("info", "null",
                                                                      "first") "," REST);
    check_log_end(db, 1000,
                  "{\"readable\":true,\"cut\":false,\"lines\":[" LINE("info", "null",
                                                                      "first") "," REST);
    /* A line without its beginning is omitted. */
    check_log_end(db, sizeof text - 2, "{\"readable\":true,\"cut\":true,\"lines\":[" REST);
    check_log_end(db, 12,
                  "{\"readable\":true,\"cut\":true,\"lines\":[" LINE("error", "null",
                                                                     "last error") "]}");
    check_log_end(db, 3, "{\"readable\":true,\"cut\":true,\"lines\":[]}");
    assert_int_equal(remove(path), 0);
    assert_int_equal(symlink("/dev/null", path), 0); /* not a regular file */
    check_log_end(db, 100, "{\"readable\":false,\"cut\":false,\"lines\":[]}");
    bt_db_close(db);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        T(cells_in_every_form),
        T(questions_are_limited),
        T(queries_have_limits),
        T(invalid_queries),
        T(a_snapshot_is_one_instant),
        T(names_of_runs),
        cmocka_unit_test(levels_and_ranks_of_lines),
        T(the_end_of_a_log),
        T(printed_lines),
        T(settings_are_found_without_parsing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
