/* test_tokenizer.c - decode(encode(x)) == x for any bytes, equality with a naive encoder and with Hugging Face's,
 * malformed files. */
#include "tests/engine/data/data_fixture.h"

#include "engine/data/io/documents.h"
#include "engine/data/io/file_io.h"
#include "engine/data/tokenizer/pretok.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/tokenizer_impl.h"
#include "tests/engine/data/hf_golden.h"

static bt_tokenizer *trained; /* trained on prose, 600 tokens */

static int setup(void **state) {
    if (fixture_setup(state)) return -1;
    char *text = fixture_prose(60000);
    bt_tok_train_cfg cfg = {
        .paths = fixture_text("prose.txt", text), .field = "text", .cache_dir = "", .vocab = 300};
    free(text);
    return bt_tokenizer_train(&trained, &cfg, NULL) == BT_OK ? 0 : -1;
}

static int teardown(void **state) {
    bt_tokenizer_free(trained);
    return fixture_teardown(state);
}

static uint32_t next_random_below(uint32_t *x) {
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

static size_t encode_text(const bt_tokenizer *t, const char *s, size_t n, int32_t **ids) {
    size_t count, cap = 0;
    bt_err err;
    *ids = NULL;
    if (bt_tokenizer_encode(t, s, n, ids, &count, &cap, &err) != BT_OK) fail_msg("%s", err.msg);
    return count;
}

static void check_round_trip(const bt_tokenizer *t, const char *s, size_t n) {
    int32_t *ids;
    bt_text back = {0};
    size_t count = encode_text(t, s, n, &ids);
    for (size_t i = 0; i < count; i++) assert_in_range(ids[i], 0, bt_tokenizer_vocab(t) - 1);
    bt_tokenizer_decode(t, ids, count, &back);
    assert_int_equal(back.len, n);
    if (n) assert_memory_equal(back.data, s, n);
    bt_text_release(&back);
    free(ids);
}

/* Makes random text of many kinds, some of it not UTF-8. */
static size_t make_wild_text(uint32_t *x, char *s, size_t max) {
    static const char *const bits[] = {"the ",
                                       "light",
                                       "\n",
                                       "\r\n",
                                       "  ",
                                       "'s",
                                       "'LL",
                                       "123",
                                       "é",
                                       "世界",
                                       "😁",
                                       "\xe2\x80\x83",
                                       "\xc2\xa0",
                                       "\xe1\xa0\x8e",
                                       "\xff",
                                       "\xc3",
                                       "\xe2\x82",
                                       "\xed\xa0\x80",
                                       "\xf4\x90\x80\x80",
                                       "e\xcc\x81",
                                       "-----",
                                       "<|endoftext|>",
                                       "\t",
                                       "Ġ"};
    size_t n = 0, want = next_random_below(x) % max;
    while (n < want) {
        uint32_t kind = next_random_below(x) % 28;
        const char *bit = kind < 24 ? bits[kind] : "";
        size_t k = strlen(bit);
        if (kind >= 24) {
            s[n++] = (char)next_random_below(x);
            continue;
        }
        uint32_t repeat = next_random_below(x) % 40 == 0 ? 1 + next_random_below(x) % 60 : 1;
        for (; repeat && n + k <= max; repeat--, n += k) memcpy(s + n, bit, k);
        if (repeat) break;
    }
    return n;
}

static void any_bytes_are_restored(void **state) {
    (void)state;
    bt_tokenizer *bytes, *gpt2, *llama3;
    char s[4096], path[300];
    assert_int_equal(bt_tokenizer_load(&bytes, "bytes", NULL), BT_OK);
    snprintf(path, sizeof path, "%s/tests/engine/data/hf_gpt2.json",
             getenv("BT_SRC") ? getenv("BT_SRC") : ".");
    assert_int_equal(bt_tokenizer_import(&gpt2, path, NULL), BT_OK);
    snprintf(path, sizeof path, "%s/tests/engine/data/hf_llama3.json",
             getenv("BT_SRC") ? getenv("BT_SRC") : ".");
    assert_int_equal(bt_tokenizer_import(&llama3, path, NULL), BT_OK);
    const bt_tokenizer *all[] = {bytes, trained, gpt2, llama3};
    uint32_t x = 20260101;
    for (int i = 0; i < 1500; i++) {
        size_t n = make_wild_text(&x, s, i < 1000 ? 200 : sizeof s);
        check_round_trip(all[i % 4], s, n);
    }
    for (int c = 0; c < 256; c++)
        for (int t = 0; t < 4; t++) check_round_trip(all[t], &(char){(char)c}, 1);
    bt_tokenizer_free(bytes);
    bt_tokenizer_free(gpt2);
    bt_tokenizer_free(llama3);
}

/* The definition: within each word, join the leftmost pair with the lowest rank until no pair has a rank. */
static size_t encode_naively(const bt_tokenizer *t, bt_pretok *p, const char *s, size_t n,
                             int32_t *ids) {
    size_t total = 0;
    for (size_t at = 0, end; at < n; at = end) {
        int32_t *w = ids + total;
        size_t k = 0;
        assert_int_equal(bt_pretok_next(p, s, n, at, &end, NULL), BT_OK);
        for (size_t i = at; i < end; i++) w[k++] = t->byte_id[(unsigned char)s[i]];
        for (;;) {
            size_t best = t->n_merges, where = 0;
            for (size_t i = 0; i + 1 < k; i++)
                for (size_t r = 0; r < best; r++)
                    if (t->merges[r].left == w[i] && t->merges[r].right == w[i + 1]) {
                        best = r;
                        where = i;
                    }
            if (best == t->n_merges) break;
            w[where] = t->merges[best].id;
            k--;
            memmove(w + where + 1, w + where + 2, (k - where - 1) * sizeof *w);
        }
        total += k;
    }
    return total;
}

static void encoder_equals_the_definition(void **state) {
    (void)state;
    bt_pretok *p;
    char s[400];
    int32_t want[400], *ids;
    uint32_t x = 5;
    assert_int_equal(bt_pretok_create(&p, BT_PATTERN_GPT2, NULL, NULL), BT_OK);
    for (int i = 0; i < 300; i++) {
        size_t n = make_wild_text(&x, s, sizeof s);
        if (i % 3 == 0) /* long words need heap memory */
            for (n = 0; n < 300; n++) s[n] = "aethdrnsw"[next_random_below(&x) % 9];
        size_t k = encode_naively(trained, p, s, n, want), count = encode_text(trained, s, n, &ids);
        assert_int_equal(count, k);
        if (k) assert_memory_equal(ids, want, k * sizeof *ids);
        free(ids);
    }
    bt_pretok_destroy(p);
}

static void equals_hugging_face(void **state) {
    (void)state;
#define CHECK(name) \
    do { \
        char path[300]; \
        bt_tokenizer *t, *again; \
        bt_err err; \
        bt_text json = {0}; \
        snprintf(path, sizeof path, "%s/tests/engine/data/hf_" #name ".json", \
                 getenv("BT_SRC") ? getenv("BT_SRC") : "."); \
        if (bt_tokenizer_import(&t, path, &err) != BT_OK) fail_msg("%s", err.msg); \
        assert_in_range(bt_tokenizer_vocab(t), 450, 502); \
        assert_int_equal(bt_tokenizer_eot(t), bt_tokenizer_vocab(t) - 1); \
        bt_tokenizer_save(t, &json); \
        if (bt_tokenizer_parse(&again, json.data, json.len, &err) != BT_OK) \
            fail_msg("%s", err.msg); \
        assert_true(bt_tokenizer_hash(t) == bt_tokenizer_hash(again)); \
        for (size_t i = 0; i < sizeof golden_texts / sizeof *golden_texts; i++) { \
            int32_t *ids; \
            size_t count = encode_text(i % 2 ? t : again, golden_texts[i], \
                                       strlen(golden_texts[i]), &ids); \
            if ((int)count != golden_##name[i].n) \
                fail_msg(#name " text %zu: %zu ids, should be %d", i, count, golden_##name[i].n); \
            for (size_t k = 0; k < count; k++) \
                if (ids[k] != golden_##name[i].ids[k]) \
                    fail_msg(#name " text %zu: id %zu is %d, should be %d", i, k, ids[k], \
                             golden_##name[i].ids[k]); \
            free(ids); \
        } \
        bt_text_release(&json); \
        bt_tokenizer_free(t); \
        bt_tokenizer_free(again); \
    } while (0)
    CHECK(gpt2);
    CHECK(llama3);
    CHECK(qwen2);
}

/* Text that bt_text_cut divides into pieces gives the ids of the whole text, with each pattern. */
static void pieces_of_a_text_have_its_tokens(void **state) {
    (void)state;
    static const char *const names[] = {"gpt2", "llama3", "qwen2"};
    char s[3000], path[300];
    uint32_t x = 9;
    for (int which = 0; which < 3; which++) {
        bt_tokenizer *t;
        snprintf(path, sizeof path, "%s/tests/engine/data/hf_%s.json",
                 getenv("BT_SRC") ? getenv("BT_SRC") : ".", names[which]);
        assert_int_equal(bt_tokenizer_import(&t, path, NULL), BT_OK);
        int cuts = 0;
        for (int i = 0; i < 1000; i++) {
            int32_t *all, *left, *right;
            size_t n = make_wild_text(&x, s, sizeof s), limit = n ? next_random_below(&x) % n : 0,
                   cut = bt_text_cut(s, limit);
            if (cut == limit || cut == 0) continue;
            cuts++;
            size_t a = encode_text(t, s, n, &all), l = encode_text(t, s, cut, &left),
                   r = encode_text(t, s + cut, n - cut, &right);
            assert_int_equal(a, l + r);
            assert_memory_equal(all, left, l * sizeof *all);
            assert_memory_equal(all + l, right, r * sizeof *all);
            free(all);
            free(left);
            free(right);
        }
        assert_true(cuts > 500);
        bt_tokenizer_free(t);
    }
}

static bool learns_the_same(const bt_tok_train_cfg *cfg, const bt_tokenizer *other) {
    bt_tokenizer *t;
    assert_int_equal(bt_tokenizer_train(&t, cfg, NULL), BT_OK);
    const bool same = bt_tokenizer_hash(t) == bt_tokenizer_hash(other);
    bt_tokenizer_free(t);
    return same;
}

static void training_is_a_function_of_the_text(void **state) {
    (void)state;
    bt_tokenizer *t;
    char *text = fixture_prose(60000);
    char two[600];
    bt_tok_train_cfg cfg = {
        .paths = fixture_text("prose.txt", text), .field = "text", .cache_dir = "", .vocab = 300};
    free(text);
    assert_true(learns_the_same(&cfg, trained));
    assert_int_equal(bt_tokenizer_vocab(trained), 300);
    /* Training on the text twice gives the same merges. */
    snprintf(two, sizeof two, "%s\n%s", fixture_path("prose.txt"), fixture_path("prose.txt"));
    cfg.paths = two;
    assert_true(learns_the_same(&cfg, trained));
    /* Computed by hand: "ab" occurs 4 times and "bc" 3 times, so "ab" is first, then "abc". Of equal counts the smaller
     * left id is first (x y and y z: both twice). */
    cfg = (bt_tok_train_cfg){.paths = fixture_text("hand.txt", "abc abc abc ab xyz xyz"),
                             .field = "text",
                             .cache_dir = "",
                             .vocab = 262};
    assert_int_equal(bt_tokenizer_train(&t, &cfg, NULL), BT_OK);
    const bt_merge *m = t->merges;
    assert_int_equal(m[0].left, 'a'); /* a b: 4 */
    assert_int_equal(m[0].right, 'b');
    assert_int_equal(m[1].left, ' '); /* ' ' ab: 3 against ab c: 3 */
    assert_int_equal(m[1].right, 257);
    size_t n;
    /* ' ' x, x y, y z, " ab" c: 2 each; the smallest left id is first */
    assert_int_equal(m[2].left, ' ');
    assert_int_equal(m[2].right, 'x');
    assert_int_equal(bt_tokenizer_bytes(t, 257, &n)[0], 'a');
    assert_int_equal(n, 2);
    bt_tokenizer_free(t);
}

/* The held-out part of each file is not read, so changing it changes no merge. It is at the end, or inside. */
static void training_does_not_read_held_out_text(void **state) {
    (void)state;
    bt_tokenizer *alone;
    char both[600];
    char *text = fixture_prose(4000), *twice = malloc(2 * strlen(text) + 1);
    assert_non_null(twice);
    for (size_t i = 0; i < 2; i++) memcpy(twice + i * strlen(text), text, strlen(text) + 1);
    for (size_t i = strlen(text); twice[i]; i++) twice[i] = (char)(i % 2 ? 'Q' : 'Z');
    fixture_text("first.txt", text);
    fixture_text("second.txt", "the the the that is there these");
    snprintf(both, sizeof both, "%s\n%s", fixture_path("first.txt"), fixture_path("second.txt"));
    bt_tok_train_cfg cfg = {.paths = both, .field = "text", .cache_dir = "", .vocab = 280};
    assert_int_equal(bt_tokenizer_train(&alone, &cfg, NULL), BT_OK);
    fixture_text("first.txt", twice);
    fixture_text("second.txt", "the the the that is there theseQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQ");
    cfg.held_out = (bt_held_out){0.5, 1};
    assert_true(learns_the_same(&cfg, alone));
    const size_t n = strlen(text);
    for (size_t i = n / 2; i < n + n / 2; i++) twice[i] = (char)(i % 2 ? 'Q' : 'Z');
    memcpy(twice + n + n / 2, text + n / 2, n - n / 2);
    fixture_text("first.txt", twice);
    fixture_text("second.txt", "the the the thaQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZt is there these");
    cfg.held_out = (bt_held_out){0.25, 0.75};
    assert_true(learns_the_same(&cfg, alone));
    cfg.held_out = (bt_held_out){0, 0};
    assert_false(learns_the_same(&cfg, alone));
    bt_tokenizer_free(alone);
    free(text);
    free(twice);
}

static void training_refuses(void **state) {
    (void)state;
    bt_tokenizer *t;
    bt_err err;
    bt_tok_train_cfg cfg = {
        .paths = fixture_text("tiny.txt", "ab"), .field = "text", .cache_dir = "", .vocab = 256};
    assert_int_equal(bt_tokenizer_train(&t, &cfg, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "257 to 1048576"));
    cfg.vocab = 400;
    assert_int_equal(bt_tokenizer_train(&t, &cfg, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "only 258 tokens"));
    cfg.paths = fixture_text("none.txt", "");
    assert_int_equal(bt_tokenizer_train(&t, &cfg, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "no text"));
    cfg.paths = "synth:chain";
    assert_int_equal(bt_tokenizer_train(&t, &cfg, &err), BT_ARG);
    assert_null(t);
}

static char *with_replaced_text(const char *json, const char *from, const char *to) {
    const char *at = strstr(json, from);
    if (!at) fail_msg("no '%s' in the file", from);
    char *s = malloc(strlen(json) + strlen(to) + 1);
    sprintf(s, "%.*s%s%s", (int)(at - json), json, to, at + strlen(from));
    return s;
}

static void check_refused_file(const char *json, size_t n, const char *words) {
    bt_tokenizer *t;
    bt_err err = BT_ERR_INIT;
    bt_code code = bt_tokenizer_parse(&t, json, n, &err);
    if (code != BT_FORMAT || !strstr(err.msg, words))
        fail_msg("code %d: %s (wanted '%s')", code, err.msg, words);
    assert_null(t);
}

static void own_files_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *words;
    } changes[] = {
        {"bitrain-tokenizer", "other", "neither a bitrain tokenizer"},
        {"\"version\":1", "\"version\":5", "not 1, 2, 3 or 4"},
        {"\"kind\":\"bpe\"", "\"kind\":\"spm\"", "the kind 'spm'"},
        {"\"pattern\":\"gpt2\"", "\"pattern\":\"(a+)+\"", "the pattern '(a+)+'"},
        {"\"pattern\":\"gpt2\",", "", "'pattern' is missing"},
        {"\"pattern\":\"gpt2\"", "\"pattern\":\"qwen2\"", "its hash is"},
        {"\"normalizer\":\"none\"", "\"normalizer\":\"nfkc\"", "the normalizer 'nfkc'"},
        {"\"normalizer\":\"none\"", "\"normalizer\":\"nfc\"", "its hash is"},
        {"\"ignore_merges\":false", "\"ignore_merges\":0", "not true or false"},
        {"\"ignore_merges\":false", "\"ignore_merges\":true", "its hash is"},
        {"\"eot\":256", "\"eot\":257", "not a special token"},
        {"\"eot\":256", "\"eot\":-2", "not a token id"},
        {"\"eot\":256", "\"eot\":2.5", "not a token id"},
        {"\"eot\":256", "\"eot\":256,\"eot\":256", "duplicate"},
        {"\"eot\":256", "\"eot\":256,\"more\":1", "key 'more'"},
        {"\"hash\":\"", "\"hash\":\"0", "its hash is"},
        {"\"hash\":", "\"nohash\":", "key 'nohash'"},
        {"\"tokens\":[", "\"tokens\":[[],", "token 0 is neither"},
        {"\"tokens\":[", "\"tokens\":[7,", "token 0 is neither"},
        {"\"tokens\":[", "\"tokens\":[\"\",", "token 0 is empty"},
        {"\"tokens\":[", "\"tokens\":[\"a b\",", "outside the byte alphabet"},
        {"\"!\"", "\"\xff\"", "not valid JSON"},
        {"\"!\"", "null", "byte 0x21"},
        {"\"!\"", "{\"special\":\"!\"}", "byte 0x21"},
        {"<|endoftext|>", "<|other|>", "its hash is"},
        {"\"merges\":[", "\"merges\":[[1,2],", "no token"},
        {"\"merges\":[", "\"merges\":[[1,999999],", "is outside the vocabulary"},
        {"\"merges\":[", "\"merges\":[[-1,5],", "is outside the vocabulary"},
        {"\"merges\":[", "\"merges\":[[1,18446744073709551615],", "not valid JSON"},
        {"\"merges\":[", "\"merges\":[[256,1],", "not an ordinary token"},
        {"\"merges\":[", "\"merges\":[[1,2,3],", "not a pair"},
        {"\"merges\":[", "\"merges\":[\"a b\",", "not a pair"},
        {"\"merges\":[", "\"merges\":[[1.5,2],", "not a pair"},
    };
    bt_text json = {0};
    bt_tokenizer_save(trained, &json);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *bad = with_replaced_text(json.data, changes[i].from, changes[i].to);
        check_refused_file(bad, strlen(bad), changes[i].words);
        free(bad);
    }
    char *shifted = with_replaced_text(json.data, "\"eot\":256", "\"eot\":258"),
         *same = with_replaced_text(shifted, "\"tokens\":[", "\"tokens\":[\"qqqq\",\"qqqq\",");
    check_refused_file(same, strlen(same), "tokens 0 and 1 have the same bytes");
    free(shifted);
    free(same);
    /* the first merge twice */
    const char *merges = strstr(json.data, "\"merges\":[") + 10;
    char twice[4096];
    snprintf(twice, sizeof twice, "\"merges\":[%.*s,", (int)(strchr(merges, ']') - merges + 1),
             merges);
    char *bad = with_replaced_text(json.data, "\"merges\":[", twice);
    check_refused_file(bad, strlen(bad), "twice");
    free(bad);
    for (size_t n = 0; n + 1 < json.len; n += n < 400 ? 1 : 61)
        if (json.data[n] != '\n' || n + 2 < json.len) check_refused_file(json.data, n, "");
    check_refused_file("[]", 2, "the JSON is not an object");
    check_refused_file("{\"model\":{}}", 12, "tokenizer import");
    char deep[400];
    memset(deep, '[', sizeof deep);
    check_refused_file(deep, sizeof deep, "nested more than 64");
    bt_text_release(&json);
}

/* A changed byte is refused, unless it is white space. */
static void flipped_bytes_of_a_file(void **state) {
    (void)state;
    bt_text json = {0};
    bt_tokenizer_save(trained, &json);
    uint32_t x = 77;
    for (int i = 0; i < 3000; i++) {
        size_t at = next_random_below(&x) % json.len;
        char old = json.data[at];
        bt_tokenizer *t;
        json.data[at] = (char)(old ^ (1 << next_random_below(&x) % 8));
        if (bt_tokenizer_parse(&t, json.data, json.len, NULL) == BT_OK)
            assert_true(bt_tokenizer_hash(t) == bt_tokenizer_hash(trained));
        bt_tokenizer_free(t);
        json.data[at] = old;
    }
    bt_text_release(&json);
}

static void import_refuses(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *words;
        bt_code code;
    } changes[] = {
        {"\"type\":\"BPE\"", "\"type\":\"WordPiece\"", "model is 'WordPiece', but only BPE",
         BT_UNSUPPORTED},
        {"\"type\":\"Split\"", "\"type\":\"Punctuation\"", "the step 'Punctuation'",
         BT_UNSUPPORTED},
        {"\"Isolated\"", "\"Removed\"", "than 'Isolated'", BT_UNSUPPORTED},
        {"{1,3}", "{1,4}+", "a repetition '}+'", BT_UNSUPPORTED},
        {"{1,3}", "{0,3}", "can match an empty text", BT_UNSUPPORTED},
        {"\\\\p{N}{1,3}", "\\\\w+", "has \\w, which is not supported", BT_UNSUPPORTED},
        {"\\\\p{N}{1,3}", "(", "not a regular expression", BT_UNSUPPORTED},
        {"\\\\p{N}{1,3}", "(?>a)", "a group of another kind", BT_UNSUPPORTED},
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}",
         "is 'Lowercase', but only NFC", BT_UNSUPPORTED},
        {"\"add_prefix_space\":false", "\"add_prefix_space\":true", "add_prefix_space",
         BT_UNSUPPORTED},
        {"\"dropout\":null", "\"dropout\":0.1", "dropout", BT_UNSUPPORTED},
        {"\"byte_fallback\":false", "\"byte_fallback\":true", "byte_fallback", BT_UNSUPPORTED},
        {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "prefix or suffix",
         BT_UNSUPPORTED},
        {"\"vocab\":{", "\"vocab\":{\"\u2581the\":600,", "not in the byte alphabet",
         BT_UNSUPPORTED},
        {"\"vocab\":{", "\"vocab\":{\"zzzz\":3,", "have the id 3", BT_FORMAT},
        {"\"vocab\":{", "\"vocab\":{\"zzzz\":-3,", "id -3", BT_FORMAT},
        {"\"vocab\":{", "\"vocab\":{\"zzzz\":1048576,", "id 1048576", BT_FORMAT},
        {"\"vocab\":{", "\"vocab\":{\"zzzz\":\"1\",", "not a whole number", BT_FORMAT},
        {"\"merges\":[", "\"merges\":[\"a\",", "not a pair", BT_FORMAT},
        {"\"merges\":[", "\"merges\":[\"a b c\",", "not a pair", BT_FORMAT},
        {"\"merges\":[", "\"merges\":[\"qq z\",", "'qq', which is not in the vocabulary",
         BT_FORMAT},
        {"\"merges\":[", "\"merges\":[\"! !\",", "no token", BT_FORMAT},
        {"\"added_tokens\":[", "\"added_tokens\":[{\"id\":501,\"content\":\"x\"},",
         "two added tokens", BT_FORMAT},
        {"\"added_tokens\":[", "\"added_tokens\":[{\"id\":501},", "no content or id", BT_FORMAT},
        {"\"added_tokens\":[", "\"added_tokens\":[{\"id\":700,\"content\":\"x\"},",
         "'x' has id 700, but Hugging Face's library would use the id", BT_FORMAT},
    };
    char path[300];
    char *json;
    size_t n;
    snprintf(path, sizeof path, "%s/tests/engine/data/hf_llama3.json",
             getenv("BT_SRC") ? getenv("BT_SRC") : ".");
    assert_int_equal(bt_file_slurp(path, 1 << 20, &json, &n, NULL), BT_OK);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        bt_tokenizer *t;
        bt_err err = BT_ERR_INIT;
        char *bad = with_replaced_text(json, changes[i].from, changes[i].to);
        bt_code code = bt_tokenizer_import(&t, fixture_text("bad.json", bad), &err);
        if (code != changes[i].code || !strstr(err.msg, changes[i].words))
            fail_msg("%zu: code %d: %s (wanted '%s')", i, code, err.msg, changes[i].words);
        assert_null(t);
        free(bad);
    }
    free(json);
    bt_tokenizer *t;
    bt_err err;
    assert_int_equal(bt_tokenizer_import(&t, fixture_path("absent.json"), &err), BT_NOTFOUND);
    assert_int_equal(bt_tokenizer_load(&t, fixture_path("absent.json"), &err), BT_NOTFOUND);
    assert_int_equal(bt_tokenizer_load(&t, fixture_dir, &err), BT_ARG);
}

