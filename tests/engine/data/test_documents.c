/* test_documents.c - documents read from files: joined pieces equal the file, long texts are cut at the documented
 * places, valid and invalid JSONL lines, binary files. */
#include "tests/engine/data/data_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "engine/base/text.h"
#include "engine/data/io/documents.h"
#include "engine/data/io/utf8.h"

typedef struct reading {
    bt_text all;
    int pieces, documents, files;
    size_t longest;
    bt_err err;
} reading;

static bt_source source_of(const char *path, bt_source_kind kind) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (bt_source){(char *)(uintptr_t)path, kind, (uint64_t)st.st_size, 0, 0};
}

/* Joins all pieces, each followed by '|' if `marked`. */
static bt_code read_all(const bt_source *files, size_t n, const char *field, bool marked,
                        reading *r) {
    bt_documents *d;
    bt_piece p;
    bt_code code;
    *r = (reading){.err = BT_ERR_INIT};
    assert_int_equal(bt_documents_open(&d, files, n, field, &r->err), BT_OK);
    while ((code = bt_documents_next(d, &p, &r->err)) == BT_OK && p.text) {
        bt_text_putn(&r->all, p.text, p.n);
        if (marked && p.document_ends) bt_text_put(&r->all, "|");
        if (p.n > r->longest) r->longest = p.n;
        r->pieces++;
        r->documents += p.document_ends;
        r->files += p.file_ends;
    }
    if (code == BT_OK) assert_true(bt_documents_done(d) == 1.0);
    bt_documents_close(d);
    return code;
}

static void text_files_are_read_completely(void **state) {
    (void)state;
    static const size_t sizes[] = {0,
                                   1,
                                   2,
                                   100,
                                   (1 << 20) - 1,
                                   1 << 20,
                                   (1 << 20) + 1,
                                   (1 << 20) + 4,
                                   (1 << 20) + 5,
                                   (2 << 20) + 4,
                                   3500000};
    char *s = fixture_prose(3500000);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        reading r;
        bt_source f = source_of(fixture_write("whole.txt", s, sizes[i]), BT_SOURCE_TEXT);
        assert_int_equal(read_all(&f, 1, "", false, &r), BT_OK);
        assert_int_equal(r.all.len, sizes[i]);
        if (sizes[i]) assert_memory_equal(r.all.data, s, sizes[i]);
        assert_int_equal(r.documents, 1);
        assert_int_equal(r.files, 1);
        assert_true(r.longest <= (1 << 20));
        bt_text_release(&r.all);
    }
    free(s);
}

/* Text without blanks and newlines is cut between characters. */
static void long_words_are_cut_between_characters(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    char *s = malloc(3 * N + 1);
    bt_documents *d;
    bt_piece p;
    s[0] = 'x'; /* shifts the text so that a character crosses the limit of a megabyte */
    for (size_t i = 0; i < N; i++) memcpy(s + 1 + 3 * i, "\xe6\x88\x91", 3);
    bt_source f = source_of(fixture_write("cjk.txt", s, 3 * N + 1), BT_SOURCE_TEXT);
    assert_int_equal(bt_documents_open(&d, &f, 1, "", NULL), BT_OK);
    size_t total = 0;
    while (bt_documents_next(d, &p, NULL) == BT_OK && p.text) {
        assert_int_equal(bt_utf8_valid(p.text, p.n), p.n);
        total += p.n;
    }
    assert_int_equal(total, 3 * N + 1);
    bt_documents_close(d);
    free(s);
}

