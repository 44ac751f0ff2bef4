/* test_manifest.c - manifests with a valid seal and invalid contents: a field that is missing, of another type, too
 * long or out of range is refused by name; values at their limits are accepted. */
#include "tests/engine/ckpt/ckpt_world.h"

#include "engine/ckpt/format.h"

static const char head[] = "{\"seal\":\"", middle[] = "\",\"manifest\":", tail[] = "}\n";

typedef struct sealed {
    char folder[PATH_MAX], file[PATH_MAX + 16];
    char *body;
} sealed;

static void read_sealed_manifest(world *s, sealed *m) {
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    char *text = NULL;
    size_t n = 0;
    const size_t frame = strlen(head) + 32 + strlen(middle);
    fill_meta(&meta, 100, 0);
    check_ok(save_world(s, &meta, 1, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    snprintf(m->folder, sizeof m->folder, "%.4000s", saved.path);
    snprintf(m->file, sizeof m->file, "%s/manifest.json", m->folder);
    check_ok(ckpt_slurp(m->file, 1 << 20, &text, &n, &err), &err);
    assert_true(n > frame + 2);
    m->body = calloc(1, n);
    memcpy(m->body, text + frame, n - frame - strlen(tail));
    free(text);
}

static void write_manifest_text(const sealed *m, const char *body) {
    char seal[33];
    ckpt_hash_hex(seal, body, strlen(body));
    FILE *f = fopen(m->file, "w");
    assert_non_null(f);
    fprintf(f, "%s%s%s%s%s", head, seal, middle, body, tail);
    assert_int_equal(fclose(f), 0);
}

/* Returns the body with another value in the first line of the field, or without that line if value is NULL. The caller
 * frees it. */
static char *body_with_value(const char *body, const char *key, const char *value) {
    char name[40];
    snprintf(name, sizeof name, "\"%s\": ", key);
    const char *at = strstr(body, name);
    if (!at) fail_msg("no field '%s' in %s", key, body);
    const char *end = strchr(at, '\n');
    assert_non_null(end);
    char *out = calloc(1, strlen(body) + 200);
    const bool comma = end[-1] == ',';
    if (value)
        sprintf(out, "%.*s%s%s%s%s", (int)(at - body), body, name, value, comma ? "," : "", end);
    else
        sprintf(out, "%.*s%s", (int)(at - body), body, end);
    return out;
}

#define TEN "0123456789"
#define FIFTEEN "\"0123456789abcde\""
#define SIXTEEN_UPPER "\"0123456789ABCDEF\""

static void invalid_fields_are_refused(void **state) {
    /* A row without words is a manifest that the reader accepts. */
    static const struct {
        const char *key, *value, *says;
    } rows[] = {
        {"run", "\"other\"", NULL},
        {"format", NULL, "is not a checkpoint manifest"},
        {"format", "\"other\"", "is not a checkpoint manifest"},
        {"format", "7", "is not a checkpoint manifest"},
        {"format", "\"bitrain checkpoint, and more than fits\"", "is not a checkpoint manifest"},
        {"version", NULL, "has version 0, but this program reads only versions 1 to 2"},
        {"version", "0", "has version 0"},
        {"version", "3", "has version 3"},
        {"version", "\"2\"", "has version 0"},
        {"run", NULL, "'run'"},
        {"run", "7", "'run'"},
        {"run", "\"" TEN TEN TEN TEN TEN TEN "012\"", NULL},
        {"run", "\"" TEN TEN TEN TEN TEN TEN "0123\"", "'run'"},
        {"step", NULL, "'step'"},
        {"step", "\"7\"", "'step'"},
        {"step", "7.5", "'step'"},
        {"step", "-1", "'step'"},
        {"step", "0", NULL},
        {"tokens", NULL, "'tokens'"},
        {"tokens", "-1", "'tokens'"},
        {"tokens", "0", NULL},
        {"attempt", NULL, "'attempt'"},
        {"attempt", "-1", "'attempt'"},
        {"attempt", "2147483648", "'attempt'"},
        {"attempt", "2147483647", NULL},
        {"world_size", NULL, "'world_size'"},
        {"world_size", "0", "'world_size'"},
        {"world_size", "2147483648", "'world_size'"},
        {"world_size", "1", NULL},
        {"generation", NULL, "'generation'"},
        {"generation", FIFTEEN, "'generation'"},
        {"generation", SIXTEEN_UPPER, "'generation'"},
        {"generation", "7", "'generation'"},
        {"generation", "\"0123456789abcdefg\"", "'generation'"},
        {"generation", "\"g123456789abcdef\"", "'generation'"},
        {"params_hash", NULL, "'params_hash'"},
        {"params_hash", FIFTEEN, "'params_hash'"},
        {"data_hash", NULL, "'data_hash'"},
        {"data_hash", SIXTEEN_UPPER, "'data_hash'"},
        {"vocab_hash", NULL, "'vocab_hash'"},
        {"vocab_hash", "\"0123456789abcdef0\"", "'vocab_hash'"},
        {"isa", NULL, "'isa'"},
        {"isa", "\"" TEN TEN TEN "0\"", NULL},
        {"isa", "\"" TEN TEN TEN "01\"", "'isa'"},
        {"build", NULL, "'build'"},
        {"build", "\"" TEN TEN TEN TEN TEN TEN "0123\"", "'build'"},
        {"tokenizer", NULL, "'tokenizer'"},
        {"tokenizer", "7", "'tokenizer'"},
        {"name", NULL, "file name '' is not allowed"},
        {"name", "\"../data-00000-0123456789abcdef.btck\"", "is not allowed"},
        {"rank", NULL, "row 0 of 'files'"},
        {"rank", "-1", "row 0 of 'files'"},
        {"rank", "2147483648", "row 0 of 'files'"},
        {"rank", "2147483647", NULL},
        {"bytes", "-1", "row 0 of 'files'"},
        {"bytes", "\"7\"", "row 0 of 'files'"},
        {"bytes", "0", NULL},
        {"sections", "-1", "row 0 of 'files'"},
        {"sections", "2251799813685248", "row 0 of 'files'"},
        {"sections", "2251799813685247", NULL},
        {"xxh3_128", "7", "row 0 of 'files'"},
        {"xxh3_128", "\"0123456789abcdef0123456789abcde\"", "row 0 of 'files'"},
        {"xxh3_128", "\"0123456789abcdef0123456789abcdef0\"", "row 0 of 'files'"},
    };
    sealed m;
    read_sealed_manifest(*state, &m);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        ckpt_manifest got;
        char *body = body_with_value(m.body, rows[i].key, rows[i].value);
        write_manifest_text(&m, body);
        const bt_code code = ckpt_manifest_read(m.folder, &got, &err);
        if (code != (rows[i].says ? BT_FORMAT : BT_OK) ||
            (rows[i].says && !strstr(err.msg, rows[i].says)))
            fail_msg("%s = %s: %s '%s'", rows[i].key, rows[i].value ? rows[i].value : "(missing)",
                     bt_code_name(code), err.msg);
        if (code == BT_OK) ckpt_manifest_release(&got);
        free(body);
    }
    free(m.body);
}

/* Objects and the list of files are checked. */
static void invalid_parts_are_refused(void **state) {
    static const struct {
        const char *from, *to, *says;
    } rows[] = {{"\"config\": ", "\"konfig\": ", "'config'"},
                {"\"state\": ", "\"status\": ", "'state'"},
                {"\"files\": ", "\"folders\": ", "names no data files"},
                {"\"files\": [", "\"files\": [], \"more\": [", "names no data files"},
                {"\"files\": [", "\"files\": 7, \"more\": [", "names no data files"},
                {"\"run\": ", "\"run\": \"twice\", \"run\": ", "is not JSON at byte"},
                {"\"run\": ", "\"run\"; ", "is not JSON at byte"}};
    sealed m;
    bt_err err;
    ckpt_manifest got;
    read_sealed_manifest(*state, &m);
    char *body = calloc(2, strlen(m.body) + 200);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *at = strstr(m.body, rows[i].from);
        assert_non_null(at);
        sprintf(body, "%.*s%s%s", (int)(at - m.body), m.body, rows[i].to,
                at + strlen(rows[i].from));
        write_manifest_text(&m, body);
        err = (bt_err)BT_ERR_INIT;
        assert_int_equal(ckpt_manifest_read(m.folder, &got, &err), BT_FORMAT);
        if (!strstr(err.msg, rows[i].says))
            fail_msg("'%s' does not contain '%s'", err.msg, rows[i].says);
    }
    /* The list contains one file twice. */
    const char *row = strchr(strstr(m.body, "\"files\": ["), '{'), *end = strchr(row, '}') + 1;
    sprintf(body, "%.*s,%.*s%s", (int)(end - m.body), m.body, (int)(end - row), row, end);
    write_manifest_text(&m, body);
    err = (bt_err)BT_ERR_INIT;
    assert_int_equal(ckpt_manifest_read(m.folder, &got, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "' twice"));
    free(body);
    free(m.body);
}

