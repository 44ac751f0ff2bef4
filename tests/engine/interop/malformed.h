/* malformed.h - helpers shared by the tests of damaged files. */
#ifndef BT_TESTS_ENGINE_INTEROP_MALFORMED_H
#define BT_TESTS_ENGINE_INTEROP_MALFORMED_H

#include "tests/engine/interop/interop_fixture.h"

static inline void says(bt_code code, const bt_err *err, const char *words) {
    if (code == BT_OK) fail_msg("accepted instead of '%s'", words);
    if (!strstr(err->msg, words)) fail_msg("'%s' does not contain '%s'", err->msg, words);
    assert_null(strchr(err->msg, '\n'));
}

static inline char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *s = malloc(1 << 20);
    if (!f) fail_msg("cannot open '%s'", path);
    assert_non_null(s);
    *n = fread(s, 1, 1 << 20, f);
    fclose(f);
    return s;
}

#endif
