/* The list of lenses (saved queries): shipped lenses, and the user's files that add a lens, replace a shipped one or
 * cannot be read. */
#include <sys/stat.h>

#include "../store_test.h"
#include "store/read/lens.h"

static void put_bytes(const char *folder, const char *file, const char *bytes, size_t n) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_lens_file(const char *folder, const char *file, const char *text) {
    put_bytes(folder, file, text, strlen(text));
}

/* Points BITRAIN_LENSES to a folder in the test's temporary folder. */
static const char *own_folder(void **state) {
    const bt_tmp *t = *state;
    setenv("BITRAIN_LENSES", t->dir, 1);
    return t->dir;
}

static int position_of_lens(const bt_lens *list, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0) return (int)i;
    return -1;
}

static void release(bt_lens *list, size_t n) {
    for (size_t i = 0; i < n; i++) bt_lens_release(&list[i]);
    free(list);
}

static void is_lens(const char *name, const char *about, const char *sql) {
    bt_lens l;
    OK(bt_lens_find(name, &l, err));
    assert_string_equal(l.name, name);
    assert_string_equal(l.about, about);
    assert_string_equal(bt_text_str(&l.sql), sql);
    bt_lens_release(&l);
}

static void files_of_a_folder_are_lenses(void **state) {
    const char *dir = own_folder(state);
    bt_lens *list = NULL;
    size_t n = 0, shipped = 0;
    OK(bt_lens_list(&list, &shipped, err));
    assert_true(shipped > 3);
    char hidden[64];
    snprintf(hidden, sizeof hidden, "%s", list[1].name);
    for (size_t i = 0; i < shipped; i++) {
        assert_true(list[i].about[0] && list[i].sql.len > 10);
        assert_string_equal(list[i].file, "");
        is_lens(list[i].name, list[i].about, bt_text_str(&list[i].sql));
    }
    release(list, shipped);

    char file[80], names[64 + 1], want[200];
    write_lens_file(dir, "zeta.sql", "--   the last letter\nSELECT 'z'");
    write_lens_file(dir, "alpha.sql", "SELECT 'a'");
    snprintf(file, sizeof file, "%s.sql", hidden);
    write_lens_file(dir, file, "--mine\r\nSELECT 'mine'");
    write_lens_file(dir, ".sql", "SELECT 1");
    write_lens_file(dir, "notes.txt", "SELECT 1");
    write_lens_file(dir, "asql", "SELECT 1");
    write_lens_file(dir, "Upper Case.sql", "SELECT 1");
    put_bytes(dir, "nul.sql", "SELECT\0 1", 9);
    memset(names, 'n', 64);
    names[64] = '\0';
    snprintf(file, sizeof file, "%s.sql", names);
    write_lens_file(dir, file, "SELECT 1");
    OK(bt_lens_list(&list, &n, err));
    assert_int_equal(n, shipped + 2);
    /* The user's lenses, sorted by name, precede the shipped lenses that they do not replace. */
    assert_int_equal(position_of_lens(list, n, "alpha") + position_of_lens(list, n, "zeta") +
                         position_of_lens(list, n, hidden),
                     0 + 1 + 2);
    assert_true(position_of_lens(list, n, "alpha") < position_of_lens(list, n, "zeta"));
    for (size_t i = 3; i < n; i++) assert_string_equal(list[i].file, "");
    snprintf(want, sizeof want, "%s/alpha.sql", dir);
    assert_string_equal(list[position_of_lens(list, n, "alpha")].file, want);
    release(list, n);
    is_lens("alpha", "", "SELECT 'a'");
    is_lens("zeta", "the last letter", "--   the last letter\nSELECT 'z'");
    is_lens(hidden, "mine", "--mine\r\nSELECT 'mine'");
}

#define SIXTY "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"

