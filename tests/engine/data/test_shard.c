/* test_shard.c - shards of tokens: all sizes are restored, every kind of damage is refused with its position, and files
 * that change while they are used are noticed. */
#include "tests/engine/data/data_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "engine/data/shards/shard.h"
#include "engine/data/shards/shard_format.h"

static uint32_t *lengths_of_one(uint32_t vocab) {
    uint32_t *lengths = malloc(vocab * sizeof *lengths);
    assert_non_null(lengths);
    for (uint32_t i = 0; i < vocab; i++) lengths[i] = 1 + i % 3;
    return lengths;
}

static int32_t id_of(uint64_t i, uint32_t vocab) {
    return (int32_t)((i * 2654435761u >> 7) % vocab);
}

/* Writes ids id_of(0..n) in two segments. */
static bt_shard *write_two_segments(const char *path, uint64_t n, uint32_t vocab,
                                    uint64_t vocab_hash) {
    bt_shard_writer *w;
    bt_shard *s;
    bt_err err = BT_ERR_INIT;
    uint32_t *lengths = lengths_of_one(vocab);
    assert_int_equal(bt_shard_writer_create(&w, path, vocab, vocab_hash, &err), BT_OK);
    for (uint64_t i = 0; i < n; i++) {
        int32_t id = id_of(i, vocab);
        assert_int_equal(bt_shard_append(w, &id, 1, lengths, &err), BT_OK);
        if (i == n / 3) assert_int_equal(bt_shard_end_segment(w, &err), BT_OK);
    }
    assert_int_equal(bt_shard_end_document(w, &err), BT_OK);
    assert_int_equal(bt_shard_finish(w, &s, &err), BT_OK);
    free(lengths);
    return s;
}

static void check_all(bt_shard *s, uint64_t n, uint32_t vocab) {
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    uint32_t *lengths = lengths_of_one(vocab);
    uint64_t bytes = 0, told, sum = 0, ids_in_segments = 0;
    assert_int_equal(bt_shard_about(s)->count, n);
    assert_int_equal(bt_shard_read(s, 0, n, ids, NULL), BT_OK);
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(ids[i], id_of(i, vocab));
        if (i % 99991 == 0 || i == n - 1) {
            assert_int_equal(bt_shard_bytes_before(s, i, lengths, &told, NULL), BT_OK);
            assert_int_equal(told, bytes);
        }
        bytes += lengths[ids[i]];
    }
    assert_int_equal(bt_shard_bytes_before(s, n, lengths, &told, NULL), BT_OK);
    assert_int_equal(told, bytes);
    assert_int_equal(bt_shard_about(s)->source_bytes, bytes);
    for (uint64_t i = 0; i < bt_shard_about(s)->n_segments; i++) {
        uint64_t count, b;
        bt_shard_segment(s, i, &count, &b);
        ids_in_segments += count;
        sum += b;
    }
    assert_int_equal(ids_in_segments, n);
    assert_int_equal(sum, bytes);
    free(ids);
    free(lengths);
}

static void round_trips(void **state) {
    (void)state;
    static const struct {
        uint64_t n;
        uint32_t vocab, id_bytes;
    } cases[] = {{0, 256, 1},
                 {1, 256, 1},
                 {7, 2, 1},
                 {(1 << 20) - 1, 256, 1},
                 {1 << 20, 256, 1},
                 {(1 << 20) + 1, 256, 1},
                 {1, 257, 2},
                 {1 << 19, 65536, 2},
                 {(1 << 19) + 5, 8192, 2},
                 {1, 65537, 4},
                 {(1 << 18) * 2 + 3, 1 << 20, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int memory = 0; memory < 2; memory++) {
            bt_shard *s = write_two_segments(memory ? NULL : fixture_path("round.bts"), cases[i].n,
                                             cases[i].vocab, 42);
            assert_int_equal(bt_shard_about(s)->id_bytes, cases[i].id_bytes);
            assert_int_equal(bt_shard_about(s)->vocab_hash, 42);
            assert_int_equal(bt_shard_verify(s, NULL, NULL, NULL), BT_OK);
            check_all(s, cases[i].n, cases[i].vocab);
            bt_shard_close(s);
        }
        bt_shard *s;
        assert_int_equal(bt_shard_open(&s, fixture_path("round.bts"), NULL), BT_OK);
        check_all(s, cases[i].n, cases[i].vocab);
        int32_t id;
        assert_int_equal(bt_shard_read(s, cases[i].n, 1, &id, NULL), BT_ARG);
        assert_int_equal(bt_shard_read(s, UINT64_MAX, 2, &id, NULL), BT_ARG);
        bt_shard_close(s);
    }
}