/* Version 1 stores its state in separate fields, which are read as rows of the registry. */
static void version_1_is_read(void **state) {
    static const struct {
        const char *fields, *want; /* a row without `want` has fields that are refused */
    } rows[] = {
        {"\"lr_factor\": 0.5, \"loss_scale\": 1024.0, \"extra\": {\"updates\": 7, "
         "\"loss_scale_good\": 3, \"bytes_per_token\": 4.25}",
         "{\"progress\":{\"updates\":7,\"lr_factor\":0.5},\"loss_scale\":{\"value\":1024.0,"
         "\"good\":3},"
         "\"data\":{\"bytes_per_token\":4.25}}"},
        {"\"lr_factor\": 1, \"loss_scale\": 2, \"extra\": {}",
         "{\"progress\":{\"lr_factor\":1},\"loss_scale\":{\"value\":2},\"data\":{}}"},
        {"\"loss_scale\": 2, \"extra\": {}", NULL},
        {"\"lr_factor\": 1, \"extra\": {}", NULL},
        {"\"lr_factor\": 1, \"loss_scale\": 2", NULL},
        {"\"lr_factor\": 1, \"loss_scale\": 2, \"extra\": 7", NULL},
    };
    sealed m;
    read_sealed_manifest(*state, &m);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        ckpt_manifest got;
        char fields[400];
        snprintf(fields, sizeof fields, "1, %s", rows[i].fields);
        char *body = body_with_value(m.body, "version", fields);
        write_manifest_text(&m, body);
        const bt_code code = ckpt_manifest_read(m.folder, &got, &err);
        assert_int_equal(code, rows[i].want ? BT_OK : BT_FORMAT);
        if (code == BT_OK) {
            assert_string_equal(bt_text_str(&got.meta.state), rows[i].want);
            assert_int_equal(got.meta.step, 100);
            ckpt_manifest_release(&got);
        } else {
            assert_non_null(strstr(err.msg, "field 'state' is missing or not valid"));
        }
        free(body);
    }
    free(m.body);
}

