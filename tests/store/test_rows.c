/* rows of every type as JSON, at most as many as asked for. */
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
        &(bt_question){
            .sql = "SELECT 7 AS i, -0.25 AS r, 9e999 AS inf, NULL AS n, 'a\"b' AS s UNION ALL "
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_type_has_its_form, bt_tmp_make, bt_tmp_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
