/* test_sql_columns.c - figures and lists of the program's tables (*.def) become SQL expressions, and metrics become
 * columns. */
#include "engine/base/tables/event.h"
#include "store/sql/expand.h"
#include "store/sql/sql.h"
#include "tests/store/store_test.h"

static void check_sql_of_figure(const char *sql, const char *want) {
    bt_text out;
    bt_text_init(&out);
    OK(bt_sql_expand(&out, sql, err));
    assert_string_equal(bt_text_str(&out), want);
    bt_text_release(&out);
}

static void assert_query_text(const char *sql, const char *want) {
    bt_text out;
    bt_err why = BT_ERR_INIT;
    bt_text_init(&out);
    assert_int_equal(bt_sql_expand(&out, sql, &why), BT_ARG);
    assert_string_equal(why.msg, want);
    bt_text_release(&out);
}

static void lists_become_columns(void **state) {
    (void)state;
    char want[4000] = "SELECT ";
    for (int p = 0; p < BT_PHASE_COUNT; p++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "%sa(%s) AS '%s'", p ? ", " : "",
                 bt_rank_metrics[bt_phases[p].metric].key, bt_phases[p].title);
    strcat(want, " FROM x");
    check_sql_of_figure("SELECT {phases, |a(@) AS '#'} FROM x", want);
    check_sql_of_figure("", "");
    check_sql_of_figure("{", "{");
    check_sql_of_figure("a {b} {} {phase, |@} {1}", "a {b} {} {phase, |@} {1}");
    assert_query_text("{phases, @}", "'{phases' is not closed by '|...}'");
    assert_query_text("{phases, |@", "'{phases' is not closed by '|...}'");
    bt_text out;
    bt_text_init(&out);
    OK(bt_sql_expand(&out, "{pauses, |'@'}", err));
    const char *pauses = bt_text_str(&out);
    assert_true(pauses[0] == '\'' && pauses[strlen(pauses) - 1] == '\'');
    int n = 0;
    for (int k = 0; k < BT_EVENT_COUNT; k++) {
        char name[80];
        snprintf(name, sizeof name, "'%s'", bt_events[k].name);
        const bool pauses_it = bt_events[k].effect == BT_EFFECT_PAUSES;
        assert_int_equal(strstr(pauses, name) != NULL, pauses_it);
        n += pauses_it;
    }
    for (const char *p = pauses; *p; p++) n -= *p == ',';
    assert_int_equal(n, 1);
    bt_text_clear(&out);
    OK(bt_sql_expand(&out, "{paces |'@'}", err));
    for (int k = 0; k < BT_EVENT_COUNT; k++) {
        char name[80];
        snprintf(name, sizeof name, "'%s'", bt_events[k].name);
        assert_int_equal(strstr(bt_text_str(&out), name) != NULL,
                         bt_events[k].effect >= BT_EFFECT_BEGINS &&
                             bt_events[k].effect <= BT_EFFECT_ENDS);
    }
    bt_text_release(&out);
}

/* A figure with a condition becomes a CASE expression whose arguments may contain commas, figures and lists. */
static void figures_become_formulas(void **state) {
    (void)state;
    sqlite3 *db = NULL;
    bt_text out;
    static const struct {
        const char *sql;
        double want; /* NaN: NULL */
    } rows[] = {{"SELECT {overlap(1, 4)}", 0.75},
                {"SELECT {overlap(max(1, 0), 2 + 2)}", 0.75},
                {"SELECT {overlap(1, (4))} + 1", 1.75},
                {"SELECT {overlap(1, 0)}", NAN},
                {"SELECT {overlap({overlap(1, 4)}, 3)}", 0.75}};
    bt_text_init(&out);
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sqlite3_stmt *st = NULL;
        bt_text_clear(&out);
        OK(bt_sql_expand(&out, rows[i].sql, err));
        OK(bt_sql_prepare(db, "m", bt_text_str(&out), &st, err));
        assert_int_equal(sqlite3_step(st), SQLITE_ROW);
        const double got = bt_sql_number(st, 0);
        if (isnan(rows[i].want) ? !isnan(got) : got != rows[i].want)
            fail_msg("%s: %g", rows[i].sql, got);
        sqlite3_finalize(st);
    }
    sqlite3_close(db);
    bt_text_release(&out);
    assert_query_text("{overlap(1, 4)", "'{overlap(' is not closed by ')}'");
    assert_query_text("{overlap(1, 4}", "'{overlap(' is not closed by ')}'");
    assert_query_text("{overlap(1)}", "'{overlap(...)}' has 1 arguments, it is made from 2");
    assert_query_text("{overlap(1, 2, 3)}", "'{overlap(...)}' has 3 arguments, it is made from 2");
    assert_query_text("{overlap(1, {overlap(2)})}",
                      "'{overlap(...)}' has 1 arguments, it is made from 2");
    check_sql_of_figure("{overlap}", "{overlap}");
    check_sql_of_figure("{nothing(1)}", "{nothing(1)}");
}

