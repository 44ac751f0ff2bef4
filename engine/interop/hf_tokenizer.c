/* hf_tokenizer.c - reads tokenizer.json with the files beside it. Each key of tokenizer_config.json and
 * generation_config.json
 * is used, kept for exports, or reported. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/file_io.h"
#include "engine/data/io/json.h"
#include "engine/data/io/unread_keys.h"
#include "engine/data/tokenizer/tokenizer_build.h"
#include "engine/interop/hf_config.h"
#include "engine/interop/keys/hf_keys.h"

enum { MAX_FILE = 128 << 20, PATH = 4400 };

typedef struct companions {
    bt_tokenizer *t;
    char folder[PATH - 100]; /* ends with a slash, or is empty */
    bt_text *notes;
} companions;

/* Reads and keeps a file; *text is NULL if it is absent. */
static bt_code read_and_keep(const companions *c, const char *name, char **text, size_t *n,
                             bt_err *err) {
    char path[PATH];
    *text = NULL;
    (void)snprintf(path, sizeof path, "%s%s", c->folder, name);
    bt_code code = bt_file_slurp(path, MAX_FILE, text, n, err);
    if (code == BT_NOTFOUND) return BT_OK;
    if (code == BT_OK) code = bt_tokenizer_keep_file(c->t, name, *text, *n, err);
    if (code == BT_OK) return BT_OK;
    free(*text);
    *text = NULL;
    return code;
}

static bt_code parse_companion(const companions *c, const char *name, const char *text, size_t n,
                               json_t **root, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    const bt_code code = bt_json_parse_big(root, text, n, &why);
    return code == BT_OK ? BT_OK : bt_fail(err, code, "'%s%s': %s", c->folder, name, why.msg);
}

/* Adds a note "of 'temperature', 'top_p'" for keys that have no effect. */
static void note_unused_keys(const companions *c, json_t *root, const char *const *used,
                             const char *const *harmless, const char *what) {
    bt_unread unread = {0};
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v) if (!bt_hf_is_off(v) && !bt_key_in(used, key) &&
                                          !bt_key_in(harmless, key))
        bt_unread_add_key(&unread, NULL, key);
    if (!unread.n || !c->notes) return;
    bt_text_put(c->notes, what);
    bt_unread_print(c->notes, &unread, 8, NULL);
    bt_text_put(c->notes, "\n");
}

static void note_generation(const companions *c, json_t *root) {
    static const char *const used[] = {"bos_token_id", "eos_token_id", "pad_token_id", NULL};
    static const char *const harmless[] = {"_*",         "transformers_version",
                                           "max_length", "max_new_tokens",
                                           "use_cache",  "decoder_start_token_id",
                                           "do_sample",  NULL};
    note_unused_keys(c, root, used, harmless,
                     "generation_config.json is kept for exports; texts are not written by its ");
}

static bool key_differs(json_t *a, json_t *b, const char *key) {
    json_t *x = json_object_get(a, key), *y = json_object_get(b, key);
    return x && y && json_is_true(x) != json_is_true(y);
}

/* Returns true if an entry of added_tokens_decoder equals the one of tokenizer.json, or if either is not an entry. */
static bool is_same_description(json_t *entry, json_t *own) {
    static const char *const keys[] = {"special", "lstrip", "rstrip", "single_word", "normalized"};
    if (!json_is_string(json_object_get(entry, "content")) ||
        !json_is_string(json_object_get(own, "content")))
        return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (key_differs(entry, own, keys[i])) return false;
    return true;
}

static json_t *find_added_token(json_t *added, long id) {
    json_t *own;
    size_t i;
    json_array_foreach(added, i,
                       own) if (json_integer_value(json_object_get(own, "id")) == id) return own;
    return NULL;
}

/* Where the two files differ, transformers uses the description in tokenizer_config.json, and makes an ordinary token
 * of the vocabulary an added one if only this file describes it as such. */
