/* test_launch_names.c - the Open MPI of this machine has every parameter that the launch table gives it, according to
 * the lists of ompi_info and prte_info. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/text.h"
#include "monitor/job/launch/launch.h"

/* ompi_info prints lines "mca:pml:base:param:pml:value:...", prte_info prints `MCA plm: "plm_ssh_agent" (current value:
 * ...`. */
static bt_text known;

static bool list_contains(const char *name) {
    char parsable[160], printed[160];
    snprintf(parsable, sizeof parsable, ":param:%s:", name);
    snprintf(printed, sizeof printed, "\"%s\" (", name);
    return strstr(bt_text_str(&known), parsable) || strstr(bt_text_str(&known), printed);
}

/* Appends the output of a program; returns false if the machine has no such program. */
static bool append_list(const char *command) {
    char buf[8192];
    const size_t before = known.len;
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (size_t n; (n = fread(buf, 1, sizeof buf, f)) > 0;) bt_text_putn(&known, buf, n);
    return pclose(f) == 0 && known.len > before;
}

/* Checks each name in "--mca NAME VALUE --mca ..." and in "PRTE_MCA_NAME=VALUE". */
static int unknown_names(const bt_launch_row *row) {
    char words[512], *save = NULL;
    int unknown = 0;
    bool name_next = false;
    snprintf(words, sizeof words, "%s", row->words);
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(w, '=');
        const char *name = name_next ? w : NULL;
        if (strncmp(w, "PRTE_MCA_", 9) == 0 &&
            equals) { /* Debian has no list of PMIx's parameters */
            *equals = '\0';
            name = w + 9;
        }
        name_next = strcmp(w, "--mca") == 0;
        if (!name || list_contains(name)) continue;
        print_error("this Open MPI has no parameter '%s'\n", name);
        unknown++;
    }
    return unknown;
}

static void every_parameter_exists(void **state) {
    (void)state;
    static const char key[] = "ompi:version:full:";
    const char *version = strstr(bt_text_str(&known), key);
    int unknown = 0, names = 0;
    assert_non_null(version);
    const int major = atoi(version + strlen(key));
    assert_true(major >= 4);
    assert_true(list_contains("pml"));
    assert_false(list_contains("orte_no_such_parameter"));
    for (size_t i = 0; i < bt_launch_rows_n; i++)
        if (bt_launch_known(&bt_launch_rows[i], major)) {
            names++;
            unknown += unknown_names(&bt_launch_rows[i]);
        }
    assert_true(names > 20);
    assert_int_equal(unknown, 0);
}

int main(void) {
    static const struct CMUnitTest tests[] = {cmocka_unit_test(every_parameter_exists)};
    if (!append_list("ompi_info --all --parsable 2>/dev/null")) {
        printf("there is no ompi_info, or it prints nothing\n");
        return 77;
    }
    (void)append_list("prte_info --param all 2>/dev/null"); /* Open MPI 5 */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&known);
    return failed;
}