static void metrics_are_kept_as_columns(void **state) {
    (void)state;
    static const struct {
        bt_scope scope;
        const char *key;
        bt_unit unit;
        const char *name;
        bool integer;
        double scale;
    } rows[] = {{BT_SCOPE_STEP, "step_ms", BT_UNIT_MS, "step_us", true, 1e3},
                {BT_SCOPE_STEP, "step", BT_UNIT_MS, "step_us", true, 1e3},
                {BT_SCOPE_STEP, "_ms", BT_UNIT_MS, "_ms_us", true, 1e3},
                {BT_SCOPE_RANK, "rss_mib", BT_UNIT_MIB, "rss_kib", true, 1024},
                {BT_SCOPE_STEP, "bytes", BT_UNIT_BYTES, "bytes", true, 1},
                {BT_SCOPE_STEP, "n", BT_UNIT_COUNT, "n", true, 1},
                {BT_SCOPE_STEP, "mfu_frac", BT_UNIT_FRAC, "mfu_frac", false, 1},
                {BT_SCOPE_RANK, "cpu_frac", BT_UNIT_FRAC, "cpu_ppb", true, 1e9},
                {BT_SCOPE_LAYER, "zero_frac", BT_UNIT_FRAC, "zero_ppb", true, 1e9},
                {BT_SCOPE_STEP, "loss", BT_UNIT_NATS, "loss", false, 1},
                {BT_SCOPE_RANK, "loss", BT_UNIT_NATS, "loss_unats", true, 1e6},
                {BT_SCOPE_STEP, "lr", BT_UNIT_NONE, "lr", false, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_column c;
        const bt_metric m = {.key = rows[i].key, .unit = rows[i].unit};
        bt_column_of(rows[i].scope, &m, &c);
        assert_string_equal(c.name, rows[i].name);
        assert_int_equal(c.integer, rows[i].integer);
        assert_true(c.scale == rows[i].scale);
    }
}

static void statements_of_a_scope(void **state) {
    (void)state;
    bt_text sql;
    static const struct {
        bt_scope scope;
        int fixed;
        const char *begins, *keys;
    } rows[] = {{BT_SCOPE_STEP, 4, "INSERT OR REPLACE INTO step(aid, step, wall_us, flags, \"",
                 "aid DESC, step DESC"},
                {BT_SCOPE_RANK, 1, "INSERT OR REPLACE INTO rank_step(key, \"", "key DESC"},
                {BT_SCOPE_LAYER, 4,
                 "INSERT OR REPLACE INTO layer_stat(aid, step, \"layer\", \"tensor\", \"",
                 "aid DESC, step DESC, \"layer\" DESC, \"tensor\" DESC"}};
    bt_text_init(&sql);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int marks = 0;
        assert_int_equal(bt_scope_fixed(rows[i].scope), rows[i].fixed);
        bt_schema_insert(rows[i].scope, &sql);
        const char *at = bt_text_str(&sql);
        assert_int_equal(strncmp(at, rows[i].begins, strlen(rows[i].begins)), 0);
        at = strstr(at, "\") VALUES (?,?");
        assert_non_null(at);
        for (const char *p = at; *p; p++) marks += *p == '?';
        assert_int_equal(marks, rows[i].fixed + bt_scopes[rows[i].scope].n);
        assert_int_equal(strlen(strchr(at, '?')), 2 * marks);
        bt_text_clear(&sql);
        bt_schema_keys(rows[i].scope, " DESC", &sql);
        assert_string_equal(bt_text_str(&sql), rows[i].keys);
        bt_text_clear(&sql);
    }
    bt_schema_create(BT_SCOPE_LAYER, &sql);
    assert_string_equal(
        bt_text_str(&sql),
        "CREATE TABLE IF NOT EXISTS layer_stat(aid INTEGER NOT NULL, step INTEGER NOT NULL, "
        "\"layer\" INTEGER NOT NULL, \"tensor\" TEXT NOT NULL, PRIMARY KEY(aid, step, \"layer\", "
        "\"tensor\")) STRICT, WITHOUT ROWID;");
    bt_text_release(&sql);
    assert_true(bt_rank_key(1, 0, 0) == INT64_C(1) << 46);
    assert_true(bt_rank_key(3, 5, 7) == (INT64_C(3) << 46) + (5 << 16) + 7);
    assert_true(bt_rank_key_end(3, (1 << 30) - 1) ==
                (INT64_C(3) << 46) + (((INT64_C(1) << 30) - 1) << 16));
    assert_true(bt_rank_key_end(3, 1 << 30) == INT64_C(4) << 46);
    assert_true(bt_rank_key_end(3, INT64_MAX) == INT64_C(4) << 46);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_become_columns),
                                       cmocka_unit_test(figures_become_formulas),
                                       cmocka_unit_test(metrics_are_kept_as_columns),
                                       cmocka_unit_test(statements_of_a_scope)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
