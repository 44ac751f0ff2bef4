// ctest: timeout=300
/* test_malformed_gguf.c - untrusted GGUF files: each kind of damage is refused with its own message, and
 * every size that is read is compared with the size of the file. */
#include "engine/interop/formats/gguf.h"
#include "tests/engine/interop/malformed.h"

typedef struct bytes {
    unsigned char at[4096];
    size_t n;
} bytes;

static void u32(bytes *b, uint32_t v) {
    for (int i = 0; i < 4; i++) b->at[b->n++] = (unsigned char)(v >> 8 * i);
}
static void u64(bytes *b, uint64_t v) {
    for (int i = 0; i < 8; i++) b->at[b->n++] = (unsigned char)(v >> 8 * i);
}
static void text(bytes *b, const char *s) {
    u64(b, strlen(s));
    memcpy(b->at + b->n, s, strlen(s));
    b->n += strlen(s);
}
static void head(bytes *b, uint32_t version, uint64_t tensors, uint64_t keys) {
    memcpy(b->at, "GGUF", 4);
    b->n = 4;
    u32(b, version);
    u64(b, tensors);
    u64(b, keys);
}
static void info(bytes *b, const char *name, uint32_t dims, uint64_t a, uint64_t c, uint32_t type,
                 uint64_t at) {
    text(b, name);
    u32(b, dims);
    if (dims > 0) u64(b, a);
    for (uint32_t i = 1; i < dims && i < 9; i++) u64(b, i == 1 ? c : 1);
    u32(b, type);
    u64(b, at);
}
/* Pads with zeros up to the data, then appends this many zeros. */
static void data(bytes *b, size_t n) {
    while (b->n % 32 != 0) b->at[b->n++] = 0;
    memset(b->at + b->n, 0, n);
    b->n += n;
}

static void gguf_not(const bytes *b, const char *words) {
    bt_gguf g;
    bt_stored_list l = {0};
    bt_err err = BT_ERR_INIT;
    bt_code code = bt_gguf_read(&g, &l, fixture_write("x.gguf", b->at, b->n), &err);
    if (words)
        says(code, &err, words);
    else if (code != BT_OK)
        fail_msg("%s", err.msg);
    bt_gguf_release(&g);
    bt_stored_release(&l);
}

static void heads_of_gguf(void **state) {
    (void)state;
    bytes b;
    memcpy(b.at, "GGML....................", b.n = 24);
    gguf_not(&b, "not a GGUF file");
    head(&b, 3, 0, 0);
    b.n = 20;
    gguf_not(&b, "not a GGUF file");
    head(&b, 4, 0, 0);
    gguf_not(&b, "version of GGUF is 4");
    head(&b, 0x03000000, 0, 0);
    gguf_not(&b, "version of GGUF is");
    head(&b, 3, 0, UINT64_MAX);
    gguf_not(&b, "18446744073709551615 keys");
    head(&b, 3, UINT64_MAX / 4, 0);
    gguf_not(&b, "tensors");
    head(&b, 3, 0, 1);
    data(&b, 64);
    gguf_not(&b, "a key has no name");
}

static void key_of(bytes *b, const char *name, uint32_t type) {
    head(b, 3, 0, 1);
    text(b, name);
    u32(b, type);
}