/* A small Unigram model, changed in one place, is refused with the cause. */
static void import_refuses_unigram(void **state) {
    (void)state;
    static const char good[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true}],\"normalizer\":null,"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":"
        "\"always\",\"split\":true},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<"
        "unk>\",0],"
        "[\"a\",-1.5],[\"aa\",-2]],\"byte_fallback\":false}}";
    static const struct {
        const char *from, *to, *words;
        bt_code code;
    } changes[] = {
        {"\"unk_id\":0", "\"unk_id\":null", "has no unk_id", BT_UNSUPPORTED},
        {"\"unk_id\":0", "\"unk_id\":3", "unk_id 3 is no token of the 3", BT_FORMAT},
        {"-1.5", "\"-1.5\"", "entry 1 of its vocabulary is no token with a score", BT_FORMAT},
        {"[\"a\",-1.5]", "7", "entry 1 of its vocabulary", BT_FORMAT},
        {"\"aa\"", "\"a\"", "the tokens 1 and 2 are both 'a'", BT_FORMAT},
        {"\"aa\"", "\"\"", "token 2 is empty", BT_FORMAT},
        {"\"vocab\":[", "\"vocab\":[],\"other\":[", "'model.other', which is unknown",
         BT_UNSUPPORTED},
        {"\"byte_fallback\":false", "\"byte_fallback\":true",
         "byte_fallback without the token <0x00>", BT_UNSUPPORTED},
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"Precompiled\"}",
         "tokenizer with a Unigram model, and the normaliser has the step 'Precompiled'",
         BT_UNSUPPORTED},
        {"\"Metaspace\"", "\"WhitespaceSplit\"", "the step 'WhitespaceSplit'", BT_UNSUPPORTED},
    };
    bt_tokenizer *t;
    bt_err err = BT_ERR_INIT;
    if (bt_tokenizer_import(&t, fixture_text("good.json", good), &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(bt_tokenizer_kind(t), "unigram 3");
    assert_int_equal(bt_tokenizer_unknown(t), 0);
    bt_tokenizer_free(t);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *bad = with_replaced_text(good, changes[i].from, changes[i].to);
        bt_code code = bt_tokenizer_import(&t, fixture_text("bad.json", bad), &err);
        if (code != changes[i].code || !strstr(err.msg, changes[i].words))
            fail_msg("%zu: code %d: %s (wanted '%s')", i, code, err.msg, changes[i].words);
        assert_null(t);
        free(bad);
    }
}

