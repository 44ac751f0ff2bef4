/* test_memory_peak.c - the peak memory of several processes counts shared pages once and private pages for each
 * process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/observe/meter.h"

enum { MIB = 1 << 20, SHARED = 48, OWN = 24 };

/* Returns the peak of a process that touches all of `shared` and its own memory while the other process is alive. */
static double peak_after_touching(char *shared, int *turn) {
    char *own = malloc((size_t)OWN * MIB);
    char other;
    if (!own) return -1;
    memset(shared, 1, (size_t)SHARED * MIB);
    memset(own, 1, (size_t)OWN * MIB);
    if (write(turn[1], "x", 1) != 1 || read(turn[0], &other, 1) != 1) return -1;
    const double peak = bt_memory_peak_mib();
    if (write(turn[1], "x", 1) != 1 || read(turn[0], &other, 1) != 1) return -1;
    free(own);
    return peak;
}

static void shared_memory_counts_once(void **state) {
    (void)state;
    int there[2], back[2];
    char *shared = mmap(NULL, (size_t)SHARED * MIB + 4096, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED && pipe(there) == 0 && pipe(back) == 0);
    double *said = (double *)(void *)(shared + (size_t)SHARED * MIB);
    const double before = bt_memory_peak_mib();
    const pid_t child = fork();
    if (child == 0) {
        int turn[] = {there[0], back[1]};
        *said = peak_after_touching(shared, turn);
        _exit(0);
    }
    int turn[] = {back[0], there[1]}, status;
    const double peak = peak_after_touching(shared, turn);
    assert_int_equal(waitpid(child, &status, 0), child);
    /* Memory allocated before the fork counts at most twice, once each process has written to its own pages. Libraries
     * count less while other programs of the machine use them too. */
    const double together = peak + *said, want = SHARED + 2 * OWN;
    if (!(together > want && together < want + 2 * before + 6))
        fail_msg(
            "%.1f and %.1f MiB; expected %.1f MiB, and at most twice the %.1f MiB before the fork",
            peak, *said, want, before);
    assert_true(peak - before > OWN && peak - before < SHARED + OWN);
    for (int i = 0; i < 2; i++) {
        close(there[i]);
        close(back[i]);
    }
    munmap(shared, (size_t)SHARED * MIB + 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shared_memory_counts_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