static void keys_of_gguf(void **state) {
    (void)state;
    bytes b;
    char name[400];
    key_of(&b, "k", 99);
    u64(&b, 0);
    gguf_not(&b, "unknown type 99");
    head(&b, 3, 0, 1);
    u64(&b, 1u << 30);
    data(&b, 64);
    gguf_not(&b, "a key at byte 24 has a length of 1073741824 bytes");
    memset(name, 'k', 300);
    name[300] = '\0';
    key_of(&b, name, 4);
    u64(&b, 0);
    gguf_not(&b, "at most 256");
    key_of(&b, "k", 8);
    u64(&b, 1u << 21);
    data(&b, 64);
    gguf_not(&b, "a text at byte");
    key_of(&b, "k", 8);
    text(&b, "ab");
    b.at[b.n - 1] = '\0';
    gguf_not(&b, "NUL byte");
    key_of(&b, "k", 9);
    u32(&b, 9);
    u64(&b, 1);
    gguf_not(&b, "an array of the unsupported type 9");
    key_of(&b, "k", 9);
    u32(&b, 4);
    u64(&b, UINT64_MAX / 2);
    gguf_not(&b, "more than fit into the file");
    key_of(&b, "k", 9);
    u32(&b, 8);
    u64(&b, 2);
    text(&b, "a");
    u64(&b, 1u << 20 | 1);
    gguf_not(&b, "text 1 of 'k'");
    key_of(&b, "k", 10);
    u32(&b, 1);
    gguf_not(&b, "ends within its head");
    head(&b, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        text(&b, "twice");
        u32(&b, 4);
        u32(&b, 1);
    }
    gguf_not(&b, "'twice' occurs twice");
    for (uint32_t alignment = 0; alignment < 2; alignment++) {
        key_of(&b, "general.alignment", 4);
        u32(&b, alignment ? 33 : 0);
        gguf_not(&b, "not a power of two");
    }
    key_of(&b, "general.alignment", 4);
    u32(&b, 1u << 20);
    gguf_not(&b, "not a power of two");
}

static void tensors_of_gguf(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t dims;
        uint64_t a, b;
        uint32_t type;
        uint64_t at;
        size_t data;
        const char *words;
    } bad[] = {
        {"t", 2, 4, 2, 0, 0, 32, NULL},
        {"t", 0, 4, 2, 0, 0, 32, "0 dimensions"},
        {"t", 5, 4, 2, 0, 0, 32, "5 dimensions"},
        {"t", 2, 0, 2, 0, 0, 32, "size 0 is 0"},
        {"t", 2, UINT64_MAX, 2, 0, 0, 32, "size 0 is"},
        {"t", 2, UINT64_C(1) << 42, UINT64_C(1) << 42, 0, 0, 32, "size 1 is"},
        {"t", 2, UINT64_C(1) << 61, 3, 0, 0, 32, "more bytes than any file"},
        {"t", 2, 4, 2, 39, 0, 32, "ggml's type mxfp4, which is not supported (supported: f32"},
        {"t", 2, 4, 2, 23, 0, 32, "ggml's type iq4_xs, which is not supported (supported: f32"},
        {"t", 2, 4, 2, 12, 0, 32,
         "rows of 4 elements, which is not a multiple of the 256 elements in a block of q4_k"},
        {"t", 2, 4, 2, 99, 0, 32, "ggml's type 99, which is not supported (supported: f32"},
        {"t", 2, 4, 2, UINT32_MAX, 0, 32, "ggml's type 4294967295"},
        {"t", 2, 192, 1, 35, 0, 66,
         "rows of 192 elements, which is not a multiple of the 256 elements in a block of tq2_0"},
        {"t", 2, 4, 2, 0, 32, 64, "begins at byte 32"},
        {"t", 2, 4, 2, 0, UINT64_MAX, 64, "begins at byte"},
        {"t", 2, 4, 2, 0, 0, 31, "beyond the end"},
        {"t", 2, 4, 2, 0, 0, 0, "beyond the end"},
        {"t", 2, 4, 2, 0, 0, 64, "bytes follow its last tensor"},
        {"a234567890123456789012345678901234567890123456789012345678901234", 2, 4, 2, 0, 0, 32,
         "at most 63"},
    };
    bytes b;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        head(&b, 3, 1, 0);
        info(&b, bad[i].name, bad[i].dims, bad[i].a, bad[i].b, bad[i].type, bad[i].at);
        data(&b, bad[i].data);
        gguf_not(&b, bad[i].words);
    }
    head(&b, 3, 2, 0);
    info(&b, "t", 2, 4, 2, 0, 0);
    info(&b, "t", 2, 4, 2, 0, 32);
    data(&b, 64);
    gguf_not(&b, "'t' occurs twice");
    head(&b, 3, 2, 0);
    info(&b, "t", 2, 4, 2, 0, 0);
    info(&b, "u", 2, 4, 2, 0, 16);
    data(&b, 64);
    gguf_not(&b, "overlap or hole");
    head(&b, 3, 1, 0);
    info(&b, "t", 3, 4, 2, 0, 0);
    b.at[24 + 8 + 1 + 4 + 16] = 2; /* the third dimension */
    data(&b, 64);
    gguf_not(&b, "3 dimensions");
}

