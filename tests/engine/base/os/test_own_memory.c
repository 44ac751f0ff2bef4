/* test_own_memory.c - pages, unnamed files, waits on a word of memory, and processors of this process. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/os/memory_pages.h"
#include "engine/base/os/memory_wait.h"
#include "engine/base/os/processors.h"
#include "engine/base/os/unnamed_file.h"

static _Atomic uint32_t word;

static void *change_word(void *scope) {
    bt_sleep_ns(20000000);
    atomic_store(&word, 2);
    bt_memory_wake(&word, *(bt_wait_scope *)scope);
    return NULL;
}

static void test_wait(void **state) {
    (void)state;
    for (bt_wait_scope scope = BT_WAIT_PROCESS; scope <= BT_WAIT_SHARED; scope++) {
        pthread_t thread;
        atomic_store(&word, 1);
        bt_memory_wait(&word, 0, 0, scope);       /* The word differs, so this does not sleep. */
        bt_memory_wait(&word, 1, 1000000, scope); /* ends without a wake-up */
        assert_int_equal(pthread_create(&thread, NULL, change_word, &scope), 0);
        while (atomic_load(&word) == 1) bt_memory_wait(&word, 1, 0, scope);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}

static void test_pages(void **state) {
    (void)state;
    const size_t bytes = (size_t)4 << 20;
    unsigned char *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                            0);
    assert_true(x != MAP_FAILED);
    bt_pages_prefer_huge(x, bytes);
    bt_pages_prefer_small(x, bytes);
    memset(x, 7, bytes);
    assert_true(bt_pages_return(x, bytes / 2));
    for (size_t i = 0; i < bytes; i++) assert_int_equal(x[i], i < bytes / 2 ? 0 : 7);
    assert_false(bt_pages_return(x + 1, bytes / 2)); /* not the start of a page */
    munmap(x, bytes);
}

static void test_files(void **state) {
    (void)state;
    char dir[] = "/tmp/unnamed.XXXXXX", path[64], text[8] = "";
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/named", dir);
    const int fd = bt_memory_file_create("test"), same = bt_file_of_process(getpid(), fd);
    assert_true(fd >= 0 && same >= 0);
    assert_int_equal(write(fd, "shared", 6), 6);
    assert_int_equal(pread(same, text, 6, 0), 6);
    assert_string_equal(text, "shared");
    close(same);
    close(fd);
    assert_int_equal(bt_file_of_process(getpid(), fd), -1);
    const int file = bt_file_create_unnamed(dir, 0600);
    if (file >= 0) {                     /* The file system has such files. */
        assert_int_equal(rmdir(dir), 0); /* Its folder is empty. */
        assert_int_equal(mkdir(dir, 0700), 0);
        close(file);
        const int other = bt_file_create_unnamed(dir, 0600);
        assert_true(bt_file_give_name(other, path) && access(path, R_OK) == 0);
        assert_false(bt_file_give_name(other, path)); /* The name exists. */
        close(other);
        unlink(path);
    }
    rmdir(dir);
}

static void test_processors(void **state) {
    (void)state;
    cpu_set_t all, one, now;
    const int n = bt_processors_allowed(&all);
    assert_true(n >= 1 && n == CPU_COUNT(&all) && bt_processors_online() >= 1);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    assert_true(bt_processors_bind(&one));
    assert_int_equal(bt_processors_allowed(&now), 1);
    assert_true(CPU_EQUAL(&one, &now) && bt_processors_bind(&all));
    CPU_ZERO(&one);
    assert_false(bt_processors_bind(&one));
    assert_false(bt_processors_have("no such feature"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wait), cmocka_unit_test(test_pages),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_processors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