static void apply_added_tokens(json_t *decoder, json_t *tokenizer) {
    json_t *added = json_object_get(tokenizer, "added_tokens"), *entry,
           *vocab = json_object_get(json_object_get(tokenizer, "model"), "vocab");
    const char *key;
    json_object_foreach(decoder, key, entry) {
        const long id = strtol(key, NULL, 10);
        const char *name = json_string_value(json_object_get(entry, "content"));
        json_t *own = find_added_token(added, id),
               *there = json_object_get(vocab, name ? name : "");
        if (own && is_same_description(entry, own)) continue;
        if (own && strcmp(name, json_string_value(json_object_get(own, "content"))) == 0) {
            json_object_update(own, entry);
        } else if (!own && json_is_integer(there) && json_integer_value(there) == id) {
            json_t *more = json_copy(entry);
            json_object_set_new(more, "id", json_integer(id));
            json_array_append_new(added, more);
        }
    }
}

static const char *token_content(json_t *v) {
    return json_is_object(v) ? json_string_value(json_object_get(v, "content"))
                             : json_string_value(v);
}

static void note_special_names(const companions *c, json_t *root) {
    static const char *const keys[] = {"bos_token", "eos_token", "pad_token",
                                       "unk_token", "sep_token", "cls_token"};
    for (size_t i = 0; c->notes && i < sizeof keys / sizeof *keys; i++) {
        const char *name = token_content(json_object_get(root, keys[i]));
        if (name && bt_tokenizer_named(c->t, name, strlen(name)) < 0)
            bt_text_printf(c->notes,
                           "tokenizer_config.json names '%.60s' as %s, which is no added token of "
                           "tokenizer.json\n",
                           name, keys[i]);
    }
}

/* The post-processor of tokenizer.json decides, as in transformers 5; a contradiction is reported. */
static void note_added_token(const companions *c, json_t *root, const char *key, bool behind) {
    size_t n;
    const json_t *v = json_object_get(root, key);
    (void)bt_tokenizer_affix(c->t, behind, &n);
    if (c->notes && json_is_boolean(v) && json_is_true(v) != (n > 0))
        bt_text_printf(c->notes,
                       "tokenizer_config.json has %s: %s, but the post-processor of tokenizer.json "
                       "is used: %s token is put %s a text, as in transformers 5\n",
                       key, json_is_true(v) ? "true" : "false", n ? "a" : "no",
                       behind ? "behind" : "in front of");
}

static void note_config(const companions *c, json_t *root) {
    static const char *const used[] = {"chat_template",
                                       "added_tokens_decoder",
                                       "add_bos_token",
                                       "add_eos_token",
                                       "bos_token",
                                       "eos_token",
                                       "pad_token",
                                       "unk_token",
                                       "sep_token",
                                       "cls_token",
                                       NULL};
    static const char *const harmless[] = {"tokenizer_class",
                                           "model_max_length",
                                           "clean_up_tokenization_spaces",
                                           "mask_token",
                                           "additional_special_tokens",
                                           "extra_special_tokens",
                                           "padding_side",
                                           "truncation_side",
                                           "model_input_names",
                                           "name_or_path",
                                           "special_tokens_map_file",
                                           "processor_class",
                                           "auto_map",
                                           "backend",
                                           "is_local",
                                           "local_files_only",
                                           "legacy",
                                           "errors",
                                           "use_fast",
                                           "use_default_system_prompt",
                                           "max_length",
                                           "stride",
                                           "truncation_strategy",
                                           "pad_to_multiple_of",
                                           "pad_token_type_id",
                                           "_*",
                                           NULL};
    note_added_token(c, root, "add_bos_token", false);
    note_added_token(c, root, "add_eos_token", true);
    note_special_names(c, root);
    note_unused_keys(c, root, used, harmless, "tokenizer_config.json: nothing follows ");
}

/* Returns a text, or the one named "default" of a list of {name, template}. */
static const char *find_template_text(json_t *v) {
    json_t *one;
    size_t i;
    json_array_foreach(v, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(one, "template"));
    }
    return json_string_value(v);
}