static void bytes_tokenizer(void **state) {
    (void)state;
    bt_tokenizer *t, *u;
    bt_text json = {0};
    size_t n;
    assert_int_equal(bt_tokenizer_load(&t, "bytes", NULL), BT_OK);
    assert_int_equal(bt_tokenizer_vocab(t), 256);
    assert_int_equal(bt_tokenizer_eot(t), -1);
    assert_string_equal(bt_tokenizer_kind(t), "bytes");
    assert_int_equal(bt_tokenizer_bytes(t, 'A', &n)[0], 'A');
    assert_int_equal(n, 1);
    bt_tokenizer_bytes(t, 256, &n);
    assert_int_equal(n, 0);
    bt_tokenizer_bytes(t, -1, &n);
    assert_int_equal(n, 0);
    bt_tokenizer_save(t, &json);
    assert_int_equal(bt_tokenizer_parse(&u, json.data, json.len, NULL), BT_OK);
    assert_true(bt_tokenizer_hash(t) == bt_tokenizer_hash(u));
    assert_true(bt_tokenizer_hash(t) != bt_tokenizer_hash(trained));
    bt_text_release(&json);
    bt_tokenizer_free(t);
    bt_tokenizer_free(u);
}

/* In a run of a megabyte no pattern backtracks exponentially and merging is not quadratic. */
static void long_runs_are_encoded_in_linear_time(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    char *s = malloc(N);
    static const char *const kinds[] = {"a", " ", "\n", "1", "-", "é", "th"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t w = strlen(kinds[k]);
        for (size_t i = 0; i < N; i++) s[i] = kinds[k][i % w];
        if (k == 1) s[N - 1] = 'x';
        check_round_trip(trained, s, N);
    }
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_are_restored),
        cmocka_unit_test(encoder_equals_the_definition),
        cmocka_unit_test(equals_hugging_face),
        cmocka_unit_test(pieces_of_a_text_have_its_tokens),
        cmocka_unit_test(training_is_a_function_of_the_text),
        cmocka_unit_test(training_does_not_read_held_out_text),
        cmocka_unit_test(training_refuses),
        cmocka_unit_test(own_files_are_checked),
        cmocka_unit_test(flipped_bytes_of_a_file),
        cmocka_unit_test(import_refuses),
        cmocka_unit_test(import_refuses_unigram),
        cmocka_unit_test(bytes_tokenizer),
        cmocka_unit_test(long_runs_are_encoded_in_linear_time),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