static void invalid_lenses(void **state) {
    static const struct {
        const char *name, *says;
    } none[] = {{"alpa", "no lens 'alpa' (did you mean 'alpha'?)"},
                {"qqqqqqqqqq", "no lens 'qqqqqqqqqq' (`bitrain query --lenses` lists them)"},
                {SIXTY "abcdef", "no lens '" SIXTY "abc' (`bitrain query --lenses` lists them)"},
                {"../alpha\033", "no lens '../alpha' (`bitrain query --lenses` lists them)"}};
    const char *dir = own_folder(state);
    char want[240], path[200];
    bt_lens l;
    write_lens_file(dir, "alpha.sql", "SELECT 'a'");
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        bt_err why = BT_ERR_INIT;
        assert_int_equal(bt_lens_find(none[i].name, &l, &why), BT_NOTFOUND);
        assert_string_equal(why.msg, none[i].says);
    }
    bt_err why = BT_ERR_INIT;
    put_bytes(dir, "nul.sql", "SELECT\0 1", 9);
    assert_int_equal(bt_lens_find("nul", &l, &why), BT_FORMAT);
    snprintf(want, sizeof want, "lens '%s/nul.sql' is not a text of at most 64 KiB", dir);
    assert_string_equal(why.msg, want);
    snprintf(path, sizeof path, "%s/folder.sql", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(bt_lens_find("folder", &l, &why), BT_IO);
    snprintf(want, sizeof want, "cannot read lens '%s'", path);
    assert_string_equal(why.msg, want);
}

static void the_longest_lens(void **state) {
    const char *dir = own_folder(state);
    const size_t most = 64 << 10;
    char *text = malloc(most + 2);
    bt_err why = BT_ERR_INIT;
    bt_lens l;
    memset(text, 'x', most + 1);
    text[most + 1] = '\0';
    put_bytes(dir, "longer.sql", text, most + 1);
    put_bytes(dir, "longest.sql", text, most);
    assert_int_equal(bt_lens_find("longer", &l, &why), BT_FORMAT);
    text[most] = '\0';
    is_lens("longest", "", text);
    free(text);
}

/* The folders that are searched for lenses, in order of precedence. */
static void folders_of_lenses_in_order(void **state) {
    const bt_tmp *t = *state;
    char made[300];
    bt_lens l;
    bt_err why = BT_ERR_INIT;
    snprintf(made, sizeof made,
             "mkdir -p '%s/own' '%s/config/bitrain/lenses' '%s/home/.config/bitrain/lenses'",
             t->dir, t->dir, t->dir);
    assert_int_equal(system(made), 0);
    write_lens_file(t->dir, "own/here.sql", "SELECT 'own'");
    write_lens_file(t->dir, "config/bitrain/lenses/here.sql", "SELECT 'config'");
    write_lens_file(t->dir, "home/.config/bitrain/lenses/here.sql", "SELECT 'home'");
    snprintf(made, sizeof made, "%s/own", t->dir);
    setenv("BITRAIN_LENSES", made, 1);
    snprintf(made, sizeof made, "%s/config", t->dir);
    setenv("XDG_CONFIG_HOME", made, 1);
    snprintf(made, sizeof made, "%s/home", t->dir);
    setenv("HOME", made, 1);
    is_lens("here", "", "SELECT 'own'");
    setenv("BITRAIN_LENSES", "", 1);
    is_lens("here", "", "SELECT 'config'");
    setenv("XDG_CONFIG_HOME", "not/absolute", 1);
    is_lens("here", "", "SELECT 'home'");
    unsetenv("XDG_CONFIG_HOME");
    is_lens("here", "", "SELECT 'home'");
    setenv("HOME", "not/absolute", 1);
    assert_int_equal(bt_lens_find("here", &l, &why), BT_NOTFOUND);
    unsetenv("HOME");
    assert_int_equal(bt_lens_find("here", &l, &why), BT_NOTFOUND);
    unsetenv("BITRAIN_LENSES");
    assert_int_equal(bt_lens_find("here", &l, &why), BT_NOTFOUND);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(files_of_a_folder_are_lenses), CASE(invalid_lenses),
                                       CASE(the_longest_lens), CASE(folders_of_lenses_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
