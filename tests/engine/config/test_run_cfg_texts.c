/* The settings as text, which checkpoints contain and ranks receive: every value is restored. */
#include "settled.h"

static bt_run_cfg back;

static bt_code read_back(const char *texts) {
    memset(&err, 0, sizeof err);
    memset(&back, 0, sizeof back);
    return bt_run_cfg_from_texts(&back, texts, &err);
}

/* Lists, bytes that are not UTF-8, control characters, all digits of numbers, resolved automatic values. */
static void test_every_value(void **state) {
    (void)state;
    bt_text texts, again;
    bt_text_init(&texts);
    bt_text_init(&again);
    assert_int_equal(SETTLE(2, "--data", "a b", "c\"\xff\\d", "--lr", "0.1234567890123456789",
                            "--note", " =;$'\t\x1b", "--set", "alert.bell=true", "--isa", "generic",
                            "--zero", "1"),
                     BT_OK);
    bt_run_cfg_texts(&c, &texts);
    assert_int_equal(read_back(bt_text_str(&texts)), BT_OK);
    bt_run_cfg_texts(&back, &again);
    assert_string_equal(bt_text_str(&again), bt_text_str(&texts));
    assert_string_equal(back.data.path, "a b\nc\"\xff\\d");
    assert_string_equal(back.run.note, " =;$'\t\x1b");
    assert_true(back.optim.lr == 0.1234567890123456789);
    assert_true(back.alert.bell);
    assert_int_equal(back.mesh.dp_shard, 2);
    assert_int_equal(back.launch.threads, c.launch.threads);
    /* Resolving them again does not change them. */
    assert_int_equal(bt_run_cfg_resolve(&back, 2, &err), BT_OK);
    bt_text_clear(&again);
    bt_run_cfg_texts(&back, &again);
    assert_string_equal(bt_text_str(&again), bt_text_str(&texts));
    assert_null(strchr(bt_text_str(&texts), '\n'));
    bt_text_release(&again);
    bt_text_release(&texts);
}

static void test_no_settings(void **state) {
    (void)state;
    static const struct {
        const char *texts;
        bt_code code;
        const char *says;
    } bad[] = {{"", BT_FORMAT, ""},
               {"[]", BT_FORMAT, "object"},
               {"{\"optim.lr\": \"0.1\"", BT_FORMAT, ""},
               {"{\"optim.lr\": \"much\"}", BT_ARG, "optim.lr"},
               {"{\"optim.l\": \"0.1\"}", BT_ARG, "did you mean 'optim.lr'"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (read_back(bad[i].texts) != bad[i].code) fail_msg("%s: %d", bad[i].texts, (int)err.code);
        if (!strstr(err.msg, bad[i].says)) fail_msg("%s: %s", bad[i].texts, err.msg);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value),
        cmocka_unit_test(test_no_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
