// ctest: timeout=60
/* Queries of the view model: parameters, types of cells, the number of cached statements, and the error of a failing
 * query. */
#include "tests/store/view_test.h"

typedef struct told {
    char text[400];
    int rows, columns, most;
} told;

/* Formats the number or text of each cell, and "-" for other types. */
static bool format_cells(void *ctx, const bt_row *row) {
    told *t = ctx;
    size_t n = strlen(t->text);
    t->columns = row->n;
    for (int i = 0; i < row->n && i < 12; i++) {
        char cell[80] = "-";
        assert_true(!row->cells[i] || isnan(row->nums[i]));
        if (row->cells[i]) snprintf(cell, sizeof cell, "'%s'", row->cells[i]);
        if (!isnan(row->nums[i])) snprintf(cell, sizeof cell, "%.10g", row->nums[i]);
        n += (size_t)snprintf(t->text + n, sizeof t->text - n, "%s%s", i ? " " : "", cell);
    }
    snprintf(t->text + n, sizeof t->text - n, ";");
    return ++t->rows != t->most;
}

static bool format_numbers(void *ctx, const double *col, int n) {
    told *t = ctx;
    size_t at = strlen(t->text);
    t->columns = n;
    for (int i = 0; i < n && i < 12; i++)
        at += (size_t)snprintf(t->text + at, sizeof t->text - at, isnan(col[i]) ? "%s-" : "%s%.10g",
                               i ? " " : "", col[i]);
    snprintf(t->text + at, sizeof t->text - at, ";");
    return ++t->rows != t->most;
}

static bt_view *open_empty(const char *path, bt_db **db) {
    bt_writer *w = NULL;
    OK(bt_writer_open(&w, path, 1, err));
    bt_writer_close(w);
    return open_view(path, db);
}

static void cells_and_bindings(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        const char *sql, *run;
        double args[3];
        int n_args;
        const char *text, *numbers;
    } rows[] = {
        {"SELECT 1, 1.5, 'x', NULL, x'41', '7'",
         NULL,
         {0},
         0,
         "1 1.5 'x' - - '7';",
         "1 1.5 - - - -;"},
        {"SELECT ?1, ?2, ?3, ?4", "r", {2, 2.5, -3}, 3, "'r' 2 2.5 -3;", "- 2 2.5 -3;"},
        {"SELECT ?1, ?2, ?3, ?4",
         NULL,
         {4},
         1,
         "- 4 - -;",
         "- 4 - -;"}, /* Nothing remains of the previous query. */
        {"SELECT typeof(?2), typeof(?3), typeof(?4)",
         NULL,
         {-3, 0.5, 8.9e15},
         3,
         "'integer' 'real' 'integer';",
         "- - -;"},
        {"SELECT typeof(?2), typeof(?3), typeof(?4)",
         NULL,
         {9e15, -9e15, 0},
         3,
         "'real' 'real' 'integer';",
         "- - -;"},
        {"SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3", NULL, {0}, 0, "1;2;3;", "1;2;3;"},
        {"SELECT 1 WHERE 0", NULL, {0}, 0, "", ""},
    };
    bt_db *db = NULL;
    bt_view *v = open_empty(t->db, &db);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            told cells = {0}, numbers = {0}, first = {.most = 1};
            OK(bt_vq_rows(v->impl, rows[i].sql, rows[i].run, rows[i].args, rows[i].n_args,
                          format_cells, &cells, err));
            assert_string_equal(cells.text, rows[i].text);
            OK(bt_vq_each(v->impl, rows[i].sql, rows[i].run, rows[i].args, rows[i].n_args,
                          format_numbers, &numbers, err));
            assert_string_equal(numbers.text, rows[i].numbers);
            OK(bt_vq_rows(v->impl, rows[i].sql, rows[i].run, rows[i].args, rows[i].n_args,
                          format_cells, &first, err));
            assert_int_equal(first.rows, rows[i].text[0] ? 1 : 0);
            OK(bt_vq_each(v->impl, rows[i].sql, rows[i].run, rows[i].args, rows[i].n_args,
                          format_numbers, &(told){.most = 1}, err));
        }
    assert_int_equal(v->impl->n_statements, 5);
    bt_view_close(v);
    bt_db_close(db);
}

