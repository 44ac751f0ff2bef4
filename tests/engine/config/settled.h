/* settled.h - for tests of settings: parses arguments as `train` does and resolves them for a number of ranks. */
#ifndef BT_TESTS_ENGINE_CONFIG_SETTLED_H
#define BT_TESTS_ENGINE_CONFIG_SETTLED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/config/run_cfg.h"

static bt_run_cfg c;
static bt_opts o;
static bt_err err;

static inline bt_code read_words(const char *const *words) {
    int n = 0;
    bool help;
    while (words[n]) n++;
    memset(&err, 0, sizeof err);
    return bt_run_cfg_read(&o, &c, n, (char *const *)(uintptr_t)words, &help, &err);
}
#define READ(...) read_words((const char *const[]){__VA_ARGS__, NULL})

static inline bt_code settle_settings(int world, const char *const *words) {
    BT_TRY(read_words(words));
    return bt_run_cfg_resolve_opts(&o, &c, world, &err);
}
#define SETTLE(world, ...) settle_settings(world, (const char *const[]){__VA_ARGS__, NULL})

static inline const char *origin_of_setting(const char *key) {
    return o.where[bt_opt_find(o.table, o.n, key)];
}

#endif
