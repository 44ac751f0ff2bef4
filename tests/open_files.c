/* open_files.c - part of every unit test of one process: it fails when it ends with a file open that was
 * not open when it began. So every error path that a test takes must close what it opened. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

enum { MOST = 1024 };

static bool before[MOST];
static pid_t owner;

__attribute__((constructor)) static void begin(void) {
    owner = getpid();
    for (int fd = 0; fd < MOST; fd++) before[fd] = fcntl(fd, F_GETFD) >= 0;
}

__attribute__((destructor)) static void end(void) {
    int left = 0;
    for (int fd = 0; fd < MOST && getpid() == owner; fd++) {
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