static void one_row(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_view *v = open_empty(t->db, &db);
    double x[4] = {9, 9, 9, 9};
    OK(bt_vq_row(v->impl, "SELECT 5, 'a', 7.5 UNION ALL SELECT 1, 2, 3", NULL, NULL, 0, x, 4, err));
    assert_true(x[0] == 5 && isnan(x[1]) && x[2] == 7.5 && isnan(x[3]));
    x[1] = x[2] = 9;
    OK(bt_vq_row(v->impl, "SELECT 6, 8", NULL, NULL, 0, x, 1, err));
    assert_true(x[0] == 6 && x[1] == 9);
    OK(bt_vq_row(v->impl, "SELECT 6 WHERE 0", NULL, NULL, 0, x, 2, err));
    assert_true(isnan(x[0]) && isnan(x[1]) && x[2] == 9);
    bt_view_close(v);
    bt_db_close(db);
}

/* The cache has a fixed size; once it is full, only the newest additional statement is cached. */
static void statements_are_kept(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_view *v = open_empty(t->db, &db);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < BT_VQ_STATEMENTS + 3; i++) {
            char sql[40];
            double x;
            snprintf(sql, sizeof sql, "SELECT %d", i);
            OK(bt_vq_row(v->impl, sql, NULL, NULL, 0, &x, 1, err));
            assert_true(x == i);
            const int kept = round || i >= BT_VQ_STATEMENTS ? BT_VQ_STATEMENTS : i + 1;
            assert_int_equal(v->impl->n_statements, kept);
            const int place = i < BT_VQ_STATEMENTS - 1 ? i : BT_VQ_STATEMENTS - 1;
            assert_string_equal(v->impl->statement[place].sql, sql);
        }
    bt_view_close(v);
    bt_db_close(db);
}

/* The error contains the query and the file; cached statements remain usable, and an invalid query is not cached. */
static void a_failing_query_is_reported(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        const char *sql, *why;
        int kept;
    } rows[] = {{"SELECT a FROM nowhere", "cannot read '%s': no such table: nowhere", 1},
                {"SELECT abs(-9223372036854775807 - 1)", "cannot read '%s': integer overflow", 2},
                {"SELECT", "cannot read '%s': incomplete input", 2}};
    bt_db *db = NULL;
    bt_view *v = open_empty(t->db, &db);
    double x;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int again = 0; again < 2; again++) {
            char want[200];
            bt_err why = BT_ERR_INIT;
            snprintf(want, sizeof want, rows[i].why, t->db);
            OK(bt_vq_row(v->impl, "SELECT 42", NULL, NULL, 0, &x, 1, err));
            assert_int_equal(bt_vq_each(v->impl, rows[i].sql, NULL, NULL, 0, format_numbers,
                                        &(told){0}, &why),
                             BT_DB);
            assert_string_equal(why.msg, want);
            assert_int_equal(bt_vq_rows(v->impl, rows[i].sql, NULL, NULL, 0, format_cells,
                                        &(told){0}, &why),
                             BT_DB);
            assert_string_equal(why.msg, want);
            OK(bt_vq_row(v->impl, "SELECT 42", NULL, NULL, 0, &x, 1, err));
            assert_true(x == 42);
            assert_int_equal(v->impl->n_statements, rows[i].kept);
        }
    bt_view_close(v);
    bt_db_close(db);
}

static void the_text_of_a_query_is_kept(void **state) {
    (void)state;
    char *keep = NULL;
    bt_text sql;
    bt_err why = BT_ERR_INIT;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT 1");
    OK(bt_view_sql(&keep, &sql, err));
    assert_string_equal(keep, "SELECT 1");
    assert_int_equal(sql.len, 0);
    free(keep);
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT 1");
    sql.failed = true;
    assert_int_equal(bt_view_sql(&keep, &sql, &why), BT_NOMEM);
    assert_string_equal(why.msg, "cannot build a query: out of memory");
    assert_null(keep);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        T(cells_and_bindings),
        T(one_row),
        T(statements_are_kept),
        T(a_failing_query_is_reported),
        cmocka_unit_test(the_text_of_a_query_is_kept),
    };
    return cmocka_run_group_tests_name("queries", tests, NULL, NULL);
}
