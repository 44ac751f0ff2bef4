/* test_cores.c - the number of cores and of their hardware threads, read from the files of /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "engine/base/os/processors.h"
#include "engine/kernels/table/cpu.h"

static void write_core_files(const char *root, int cpu, const char *siblings) {
    char path[256];
    const char *const parts[] = {"", "/topology"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/cpu%d%s", root, cpu, parts[i]);
        (void)mkdir(path, 0755);
    }
    snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", root, cpu);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(siblings, f);
    fclose(f);
}

static void threads_of_a_core_count_once(void **state) {
    (void)state;
    char root[] = "/tmp/cores.XXXXXX", remove[64];
    assert_non_null(mkdtemp(root));
    write_core_files(root, 0, "0,4\n"); /* numbered as Intel does */
    write_core_files(root, 4, "0,4\n");
    write_core_files(root, 1, "1,5\n");
    write_core_files(root, 5, "1,5\n");
    write_core_files(root, 2, "2-3\n"); /* numbered as AMD does on some machines */
    write_core_files(root, 3, "2-3\n");
    write_core_files(root, 6, "no number\n");
    assert_int_equal(bt_processors_cores((int[]){0, 1, 2, 3, 4, 5}, 6, root), 3);
    assert_int_equal(bt_processors_cores((int[]){4, 5}, 2, root), 2);
    assert_int_equal(bt_processors_cores((int[]){2, 3}, 2, root), 1);
    assert_int_equal(bt_processors_cores((int[]){6, 7}, 2, root), 2); /* The files are missing. */
    snprintf(remove, sizeof remove, "rm -r %s", root);
    assert_int_equal(system(remove), 0);
}

static void this_machine_has_as_many_threads_as_cores_or_more(void **state) {
    (void)state;
    const bt_cpu *c = bt_cpu_get();
    assert_true(c->cores >= 1 && c->cores <= c->visible_cores && c->visible_cores <= c->hw_threads);
}

static void a_quota_of_processors_limits_the_cores(void **state) {
    (void)state;
    static const struct {
        int visible;
        double quota;
        int cores;
    } cases[] = {{64, 0, 64}, {64, 4, 4},    {64, 3.99, 4}, {64, 3.5, 3}, {64, 0.6, 1},
                 {2, 2, 2},   {2, 1.995, 2}, {2, 8, 2},     {1, 0.1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(bt_cpu_usable_cores(cases[i].visible, cases[i].quota), cases[i].cores);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_a_core_count_once),
        cmocka_unit_test(this_machine_has_as_many_threads_as_cores_or_more),
        cmocka_unit_test(a_quota_of_processors_limits_the_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