/* Every field is read as it was written, and the seal covers the whole file. */
static void a_written_manifest_is_read(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    ckpt_manifest m;
    bt_text text = {0};
    char seal[33] = "";
    const ckpt_file files[] = {
        {"data-00000-00000000000000ff.btck", 111, 2, "0123456789abcdef0123456789abcdef", 0},
        {"data-00003-00000000000000ff.btck", 0, 0, "fedcba9876543210fedcba9876543210", 3}};
    fill_meta(&meta, 123456789012, 2147483647);
    bt_text_clear(&meta.config); /* An empty configuration is an empty object. */
    bt_text_clear(&meta.tokenizer);
    bt_text_putn(&meta.tokenizer, "a\nb", 3);
    check_ok(ckpt_manifest_text(&meta, 0xff, 4, files, 2, &text, seal, &err), &err);
    assert_memory_equal(bt_text_str(&text), head, strlen(head));
    assert_memory_equal(bt_text_str(&text) + strlen(head), seal, 32);
    char path[128];
    snprintf(path, sizeof path, "%s/manifest.json", s->dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text.data, 1, text.len, f), text.len);
    assert_int_equal(fclose(f), 0);
    bt_text_release(&text);
    check_ok(ckpt_manifest_read(s->dir, &m, &err), &err);
    assert_string_equal(m.seal, seal);
    assert_true(m.generation == 0xff && m.world_size == 4 && m.n_files == 2);
    assert_true(m.meta.step == meta.step && m.meta.tokens == meta.tokens &&
                m.meta.attempt == meta.attempt);
    assert_true(m.meta.params_hash == meta.params_hash && m.meta.data_hash == 7 &&
                m.meta.vocab_hash == UINT64_MAX);
    assert_string_equal(m.meta.run, meta.run);
    assert_string_equal(m.meta.isa, meta.isa);
    assert_string_equal(m.meta.build, meta.build);
    assert_string_equal(bt_text_str(&m.meta.config), "{}");
    assert_string_equal(bt_text_str(&m.meta.state),
                        "{\"progress\":{\"lr_factor\":0.30000000000000004}}");
    assert_int_equal(m.meta.tokenizer.len, 3);
    assert_memory_equal(m.meta.tokenizer.data, "a\nb", 3);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(m.files[i].name, files[i].name);
        assert_string_equal(m.files[i].hash, files[i].hash);
        assert_true(m.files[i].bytes == files[i].bytes &&
                    m.files[i].n_sections == files[i].n_sections &&
                    m.files[i].rank == files[i].rank);
    }
    ckpt_manifest_release(&m);
    assert_true(!m.files && m.n_files == 0);
    /* Text that is not JSON or not UTF-8. */
    static const char *const bad[] = {"{\"a\": 1", "{\"a\": 1, \"a\": 2}"};
    for (int i = 0; i < 4; i++) {
        bt_text *of = i < 2 ? &meta.config : &meta.state;
        bt_text_clear(of);
        bt_text_put(of, bad[i % 2]);
        assert_int_equal(ckpt_manifest_text(&meta, 1, 1, files, 1, &text, seal, &err), BT_ARG);
        assert_non_null(strstr(err.msg, i < 2 ? "config of the checkpoint is not JSON: "
                                              : "state of the checkpoint is not JSON: "));
        assert_int_equal(ckpt_manifest_text(&meta, 1, 1, files, 1, &text, seal, NULL), BT_ARG);
        bt_text_clear(of);
    }
    strcpy(meta.run, "\xff");
    assert_int_equal(ckpt_manifest_text(&meta, 1, 1, files, 1, &text, seal, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "is not UTF-8"));
    assert_int_equal(text.len, 0);
    bt_text_release(&text);
    bt_ckpt_meta_release(&meta);
    bt_ckpt_meta_release(NULL);
    char longest[PATH_MAX];
    memset(longest, 'x', sizeof longest);
    longest[PATH_MAX - 14] = '\0';
    assert_int_equal(ckpt_manifest_read(longest, &m, &err), BT_ARG);
    longest[PATH_MAX - 15] = '\0';
    assert_int_equal(ckpt_manifest_read(longest, &m, &err), BT_IO);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {TEST(invalid_fields_are_refused),
                                       TEST(invalid_parts_are_refused), TEST(version_1_is_read),
                                       TEST(a_written_manifest_is_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