/* Writes a golden file with other bytes behind a key. */
static void patched(const char *file, const char *key, size_t skip, const char *to, size_t n_to,
                    const char *words) {
    size_t n, k = strlen(key);
    char *s = slurp(golden_path(file), &n), *at = NULL;
    bt_model_file *x = NULL;
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; !at && i + k + skip + n_to <= n; i++)
        if (memcmp(s + i, key, k) == 0) at = s + i;
    if (!at) fail_msg("no '%s' in '%s'", key, file);
    memcpy(at + k + skip, to, n_to);
    bt_code code = bt_model_file_open(&x, fixture_write("p.gguf", s, n), &err);
    if (words)
        says(code, &err, words);
    else if (code != BT_OK)
        fail_msg("%s", err.msg);
    bt_model_file_close(x);
    free(s);
}

static void models_in_gguf(void **state) {
    (void)state;
    static const char l[] = "llama/llama-f32.gguf";
    patched(l, "general.architecture", 12, "mamba", 5,
            "'mamba' is not supported (supported: bitnet");
    patched(l, "general.architecture", 0, "\x08", 1, NULL);
    patched(l, "llama.block_coun", 0, "x", 1, "'llama.block_count' is missing");
    patched(l, "llama.block_count", 4, "\x00\x00\x00\x00", 4, "is 0, but must be 1 to 1024");
    patched(l, "llama.block_count", 4, "\xff\xff\xff\xff", 4, "is 4294967295");
    patched(l, "llama.block_count", 4, "\x03", 1, "9 tensors of the model are missing");
    patched(l, "llama.block_count", 4, "\x01", 1, "does not have 9 tensors of the file: blk.1.");
    patched(l, "llama.embedding_length", 4, "\x40", 1, "320 x 32, but");
    patched(l, "llama.attention.head_count", 4, "\x00", 1, "is 0");
    patched(l, "llama.attention.head_count_k", 0, "x", 1, "is 16 x 32, but");
    patched(l, "llama.attention.layer_norm_rms_epsilo", 0, "x", 1, "is missing");
    patched(l, "llama.attention.layer_norm_rms_epsilon", 4, "\x00\x00\x80\xbf", 4,
            "not a positive number");
    patched(l, "llama.rope.dimension_count", 4, "\x04", 1, "4 rotate");
    patched("bitnet/bitnet-f32.gguf", "hidden_activation", 12, "gelu2", 5, "'gelu2'");
    patched("bitnet/bitnet-f32.gguf", "bitnet.rope.scaling.type", 12, "yarn  ", 6, "'yarn");
}

