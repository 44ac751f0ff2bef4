/* test_chat.c - every row of chat.def renders as its published Jinja template (chat_golden.json, made with jinja2),
 * counts learned bytes, and encodes special tokens; conversations with a wrong order of roles are refused. */
#include <jansson.h>

#include "engine/base/numbers/sha256.h"
#include "engine/base/text.h"
#include "engine/data/chat/chat.h"
#include "engine/data/tokenizer/tokenizer_impl.h"
#include "tests/engine/data/data_fixture.h"

static bt_err err;

typedef struct seen {
    bt_text text;
    size_t from[16], to[16], n; /* learned bytes */
} seen;

static bt_code collect_learned(void *ctx, const bt_chat_piece *p, bt_err *e) {
    seen *s = ctx;
    (void)e;
    if (p->learned) {
        if (s->n && s->to[s->n - 1] == s->text.len) {
            s->to[s->n - 1] += p->n;
        } else {
            s->from[s->n] = s->text.len;
            s->to[s->n++] = s->text.len + p->n;
        }
    }
    bt_text_putn(&s->text, p->text, p->n);
    return BT_OK;
}

static json_t *check_golden(void) {
    char path[1024];
    json_error_t why;
    snprintf(path, sizeof path, "%s/tests/engine/data/chat_golden.json", getenv("BT_SRC"));
    json_t *root = json_load_file(path, 0, &why);
    if (!root) fail_msg("%s: %s", path, why.text);
    return root;
}

static bt_chat_role role_of(const char *name) {
    return strcmp(name, "system") == 0 ? BT_CHAT_SYSTEM
           : strcmp(name, "user") == 0 ? BT_CHAT_USER
                                       : BT_CHAT_ASSISTANT;
}

static size_t make_conversation(json_t *root, bool system, bt_chat_message *out) {
    size_t n = 0, i;
    json_t *m;
    if (system) {
        const char *text =
            json_string_value(json_object_get(json_object_get(root, "system"), "content"));
        out[n++] = (bt_chat_message){.role = BT_CHAT_SYSTEM, .text = text, .n = strlen(text)};
    }
    json_array_foreach(json_object_get(root, "messages"), i, m) {
        const char *text = json_string_value(json_object_get(m, "content"));
        out[n++] = (bt_chat_message){.role = role_of(json_string_value(json_object_get(m, "role"))),
                                     .text = text,
                                     .n = strlen(text)};
    }
    return n;
}

static void check_rendering(json_t *root, json_t *want, const bt_chat_template *t,
                            const char *key) {
    char name[64];
    bool system = strstr(key, "system") != NULL, prompt = strncmp(key, "prompt", 6) == 0;
    bt_chat_message m[8];
    size_t n = make_conversation(root, system, m), i;
    seen s = {0};
    bt_code code = bt_chat_render(t, m, n - prompt, prompt, collect_learned, &s, &err);
    json_t *text = json_object_get(want, key), *range;
    if (!json_is_string(text)) {
        assert_int_equal(code, BT_UNSUPPORTED);
        assert_non_null(strstr(err.msg, "cannot render system messages"));
        bt_text_release(&s.text);
        return;
    }
    assert_int_equal(code, BT_OK);
    if (strcmp(bt_text_str(&s.text), json_string_value(text)) != 0)
        fail_msg("%s %s: got '%s'", t->name, key, bt_text_str(&s.text));
    snprintf(name, sizeof name, "%s_counted", key);
    json_array_foreach(json_object_get(want, name), i, range) {
        if (i >= s.n || (json_int_t)s.from[i] != json_integer_value(json_array_get(range, 0)) ||
            (json_int_t)s.to[i] != json_integer_value(json_array_get(range, 1)))
            fail_msg("%s %s: range %zu is %zu..%zu", t->name, key, i, s.from[i], s.to[i]);
    }
    if (!prompt) assert_int_equal(s.n, 3);
    bt_text_release(&s.text);
}

static void templates_render_as_published(void **state) {
    static const char *const keys[] = {"full", "full_system", "prompt", "prompt_system"};
    (void)state;
    json_t *root = check_golden(), *want;
    const char *name;
    size_t n = 0;
    json_object_foreach(json_object_get(root, "templates"), name, want) {
        const bt_chat_template *t;
        assert_int_equal(bt_chat_find(&t, name, &err), BT_OK);
        for (size_t i = 0; i < 4; i++) check_rendering(root, want, t, keys[i]);
        n++;
    }
    assert_int_equal(n, 14);
    json_decref(root);
}

static bt_code check_order_refused(const char *roles, bool prompt) {
    bt_chat_message m[8];
    const bt_chat_template *t;
    seen s = {0};
    size_t n = strlen(roles);
    assert_int_equal(bt_chat_find(&t, "chatml", &err), BT_OK);
    for (size_t i = 0; i < n; i++)
        m[i] = (bt_chat_message){.role = roles[i] == 's'   ? BT_CHAT_SYSTEM
                                         : roles[i] == 'u' ? BT_CHAT_USER
                                                           : BT_CHAT_ASSISTANT,
                                 .text = "x",
                                 .n = 1};
    bt_code code = bt_chat_render(t, m, n, prompt, collect_learned, &s, &err);
    bt_text_release(&s.text);
    return code;
}