static bt_code read_tokenizer_config(const companions *c, bt_err *err) {
    char *text;
    size_t n;
    json_t *root = NULL;
    BT_TRY(read_and_keep(c, "tokenizer_config.json", &text, &n, err));
    if (!text) return BT_OK;
    bt_code code = parse_companion(c, "tokenizer_config.json", text, n, &root, err);
    free(text);
    BT_TRY(code);
    note_config(c, root);
    code = bt_tokenizer_set_chat_template(
        c->t, find_template_text(json_object_get(root, "chat_template")), err);
    json_decref(root);
    return code;
}

/* chat_template.jinja takes precedence over chat_template.json, and that over the key in tokenizer_config.json. */
static bt_code read_templates(const companions *c, bt_err *err) {
    char *text;
    size_t n;
    json_t *root = NULL;
    BT_TRY(read_and_keep(c, "chat_template.json", &text, &n, err));
    if (text) {
        bt_code code = parse_companion(c, "chat_template.json", text, n, &root, err);
        const char *jinja = find_template_text(json_object_get(root, "chat_template"));
        if (code == BT_OK && jinja) code = bt_tokenizer_set_chat_template(c->t, jinja, err);
        free(text);
        json_decref(root);
        BT_TRY(code);
    }
    BT_TRY(read_and_keep(c, "chat_template.jinja", &text, &n, err));
    const bt_code code = text ? bt_tokenizer_set_chat_template(c->t, text, err) : BT_OK;
    free(text);
    return code;
}

static bt_code read_unused_files(const companions *c, bt_err *err) {
    static const char *const kept[] = {"special_tokens_map.json", "added_tokens.json"};
    char *text;
    size_t n;
    json_t *root = NULL;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        BT_TRY(read_and_keep(c, kept[i], &text, &n, err));
        free(text);
    }
    BT_TRY(read_and_keep(c, "generation_config.json", &text, &n, err));
    if (!text) return BT_OK;
    const bt_code code = parse_companion(c, "generation_config.json", text, n, &root, err);
    free(text);
    if (code == BT_OK) note_generation(c, root);
    json_decref(root);
    return code;
}

/* Parses tokenizer.json. Descriptions of added tokens in tokenizer_config.json replace those in it. */
static bt_code read_tree(const char *path, const char *folder, char **text, size_t *n,
                         json_t **root, bt_err *err) {
    char beside[PATH], *config = NULL;
    size_t k;
    json_t *o = NULL;
    bt_err why = BT_ERR_INIT;
    BT_TRY(bt_file_slurp(path, MAX_FILE, text, n, err));
    BT_TRY(bt_json_parse(root, *text, *n, err));
    if (!folder) return BT_OK;
    (void)snprintf(beside, sizeof beside, "%stokenizer_config.json", folder);
    if (bt_file_slurp(beside, MAX_FILE, &config, &k, &why) == BT_OK &&
        bt_json_parse_big(&o, config, k, &why) == BT_OK)
        apply_added_tokens(json_object_get(o, "added_tokens_decoder"), *root);
    free(config);
    json_decref(o);
    return BT_OK;
}

bt_code bt_hf_tokenizer_read(bt_tokenizer **out, const char *path, bt_text *notes, bt_err *err) {
    companions c = {.notes = notes};
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const bool named = strcmp(base, "tokenizer.json") == 0;
    char *text = NULL;
    size_t n = 0;
    json_t *root = NULL;
    bt_err why = BT_ERR_INIT;
    *out = NULL;
    (void)snprintf(c.folder, sizeof c.folder, "%.*s", (int)(base - path), path);
    bt_code code = read_tree(path, named ? c.folder : NULL, &text, &n, &root, &why);
    if (code == BT_OK) code = bt_tokenizer_build(&c.t, root, &why);
    json_decref(root);
    if (code == BT_OK) code = bt_tokenizer_keep_file(c.t, "tokenizer.json", text, n, &why);
    free(text);
    if (code != BT_OK) {
        bt_tokenizer_free(c.t);
        return bt_fail(err, code, "'%s' cannot be imported: %s", path, why.msg);
    }
    if (named) {
        code = read_tokenizer_config(&c, err);
        if (code == BT_OK) code = read_templates(&c, err);
        if (code == BT_OK) code = read_unused_files(&c, err);
    }
    if (code == BT_OK)
        *out = c.t;
    else
        bt_tokenizer_free(c.t);
    return code;
}
