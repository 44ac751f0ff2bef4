/* Rows of every type are written as JSON up to a limit; numbers are restored exactly; too long texts are shortened. */
#include "store/read/row_json.h"
#include "store_test.h"

static void every_type_has_its_form(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    bt_text out;
    bt_json j;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    OK(bt_rows_json(
        &j, "rows", db,
        &(bt_query){.sql =
                        "SELECT 7 AS i, -0.25 AS r, 9e999 AS inf, NULL AS n, 'a\"b' AS s UNION ALL "
                        "SELECT 1, 2.5, 0.5, ?1, 'x' UNION ALL SELECT 3, 3.0, 3, 3, 3",
                    .params = (const char *[]){"p"},
                    .n_params = 1,
                    .max_rows = 2,
                    .max_s = 1},
        err));
    bt_json_end(&j, '}');
    assert_string_equal(bt_text_str(&out),
                        "{\"rows\":[{\"i\":7,\"r\":-0.25,\"inf\":null,\"n\":null,\"s\":\"a\\\"b\"},"
                        "{\"i\":1,\"r\":2.5,\"inf\":0.5,\"n\":\"p\",\"s\":\"x\"}]}");
    bt_text_release(&out);
    bt_db_close(db);
}

typedef struct seen {
    char cells[8][64];
    int n;
} seen;

static bool store_row_values(void *ctx, const bt_row *row) {
    seen *s = ctx;
    for (int i = 0; i < row->n && s->n < 8; i++)
        snprintf(s->cells[s->n++], sizeof s->cells[0], "%s", row->cells[i] ? row->cells[i] : "");
    return true;
}

/* In fifteen digits these numbers are rounded up, rounded down or exact. */
static void reals_are_restored_exactly(void **state) {
    const bt_tmp *t = *state;
    static const double each[] = {2.0 / 3, 1.0 / 3, 0.1 + 0.2, 0.1, -2.0 / 3, 1e300 / 3};
    bt_writer *w = NULL;
    bt_db *db = NULL;
    seen s = {.n = 0};
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    OK(bt_db_query(db,
                   &(bt_query){.sql = "SELECT 2.0 / 3, 1.0 / 3, 0.1 + 0.2, 0.1, -2.0 / 3, "
                                      "1e300 / 3, 4.0"},
                   store_row_values, &s, err));
    assert_int_equal(s.n, 7);
    for (int i = 0; i < 6; i++) assert_true(strtod(s.cells[i], NULL) == each[i]);
    assert_string_equal(s.cells[3], "0.1");
    assert_string_equal(s.cells[6], "4.0");
    bt_db_close(db);
}

static void a_text_that_is_too_long_is_refused(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    seen s = {.n = 0};
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    OK(bt_db_query(db, &(bt_query){.sql = "SELECT length(zeroblob(67108864))"}, store_row_values,
                   &s, err));
    assert_string_equal(s.cells[0], "67108864"); /* 64 MiB */
    assert_int_equal(bt_db_query(db, &(bt_query){.sql = "SELECT length(zeroblob(67108865))"},
                                 store_row_values, &s, &why),
                     BT_ARG);
    assert_non_null(strstr(why.msg, "too long"));
    bt_db_close(db);
}

/* Viewers use the version to detect changes: only a commit of another connection changes it. */
static void the_version_changes_with_a_foreign_commit(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    int attempt;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_db_open(&db, t->db, err));
    const int64_t first = bt_db_version(db);
    assert_true(first > 0 && bt_db_version(db) == first);
    OK(bt_writer_begin(w, &(bt_run_start){.name = "r", .config_json = "{}"}, &attempt, err));
    assert_true(bt_db_version(db) != first && bt_db_version(db) > 0);
    bt_db_close(db);
    /* The file cannot be read. */
    OK(bt_db_open(&db, t->db, err));
    bt_db_limit_memory(1);
    assert_int_equal(bt_db_version(db), -1);
    bt_db_limit_memory(0);
    assert_true(bt_db_version(db) > 0);
    bt_writer_close(w);
    bt_db_close(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_type_has_its_form, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(reals_are_restored_exactly, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_text_that_is_too_long_is_refused, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(the_version_changes_with_a_foreign_commit, bt_tmp_make,
                                        bt_tmp_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