static unsigned char *read_whole_shard(const char *path, size_t *n) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    unsigned char *data = malloc((size_t)st.st_size);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *n = fread(data, 1, (size_t)st.st_size, f);
    fclose(f);
    return data;
}

/* Opens and verifies the file; returns the first error. */
static bt_code try_file(const char *path, bt_err *err) {
    bt_shard *s;
    *err = (bt_err)BT_ERR_INIT;
    bt_code code = bt_shard_open(&s, path, err);
    if (code == BT_OK) code = bt_shard_verify(s, NULL, NULL, err);
    bt_shard_close(s);
    return code;
}

static void try_bytes(const void *data, size_t n, const char *words) {
    bt_err err;
    const char *path = fixture_write("damaged.bts", data, n);
    bt_code code = try_file(path, &err);
    if (code != BT_FORMAT || !strstr(err.msg, words) || !strstr(err.msg, "damaged.bts"))
        fail_msg("code %d: %s (wanted '%s')", code, err.msg, words);
}

static void seal_shard_header(bt_shard_header *h) {
    h->header_hash = XXH3_64bits(h, offsetof(bt_shard_header, header_hash));
}

/* Format version 1 has neither documents nor spans. */
static void shards_of_version_1_are_read(void **state) {
    (void)state;
    size_t n;
    bt_err err;
    bt_shard *s;
    bt_shard_writer *w;
    uint32_t *lengths = lengths_of_one(300);
    assert_int_equal(bt_shard_writer_create(&w, fixture_path("v1.bts"), 300, 7, &err), BT_OK);
    for (uint64_t i = 0; i < 500; i++)
        assert_int_equal(bt_shard_append(w, &(int32_t){id_of(i, 300)}, 1, lengths, &err), BT_OK);
    assert_int_equal(bt_shard_finish(w, &s, &err), BT_OK); /* ids outside a document */
    bt_shard_close(s);
    unsigned char *file = read_whole_shard(fixture_path("v1.bts"), &n);
    bt_shard_header *h = (bt_shard_header *)file;
    assert_int_equal(h->flags, 0);
    h->version = 1;
    seal_shard_header(h);
    assert_int_equal(bt_shard_open(&s, fixture_write("v1.bts", file, n), &err), BT_OK);
    check_all(s, 500, 300);
    assert_false(bt_shard_about(s)->has_documents);
    assert_null(bt_shard_document_ends(s));
    bt_shard_close(s);
    free(lengths);
    free(file);
}

/* Documents and spans are restored; their tables are verified like the tokens. */
static void documents_and_spans_are_restored(void **state) {
    (void)state;
    enum { N = 5000 };
    size_t n;
    bt_err err;
    bt_shard *s;
    bt_shard_writer *w;
    unsigned char marks[N];
    int32_t ids[N];
    uint32_t *lengths = lengths_of_one(300);
    for (int i = 0; i < N; i++) ids[i] = id_of((uint64_t)i, 300), marks[i] = i * 7 % 11 < 4;
    assert_int_equal(bt_shard_writer_create(&w, fixture_path("d.bts"), 300, 7, &err), BT_OK);
    for (int at = 0, k = 1; at < N; at += k, k = 1 + k * 3 % 97) {
        if (k > N - at) k = N - at;
        assert_int_equal(bt_shard_append_learned(w, ids + at, marks + at, (size_t)k, lengths, &err),
                         BT_OK);
        assert_int_equal(bt_shard_end_document(w, &err), BT_OK);
    }
    assert_int_equal(bt_shard_finish(w, &s, &err), BT_OK);
    const bt_shard_info *about = bt_shard_about(s);
    assert_true(about->has_documents && about->has_spans);
    const uint64_t *ends = bt_shard_document_ends(s);
    int at = 0;
    uint64_t d = 0;
    for (int k = 1; at < N; at += k, k = 1 + k * 3 % 97, d++) {
        if (k > N - at) k = N - at;
        assert_int_equal(ends[d], at + k);
    }
    assert_int_equal(about->documents, d);
    const bt_shard_span *spans = bt_shard_spans(s);
    uint64_t seen = 0, want = 0;
    for (uint64_t i = 0; i < about->n_spans; i++) {
        uint32_t bytes = 0;
        for (uint64_t j = spans[i].first; j < spans[i].first + spans[i].n; j++) {
            assert_true(marks[j]);
            bytes += lengths[ids[j]];
        }
        assert_int_equal(spans[i].source_bytes, bytes);
        seen += spans[i].n;
    }
    for (int i = 0; i < N; i++) want += marks[i];
    assert_int_equal(seen, want);
    const uint64_t n_spans = about->n_spans;
    bt_shard_close(s);
    unsigned char *good = read_whole_shard(fixture_path("d.bts"), &n), *bad = malloc(n);
    bt_shard_header *h = (bt_shard_header *)bad;
    uint64_t end = 128 + (uint64_t)N * 2, spans_at = n - n_spans * 16, ends_at = spans_at - d * 8;
    for (int what = 0; what < 3; what++) {
        memcpy(bad, good, n);
        uint64_t *row = (uint64_t *)(bad + (what == 2 ? spans_at : ends_at));
        if (what == 0) row[0] = UINT64_MAX;
        if (what == 1) row[d - 1]--;
        if (what == 2) row[2] = 0;
        h->tables_hash = XXH3_64bits(bad + end, n - end);
        seal_shard_header(h);
        try_bytes(bad, n,
                  what == 0   ? "document 0 ends outside"
                  : what == 1 ? "do not cover"
                              : "span 1 of learned ids");
    }
    free(good);
    free(bad);
    free(lengths);
}

