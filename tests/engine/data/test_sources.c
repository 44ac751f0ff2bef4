/* test_sources.c - what of a folder is data: text, by name and by first bytes; what is passed over is
 * counted, and a file that is named itself never is. */
#include "engine/data/io/sources.h"
#include "tests/engine/data/data_fixture.h"

static bt_sources s;
static bt_err err;

static bt_code list(const char *paths, const char *glob) {
    bt_sources_release(&s);
    return bt_sources_list_glob(&s, paths, glob, "", &err);
}

static void make_folder(void) {
    char path[256];
    mkdir(fixture_path("books"), 0777);
    fixture_text("books/a.txt", "In the beginning");
    fixture_text("books/b.md", "# And");
    fixture_text("books/c.jsonl", "{}\n");
    fixture_write("books/cover.jpg", "\xff\xd8\xff\xe0\0\x10JFIF", 10);
    fixture_write("books/old.bz2", "BZh91AY", 7); /* without a NUL */
    fixture_text("books/empty", "");
    snprintf(path, sizeof path, "%s", fixture_path("books/gone.txt"));
    if (symlink("/nonexistent/elsewhere", path) != 0) fail_msg("no link");
}

static void binaries_and_dangling_links_are_counted(void **state) {
    (void)state;
    make_folder();
    assert_int_equal(list(fixture_path("books"), ""), BT_OK);
    assert_int_equal(s.n, 4); /* a.txt b.md c.jsonl empty */
    assert_int_equal(s.skipped, 3);
    if (!strstr(s.first_skipped, "books/cover.jpg (binary)")) fail_msg("%s", s.first_skipped);
}

static void a_glob_chooses_by_name(void **state) {
    (void)state;
    assert_int_equal(list(fixture_path("books"), "*.txt"), BT_OK);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.skipped, 1); /* gone.txt */
    if (!strstr(s.first_skipped, "gone.txt (a link that leads nowhere)"))
        fail_msg("%s", s.first_skipped);
    assert_int_equal(list(fixture_path("books/b.md"), "*.txt"), BT_OK); /* named itself */
    assert_int_equal(s.n, 1);
    assert_int_equal(list(fixture_path("books"), "*.pdf"), BT_ARG);
    if (!strstr(err.msg, "holds no files whose names fit '*.pdf'")) fail_msg("%s", err.msg);
}

static void a_named_file_is_never_passed_over(void **state) {
    (void)state;
    assert_int_equal(list(fixture_path("books/cover.jpg"), ""), BT_OK);
    assert_int_equal(s.n, 1);
    assert_int_equal(list(fixture_path("books/gone.txt"), ""), BT_NOTFOUND);
}

static void a_folder_without_text_is_refused(void **state) {
    (void)state;
    mkdir(fixture_path("pictures"), 0777);
    fixture_write("pictures/x.png", "\x89PNG\r\n\x1a\n\0\0", 10);
    assert_int_equal(list(fixture_path("pictures"), ""), BT_ARG);
    if (!strstr(err.msg, "holds no text: 1 file is passed over, first ")) fail_msg("%s", err.msg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binaries_and_dangling_links_are_counted),
        cmocka_unit_test(a_glob_chooses_by_name),
        cmocka_unit_test(a_named_file_is_never_passed_over),
        cmocka_unit_test(a_folder_without_text_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
    bt_sources_release(&s);
    return failed;
}
