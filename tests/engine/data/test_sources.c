/* test_sources.c - the files of a folder that are data: text, recognized by name and by first bytes. Skipped files are
 * counted, and a file that is itself an argument is never skipped. */
#include "engine/data/io/sources.h"
#include "tests/engine/data/data_fixture.h"

static bt_sources s;
static bt_err err;

static bt_code list_data_files(const char *paths, const char *glob) {
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
    fixture_write("books/old.bz2", "BZh91AY", 7); /* no NUL byte */
    fixture_text("books/empty", "");
    snprintf(path, sizeof path, "%s", fixture_path("books/gone.txt"));
    if (symlink("/nonexistent/elsewhere", path) != 0) fail_msg("no link");
}

static void binaries_and_dangling_links_are_counted(void **state) {
    (void)state;
    make_folder();
    assert_int_equal(list_data_files(fixture_path("books"), ""), BT_OK);
    assert_int_equal(s.n, 4); /* a.txt b.md c.jsonl empty */
    assert_int_equal(s.skipped, 3);
    if (!strstr(s.first_skipped, "books/cover.jpg (an image)")) fail_msg("%s", s.first_skipped);
}

static void a_glob_chooses_by_name(void **state) {
    (void)state;
    assert_int_equal(list_data_files(fixture_path("books"), "*.txt"), BT_OK);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.skipped, 1); /* gone.txt */
    if (!strstr(s.first_skipped, "gone.txt (a link that leads nowhere)"))
        fail_msg("%s", s.first_skipped);
    /* the file itself is the argument */
    assert_int_equal(list_data_files(fixture_path("books/b.md"), "*.txt"), BT_OK);
    assert_int_equal(s.n, 1);
    assert_int_equal(list_data_files(fixture_path("books"), "*.pdf"), BT_ARG);
    if (!strstr(err.msg, "contains no files whose names match '*.pdf'")) fail_msg("%s", err.msg);
}

/* Files in formats other than text are identified by kind; JSON files are data only if they contain rows. */
static void rows_and_tables_of_a_folder(void **state) {
    (void)state;
    mkdir(fixture_path("mixed"), 0777);
    fixture_text("mixed/list.json", "[\n {\"text\": \"a\"}]");
    fixture_text("mixed/lines.json", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    fixture_text("mixed/package.json", "{\n \"name\": \"x\"\n}\n");
    fixture_text("mixed/numbers.json", "[1, 2]");
    fixture_text("mixed/table.csv", "a,b\n");
    assert_int_equal(list_data_files(fixture_path("mixed"), ""), BT_OK);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.items[0].kind, BT_SOURCE_JSONL);
    assert_non_null(strstr(s.items[0].path, "lines.json"));
    assert_int_equal(s.items[1].kind, BT_SOURCE_JSONL);
    assert_int_equal(s.skipped, 3);
    assert_non_null(strstr(s.first_skipped, "numbers.json (JSON without rows)"));
    /* In saved Hugging Face datasets the JSON files describe the Arrow files beside them. */
    mkdir(fixture_path("disk"), 0777);
    fixture_text("disk/dataset_info.json", "{}");
    fixture_text("disk/state.json", "{}");
    assert_int_equal(list_data_files(fixture_path("disk"), ""), BT_FORMAT);
    if (!strstr(err.msg, "load_from_disk('")) fail_msg("%s", err.msg);
}

/* These arguments belong to another option. */
static void arguments_that_name_no_file(void **state) {
    (void)state;
    char two[600];
    static const char *const rows[][2] = {{"-", "not read from standard input"},
                                          {"https://host/x.txt", "fetch it first"},
                                          {"hf://datasets/x", "fetch it first"},
                                          {"~/b.txt", "the shell expands ~"},
                                          {"books/*.txt", "the shell expands *"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(list_data_files(rows[i][0], ""), BT_NOTFOUND);
        if (!strstr(err.msg, rows[i][1])) fail_msg("%s", err.msg);
    }
    const char *a = fixture_text("a.txt", "x");
    for (const char *between = " ,"; *between; between++) {
        snprintf(two, sizeof two, "%s%c b.txt", a, *between);
        assert_int_equal(list_data_files(two, ""), BT_NOTFOUND);
        if (!strstr(err.msg, "several files are several words")) fail_msg("%s", err.msg);
    }
    assert_int_equal(list_data_files("/nowhere/x.txt", ""), BT_NOTFOUND);
    assert_non_null(strstr(err.msg, "No such file"));
}

static void a_named_file_is_never_skipped(void **state) {
    (void)state;
    assert_int_equal(list_data_files(fixture_path("books/cover.jpg"), ""), BT_OK);
    assert_int_equal(s.n, 1);
    assert_int_equal(list_data_files(fixture_path("books/gone.txt"), ""), BT_NOTFOUND);
}

static void a_folder_without_text_is_refused(void **state) {
    (void)state;
    mkdir(fixture_path("pictures"), 0777);
    fixture_write("pictures/x.png", "\x89PNG\r\n\x1a\n\0\0", 10);
    assert_int_equal(list_data_files(fixture_path("pictures"), ""), BT_ARG);
    if (!strstr(err.msg, "contains no text: 1 file is skipped, the first is "))
        fail_msg("%s", err.msg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binaries_and_dangling_links_are_counted),
        cmocka_unit_test(a_glob_chooses_by_name),
        cmocka_unit_test(rows_and_tables_of_a_folder),
        cmocka_unit_test(arguments_that_name_no_file),
        cmocka_unit_test(a_named_file_is_never_skipped),
        cmocka_unit_test(a_folder_without_text_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
    bt_sources_release(&s);
    return failed;
}