static void headers_are_checked(void **state) {
    (void)state;
    size_t n;
    bt_shard_close(write_two_segments(fixture_path("good.bts"), 5000, 300, 7));
    unsigned char *good = read_whole_shard(fixture_path("good.bts"), &n), *bad = malloc(n + 64);
    bt_shard_header *h = (bt_shard_header *)bad;
#define WITH(change, words) \
    do { \
        memcpy(bad, good, n); \
        change; \
        try_bytes(bad, n, words); \
    } while (0)
#define SEALED(change, words) WITH(change; seal_shard_header(h), words)
    WITH(bad[0] = 'X', "wrong magic at byte 0");
    WITH(h->endian = 0x04030201, "other byte order");
    WITH(h->endian = 5, "byte order mark");
    WITH(h->version = 3, "version 3");
    WITH(h->count++, "header's hash");
    WITH(h->header_hash = 0, "header's hash");
    SEALED(h->id_bytes = 3, "id size 3");
    SEALED(h->id_bytes = 0, "id size 0");
    SEALED(h->vocab = 0, "vocabulary of 0");
    SEALED(h->vocab = BT_SHARD_MAX_VOCAB + 1, "vocabulary of");
    SEALED(h->count = UINT64_MAX / 2, "do not fit");
    SEALED(h->count = UINT64_MAX, "do not fit");
    SEALED(h->count = 4000, "table offset");
    SEALED(h->tables_at = 8, "table offset");
    SEALED(h->n_blocks = UINT64_MAX / 16 + 1, "blocks");
    SEALED(h->n_blocks = 2, "2 blocks");
    SEALED(h->n_segments = UINT64_MAX / 16 + 2, "do not fill");
    SEALED(h->n_segments = 1, "do not fill");
    SEALED(h->file_bytes = n + 8, "truncated");
    SEALED(h->file_bytes = n - 8, "trailing");
    SEALED(h->block_bytes = 1, "block size 1");
    SEALED((h->version = 1, h->flags = 1), "reserved");
    SEALED((h->version = 1, h->n_spans = 1), "reserved");
    SEALED(h->flags = 4, "flags");
    SEALED((h->flags = 1, h->n_spans = 1), "flags");
    SEALED(h->content_hash ^= 1, "content hash");
    SEALED(h->source_bytes++, "source bytes");
    SEALED(h->tables_hash ^= 1, "tables");
    SEALED(h->vocab = 290, "outside its vocabulary of 290"); /* ids up to 299 */
    memcpy(bad, good, n);
    memset(bad + n, 0, 64);
    try_bytes(bad, n + 64, "trailing");
    /* tables with a valid hash and wrong sums */
    uint64_t *tables;
#define TABLES(change, words) \
    do { \
        memcpy(bad, good, n); \
        tables = (uint64_t *)(bad + h->tables_at); \
        change; \
        h->tables_hash = XXH3_64bits(bad + sizeof *h + h->count * h->id_bytes, \
                                     n - sizeof *h - h->count * h->id_bytes); \
        seal_shard_header(h); \
        try_bytes(bad, n, words); \
    } while (0)
    TABLES(tables[0]++, "content hash");
    TABLES(tables[1]++, "source bytes");
    TABLES(tables[2]--, "do not cover");
    TABLES(tables[2] = UINT64_MAX, "passes the end");
    TABLES(tables[3]++, "passes the end");
    free(good);
    free(bad);
}