static void roles_out_of_order_are_refused(void **state) {
    (void)state;
    assert_int_equal(check_order_refused("sua", false), BT_OK);
    assert_int_equal(check_order_refused("u", true), BT_OK);
    assert_int_equal(check_order_refused("uua", false), BT_FORMAT);
    assert_non_null(strstr(
        err.msg, "message 2 has the role 'user', but the role 'assistant' is expected there"));
    assert_int_equal(check_order_refused("usa", false), BT_FORMAT);
    assert_int_equal(check_order_refused("au", true), BT_FORMAT);
    assert_int_equal(check_order_refused("ua", true), BT_FORMAT);
    assert_int_equal(check_order_refused("uau", false), BT_FORMAT);
    assert_non_null(strstr(err.msg, "last message has the role 'user'"));
    assert_int_equal(check_order_refused("s", false), BT_FORMAT);
    assert_int_equal(check_order_refused("", false), BT_FORMAT);
}

static void unknown_templates_list_those_there_are(void **state) {
    const bt_chat_template *t;
    (void)state;
    assert_int_equal(bt_chat_find(&t, "vicuna", &err), BT_NOTFOUND);
    assert_non_null(strstr(err.msg, "'vicuna' (chatml, llama3,"));
}

/* Returns the tokenizer hf_qwen2.json with ChatML's two special tokens. */
static bt_tokenizer *chatml_tokenizer(void) {
    char path[1024];
    json_error_t why;
    bt_tokenizer *t;
    snprintf(path, sizeof path, "%s/tests/engine/data/hf_qwen2.json", getenv("BT_SRC"));
    json_t *root = json_load_file(path, 0, &why), *added = json_object_get(root, "added_tokens");
    for (int i = 0; i < 2; i++)
        json_array_append_new(added, json_pack("{s:s, s:i}", "content",
                                               i ? "<|im_end|>" : "<|im_start|>", "id", 499 + i));
    assert_int_equal(json_dump_file(root, fixture_path("chatml.json"), 0), 0);
    json_decref(root);
    if (bt_tokenizer_import(&t, fixture_path("chatml.json"), &err) != BT_OK)
        fail_msg("%s", err.msg);
    return t;
}

/* Only the template's own markup becomes special tokens; the same characters in a message are text. */
static void only_markup_becomes_special_tokens(void **state) {
    static const bt_chat_message m[] = {{.role = BT_CHAT_USER, .text = "say <|im_end|>", .n = 14},
                                        {.role = BT_CHAT_ASSISTANT, .text = "no", .n = 2},
                                        {.role = BT_CHAT_USER, .text = "why", .n = 3},
                                        {.role = BT_CHAT_ASSISTANT, .text = "so", .n = 2}};
    bt_tokenizer *tokenizer = chatml_tokenizer();
    const bt_chat_template *t;
    (void)state;
    assert_int_equal(bt_chat_find(&t, "chatml", &err), BT_OK);
    for (int last_only = 0; last_only < 2; last_only++) {
        const bt_chat_encoder e = {t, tokenizer};
        bt_chat_ids ids = {0};
        size_t specials = 0, learned_specials = 0;
        assert_int_equal(bt_chat_encode(&e, m, 4, false, last_only, &ids, &err), BT_OK);
        for (size_t i = 0; i < ids.n; i++) {
            if (!bt_tokenizer_is_special(tokenizer, ids.ids[i])) continue;
            specials++;
            learned_specials += ids.learned[i];
        }
        assert_int_equal(specials, 8); /* one start and one end per turn */
        assert_int_equal(learned_specials, last_only ? 1 : 2);
        bt_text text = {0};
        bt_tokenizer_decode(tokenizer, ids.ids, ids.n, &text);
        assert_non_null(strstr(bt_text_str(&text), "say <|im_end|>"));
        bt_text_release(&text);
        bt_chat_ids_release(&ids);
    }
    bt_tokenizer_free(tokenizer);
}

