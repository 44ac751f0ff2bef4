// ctest: timeout=60
/* Settings and facts of a run, and the texts sampled at validations. */
#include "view_test.h"

static void record_run_with_texts(const char *path) {
    bt_synth s = bt_synth_default("s");
    s.steps = 120;
    s.live = true;
    OK(bt_synth_make(path, &s, err));
}

static void settings_and_facts_are_listed(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    record_run_with_texts(t->db);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a;
    bt_view_request_init(&a);
    a.run = "s";
    a.parts = BT_VIEW_SETTINGS;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->settings.n, 7);
    assert_string_equal(v->settings.row[0].key, "optim.lr");
    assert_string_equal(v->settings.row[0].value, "0.002");
    assert_string_equal(v->settings.row[0].from, "preset nano");
    assert_string_equal(v->settings.row[5].key, "peak_flops");
    assert_string_equal(v->settings.row[5].from, "fact");
    assert_non_null(strstr(v->settings.row[5].value, " GFLOP/s"));
    bt_view_close(v);
    bt_db_close(db);
}

/* Shows the newest text and the previous text of the same prompt; invalid characters are replaced. */
static void samples_are_shown_newest_first(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    record_run_with_texts(t->db);
    run_sql(t->db, "INSERT INTO event(run, t_us, step, kind, level, title, body) VALUES "
                   "(1, 1, 9, 'sample', 0, 'old', '{\"text\":\"oldest\"}'), "
                   "(1, 2, 49, 'sample', 0, 'one', '{\"prompt\":\"p\",\"text\":\"before\"}'), "
                   "(1, 3, 60, 'sample', 0, 'asked', "
                   "'{\"prompt\":\"q\",\"text\":\"another\",\"asked\":true}'), "
                   "(1, 4, 99, 'sample', 0, 'two', "
                   "'{\"prompt\":\"p\",\"text\":\"a\\u001b[31m\\nb\\ufffd\"}'), "
                   "(1, 5, 109, 'sample', 0, 'no JSON', 'x')");
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->events.n_texts, 2);
    assert_int_equal(v->events.text[0].step, 99);
    assert_int_equal(v->events.text[1].step, 49);
    assert_string_equal(v->events.text[1].text, "before");
    assert_string_equal(v->events.text[1].prompt, "p");
    assert_null(strchr(v->events.text[0].text, 27));
    assert_non_null(strstr(v->events.text[0].text, "[31m\nb"));
    a.at_step = 60; /* Prompt q has no other text. */
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->events.n_texts, 1);
    assert_string_equal(v->events.text[0].text, "another");
    a.at_step = 30; /* The first text is shown if no prompt is requested. */
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->events.n_texts, 1);
    assert_int_equal(v->events.text[0].step, 9);
    bt_view_close(v);
    bt_db_close(db);
}

/* Records two texts of a run and returns what a view shows for the newer one after it showed the older one. */
static const char *shown_after(const bt_tmp *t, const char *before, const char *text) {
    static bt_view_text newest;
    bt_db *db = NULL;
    char *sql = sqlite3_mprintf(
        "DELETE FROM event WHERE kind = 'sample'; INSERT INTO event(run, t_us, step, kind, level, "
        "title, body) VALUES (1, 1, 9, 'sample', 0, 'one', json_object('prompt', 'p', 'text', "
        "%Q)), "
        "(1, 2, 99, 'sample', 0, 'two', json_object('prompt', 'p', 'text', %Q))",
        before, text);
    run_sql(t->db, sql);
    sqlite3_free(sql);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a;
    bt_view_request_init(&a);
    a.run = "s";
    a.parts = BT_VIEW_EVENTS;
    a.at_step = 10;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->events.n_texts, 1);
    assert_string_equal(v->events.text[0].text, before);
    a.at_step = -1;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->events.n_texts, 2);
    newest = v->events.text[0];
    bt_view_close(v);
    bt_db_close(db);
    return newest.text;
}

/* The buffer keeps nothing of the previous text; lines are preserved, and too long texts are truncated. */
static void texts_of_any_length_are_shown(void **state) {
    const bt_tmp *t = *state;
    enum { ROOM = sizeof((bt_view_text *)0)->text };
    char text[2 * ROOM + 8];
    record_run_with_texts(t->db);
    static const char *const whole[] = {"", "x", "\n", "\n\n", "a\n", "\na", "a\n\nb\n"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        assert_string_equal(shown_after(t, "the previous file", whole[i]), whole[i]);
    /* One long line, many empty lines, and lines of 99 letters: each text is near the limit. */
    for (int kind = 0; kind < 3; kind++)
        for (int n = ROOM - 3; n < ROOM + 2; n++) {
            for (int i = 0; i < n; i++)
                text[i] = kind == 1 || (kind == 2 && i % 100 == 99) ? '\n' : (char)('a' + i % 7);
            text[n] = '\0';
            const char *got = shown_after(t, "the previous file", text);
            const size_t len = strlen(got);
            assert_in_range(len, n < ROOM - 2 ? n : ROOM - 4, n < ROOM - 1 ? n : ROOM - 1);
            assert_memory_equal(got, text, len);
        }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        TEST(settings_and_facts_are_listed),
        TEST(samples_are_shown_newest_first),
        TEST(texts_of_any_length_are_shown),
    };
    return cmocka_run_group_tests_name("view_texts", tests, NULL, NULL);
}
