/* test_islands.c - the islands of a hub in the view model: counts, sums and staleness at a given step. */
#include "tests/store/hub_record.h"
#include "tests/store/view_test.h"

static void a_hub_shows_its_islands(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_text json;
    bt_json j;
    record_hub(t->db);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("hub");
    OK(bt_view_load(v, &a, err));
    const bt_view_islands *l = &v->islands;
    assert_true(v->head.hub);
    assert_int_equal(l->step, 39);
    assert_int_equal(l->n, 2);
    assert_string_equal(l->island[1].name, "south");
    assert_string_equal(l->island[1].host, "s1");
    NEAR(l->training, 1); /* The mean step includes only the islands that are training. */
    NEAR(l->sequences, 16);
    NEAR(l->slowest, 25);
    NEAR(l->bytes, 8192);
    NEAR(l->tokens_per_update, 512);
    NEAR(l->updates, 40);
    NEAR(l->mean_staleness, 0.75);
    NEAR(l->left_out, 2);
    assert_int_equal(l->joined, 2);
    assert_int_equal(l->lost, 1);
    assert_int_equal(l->late, 1);
    assert_int_equal(l->refused, 1);
    assert_int_equal(l->left, 0);
    bt_text_init(&json);
    bt_json_begin(&j, &json);
    bt_view_json(v, BT_VIEW_HEAD | BT_VIEW_ISLANDS, &j, NULL);
    assert_non_null(strstr(bt_text_str(&json), "\"hub\":true"));
    assert_non_null(strstr(bt_text_str(&json), "\"staleness\":[{\"staleness\":0,\"updates\":30}"));
    bt_text_release(&json);
    /* Before the first sample the list of islands is empty. */
    a.at_step = 20;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->islands.step, -1);
    assert_int_equal(v->islands.n, 0);
    bt_view_close(v);
    bt_db_close(db);
    /* A sample at step 0 is shown. */
    char sql[80];
    snprintf(sql, sizeof sql, "UPDATE %s SET step = 0", bt_scopes[BT_SCOPE_ISLAND].table);
    run_sql(t->db, sql);
    v = open_view(t->db, &db);
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->islands.step, 0);
    assert_int_equal(v->islands.n, 2);
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_hub_shows_its_islands, bt_tmp_make, bt_tmp_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
