/* old_file.h - a database of the first version, with a run of two attempts, twelve steps and two ranks. */
#ifndef BT_TESTS_STORE_OLD_FILE_H
#define BT_TESTS_STORE_OLD_FILE_H

#include "tests/store/store_test.h"

static inline void bt_old_file(const char *path) {
    static char sql[1 << 16];
    const char *tree = getenv("BT_SRC");
    char name[512];
    snprintf(name, sizeof name, "%s/tests/store/schema_v1.sql", tree ? tree : ".");
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    const size_t n = fread(sql, 1, sizeof sql, f);
    fclose(f);
    assert_true(n > 0 && n < sizeof sql);
    sql[n] = '\0';
    run_sql(path, sql);
}

#endif