static void long_texts_are_cut_at_the_documented_places(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t cut;
    } cases[] = {
        {"", 0},
        {"a", 1},
        {"ab", 2},
        {"a\nb", 2},
        {"ab cd", 2},
        {"ab cd ef", 5},
        {"a\n\nb", 4},
        {"a \nb", 4},
        {"a\n b", 4},
        {"a. b", 4},
        {"1 2", 3},
        {"\xe6\x88\x91\n\xe6\x88\x91", 4},
        {"\xe3\x80\x80\n\xe6\x88\x91", 7},
        {"x\n\xe3\x80\x80", 5},
        {"x\xc2\xa0\ny", 5},
        {"x\n\xc2\xa0", 4},
        {"x\xe2\x80\x83\ny", 6},
        {"x\r\ny", 4},
        {"a b\nc", 4},
        {"a\nb c", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (bt_text_cut(cases[i].text, strlen(cases[i].text)) != cases[i].cut)
            fail_msg("case %zu: cut at %zu, not %zu", i,
                     bt_text_cut(cases[i].text, strlen(cases[i].text)), cases[i].cut);
}

static void lengths_of_valid_utf8_characters(void **state) {
    (void)state;
    static const struct {
        const char *s;
        size_t n;
    } cases[] = {{"a", 1},
                 {"\x7f", 1},
                 {"\x80", 0},
                 {"\xc0\x80", 0},
                 {"\xc1\xbf", 0},
                 {"\xc2\x80", 2},
                 {"\xdf\xbf", 2},
                 {"\xe0\x9f\xbf", 0},
                 {"\xe0\xa0\x80", 3},
                 {"\xed\x9f\xbf", 3},
                 {"\xed\xa0\x80", 0},
                 {"\xee\x80\x80", 3},
                 {"\xf0\x8f\xbf\xbf", 0},
                 {"\xf0\x90\x80\x80", 4},
                 {"\xf4\x8f\xbf\xbf", 4},
                 {"\xf4\x90\x80\x80", 0},
                 {"\xf5\x80\x80\x80", 0},
                 {"\xc3", 0},
                 {"\xe2\x82", 0},
                 {"\xf0\x9f\x98", 0},
                 {"\xc3\x28", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].s);
        char back[4];
        assert_int_equal(bt_utf8_char(cases[i].s, n), cases[i].n);
        if (!cases[i].n) continue;
        assert_int_equal(bt_utf8_encode(back, bt_utf8_decode(cases[i].s, n)), n);
        assert_memory_equal(back, cases[i].s, n);
    }
}

static void byte_order_marks_are_removed(void **state) {
    (void)state;
    reading r;
    bt_source files[2] = {source_of(fixture_text("bom.txt", "\xef\xbb\xbf"
                                                            "abc"),
                                    BT_SOURCE_TEXT),
                          source_of(fixture_text("bom.jsonl", "\xef\xbb\xbf{\"text\":\"def\"}\n"),
                                    BT_SOURCE_JSONL)};
    assert_int_equal(read_all(files, 2, "text", true, &r), BT_OK);
    assert_string_equal(r.all.data, "abc|def|");
    bt_text_release(&r.all);
}

static void json_lines(void **state) {
    (void)state;
    reading r;
    bt_source f = source_of(
        fixture_text(
            "good.jsonl",
            "{\"text\": \"one\"}\n\n  \t\r\n{\"id\": [1, {\"a\": null}], \"text\": "
            "\"t\\u0077o\\n\"}\r\n{\"text\": \"\"}\n{\"text\":\"caf\xc3\xa9 \\ud83d\\ude00\"}"),
        BT_SOURCE_JSONL);
    assert_int_equal(read_all(&f, 1, "text", true, &r), BT_OK);
    assert_string_equal(r.all.data, "one|two\n||caf\xc3\xa9 \xf0\x9f\x98\x80|");
    assert_int_equal(r.files, 1);
    bt_text_release(&r.all);
    f = source_of(
        fixture_text(
            "fields.jsonl",
            "{\"a\":{\"b\":{\"c\":\"deep\"}}}\n{\"a.b.c\":\"flat\"}\n{\"a\":{\"b.c\":\"half\"}}\n"),
        BT_SOURCE_JSONL);
    assert_int_equal(read_all(&f, 1, "a.b.c", true, &r), BT_OK);
    assert_string_equal(r.all.data, "deep|flat|half|");
    bt_text_release(&r.all);
    f = source_of(fixture_text("nul.jsonl", "{\"text\":\"a\\u0000b\"}\n"), BT_SOURCE_JSONL);
    assert_int_equal(read_all(&f, 1, "text", true, &r), BT_OK);
    assert_int_equal(r.all.len, 4);
    assert_memory_equal(r.all.data, "a\0b|", 4);
    bt_text_release(&r.all);
    f = source_of(fixture_text("empty.jsonl", ""), BT_SOURCE_JSONL);
    assert_int_equal(read_all(&f, 1, "text", true, &r), BT_OK);
    assert_int_equal(r.all.len, 0);
    assert_int_equal(r.files, 1);
    bt_text_release(&r.all);
}

