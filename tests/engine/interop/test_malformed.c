/* test_malformed.c - files from strangers: each kind of damage is refused with its own line, and
 * nothing that is read is believed before it was compared with the size of the file. timeout: 300 */
#include "engine/interop/gguf.h"
#include "engine/interop/hf_config.h"
#include "tests/engine/interop/interop_fixture.h"

static void says(bt_code code, const bt_err *err, const char *words) {
    if (code == BT_OK) fail_msg("accepted, but should say '%s'", words);
    if (!strstr(err->msg, words)) fail_msg("'%s' does not say '%s'", err->msg, words);
    assert_null(strchr(err->msg, '\n'));
}

static char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *s = malloc(1 << 20);
    if (!f) fail_msg("cannot open '%s'", path);
    assert_non_null(s);
    *n = fread(s, 1, 1 << 20, f);
    fclose(f);
    return s;
}

/* ---- safetensors ------------------------------------------------------------------------------- */

/* a file of this header, whose length is said to be `length` (0: what it is), and so many bytes of
 * data */
static bt_code safetensors(const char *header, uint64_t length, size_t data, bt_err *err) {
    char file[8192] = {0};
    const size_t n = strlen(header);
    bt_stored_list l = {0};
    if (!length) length = n;
    for (int i = 0; i < 8; i++) file[i] = (char)(length >> 8 * i);
    memcpy(file + 8, header, n);
    bt_code code = bt_safetensors_read(&l, fixture_write("x.safetensors", file, 8 + n + data), err);
    bt_stored_release(&l);
    return code;
}

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void headers_of_safetensors(void **state) {
    (void)state;
    static const struct {
        const char *header;
        uint64_t length;
        size_t data;
        const char *words;
    } bad[] = {
        {"{" T("a", "F32", "[2]", "[0,8]") "}", 1000, 8, "said to have 1000 bytes"},
        {"{" T("a", "F32", "[2]", "[0,8]") "}", UINT64_MAX, 8, "said to have"},
        {"{" T("a", "F32", "[2]", "[0,8]") "}", 1, 8, "allowed are 2"},
        {" {" T("a", "F32", "[2]", "[0,8]") "}", 0, 8, "does not begin with '{'"},
        {"[1,2]", 0, 8, "does not begin with '{'"},
        {"{" T("a", "F32", "[2e0]", "[0,8]") "}", 0, 8, "plain whole numbers"},
        {"{" T("a", "F32", "[-2]", "[0,8]") "}", 0, 8, "plain whole numbers"},
        {"{" T("a", "F32", "[2.0]", "[0,8]") "}", 0, 8, "plain whole numbers"},
        {"{" T("a", "F32", "[null]", "[0,8]") "}", 0, 8, "plain whole numbers"},
        {"{\"a\":{\"dtype\":\"F32", 0, 8, "plain whole numbers"},
        {"{" T("a", "F32", "[2]", "[0,8]") ",}", 0, 8, "not valid JSON"},
        {"{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[2]", "[0,8]") "}", 0, 8,
         "duplicate"},
        {"{" T("a", "F32", "[2]", "[0,99999999999999999999]") "}", 0, 8, "not valid JSON"},
        {"{}", 0, 8, "holds no tensor"},
        {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0, "holds no tensor"},
        {"{\"__metadata__\":{\"n\":1}," T("a", "F32", "[2]", "[0,8]") "}", 0, 8, "is not a text"},
        {"{\"__metadata__\":[]," T("a", "F32", "[2]", "[0,8]") "}", 0, 8, "is not an object"},
        {"{\"a\":[1]}", 0, 8, "does not have 'dtype'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 0, 8, "does not have 'dtype'"},
        {"{" T("a", "F33", "[2]", "[0,8]") "}", 0, 8, "has the type 'F33'"},
        {"{" T("a", "F32", "2", "[0,8]") "}", 0, 8, "0 dimensions"},
        {"{" T("a", "F32", "[]", "[0,4]") "}", 0, 4, "0 dimensions"},
        {"{" T("a", "F32", "[1,1,2]", "[0,8]") "}", 0, 8, "3 dimensions"},
        {"{" T("a", "F32", "[0]", "[0,0]") "}", 0, 0, "no elements"},
        {"{" T("a", "F32", "[\"2\"]", "[0,8]") "}", 0, 8, "a size of tensor 'a'"},
        {"{" T("a", "F32", "[2]", "[8,0]") "}", 0, 8, "said to lie at bytes 8..0"},
        {"{" T("a", "F32", "[2]", "[0,12]") "}", 0, 8, "said to lie at bytes 0..12"},
        {"{" T("a", "F32", "[3]", "[0,8]") "}", 0, 8, "(1 x 3, F32) lies in 8 bytes"},
        {"{" T("a", "F32", "[4611686018427387904,4]", "[0,8]") "}", 0, 8, "lies in 8 bytes"},
        {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[1]", "[4,8]") "}", 0, 8,
         "overlaps the one before it"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[8,12]") "}", 0, 12,
         "leaves a hole"},
        {"{" T("a", "F32", "[1]", "[4,8]") "}", 0, 8, "leaves a hole"},
        {"{" T("a", "F32", "[2]", "[0,8]") "}", 0, 9, "end at byte"},
    };
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (bt_err)BT_ERR_INIT;
        says(safetensors(bad[i].header, bad[i].length, bad[i].data, &err), &err, bad[i].words);
    }
    assert_int_equal(safetensors("{" T("a", "F32", "[2]", "[0,8]") "}  ", 0, 8, &err), BT_OK);
    char deep[400] = "{\"a\":";
    for (int i = 0; i < 100; i++) strcat(deep, "[");
    says(safetensors(deep, 0, 0, &err), &err, "nested deeper");
    char name[300];
    memset(name, 'n', sizeof name);
    snprintf(name + 120, 100, "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
    name[0] = '{';
    name[1] = '"';
    says(safetensors(name, 0, 4, &err), &err, "is longer than");
}

