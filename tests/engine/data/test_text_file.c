/* test_text_file.c - compressed files give the text of plain ones, in pieces of any size; damaged files are refused by
 * name. */
#include <zlib.h>
#include <zstd.h>

#include "engine/data/io/documents.h"
#include "engine/data/io/text_file.h"
#include "tests/engine/data/data_fixture.h"

static bt_err err;

/* Compresses the text in `members` separate gzip members. */
static size_t compress_gzip(unsigned char *out, size_t room, const char *text, size_t n,
                            int members) {
    size_t at = 0;
    for (int i = 0; i < members; i++) {
        const size_t from = n * (size_t)i / (size_t)members,
                     to = n * (size_t)(i + 1) / (size_t)members;
        z_stream z = {0};
        assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
                         Z_OK);
        z.next_in = (unsigned char *)(uintptr_t)(text + from);
        z.avail_in = (uInt)(to - from);
        z.next_out = out + at;
        z.avail_out = (uInt)(room - at);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        at = room - z.avail_out;
        deflateEnd(&z);
    }
    return at;
}

static size_t compress_zstd(unsigned char *out, size_t room, const char *text, size_t n,
                            int members) {
    size_t at = 0;
    for (int i = 0; i < members; i++) {
        const size_t from = n * (size_t)i / (size_t)members,
                     to = n * (size_t)(i + 1) / (size_t)members;
        const size_t k = ZSTD_compress(out + at, room - at, text + from, to - from, 3);
        assert_false(ZSTD_isError(k));
        at += k;
    }
    return at;
}

static void reads_back(const char *path, const char *text, size_t n, size_t step) {
    bt_text_file *f;
    char *buf = malloc(n + step);
    size_t at = 0, got = step;
    assert_int_equal(bt_text_file_open(&f, path, &err), BT_OK);
    while (got == step) {
        if (bt_text_file_read(f, buf + at, step, &got, &err) != BT_OK) fail_msg("%s", err.msg);
        at += got;
        assert_true(at <= n);
    }
    assert_int_equal(at, n);
    assert_memory_equal(buf, text, n);
    bt_text_file_close(f);
    free(buf);
}

static void compressed_files_give_their_text(void **state) {
    (void)state;
    enum { N = 700000 };
    char *text = fixture_prose(N);
    unsigned char *out = malloc(2 * N);
    static const size_t steps[] = {1000, 65536, N, N + 1};
    for (int members = 1; members <= 3; members++) {
        const char *gz = fixture_write("a.txt.gz", out,
                                       compress_gzip(out, 2 * N, text, N, members));
        for (size_t i = 0; i < 4; i++) reads_back(gz, text, N, steps[i]);
        const char *zst = fixture_write("a.txt.zst", out,
                                        compress_zstd(out, 2 * N, text, N, members));
        for (size_t i = 0; i < 4; i++) reads_back(zst, text, N, steps[i]);
    }
    reads_back(fixture_text("a.txt", text), text, N, 4096);
    reads_back(fixture_write("empty.gz", out, compress_gzip(out, 2 * N, text, 0, 1)), text, 0, 16);
    free(out);
    free(text);
}

/* gzip(1) accepts such files: tapes and object stores pad with zeros. */
static void zeros_behind_gzip_data_are_skipped(void **state) {
    (void)state;
    enum { N = 3000, MANY = 600000 };
    char *text = fixture_prose(N);
    unsigned char *out = calloc(1, 2 * N + MANY);
    static const size_t zeros[] = {1, 512, MANY};
    for (size_t i = 0; i < 3; i++) {
        memset(out, 0, 2 * N + MANY);
        const size_t n = compress_gzip(out, 2 * N, text, N, 2) + zeros[i];
        reads_back(fixture_write("padded.gz", out, n), text, N, 1000);
    }
    free(out);
    free(text);
}

/* The frame declares a window of 2 GiB, as zstd --long=31 does, and uses little of it. */
static void zstd_frames_with_a_long_window_are_read(void **state) {
    (void)state;
    static const char frame[] = "\x28\xb5\x2f\xfd\x00\xa8\x29\x00\x00hello";
    reads_back(fixture_write("long.zst", frame, sizeof frame - 1), "hello", 5, 64);
}

static void assert_file_refused(const char *path, const char *words) {
    bt_text_file *f;
    char buf[4096];
    size_t got = sizeof buf;
    bt_code code = BT_OK;
    assert_int_equal(bt_text_file_open(&f, path, &err), BT_OK);
    while (code == BT_OK && got == sizeof buf)
        code = bt_text_file_read(f, buf, sizeof buf, &got, &err);
    assert_int_equal(code, BT_FORMAT);
    if (!strstr(err.msg, words) || !strstr(err.msg, path)) fail_msg("%s", err.msg);
    bt_text_file_close(f);
}

static void damaged_files_are_refused(void **state) {
    (void)state;
    enum { N = 100000 };
    char *text = fixture_prose(N);
    unsigned char *out = malloc(2 * N);
    size_t n = compress_gzip(out, 2 * N, text, N, 1);
    assert_file_refused(fixture_write("cut.gz", out, n / 2), "ends in the middle of its gzip data");
    assert_file_refused(fixture_write("cut9.gz", out, n - 1),
                        "ends in the middle of its gzip data");
    out[n / 2] ^= 0x55;
    assert_file_refused(fixture_write("bad.gz", out, n), "is damaged or not a gzip file");
    n = compress_zstd(out, 2 * N, text, N, 1);
    assert_file_refused(fixture_write("cut.zst", out, n / 2),
                        "ends in the middle of its zstd data");
    out[0] ^= 1;
    assert_file_refused(fixture_write("bad.zst", out, n), "is damaged or not a zstd file");
    assert_file_refused(fixture_text("plain.gz", text), "not a gzip file");
    assert_file_refused(fixture_text("none.gz", ""), "ends in the middle");
    free(out);
    free(text);
}

/* The suffix before .gz determines the format. */
static void lines_of_a_compressed_file_are_documents(void **state) {
    (void)state;
    static const char lines[] = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
    unsigned char out[512];
    const char *path = fixture_write("b.jsonl.gz", out,
                                     compress_gzip(out, sizeof out, lines, sizeof lines - 1, 1));
    bt_sources s;
    bt_documents *d;
    bt_piece p;
    assert_int_equal(bt_sources_list_glob(&s, path, "", "", &err), BT_OK);
    assert_int_equal(s.items[0].kind, BT_SOURCE_JSONL);
    assert_int_equal(bt_documents_open(&d, s.items, s.n, "text", &err), BT_OK);
    for (int i = 0; i < 2; i++) {
        if (bt_documents_next(d, &p, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_int_equal(p.n, 3);
        assert_memory_equal(p.text, i ? "two" : "one", 3);
    }
    assert_int_equal(bt_documents_next(d, &p, &err), BT_OK);
    assert_true(p.file_ends && p.n == 0);
    assert_true(bt_documents_done(d) == 1.0);
    bt_documents_close(d);
    bt_sources_release(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_files_give_their_text),
        cmocka_unit_test(zeros_behind_gzip_data_are_skipped),
        cmocka_unit_test(zstd_frames_with_a_long_window_are_read),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(lines_of_a_compressed_file_are_documents),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