static void long_json_lines(void **state) {
    (void)state;
    enum { N = 3000000 };
    reading r;
    char *prose = fixture_prose(N), *line = malloc(2 * N);
    for (size_t i = 0; i < N; i++)
        if (prose[i] == '\n') prose[i] = ' ';
    size_t n = (size_t)sprintf(line, "{\"text\":\"%s\"}\n{\"text\":\"x\"}\n", prose);
    bt_source f = source_of(fixture_write("long.jsonl", line, n), BT_SOURCE_JSONL);
    assert_int_equal(read_all(&f, 1, "text", true, &r), BT_OK);
    assert_int_equal(r.all.len, N + 3);
    assert_memory_equal(r.all.data, prose, N);
    bt_text_release(&r.all);
    free(prose);
    free(line);
}

static void bad_json_lines_are_numbered(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{\"text\":\"a\"}\nnot json\n", "line 2, column 3: not valid JSON"},
        {"{\"text\":\"a\"}\n\n\n{\"text\":\"b\"\n", "line 4"},
        {"[1]\n", "line 1: not a JSON object"},
        {"\"text\"\n", "line 1, column 6: not valid JSON"},
        {"{\"txt\":\"a\"}\n",
         "line 1: no field 'text': set data.field to the field that contains the text"},
        {"{\"text\":5}\n", "line 1: field 'text' is not a string"},
        {"{\"text\":null}\n", "is not a string"},
        {"{\"text\":\"a\",\"text\":\"b\"}\n", "duplicate object key"},
        {"{\"text\":\"a\", \"id\": word}\n", "line 1, column 23: not valid JSON"},
        {"{\"text\":\"a\", \"id\": [1}\n", "not valid JSON"},
        {"{\"text\":\"a\",}\n", "not valid JSON"},
        {"{\"instruction\":\"a\",\"output\":\"b\"}\n", "(it looks like data.form=alpaca)"},
        {"{\"text\":\"caf\xe9\"}\n",
         "line 1: 1 bytes are not UTF-8 (if the file is Latin-1: 'iconv"},
        {"{\"text\":\"\\ud800\"}\n", "line 1"},
        {"{\"text\":\"\xff\"}\n", "line 1"},
        {"{\"text\":\"a\"} {\"text\":\"b\"}\n", "line 1"},
        {"{\"text\":\"a\nb\"}\n", "line 1"},
    };
    reading r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_source f = source_of(fixture_text("bad.jsonl", cases[i].text), BT_SOURCE_JSONL);
        assert_int_equal(read_all(&f, 1, "text", false, &r), BT_FORMAT);
        if (!strstr(r.err.msg, cases[i].words) || !strstr(r.err.msg, "bad.jsonl'"))
            fail_msg("case %zu: %s (wanted '%s')", i, r.err.msg, cases[i].words);
        bt_text_release(&r.all);
    }
    for (int depth = 64; depth <= 65; depth++) {
        char line[300] = "{\"text\":";
        for (int k = 1; k < depth; k++) strcat(line, "[");
        for (int k = 1; k < depth; k++) strcat(line, "]");
        strcat(line, "}\n");
        bt_source f = source_of(fixture_text("deep.jsonl", line), BT_SOURCE_JSONL);
        assert_int_equal(read_all(&f, 1, "text", false, &r), BT_FORMAT);
        assert_non_null(strstr(r.err.msg, depth == 65 ? "line 1: the JSON is nested more than 64"
                                                      : "line 1: field 'text' is not a string"));
        bt_text_release(&r.all);
    }
    assert_true(bt_json_depth_ok("[\"[[[[\\\"[[\"]", 12, 1));
    assert_false(bt_json_depth_ok("[[", 2, 1));
    assert_true(bt_json_depth_ok("\"abc\\", 5, 1));
}

