/* The built-in corpus, with a script in place of the program `bible`: references and other lines are removed, and only
 * a complete text gets its final name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "monitor/job/launch/builtin.h"
#include "tests/message.h"

static char folder[64];

/* Makes a script that prints this number of verses, then runs `end`. */
static void make_bible_script(int verses, const char *end) {
    char path[96];
    snprintf(path, sizeof path, "%s/bible", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "#!/bin/sh\necho \"$@\" > %s/words\necho\necho nothing\necho 'a title: with a colon'\n"
            "echo 'no colon here'\necho noblank:1\necho to stderr >&2\n"
            "awk 'BEGIN { for (i = 1; i <= %d; i++) print \"Ge1:\" i \" verse \" i \": it says\" "
            "}'\n%s\n",
            folder, verses, end);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

static int count_entries(const char *dir) {
    char cmd[160];
    int n = -1;
    snprintf(cmd, sizeof cmd, "ls -A '%s' | wc -l", dir);
    FILE *p = popen(cmd, "r");
    assert_true(p && fscanf(p, "%d", &n) == 1);
    pclose(p);
    return n;
}

static void the_text_is_created_once(void **state) {
    (void)state;
    char path[160], dir[128], words[96], line[64];
    int n = 0;
    bt_err err = BT_ERR_INIT;
    snprintf(dir, sizeof dir, "%s/a/b", folder);
    snprintf(path, sizeof path, "%s/text", dir);
    make_bible_script(31102, "");
    const mode_t mask = umask(0);
    assert_int_equal(bt_builtin_make(path, &err), BT_OK);
    umask(mask);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char want[64];
        snprintf(want, sizeof want, "verse %d: it says\n", ++n);
        assert_string_equal(line, want);
    }
    fclose(f);
    assert_int_equal(n, 31102);
    assert_int_equal(count_entries(dir), 1);
    struct stat st; /* the umask decides who may use the folders */
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0777);
    snprintf(words, sizeof words, "%s/words", folder);
    f = fopen(words, "r");
    assert_true(f && fgets(line, sizeof line, f));
    fclose(f);
    assert_string_equal(line, "-f gen1:1-rev22:21\n");
    make_bible_script(1, "exit 1"); /* The program is not started again. */
    assert_int_equal(bt_builtin_make(path, &err), BT_OK);
    f = fopen(path, "w"); /* An empty file does not count. */
    fclose(f);
    assert_int_equal(bt_builtin_make(path, &err), BT_IO);
}

static void incomplete_texts_are_not_used(void **state) {
    (void)state;
    static const struct {
        int verses;
        const char *end;
        int counted;
    } rows[] = {{31101, "", 31101},
                {31103, "", 31103},
                {0, "", 0},
                {31102, "exit 1", 31102},
                {31102, "kill -9 $$", 31102}};
    char path[96], want[200];
    snprintf(path, sizeof path, "%s/none/text", folder);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        make_bible_script(rows[i].verses, rows[i].end);
        assert_int_equal(bt_builtin_make(path, &err), BT_IO);
        snprintf(want, sizeof want,
                 "'bible' printed %d verses of 31102: reinstall bible-kjv and bible-kjv-text, or "
                 "pass --data",
                 rows[i].counted);
        assert_string_equal(err.msg, want);
        *strrchr(path, '/') = '\0';
        assert_int_equal(count_entries(path), 0);
        strcat(path, "/text");
    }
}

static void write_errors_are_reported(void **state) {
    (void)state;
    char path[6000];
    bt_err err = BT_ERR_INIT;
    make_bible_script(31102, "");
    snprintf(path, sizeof path, "%s/bible/text", folder); /* a file in place of a folder */
    assert_int_equal(bt_builtin_make(path, &err), BT_IO);
    assert_non_null(strstr(err.msg, "/bible' is not a folder"));
    snprintf(path, sizeof path, "%s/bible/x/text", folder);
    assert_int_equal(bt_builtin_make(path, &err), BT_IO);
    assert_non_null(strstr(err.msg, "/bible' is not a folder"));
    assert_int_equal(chdir(folder), 0); /* a relative path with one letter */
    assert_int_equal(bt_builtin_make("c/text", &err), BT_OK);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(bt_builtin_make("/proc/nothing/text", &err), BT_IO);
    message_has(err.msg, "cannot create folder '/proc/nothing'");
    memset(path, 'x', sizeof path);
    char suffix[32];
    snprintf(suffix, sizeof suffix, ".tmp.%d", (int)getpid());
    path[4095 - strlen(suffix)] = '\0'; /* The longest path that fits; the system refuses it. */
    assert_int_equal(bt_builtin_make(path, &err), BT_IO);
    strcat(path, "x");
    assert_int_equal(bt_builtin_make(path, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "is too long"));
    snprintf(path, sizeof path, "%s/dir", folder);
    assert_int_equal(mkdir(path, 0700), 0); /* cannot be replaced by a file */
    assert_int_equal(bt_builtin_make(path, &err), BT_IO);
    assert_non_null(strstr(err.msg, "cannot rename '"));
    setenv("PATH", "/nonexistent", 1);
    snprintf(path, sizeof path, "%s/text", folder);
    assert_int_equal(bt_builtin_make(path, &err), BT_NOTFOUND);
    message_has(err.msg, "the built-in corpus needs the program 'bible'");
    assert_int_equal(access(path, F_OK), -1);
}

int main(void) {
    char path[4096], cmd[96];
    strcpy(folder, "/tmp/bt_bible_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    snprintf(cmd, sizeof cmd, "/bin/rm -rf '%s'", folder);
    setenv("PATH", path, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_created_once),
        cmocka_unit_test(incomplete_texts_are_not_used),
        cmocka_unit_test(write_errors_are_reported),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + system(cmd);
}
