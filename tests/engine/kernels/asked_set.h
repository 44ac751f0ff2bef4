/* asked_set.h - BT_TEST_SET limits a test of all kernel sets to the reference set "generic" and the named set. */
#ifndef BT_TESTS_ASKED_SET_H
#define BT_TESTS_ASKED_SET_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool set_is_asked_for(const char *set) {
    const char *only = getenv("BT_TEST_SET");
    return !only || strcmp(set, only) == 0;
}

#endif