static void keys_that_are_not_read_may_have_any_values(void **state) {
    (void)state;
    static const char *const values[] = {"18446744073709551615",
                                         "NaN",
                                         "-Infinity",
                                         "1e999",
                                         "1, \"x\": 2",
                                         "\"half \\ud83d\"",
                                         "\"\xff\"",
                                         "{\"text\": 1, \"a\": [\"}\", {}]}",
                                         "-1.5E+300"};
    static const char *const shapes[] = {"{\"text\":\"one\", \"x\": %s}\n",
                                         "{\"x\": %s, \"text\":\"one\"}\n",
                                         "{\"x\":%s,\"text\":\"one\",\"y\":%s}\n",
                                         "{ \"x\": %s , \"text\" : \"one\" , \"y\" : %s }\n"};
    char line[400], deep[240] = "";
    for (int i = 0; i < 100; i++) strcat(deep, "[");
    for (int i = 0; i < 100; i++) strcat(deep, "]");
    for (size_t v = 0; v <= sizeof values / sizeof *values; v++)
        for (size_t k = 0; k < 4; k++) {
            reading r;
            const char *value = v < sizeof values / sizeof *values ? values[v] : deep;
            snprintf(line, sizeof line, shapes[k], value, k < 2 ? NULL : "null");
            bt_source f = source_of(fixture_text("unread.jsonl", line), BT_SOURCE_JSONL);
            if (read_all(&f, 1, "text", true, &r) != BT_OK) fail_msg("%s: %s", line, r.err.msg);
            assert_string_equal(r.all.data, "one|");
            bt_text_release(&r.all);
        }
}

static void a_list_of_objects_is_rows(void **state) {
    (void)state;
    static const char *const files[] = {"[{\"text\":\"one\"},{\"text\":\"two\"}]",
                                        "\xef\xbb\xbf [\n  {\n    \"id\": 1,\n    \"text\": "
                                        "\"one\"\n  },\n  {\"text\": \"two\"}\n]\n",
                                        "{\n \"text\": \"one\"\n}\n{\n \"text\": \"two\"\n}\n",
                                        "{\"text\":\"one\"}\n{\"text\":\"two\"}\n"};
    static const struct {
        const char *text, *words;
    } bad[] = {{"[{\"text\":\"one\"}",
                "row 2: the closing ']' of the list is missing: is the file complete?"},
               {"[{\"text\":\"one\"} {\"text\":\"two\"}]", "row 2: a comma or ']' is missing"},
               {"[{\"text\":\"one\"}] x", "the file continues after the end"},
               {"[{\"text\":\"one\"}, 5]", "row 2: not a JSON object"},
               {"[{\"text\":\"one\"}, {\"text\": 5}]", "row 2: field 'text' is not a string"},
               {"[{\"text\":\"one\"}, {\"text\": \"x",
                "row 2: the closing '}' of an object is missing"},
               {"{\n\"data\": [{\"text\":\"one\"}]\n}", "jq -c '.data[]'"},
               {"{\"format\":\"bitrain-tokenizer\"}", "is a tokenizer: give it with --tokenizer"}};
    reading r;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        bt_source f = source_of(fixture_text("list.json", files[i]), BT_SOURCE_JSONL);
        if (read_all(&f, 1, "text", true, &r) != BT_OK) fail_msg("%zu: %s", i, r.err.msg);
        assert_string_equal(r.all.data, "one|two|");
        bt_text_release(&r.all);
    }
    bt_source none = source_of(fixture_text("list.json", " [ ]\n"), BT_SOURCE_JSONL);
    assert_int_equal(read_all(&none, 1, "text", true, &r), BT_OK);
    assert_int_equal(r.all.len, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bt_source f = source_of(fixture_text("list.json", bad[i].text), BT_SOURCE_JSONL);
        assert_int_equal(read_all(&f, 1, "text", true, &r), BT_FORMAT);
        if (!strstr(r.err.msg, bad[i].words)) fail_msg("%zu: %s", i, r.err.msg);
        bt_text_release(&r.all);
    }
}