static void write_folder(const char *folder, const char *index) {
    char command[900], path[100];
    snprintf(command, sizeof command, "mkdir -p %s && cp %s/* %s", fixture_path(folder),
             golden_path("llama/hf"), fixture_path(folder));
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%.40s/model.safetensors.index.json", folder);
    if (index) fixture_text(path, index);
}

static void opens_not(const char *folder, const char *words) {
    bt_model_file *s = NULL;
    bt_err err = BT_ERR_INIT;
    says(bt_model_file_open(&s, fixture_path(folder), &err), &err, words);
    assert_null(s);
}

static void shards_and_their_index(void **state) {
    (void)state;
    size_t n;
    write_folder("s1", "{\"weight_map\":{\"a\":\"../x.safetensors\"}}");
    opens_not("s1", "lie in no file of the folder");
    write_folder("s2", "{\"weight_map\":{}}");
    opens_not("s2", "no 'weight_map'");
    write_folder("s3", "{\"weight_map\":");
    opens_not("s3", "not valid JSON");
    write_folder("s4", "{\"weight_map\":{\"a\":\"model-00001-of-00003.safetensors\"}}");
    opens_not("s4", "not where the index says");
    write_folder("s5", "{\"weight_map\":{\"a\":\"model-00009-of-00009.safetensors\"}}");
    opens_not("s5", "cannot open");
    write_folder("s6", NULL);
    unlink(fixture_path("s6/model-00002-of-00003.safetensors"));
    opens_not("s6", "model-00002-of-00003.safetensors");
    char *index = slurp(golden_path("llama/hf/model.safetensors.index.json"), &n), *map;
    index[n] = '\0';
    map = strstr(index, "\"weight_map\": {");
    assert_non_null(map);
    bt_text more = {0};
    bt_text_putn(&more, index, (size_t)(map - index) + 15);
    bt_text_put(&more, "\"ghost\": \"model-00001-of-00003.safetensors\", ");
    bt_text_put(&more, map + 15);
    write_folder("s7", bt_text_str(&more));
    opens_not("s7", "'ghost' of the index is not in");
    bt_text_release(&more);
    free(index);
    write_folder("s8", NULL);
    unlink(fixture_path("s8/model.safetensors.index.json"));
    opens_not("s8", "has neither");
}

/* ---- config.json -------------------------------------------------------------------------------- */

