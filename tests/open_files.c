/* open_files.c - part of every unit test of one process: the test fails if it ends with an open file, or a shared
 * mapping of a file, that did not exist at its start. Every error path that a test takes must therefore close its
 * files. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { MOST = 1024 };

static bool before[MOST];
static int shared_before;
static pid_t owner;

/* Counts the shared mappings of this process and prints those after the first `known`. The C library keeps its list of
 * character sets mapped after the first setlocale. */
static int shared_mappings(int known) {
    char line[512], rights[8];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%*s %7s", rights) == 1 && rights[3] == 's' &&
            !strstr(line, "gconv-modules.cache") && ++n > known)
            fprintf(stderr, "still mapped (%d were at the beginning): %s", known, line);
    if (f) fclose(f);
    return n;
}

__attribute__((constructor)) static void begin(void) {
    owner = getpid();
    shared_before = shared_mappings(MOST);
    for (int fd = 0; fd < MOST; fd++) before[fd] = fcntl(fd, F_GETFD) >= 0;
}

__attribute__((destructor)) static void end(void) {
    if (getpid() != owner) return;
    int left = shared_mappings(shared_before) - shared_before;
    if (left < 0) left = 0;
    for (int fd = 0; fd < MOST; fd++) {
        char link[64], name[256];
        if (before[fd] || fcntl(fd, F_GETFD) < 0) continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(link, name, sizeof name - 1);
        fprintf(stderr, "file %d is still open: %.*s\n", fd, n > 0 ? (int)n : 0, name);
        left++;
    }
    if (!left) return;
    fflush(NULL);
    _exit(1);
}