/* The rows are longer than a piece, and the lists longer than the buffer. */
static void long_lists_are_read(void **state) {
    (void)state;
    enum { N = 3000000 };
    bt_text list = {0};
    reading r;
    char *prose = fixture_prose(N);
    for (size_t i = 0; i < N; i++)
        if (prose[i] == '\n') prose[i] = ' ';
    bt_text_printf(&list, "[{\"text\":\"%s\"}", prose);
    for (int i = 0; i < 40000; i++)
        bt_text_printf(&list, ",\n{\"id\": %d, \"meta\": {\"a\": [1, \"]\"]}, \"text\": \"x\"}", i);
    bt_text_put(&list, "]");
    bt_source f = source_of(fixture_write("long.json", list.data, list.len), BT_SOURCE_JSONL);
    if (read_all(&f, 1, "text", false, &r) != BT_OK) fail_msg("%s", r.err.msg);
    assert_int_equal(r.all.len, N + 40000);
    assert_int_equal(r.documents, 40001);
    assert_memory_equal(r.all.data, prose, N);
    bt_text_release(&r.all);
    bt_text_release(&list);
    free(prose);
}

/* Compares the notes of a reader that skips bad rows. */
static void notes_of(const char *name, bt_source_kind kind, const char *text, const char *all,
                     const char *notes) {
    bt_documents *d;
    bt_piece p;
    bt_err err = BT_ERR_INIT;
    bt_text got = {0}, told = {0};
    bt_source f = source_of(fixture_text(name, text), kind);
    assert_int_equal(bt_documents_open(&d, &f, 1, "text", &err), BT_OK);
    bt_documents_rows(d, NULL, true);
    bt_code code;
    while ((code = bt_documents_next(d, &p, &err)) == BT_OK && p.text)
        bt_text_putn(&got, p.text, p.n);
    if (!all) {
        assert_int_equal(code, BT_FORMAT);
        if (!strstr(err.msg, notes)) fail_msg("%s", err.msg);
    } else {
        assert_int_equal(code, BT_OK);
        bt_documents_notes(d, &told);
        assert_string_equal(bt_text_str(&got), all);
        const char *slash = strstr(bt_text_str(&told), fixture_dir);
        char plain[900];
        snprintf(plain, sizeof plain, "%.*s%s", slash ? (int)(slash - told.data) : 0,
                 bt_text_str(&told), slash ? slash + strlen(fixture_dir) + 1 : bt_text_str(&told));
        assert_string_equal(plain, notes);
    }
    bt_text_release(&got);
    bt_text_release(&told);
    bt_documents_close(d);
}