static char *with(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    if (!at) fail_msg("no '%s'", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static void configurations(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *words;
    } bad[] = {
        {"\"LlamaForCausalLM\"", "\"MambaForCausalLM\"",
         "'MambaForCausalLM' is not known here (known: BitNetForCausalLM, LlamaForCausalLM, "
         "Qwen3ForCausalLM)"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": \"2\"", "'num_hidden_layers' is not"},
        {"\"num_hidden_layers\": 2", "\"n\": 2", "'num_hidden_layers' is missing"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": -1", "is -1; 1 to 1024"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 100000", "is 100000"},
        {"\"hidden_size\": 32", "\"hidden_size\": 9223372036854775807", "is 9223372036854775807"},
        {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "must divide"},
        {"\"head_dim\": 8", "\"head_dim\": 7", "must be even"},
        {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "'gelu' is not computed here"},
        {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", "not a positive number"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"llama3\"", "by the method 'llama3'"},
        {"\"attention_bias\": false", "\"attention_bias\": true", "'attention_bias' is true"},
        {"\"mlp_bias\": false", "\"mlp_bias\": true", "'mlp_bias' is true"},
        {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 1", "not true or false"},
        {"\"use_cache\": true", "\"quantization_config\": {\"quant_method\": \"gptq\"}",
         "method 'gptq'"},
        {"\"use_cache\": true",
         "\"quantization_config\": {\"quant_method\": \"bitnet\", \"use_rms_norm\": true}",
         "'use_rms_norm' is true"},
        {"\"use_cache\": true",
         "\"quantization_config\": {\"quant_method\": \"bitnet\", \"linear_class\": \"x\"}",
         "'linear_class' is 'x'"},
        {"\"use_cache\": true", "\"use_cache\": true, \"use_cache\": false", "duplicate"},
        {"\"use_cache\": true", "\"layer_types\": [\"sliding_attention\"]",
         "of the kind 'sliding_attention'"},
        {"{", "[", "not valid JSON"},
    };
    size_t n;
    char *good = slurp(golden_path("llama/hf/config.json"), &n);
    good[n] = '\0';
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bt_hf_config c;
        bt_err err = BT_ERR_INIT;
        char *text = with(good, bad[i].from, bad[i].to);
        const char *path = fixture_text("config.json", text);
        says(bt_hf_config_read(&c, path, NULL, &err), &err, bad[i].words);
        free(text);
    }
    free(good);
}

/* a file whose tensors are those of another shape, or of another kind */
static void tensors_that_do_not_fit(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *words;
    } bad[] = {
        {"\"intermediate_size\": 64", "\"intermediate_size\": 96", "is 64 x 32, but the model's"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
         "9 tensors of the model are missing"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "has no place: model.layers.1."},
        {"\"vocab_size\": 320", "\"vocab_size\": 321", "320 x 32, but"},
        {"\"vocab_size\": 320", "\"vocab_size\": 256", "320 x 32, but"},
        {"\"use_cache\": true",
         "\"quantization_config\": {\"quant_method\": \"bitnet\", \"linear_class\": "
         "\"bitlinear\"}",
         "not packed"},
    };
    size_t n;
    char *good = slurp(golden_path("llama/hf/config.json"), &n);
    good[n] = '\0';
    write_folder("fit", NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text = with(good, bad[i].from, bad[i].to);
        fixture_text("fit/config.json", text);
        opens_not("fit", bad[i].words);
        free(text);
    }
    free(good);
}

/* ---- GGUF --------------------------------------------------------------------------------------- */

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
/* zeros up to the data, and so many of them */
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
    gguf_not(&b, "no GGUF file");
    head(&b, 3, 0, 0);
    b.n = 20;
    gguf_not(&b, "no GGUF file");
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
    gguf_not(&b, "a key without a name");
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
    gguf_not(&b, "a key at byte 24 is said to have 1073741824 bytes");
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
    gguf_not(&b, "an array of the type 9");
    key_of(&b, "k", 9);
    u32(&b, 4);
    u64(&b, UINT64_MAX / 2);
    gguf_not(&b, "more than the file has bytes for");
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
    gguf_not(&b, "'twice' is there twice");
    for (uint32_t alignment = 0; alignment < 2; alignment++) {
        key_of(&b, "general.alignment", 4);
        u32(&b, alignment ? 33 : 0);
        gguf_not(&b, "no power of two");
    }
    key_of(&b, "general.alignment", 4);
    u32(&b, 1u << 20);
    gguf_not(&b, "no power of two");
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
        {"t", 2, 4, 2, 36, 0, 32, "ggml's type 36"},
        {"t", 2, 4, 2, 12, 0, 32, "ggml's type 12 (read are f32"},
        {"t", 2, 4, 2, UINT32_MAX, 0, 32, "ggml's type 4294967295"},
        {"t", 2, 192, 1, 35, 0, 66, "rows of 192 elements, no multiple of the 256 that tq2_0"},
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
    gguf_not(&b, "'t' is there twice");
    head(&b, 3, 2, 0);
    info(&b, "t", 2, 4, 2, 0, 0);
    info(&b, "u", 2, 4, 2, 0, 16);
    data(&b, 64);
    gguf_not(&b, "overlap or hole");
    head(&b, 3, 1, 0);
    info(&b, "t", 3, 4, 2, 0, 0);
    b.at[24 + 8 + 1 + 4 + 16] = 2; /* the third size */
    data(&b, 64);
    gguf_not(&b, "3 dimensions");
}

