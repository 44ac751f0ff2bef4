/* The key table: every key has one meaning, every action has a help text, and no action is only on a function key. */
#include "monitor/tui/draw/keys.h"
#include "tui_test.h"

static void each_key_means_one_thing(void **state) {
    (void)state;
    for (size_t i = 0; i < bt_binds_n; i++)
        for (int a = 0; a < 4 && bt_binds[i].codes[a]; a++) {
            assert_int_equal(bt_keys_action(bt_binds[i].codes[a]), bt_binds[i].action);
            for (size_t j = 0; j < bt_binds_n; j++)
                for (int b = 0; b < 4 && bt_binds[j].codes[b]; b++)
                    if ((i != j || a != b) && bt_binds[i].codes[a] == bt_binds[j].codes[b])
                        fail_msg("key %d twice", (int)bt_binds[i].codes[a]);
        }
    for (int key = '0'; key <= '9'; key++) assert_int_equal(bt_keys_action(key), BT_DO_SCREEN);
    assert_int_equal(bt_keys_action(BT_KEY_NONE), BT_DO_NONE);
}

static void every_action_is_explained_and_reachable(void **state) {
    (void)state;
    bt_text help;
    bt_text_init(&help);
    bt_keys_help(&help);
    for (int a = 1; a < BT_DO_COUNT; a++) {
        size_t i = 0;
        while (i < bt_binds_n && (int)bt_binds[i].action != a) i++;
        assert_true(i < bt_binds_n);
        const bt_bind *b = &bt_binds[i];
        assert_true(b->help[0] && b->keys[0]);
        assert_non_null(strstr(bt_text_str(&help), b->help));
        if (a != BT_DO_SCREEN) assert_true(b->codes[0] != 0 && b->codes[0] < BT_KEY_F0);
    }
    bt_text_release(&help);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_key_means_one_thing),
                                       cmocka_unit_test(every_action_is_explained_and_reachable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