/* At most this number of rows is read from each file; whatever follows is ignored. */
static void rows_are_limited(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{\"text\":\"a\"}\n\n{\"text\":\"b\"}\n{\"text\":\"c\"}\nnot json\n",
        "[{\"text\":\"a\"},{\"text\":\"b\"},{\"text\":\"c\"}]",
        "{\"text\":\"a\"}\n{\"text\":\"b\"}\n"};
    for (size_t i = 0; i < 3; i++) {
        bt_documents *d;
        bt_piece p;
        bt_err err = BT_ERR_INIT;
        bt_text got = {0}, notes = {0};
        bt_source f[2];
        f[0] = f[1] = source_of(fixture_text("limit.jsonl", texts[i]), BT_SOURCE_JSONL);
        assert_int_equal(bt_documents_open(&d, f, 2, "text", &err), BT_OK);
        bt_documents_limit(d, 2);
        while (bt_documents_next(d, &p, &err) == BT_OK && p.text) bt_text_putn(&got, p.text, p.n);
        assert_string_equal(bt_text_str(&got), "abab");
        assert_true(bt_documents_done(d) >= 1.0);
        bt_documents_notes(d, &notes);
        assert_string_equal(bt_text_str(&notes),
                            i == 2 ? ""
                                   : " only the first 2 rows of each file are read "
                                     "(data.max_rows)\n");
        bt_text_release(&got);
        bt_text_release(&notes);
        bt_documents_close(d);
    }
}

static void skipped_rows_are_counted(void **state) {
    (void)state;
    notes_of(
        "skip.jsonl", BT_SOURCE_JSONL,
        "{\"text\":\"a\"}\nnot json\n{\"text\":null}\n{\"txt\":\"x\"}\n{\"text\":\"\\ud83d\"}\n"
        "{\"text\":\"b\"}\n",
        "ab",
        "!4 of 6 rows are bad and left out; the first: 'skip.jsonl' line 2, column 3: not valid "
        "JSON: '[' or '{' expected near 'not'\n keys of rows that are not used: txt (1)\n");
    notes_of("keys.json", BT_SOURCE_JSONL,
             "[{\"id\":1,\"text\":\"a\",\"meta\":{\"u\":1}},{\"id\":2,\"text\":\"b\"}]", "ab",
             " keys of rows that are not used: id (2), meta (1)\n");
    notes_of("all.jsonl", BT_SOURCE_JSONL, "{}\n[]\n", NULL,
             "all 2 rows are unusable; the first error: '");
    notes_of(
        "latin.txt", BT_SOURCE_TEXT, "na\xefve caf\xe9 \xc3\xa9\n", "na\xefve caf\xe9 \xc3\xa9\n",
        "!2 bytes of 'latin.txt' are not UTF-8 and are trained on as they are (if it is Latin-1: "
        "'iconv -f LATIN1 -t UTF-8')\n");
    notes_of("fine.txt", BT_SOURCE_TEXT, "caf\xc3\xa9\n", "caf\xc3\xa9\n", "");
}