/* A vocabulary that cannot be used gives a model without one; whoever needs it receives the reason. */
static void vocabularies_in_gguf(void **state) {
    (void)state;
    static const struct {
        const char *key;
        size_t skip;
        const char *to;
        size_t n;
        const char *words;
    } bad[] = {
        {"tokenizer.ggml.mode", 0, "x", 1, "of the kind 'none'"},
        {"tokenizer.ggml.model", 12, "llam", 4, "of the kind 'llam'"},
        {"tokenizer.ggml.pr", 0, "x", 1, "pre-tokeniser 'none'"},
        {"tokenizer.ggml.pre", 12, "weird", 5, "pre-tokeniser 'weird'"},
        {"tokenizer.ggml.token", 0, "x", 1, "'tokenizer.ggml.tokens' is missing"},
        {"tokenizer.ggml.tokens", 25, "\xff", 1, "token 0 is not UTF-8"},
        {"tokenizer.ggml.merges", 4, "\x04", 1, ""},
        {"tokenizer.ggml.token_type", 16, "\x09", 1, "token 0 has the unknown type 9"},
    };
    size_t n;
    char *s = slurp(golden_path("llama/llama-f32.gguf"), &n);
    (void)s;
    free(s);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t k = strlen(bad[i].key);
        char *file = slurp(golden_path("llama/llama-f32.gguf"), &n), *at = NULL;
        bt_model_file *x = NULL;
        bt_err err = BT_ERR_INIT;
        for (size_t p = 0; !at && p + k < n; p++)
            if (memcmp(file + p, bad[i].key, k) == 0) at = file + p;
        assert_non_null(at);
        memcpy(at + k + bad[i].skip, bad[i].to, bad[i].n);
        bt_code code = bt_model_file_open(&x, fixture_write("v.gguf", file, n), &err);
        free(file);
        if (code != BT_OK) continue; /* A damaged array makes the file invalid. */
        assert_null(x->tokenizer);
        says(x->no_tokenizer.code, &x->no_tokenizer, bad[i].words);
        bt_convert_job job = {.to = BT_TO_BITRAIN, .dest = fixture_path("novocab")};
        assert_int_not_equal(bt_convert(x, &job, NULL, NULL, &err), BT_OK);
        assert_non_null(strstr(err.msg, "--tokenizer FILE"));
        bt_model_file_close(x);
    }
}

/* invalid codes, weights that are not numbers, two scales in one tensor */
static void values(void **state) {
    (void)state;
    static const struct {
        const char *file;
        size_t from_end;
        const char *to;
        size_t n;
        const char *words;
    } bad[] = {
        {"llama/llama-f32.gguf", 64, "\x00\x00\xc0\x7f", 4, "contains nan"},
        {"llama/llama-f32.gguf", 64, "\x00\x00\x80\x7f", 4, "contains inf"},
        {"bitnet/hf-packed-bitlinear/model.safetensors", 0, "\xff", 1, "the code 3"},
        {"bitnet/bitnet-f32.gguf", 512, "\x00\x00\x80\x3f\x00\x00\x00\x40", 8,
         "a ternary tensor has one scale"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t n;
        char *s = slurp(golden_path(bad[i].file), &n);
        bt_model_file *x = NULL;
        bt_err err = BT_ERR_INIT;
        bt_stored_list l = {0};
        const char *path;
        if (strstr(bad[i].file, "safetensors")) {
            char command[700];
            snprintf(command, sizeof command, "mkdir -p %s && cp %s %s/", fixture_path("val"),
                     golden_path("bitnet/hf-packed-bitlinear/config.json"), fixture_path("val"));
            assert_int_equal(system(command), 0);
            assert_int_equal(bt_safetensors_read(&l, golden_path(bad[i].file), &err), BT_OK);
            for (size_t k = 0; k < l.n; k++)
                if (l.at[k].number == BT_NUM_PACKED) s[l.at[k].at] = bad[i].to[0];
            bt_stored_release(&l);
            fixture_write("val/model.safetensors", s, n);
            path = fixture_path("val");
        } else {
            memcpy(s + n - bad[i].from_end, bad[i].to, bad[i].n);
            path = fixture_write("val.gguf", s, n);
        }
        free(s);
        assert_int_equal(bt_model_file_open(&x, path, &err), BT_OK);
        float *w = malloc(x->params.total * sizeof *w);
        assert_non_null(w);
        says(bt_model_file_weights(x, w, &err), &err, bad[i].words);
        free(w);
        bt_model_file_close(x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_gguf),        cmocka_unit_test(keys_of_gguf),
        cmocka_unit_test(tensors_of_gguf),      cmocka_unit_test(models_in_gguf),
        cmocka_unit_test(vocabularies_in_gguf), cmocka_unit_test(values),
    };
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