static void no_truncation_passes(void **state) {
    (void)state;
    size_t n;
    bt_shard_close(write_two_segments(fixture_path("long.bts"), 700, 256, 7));
    unsigned char *good = read_whole_shard(fixture_path("long.bts"), &n);
    for (size_t k = 0; k < n; k++) try_bytes(good, k, "");
    try_bytes(good, 0, "0 bytes");
    try_bytes(good, 127, "truncated");
    try_bytes(good, n - 1, "truncated");
    free(good);
}

/* Flips every bit of a small file, and bits in every block of a larger one. */
static void no_flipped_bit_passes(void **state) {
    (void)state;
    size_t n;
    bt_err err;
    bt_shard_close(write_two_segments(fixture_path("flip.bts"), 97, 300, 7));
    unsigned char *data = read_whole_shard(fixture_path("flip.bts"), &n);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        const char *path = fixture_write("flipped.bts", data, n);
        if (try_file(path, &err) != BT_FORMAT)
            fail_msg("bit %zu of byte %zu passed", bit % 8, bit / 8);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    free(data);
    bt_shard_close(write_two_segments(fixture_path("blocks.bts"), 5 * (1 << 19) + 1000, 8192, 7));
    const char *path = fixture_path("blocks.bts");
    data = read_whole_shard(path, &n);
    int fd = open(path, O_RDWR);
    uint32_t x = 1;
    for (int i = 0; i < 60; i++) {
        x = x * 1664525u + 1013904223u;
        size_t at = i < 6 ? sizeof(bt_shard_header) + (size_t)i * BT_SHARD_BLOCK + 500 : x % n;
        unsigned char bad = data[at] ^ (unsigned char)(1u << i % 8);
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)at), 1);
        if (try_file(path, &err) != BT_FORMAT) fail_msg("a flip at byte %zu passed", at);
        char words[40];
        snprintf(words, sizeof words, "block %d (bytes", i);
        if (i < 6 && !strstr(err.msg, words)) fail_msg("%s", err.msg);
        assert_int_equal(pwrite(fd, data + at, 1, (off_t)at), 1);
    }
    close(fd);
    assert_int_equal(try_file(path, &err), BT_OK);
    free(data);
}

/* A block is verified when it is first used; unused blocks are not read. */
static void blocks_are_checked_on_first_touch(void **state) {
    (void)state;
    bt_shard_close(write_two_segments(fixture_path("touch.bts"), 3 << 20, 256, 7));
    const char *path = fixture_path("touch.bts");
    int fd = open(path, O_RDWR), got;
    assert_int_equal(pwrite(fd, "\xff\xfe\xfd", 3, 128 + (2 << 20) + 77), 3);
    close(fd);
    bt_shard *s;
    bt_err err;
    int32_t ids[10];
    assert_int_equal(bt_shard_open(&s, path, &err), BT_OK);
    assert_int_equal(bt_shard_read(s, (2 << 20) - 10, 10, ids, &err), BT_OK);
    got = (int)bt_shard_read(s, (2 << 20) - 5, 10, ids, &err);
    assert_int_equal(got, BT_FORMAT);
    assert_non_null(strstr(err.msg, "block 2"));
    bt_shard_close(s);
}

static void files_that_change_are_noticed(void **state) {
    (void)state;
    bt_shard *s;
    bt_err err;
    int32_t id;
    const char *path = fixture_path("change.bts");
    s = write_two_segments(path, 3000, 256, 7);
    assert_int_equal(bt_shard_read(s, 5, 1, &id, &err), BT_OK);
    assert_int_equal(truncate(path, 500), 0);
    assert_int_equal(bt_shard_read(s, 5, 1, &id, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "changed while in use"));
    bt_shard_close(s);
    s = write_two_segments(path, 3000, 256, 7);
    int fd = open(path, O_RDWR);
    struct timespec times[2] = {{0, UTIME_OMIT}, {1, 0}};
    assert_int_equal(pwrite(fd, "?", 1, 200), 1);
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(bt_shard_read(s, 5, 1, &id, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "was changed while in use: block 0"));
    /* The modification time alone does not prove that the content is unchanged. */
    assert_int_equal(pwrite(fd, (const char[]){(char)id_of(72, 256)}, 1, 200), 1);
    times[1].tv_sec = 2;
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    assert_int_equal(bt_shard_read(s, 72, 1, &id, &err), BT_OK);
    assert_int_equal(id, id_of(72, 256));
    bt_shard_close(s);
    /* After another file was renamed to its name, the open file remains complete. */
    s = write_two_segments(path, 3000, 256, 7);
    bt_shard_close(write_two_segments(path, 10, 256, 7));
    assert_int_equal(bt_shard_read(s, 2999, 1, &id, &err), BT_OK);
    bt_shard_close(s);
    assert_int_equal(bt_shard_open(&s, path, &err), BT_OK);
    assert_int_equal(bt_shard_about(s)->count, 10);
    bt_shard_close(s);
}