/* Published templates are recognized by hash, other templates by their markup; unknown ones are refused. */
static void templates_of_tokenizers_are_known_or_refused(void **state) {
    static const char
        chatml[] =
            "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
            "'<|im_end|>' + '\\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        llama3[] =
            "{{ bos_token }}{% for m in messages %}{{ \"<|start_header_id|>\" ~ m.role ~ "
            "\"<|end_header_id|>\\n\\n\" ~ "
            "(m.content | trim) ~ \"<|eot_id|>\" }}{% endfor %}{% if add_generation_prompt %}{{ "
            "\"<|start_header_id|>assistant<|end_header_id|>\\n\\n\" }}{% endif %}";
    static const struct {
        const char *find, *put;
    } wrongs[] = {{"m['content']", "m['content'] | trim"},
                  {"{% for", "{{ '<|im_start|>system\\nYou are kind.<|im_end|>\\n' }}{% for"},
                  {"assistant\\n", "assistant\\n<think>\\n"},
                  {"im_end|>' + '\\n", "im_end|>' + '"},
                  {"<|im_start|>", "<|begin|>"},
                  {"{% for", "{{ bos_token }}{% for"}};
    static const char *const reasons[] = {"white space", "'Youare'", "'<think>'",
                                          "of none",     "of none",  "bos_token"};
    const bt_chat_template *t;
    const char *how;
    char hex[BT_SHA256_HEX];
    json_t *root = check_golden(), *want;
    const char *name;
    (void)state;
    bt_sha256_hex(hex, "abc", 3); /* the examples of FIPS 180-4 with one and with two blocks */
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    bt_sha256_hex(hex, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56);
    assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    json_object_foreach(json_object_get(root, "templates"), name, want) {
        assert_int_equal(bt_chat_find(&t, name, &err), BT_OK);
        assert_string_equal(t->sha256, json_string_value(json_object_get(want, "template_sha256")));
    }
    json_decref(root);
    assert_int_equal(bt_chat_of_jinja(&t, chatml, &how, &err), BT_OK);
    assert_string_equal(t->name, "chatml");
    assert_non_null(strstr(how, "structure"));
    assert_int_equal(bt_chat_of_jinja(&t, llama3, &how, &err), BT_OK);
    assert_string_equal(t->name, "llama3");
    assert_int_equal(bt_chat_of_jinja(&t, llama3 + strlen("{{ bos_token }}"), &how, &err), BT_OK);
    assert_string_equal(t->name, "llama3-no-bos");
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        char text[600];
        const char *at = strstr(chatml, wrongs[i].find);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - chatml), chatml, wrongs[i].put,
                 at + strlen(wrongs[i].find));
        if (i == 4) snprintf(text, sizeof text, "%s", "{{ '<|begin|>' }}");
        if (bt_chat_of_jinja(&t, text, &how, &err) != BT_ARG || t) fail_msg("taken: %s", text);
        assert_non_null(strstr(err.msg, "chatml, llama3"));
        if (!strstr(err.msg, reasons[i])) fail_msg("no '%s': %s", reasons[i], err.msg);
    }
}

/* Returns a tokenizer of bytes with special tokens from id 256 on. */
static bt_tokenizer *tokenizer_with_specials(const char *const *names, size_t n) {
    bt_tokenizer_draft d;
    bt_tokenizer *t = NULL;
    assert_int_equal(bt_draft_begin(&d, &err), BT_OK);
    for (int b = 0; b < 256; b++) {
        const char c = (char)b;
        assert_int_equal(bt_draft_token(&d, &c, 1, BT_TOKEN_PLAIN, &err), BT_OK);
    }
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bt_draft_token(&d, names[i], strlen(names[i]), BT_TOKEN_SPECIAL, &err),
                         BT_OK);
    if (bt_draft_seal(&d, &t, &err) != BT_OK) fail_msg("%s", err.msg);
    return t;
}

static void a_tokenizer_contains_its_template(void **state) {
    static const struct {
        const char *template, *specials[6];
        size_t n, stops;
        int32_t end;
    } cases[] = {
        {"plain", {"<|endoftext|>"}, 1, 1, -1},
        {"chatml", {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, 3, 0, 258},
        {"plain", {"<|im_start|>"}, 1, 1, -1},
        {"qwen3", {"<|im_end|>", "<|im_start|>", "<think>"}, 3, 0, 256},
        {"llama3",
         {"<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"},
         4,
         0,
         257},
        {"bitnet-2b4t", {"<|begin_of_text|>", "<|eot_id|>"}, 2, 0, 257},
        {"mistral-v1", {"<s>", "</s>", "[INST]"}, 3, 0, 257},
        {"gemma3", {"<bos>", "<start_of_turn>", "<end_of_turn>"}, 3, 0, 258},
    };
    const char *stops[BT_CHAT_STOPS];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_tokenizer *t = tokenizer_with_specials(cases[i].specials, cases[i].n);
        const bt_chat_template *c = bt_chat_of_tokenizer(t), *alpaca;
        assert_string_equal(c->name, cases[i].template);
        assert_int_equal(bt_chat_end_token(c, t), cases[i].end);
        assert_int_equal(bt_chat_stops(c, t, stops), cases[i].stops);
        if (cases[i].stops) assert_string_equal(stops[0], "\nUser:");
        assert_int_equal(bt_chat_find(&alpaca, "alpaca", &err), BT_OK);
        assert_int_equal(bt_chat_stops(alpaca, t, stops), i == 6 ? 0 : 2);
        bt_tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_render_as_published),
        cmocka_unit_test(roles_out_of_order_are_refused),
        cmocka_unit_test(unknown_templates_list_those_there_are),
        cmocka_unit_test(templates_of_tokenizers_are_known_or_refused),
        cmocka_unit_test(only_markup_becomes_special_tokens),
        cmocka_unit_test(a_tokenizer_contains_its_template),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
