/* test_curve_keys.c - keys of a hub and its islands: if their creation is interrupted, the next call creates a matching
 * pair. */
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

#include "engine/islands/zmq/curve_keys.h"

static char dir[] = "/tmp/bitrain-keys-XXXXXX";

static const char *path_in_dir(const char *name) {
    static char path[4][128];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static void must_make(const char *name, bool new) {
    bt_err err = BT_ERR_INIT;
    bool made;
    if (bt_curve_make(dir, name, &made, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(made, new);
}

/* Checks that the hub accepts the island's key. */
static void check_accepted_key(const char *name) {
    bt_curve_keys hub, island;
    char listed[64];
    bt_err err = BT_ERR_INIT;
    if (bt_curve_read(&hub, dir, "hub", false, &err) != BT_OK ||
        bt_curve_read(&island, dir, name, true, &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(island.hub, hub.own_public);
    assert_true(bt_curve_allowed(path_in_dir("allowed"), island.own_public, listed, sizeof listed));
    assert_string_equal(listed, name);
}

static void an_interruption_is_repaired(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bool made;
    must_make("first", true);
    must_make("first", false);
    check_accepted_key("first");
    /* If the public key cannot be written, no secret key is written either. */
    assert_int_equal(mkdir(path_in_dir("allowed/second.pub"), 0700), 0);
    assert_int_equal(bt_curve_make(dir, "second", &made, &err), BT_IO);
    assert_non_null(strstr(err.msg, "allowed/second.pub"));
    assert_int_equal(rmdir(path_in_dir("allowed/second.pub")), 0);
    must_make("second", true);
    check_accepted_key("second");
    /* a secret key truncated by a crash */
    FILE *f = fopen(path_in_dir("third.key.tmp"), "w");
    assert_true(f && fputs("# keys of the bi", f) >= 0 && fclose(f) == 0);
    must_make("third", true);
    check_accepted_key("third");
    struct stat st;
    assert_int_equal(stat(path_in_dir("third.key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_not_equal(access(path_in_dir("third.key.tmp"), F_OK), 0);
}

static void keys_of_another_hub_are_reported(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bool made;
    must_make("old", true);
    assert_int_equal(unlink(path_in_dir("hub.key")), 0);
    assert_int_equal(bt_curve_make(dir, "old", &made, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "old.key' belongs to another hub"));
    assert_int_equal(unlink(path_in_dir("old.key")), 0);
    must_make("old", true);
    check_accepted_key("old");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_interruption_is_repaired),
                                       cmocka_unit_test(keys_of_another_hub_are_reported)};
    char command[64];
    if (!mkdtemp(dir)) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command) == 0 ? failed : 1;
}