static void parked_shards_are_reopened(void **state) {
    (void)state;
    bt_err err;
    int32_t id;
    const char *path = fixture_path("park.bts");
    bt_shard *s = write_two_segments(path, 3000, 256, 7),
             *m = write_two_segments(NULL, 3000, 256, 7);
    for (int i = 0; i < 3; i++) {
        bt_shard_park(s);
        bt_shard_park(m);
        assert_true(bt_shard_is_parked(s));
        /* A shard in memory cannot be parked. */
        assert_false(bt_shard_is_parked(m));
        assert_int_equal(bt_shard_read(s, 2999, 1, &id, &err), BT_OK);
        assert_int_equal(id, id_of(2999, 256));
        assert_false(bt_shard_is_parked(s));
    }
    bt_shard_close(m);
    bt_shard_park(s);
    bt_shard_close(write_two_segments(path, 3000, 256, 7)); /* the same bytes in another file */
    assert_int_equal(bt_shard_read(s, 5, 1, &id, &err), BT_OK);
    assert_int_equal(id, id_of(5, 256));
    bt_shard_park(s);
    bt_shard_close(write_two_segments(path, 3001, 256, 7));
    assert_int_equal(bt_shard_read(s, 5, 1, &id, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "replaced while in use by a file of other content"));
    unlink(path);
    assert_int_equal(bt_shard_read(s, 5, 1, &id, &err), BT_IO);
    bt_shard_park(s);
    bt_shard_close(s);
}

static void writer_refuses_and_cleans_up(void **state) {
    (void)state;
    bt_shard_writer *w;
    bt_err err;
    uint32_t *lengths = lengths_of_one(256);
    assert_int_equal(bt_shard_writer_create(&w, fixture_path("no/such/folder.bts"), 256, 1, &err),
                     BT_IO);
    assert_int_equal(bt_shard_writer_create(&w, fixture_path("w.bts"), 0, 1, &err), BT_ARG);
    assert_int_equal(bt_shard_writer_create(&w, fixture_path("w.bts"), 256, 1, &err), BT_OK);
    int32_t id = 256;
    assert_int_equal(bt_shard_append(w, &id, 1, lengths, &err), BT_ARG);
    id = -1;
    assert_int_equal(bt_shard_append(w, &id, 1, lengths, &err), BT_ARG);
    bt_shard_abandon(w);
    char command[300];
    snprintf(command, sizeof command, "test -z \"$(ls %s/w.bts* 2>/dev/null)\"", fixture_dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(bt_shard_writer_create(&w, "/dev/full/x", 256, 1, &err), BT_IO);
    /* A lack of space is an error that leaves no files. */
    struct rlimit old, few;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    few = (struct rlimit){(1 << 20) + 500, old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    assert_int_equal(bt_shard_writer_create(&w, fixture_path("w.bts"), 256, 1, &err), BT_OK);
    id = 7;
    bt_code code = BT_OK;
    for (int i = 0; code == BT_OK && i < 2 << 20; i++)
        code = bt_shard_append(w, &id, 1, lengths, &err);
    assert_int_equal(code, BT_IO);
    assert_non_null(strstr(err.msg, "w.bts"));
    assert_non_null(strstr(err.msg, "File too large"));
    bt_shard_abandon(w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(system(command), 0);
    free(lengths);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(shards_of_version_1_are_read),
        cmocka_unit_test(documents_and_spans_are_restored),
        cmocka_unit_test(no_truncation_passes),
        cmocka_unit_test(no_flipped_bit_passes),
        cmocka_unit_test(blocks_are_checked_on_first_touch),
        cmocka_unit_test(files_that_change_are_noticed),
        cmocka_unit_test(parked_shards_are_reopened),
        cmocka_unit_test(writer_refuses_and_cleans_up),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
