/* stored_results.h - results of the generic kernels, computed once and compared with those of every other set, in one
 * process or, through a file, in several. Only one file of a test program may include it. */
#ifndef BT_TESTS_STORED_RESULTS_H
#define BT_TESTS_STORED_RESULTS_H

#include <stdio.h>

#include "tests/engine/kernels/isa_util.h"

/* The generic result of a case and a shape is computed once and used for every set. The sets run one after the other in
 * the same order of cases, so the position in this sequence identifies a value. */
typedef struct known {
    void *bytes;
    size_t n;
    uint64_t draw; /* state of the random inputs */
} known;
static struct {
    known *list;
    size_t n, room, next;
    bool on;
} oracle;

/* Returns true if `out` now contains the generic result for the same inputs. */
static inline bool recall_result(void *out, size_t bytes) {
    if (!oracle.on || oracle.next == oracle.n) return false;
    const known *x = &oracle.list[oracle.next++];
    assert_true(x->n == bytes && x->draw == draw);
    if (bytes) memcpy(out, x->bytes, bytes);
    return true;
}

static inline void append_known(const known *x) {
    if (oracle.n == oracle.room) {
        oracle.room = oracle.room ? 2 * oracle.room : 1024;
        oracle.list = realloc(oracle.list, oracle.room * sizeof *oracle.list);
        assert_non_null(oracle.list);
    }
    oracle.list[oracle.n++] = *x;
}

static inline void store_result(const void *out, size_t bytes) {
    if (!oracle.on) return;
    const known x = {malloc(bytes + 1), bytes, draw};
    assert_non_null(x.bytes);
    if (bytes) memcpy(x.bytes, out, bytes);
    append_known(&x);
    oracle.next = oracle.n;
}

/* BT_TEST_ORACLE is the path of a file with the generic results: the first process writes it and later ones read it. */
static inline bool read_oracle(const char *path) {
    known x;
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    while (fread(&x, sizeof x, 1, f) == 1) {
        x.bytes = malloc(x.n + 1);
        assert_true(x.bytes && fread(x.bytes, 1, x.n, f) == x.n);
        append_known(&x);
    }
    assert_int_equal(fclose(f), 0);
    return true;
}

static inline void write_oracle(const char *path) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < oracle.n; i++) {
        const known *x = &oracle.list[i];
        assert_true(fwrite(x, sizeof *x, 1, f) == 1 && fwrite(x->bytes, 1, x->n, f) == x->n);
    }
    assert_int_equal(fclose(f), 0);
}

/* Stores `bytes` bytes of the result `out` of the generic `call`, or compares them. */
#define ORACLE(out, bytes, call) \
    do { \
        if (!recall_result(out, bytes)) { \
            call; \
            store_result(out, bytes); \
        } \
    } while (0)

static inline int forget_oracle(void **state) {
    (void)state;
    for (size_t i = 0; i < oracle.n; i++) free(oracle.list[i].bytes);
    free(oracle.list);
    return 0;
}

static inline int keep_oracle(void **state) {
    write_oracle(getenv("BT_TEST_ORACLE"));
    return forget_oracle(state);
}

#endif
