/* fuzz_dir.h - a folder in shared memory for files and sockets of a fuzz target. */
#ifndef BT_TESTS_FUZZ_FUZZ_DIR_H
#define BT_TESTS_FUZZ_FUZZ_DIR_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];

static void remove_dir(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0) _exit(1);
}

/* Creates `dir` at the first call, which returns true; the folder exists until the program ends. */
static bool make_dir(void) {
    if (dir[0]) return false;
    strcpy(dir, "/dev/shm/bt-fuzz-XXXXXX");
    if (!mkdtemp(dir)) abort();
    atexit(remove_dir);
    return true;
}

#endif