/* a golden file in which the bytes behind a key are others */
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
    patched(l, "general.architecture", 12, "mamba", 5, "'mamba' is not known here (known: bitnet");
    patched(l, "general.architecture", 0, "\x08", 1, NULL);
    patched(l, "llama.block_coun", 0, "x", 1, "'llama.block_count' is missing");
    patched(l, "llama.block_count", 4, "\x00\x00\x00\x00", 4, "is 0; 1 to 1024");
    patched(l, "llama.block_count", 4, "\xff\xff\xff\xff", 4, "is 4294967295");
    patched(l, "llama.block_count", 4, "\x03", 1, "9 tensors of the model are missing");
    patched(l, "llama.block_count", 4, "\x01", 1, "no place: blk.1.");
    patched(l, "llama.embedding_length", 4, "\x40", 1, "320 x 32, but");
    patched(l, "llama.attention.head_count", 4, "\x00", 1, "is 0");
    patched(l, "llama.attention.head_count_k", 0, "x", 1, "is 16 x 32, but");
    patched(l, "llama.attention.layer_norm_rms_epsilo", 0, "x", 1, "is missing");
    patched(l, "llama.attention.layer_norm_rms_epsilon", 4, "\x00\x00\x80\xbf", 4,
            "not a positive number");
    patched(l, "llama.rope.dimension_count", 4, "\x04", 1, "rotated 4");
    patched("bitnet/bitnet-f32.gguf", "hidden_activation", 12, "gelu2", 5, "'gelu2'");
    patched("bitnet/bitnet-f32.gguf", "bitnet.rope.scaling.type", 12, "yarn  ", 6, "'yarn");
}

/* a vocabulary that cannot be used leaves a model without one, and says why to who needs it */
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
        {"tokenizer.ggml.token_type", 16, "\x09", 1, "token 0 has the type 9"},
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
        if (code != BT_OK) continue; /* the array's own damage is the file's */
        assert_null(x->tokenizer);
        says(x->no_tokenizer.code, &x->no_tokenizer, bad[i].words);
        bt_convert_job job = {.to = BT_TO_BITRAIN, .dest = fixture_path("novocab")};
        assert_int_not_equal(bt_convert(x, &job, NULL, NULL, &err), BT_OK);
        assert_non_null(strstr(err.msg, "--tokenizer FILE"));
        bt_model_file_close(x);
    }
}

/* codes that stand for nothing, weights that are no numbers, two scales in one tensor */
static void values(void **state) {
    (void)state;
    static const struct {
        const char *file;
        size_t from_end;
        const char *to;
        size_t n;
        const char *words;
    } bad[] = {
        {"llama/llama-f32.gguf", 64, "\x00\x00\xc0\x7f", 4, "holds nan"},
        {"llama/llama-f32.gguf", 64, "\x00\x00\x80\x7f", 4, "holds inf"},
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

/* ---- any damage --------------------------------------------------------------------------------- */

/* a file that ends anywhere is refused, or read with an error; a file in which bits of the head are
 * others never leads astray */
static void try_file(const char *s, size_t n) {
    bt_model_file *x = NULL;
    bt_err err = BT_ERR_INIT;
    bt_code code = bt_model_file_open(&x, fixture_write("d.gguf", s, n), &err);
    if (code == BT_OK && x->params.total < 1 << 20) {
        float *w = malloc(x->params.total * sizeof *w);
        assert_non_null(w);
        code = bt_model_file_weights(x, w, &err);
        free(w);
    }
    if (code != BT_OK) assert_true(err.msg[0] != '\0');
    bt_model_file_close(x);
}

static void cut_and_flipped(void **state) {
    (void)state;
    static const char *const files[] = {"llama/llama-q8_0.gguf", "bitnet/bitnet-f16.gguf"};
    for (size_t f = 0; f < 2; f++) {
        size_t n;
        char *s = slurp(golden_path(files[f]), &n);
        bt_model_file *x = NULL;
        bt_err err;
        uint32_t r = 5;
        for (size_t k = 0; k < n; k += k < 700 ? 1 : 997) {
            err = (bt_err)BT_ERR_INIT;
            assert_int_not_equal(bt_model_file_open(&x, fixture_write("c.gguf", s, k), &err),
                                 BT_OK);
            assert_true(err.msg[0] != '\0');
        }
        for (int i = 0; i < 1500; i++) {
            r = r * 1664525u + 1013904223u;
            const size_t at = (r >> 8) % (i % 2 ? 2000 : 14000);
            const char old = s[at];
            s[at] = (char)(old ^ (1 << (r >> 5) % 8));
            try_file(s, n);
            s[at] = old;
        }
        free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_of_safetensors), cmocka_unit_test(shards_and_their_index),
        cmocka_unit_test(configurations),         cmocka_unit_test(tensors_that_do_not_fit),
        cmocka_unit_test(heads_of_gguf),          cmocka_unit_test(keys_of_gguf),
        cmocka_unit_test(tensors_of_gguf),        cmocka_unit_test(models_in_gguf),
        cmocka_unit_test(vocabularies_in_gguf),   cmocka_unit_test(values),
        cmocka_unit_test(cut_and_flipped),
    };
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