static void binary_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } cases[] = {
        {"\x1f\x8b\x08\0", 4, "gzip-compressed: decompress"},
        {"\x28\xb5\x2f\xfd\0", 5, "zstd"},
        {"\xfd"
         "7zXZ\0",
         6, "xz"},
        {"BZh9\0", 5, "bzip2"},
        {"PK\x03\x04\0", 5, "zip"},
        {"\xff\xfe"
         "a\0",
         4, "iconv"},
        {"\xfe\xff\0a", 4, "iconv"},
        {"%PDF-1.7\0", 9, "PDF"},
        {"BTSHARD\n\0", 9, "name it *.bts"},
        {"SQLite format 3\0", 16, "SQLite"},
        {"PAR1\x15\0", 6, "is a Parquet file: convert it with 'python3 -c \"import pandas"},
        {"ARROW1\0\0", 8, "an Arrow file"},
        {"\xff\xff\xff\xff\xb8\x02\0\0\x10\0\0\0", 12, "an Arrow stream"},
        {"\xff\xfe\0\0a\0\0\0", 8, "iconv -f UTF-32"},
        {"PK\x03\x04\x08\0\0x/data.pkl", 17, "a PyTorch checkpoint"},
        {"\x80\x04\x95\0", 4, "a Python pickle"},
        {"\x30\x06\0\0\0\0\0\0{\"__metadata__", 20, "a safetensors file"},
        /* safetensors headers of 640, 35615 and 65279 bytes begin like a pickle, gzip and UTF-16 file */
        {"\x80\x02\0\0\0\0\0\0{\"__metadata__", 20, "a safetensors file"},
        {"\x1f\x8b\0\0\0\0\0\0{\"__metadata__", 20, "a safetensors file"},
        {"\xff\xfe\0\0\0\0\0\0{\"__metadata__", 20, "a safetensors file"},
        {"GGUF\x03\0", 6, "a GGUF model"},
        {"version https://git-lfs.github.com/spec/v1\noid ", 47, "git lfs pull"},
        {"ELF\0", 4, "NUL at byte 3"}};
    reading r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_source f = source_of(fixture_write("binary.txt", cases[i].bytes, cases[i].n),
                                BT_SOURCE_TEXT);
        assert_int_equal(read_all(&f, 1, "", false, &r), BT_FORMAT);
        if (!strstr(r.err.msg, cases[i].words)) fail_msg("case %zu: %s", i, r.err.msg);
        bt_text_release(&r.all);
    }
    static const char *const tables[] = {"a.csv", "b.tsv"};
    for (size_t i = 0; i < 2; i++) {
        bt_source f = source_of(fixture_text(tables[i], "id,text\n1,a\n"), BT_SOURCE_TEXT);
        assert_int_equal(read_all(&f, 1, "", false, &r), BT_FORMAT);
        assert_non_null(strstr(r.err.msg, "pandas.read_csv("));
    }
    char tar[600] = "name";
    memcpy(tar + 257, "ustar", 5);
    bt_source archive = source_of(fixture_write("a.txt", tar, sizeof tar), BT_SOURCE_TEXT);
    assert_int_equal(read_all(&archive, 1, "", false, &r), BT_FORMAT);
    assert_non_null(strstr(r.err.msg, "tar -xf"));
    /* A text that begins with the letters of a binary format is text. */
    archive = source_of(fixture_text("a.txt", "PAR1 and ORC are words; BZh too\n"), BT_SOURCE_TEXT);
    assert_int_equal(read_all(&archive, 1, "", false, &r), BT_OK);
    bt_text_release(&r.all);
    char *s = fixture_prose(3000000);
    s[2345678] = '\0';
    bt_source f = source_of(fixture_write("late.txt", s, 3000000), BT_SOURCE_TEXT);
    assert_int_equal(read_all(&f, 1, "", false, &r), BT_FORMAT);
    assert_non_null(strstr(r.err.msg, "NUL at byte 2345678"));
    bt_text_release(&r.all);
    free(s);
}

static void a_file_that_grows_is_noticed(void **state) {
    (void)state;
    reading r;
    bt_source f = source_of(fixture_text("grows.txt", "abc"), BT_SOURCE_TEXT);
    fixture_text("grows.txt", "abcdef");
    assert_int_equal(read_all(&f, 1, "", false, &r), BT_BUSY);
    assert_non_null(strstr(r.err.msg, "changed while it was read (6 bytes read, 3 bytes before)"));
    bt_text_release(&r.all);
    char gone[300];
    strcpy(gone, f.path);
    unlink(gone);
    f.path = gone;
    assert_int_equal(read_all(&f, 1, "", false, &r), BT_NOTFOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_files_are_read_completely),
        cmocka_unit_test(long_words_are_cut_between_characters),
        cmocka_unit_test(long_texts_are_cut_at_the_documented_places),
        cmocka_unit_test(lengths_of_valid_utf8_characters),
        cmocka_unit_test(byte_order_marks_are_removed),
        cmocka_unit_test(json_lines),
        cmocka_unit_test(long_json_lines),
        cmocka_unit_test(bad_json_lines_are_numbered),
        cmocka_unit_test(keys_that_are_not_read_may_have_any_values),
        cmocka_unit_test(a_list_of_objects_is_rows),
        cmocka_unit_test(long_lists_are_read),
        cmocka_unit_test(skipped_rows_are_counted),
        cmocka_unit_test(rows_are_limited),
        cmocka_unit_test(binary_files_are_refused),
        cmocka_unit_test(a_file_that_grows_is_noticed),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
