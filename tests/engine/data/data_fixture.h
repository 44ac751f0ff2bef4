/* data_fixture.h - temporary folders and files, and the configuration of a loader, for the tests of engine/data. */
#ifndef BT_TESTS_DATA_FIXTURE_H
#define BT_TESTS_DATA_FIXTURE_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/data/shards/loader.h"

static char fixture_dir[64];

static int fixture_remove_one(const char *path, const struct stat *st, int kind,
                              struct FTW *where) {
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline int fixture_setup(void **state) {
    (void)state;
    strcpy(fixture_dir, "/tmp/bt_data_XXXXXX");
    return mkdtemp(fixture_dir) ? 0 : -1;
}

static inline int fixture_teardown(void **state) {
    (void)state;
    return nftw(fixture_dir, fixture_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The result is valid until seven more calls. */
static inline const char *fixture_path(const char *name) {
    static char ring[8][256];
    static unsigned turn;
    char *p = ring[turn++ % 8];
    snprintf(p, sizeof ring[0], "%s/%s", fixture_dir, name);
    return p;
}

static inline const char *fixture_write(const char *name, const void *data, size_t n) {
    const char *path = fixture_path(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline const char *fixture_text(const char *name, const char *text) {
    return fixture_write(name, text, strlen(text));
}

/* Returns English-like text of n bytes (words, blanks, lines), which depends only on n. */
static inline char *fixture_prose(size_t n) {
    static const char *const words[] = {"the",   "light", "and",     "darkness", "was",
                                        "upon",  "face",  "of",      "waters",   "earth,",
                                        "void;", "God's", "evening", "1234"};
    char *s = malloc(n + 16);
    uint32_t x = 1;
    assert_non_null(s);
    for (size_t i = 0; i < n;) {
        x = x * 1664525u + 1013904223u;
        i += (size_t)sprintf(s + i, "%s%s", words[(x >> 16) % 14],
                             (x >> 8) % 11 == 0 ? ".\n" : " ");
    }
    s[n] = '\0';
    return s;
}

static inline bt_loader_cfg fixture_cfg(const char *paths) {
    return (bt_loader_cfg){.paths = paths,
                           .val_paths = "",
                           .tokenizer = "bytes",
                           .field = "text",
                           .cache_dir = fixture_path("cache"),
                           .split = BT_SPLIT_TRAIN,
                           .val_frac = 0.05,
                           .shuffle = true,
                           .B = 2,
                           .T = 16,
                           .V = 256,
                           .seed = 1,
                           .sequences_per_step = 4,
                           .n_sequences = 4};
}

#endif
