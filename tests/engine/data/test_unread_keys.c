/* test_unread_keys.c - every key outside the sets of known and ignored keys is counted once per object and printed by
 * name, however many there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/data/io/unread_keys.h"

static const char *const used[] = {"hidden_size", "rope_parameters", NULL};
static const char *const harmless[] = {"_*", "dtype", NULL};

static json_t *make_object(const char *text) {
    json_t *o = json_loads(text, 0, NULL);
    assert_non_null(o);
    return o;
}

static void assert_unread_keys_print(const bt_unread *u, size_t most, const char *unit,
                                     const char *expected) {
    bt_text out = {0};
    bt_unread_print(&out, u, most, unit);
    assert_string_equal(bt_text_str(&out), expected);
    bt_text_release(&out);
}

static void sets_contain_keys_and_prefixes(void **state) {
    (void)state;
    assert_true(bt_key_in(used, "hidden_size"));
    assert_true(bt_key_in(harmless, "_name_or_path"));
    assert_false(bt_key_in(used, "hidden_siz"));
    assert_false(bt_key_in(used, "hidden_sizes"));
    assert_false(bt_key_in(NULL, "hidden_size"));
}

static void unread_keys_are_named(void **state) {
    (void)state;
    bt_unread u = {0};
    json_t *o = make_object(
        "{\"hidden_size\": 4, \"_path\": 1, \"dtype\": 2, \"off\": null, \"rope_parameters\": "
        "{\"factor\": 2}, \"scale\": 3, \"bad\\nkey\": 0}");
    assert_unread_keys_print(&u, 8, NULL, "");
    bt_unread_add(&u, o, NULL, used, harmless);
    bt_unread_add(&u, json_object_get(o, "rope_parameters"), "rope_parameters", NULL, NULL);
    bt_unread_add(&u, json_object_get(o, "hidden_size"), "hidden_size", NULL, NULL);
    bt_unread_add(&u, NULL, "absent", NULL, NULL);
    assert_int_equal(u.n, 3);
    assert_string_equal(u.at[0].name, "scale");
    assert_null(strchr(u.at[1].name, '\n'));
    assert_string_equal(u.at[2].name, "rope_parameters.factor");
    assert_unread_keys_print(&u, 1, NULL, "'scale' and 2 more");
    json_decref(o);
}

static void rows_are_counted_by_key(void **state) {
    (void)state;
    bt_unread u = {0};
    json_t *both = make_object("{\"text\": 1, \"weight\": 0, \"id\": 7}"),
           *one = make_object("{\"id\": 8}");
    for (int i = 0; i < 3; i++) bt_unread_add(&u, i ? one : both, NULL, NULL, NULL);
    assert_unread_keys_print(&u, 8, "row", "'text' (1 row), 'weight' (1 row), 'id' (3 rows)");
    json_decref(both);
    json_decref(one);
}

static void more_names_than_places_are_not_forgotten(void **state) {
    (void)state;
    bt_unread u = {0};
    char key[300];
    for (int i = 0; i < BT_UNREAD_MOST + 5; i++) {
        snprintf(key, sizeof key, "key%d", i);
        bt_unread_add_key(&u, NULL, key);
    }
    assert_int_equal(u.n, BT_UNREAD_MOST);
    assert_int_equal(u.more, 5);
    assert_unread_keys_print(&u, 2, NULL, "'key0', 'key1' and others");
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    u = (bt_unread){0};
    bt_unread_add_key(&u, "metadata", key);
    bt_unread_add_key(&u, "metadata", key);
    assert_int_equal(u.n, 1);
    assert_int_equal(u.at[0].count, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_contain_keys_and_prefixes),
        cmocka_unit_test(unread_keys_are_named),
        cmocka_unit_test(rows_are_counted_by_key),
        cmocka_unit_test(more_names_than_places_are_not_forgotten),
    };
    return cmocka_run_group_tests_name("unread_keys", tests, NULL, NULL);
}
