/* peft_config.c - parses adapter_config.json with the keys of PEFT 0.21. */
#include "engine/tune/peft_config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/config/tune_cfg.h"
#include "engine/data/io/file_io.h"
#include "engine/data/io/json.h"
#include "engine/data/io/unread_keys.h"
#include "engine/interop/formats/stored.h"

enum { CONFIG_MAX = 4 << 20 };

static const char *const used[] = {"peft_type",
                                   "task_type",
                                   "r",
                                   "lora_alpha",
                                   "lora_dropout",
                                   "use_rslora",
                                   "use_dora",
                                   "alpha_pattern",
                                   "rank_pattern",
                                   "bias",
                                   "base_model_name_or_path",
                                   "layers_to_transform",
                                   "init_lora_weights",
                                   NULL};

/* Keys that concern only training, or list the modules with adapters, which the file with the weights contains. */
static const char *const harmless[] = {
    "peft_version",        "revision",          "inference_mode",
    "auto_mapping",        "target_modules",    "exclude_modules",
    "layers_pattern",      "loftq_config",      "eva_config",
    "corda_config",        "lora_ga_config",    "velora_config",
    "megatron_core",       "megatron_config",   "runtime_config",
    "ensure_weight_tying", "qalora_group_size", NULL};

/* Keys with which PEFT computes something else. */
static const char *const unsupported[] = {"modules_to_save",
                                          "use_qalora",
                                          "use_bdlora",
                                          "lora_bias",
                                          "fan_in_fan_out",
                                          "layer_replication",
                                          "target_parameters",
                                          "trainable_token_indices",
                                          "alora_invocation_tokens",
                                          "monteclora_config",
                                          "kasa_config",
                                          "arrow_config",
                                          NULL};

static bool is_disabled(const json_t *v) {
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static bool is_json_word(const json_t *v, const char *word) {
    const char *s = json_string_value(v);
    return s && strcmp(s, word) == 0;
}

static bt_code refuse_key(json_t *o, const char *key, bt_err *err) {
    char *value = json_dumps(json_object_get(o, key), JSON_ENCODE_ANY | JSON_COMPACT);
    bt_code code =
        bt_fail(err, BT_UNSUPPORTED,
                "'%s' is %.60s, but only plain low-rank adapters are supported (" BT_PEFT_MERGE ")",
                key, value ? value : "set");
    free(value);
    return code;
}

/* Returns true for initialisations that do not change the base. All others (pissa, olora, corda, loftq, ...) subtract
 * the initial adapters from it, which PEFT repeats when it loads them. */
static bool keeps_base(const json_t *init) {
    static const char *const words[] = {"gaussian", "eva", "orthogonal", NULL};
    return is_disabled(init) || json_is_true(init) ||
           (json_is_string(init) && bt_key_in(words, json_string_value(init)));
}

static bt_code check_peft_keys(json_t *o, bt_text *notes, bt_err *err) {
    bt_unread unread = {0};
    json_t *task = json_object_get(o, "task_type");
    const char *key;
    json_t *v;
    if (!is_json_word(json_object_get(o, "peft_type"), "LORA"))
        return bt_fail(err, BT_UNSUPPORTED, "'peft_type' is not LORA");
    if (!is_disabled(task) && !is_json_word(task, "CAUSAL_LM"))
        return refuse_key(o, "task_type", err);
    if (!is_disabled(json_object_get(o, "bias")) &&
        !is_json_word(json_object_get(o, "bias"), "none"))
        return refuse_key(o, "bias", err);
    if (!keeps_base(json_object_get(o, "init_lora_weights")))
        return refuse_key(o, "init_lora_weights", err);
    json_object_foreach(o, key, v) {
        if (is_disabled(v) || bt_key_in(used, key) || bt_key_in(harmless, key)) continue;
        if (bt_key_in(unsupported, key)) return refuse_key(o, key, err);
        bt_unread_add_key(&unread, NULL, key);
    }
    if (!notes || !unread.n) return BT_OK;
    bt_text_put(notes, BT_PEFT_CONFIG " has keys that are not used here: ");
    bt_unread_print(notes, &unread, 8, NULL);
    bt_text_put(notes, "\n");
    return BT_OK;
}

/* PEFT matches (.*\.)?(KEY)$ as a regular expression. Only the name of a module or the end of one is supported. */
static bt_code check_pattern_key(const char *pattern, const char *key, bt_err *err) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    if (key[0] && key[strspn(key, plain)] == '\0' && strlen(key) < 128) return BT_OK;
    return bt_fail(err, BT_UNSUPPORTED,
                   "'%s' has the key '%.60s', which is not the name of a module or the end of one",
                   pattern, key);
}

static bt_code read_alpha_pattern(bt_peft *p, json_t *o, bt_err *err) {
    json_t *pattern = json_object_get(o, "alpha_pattern"), *v;
    const char *key;
    if (is_disabled(pattern)) return BT_OK;
    if (!json_is_object(pattern)) return refuse_key(o, "alpha_pattern", err);
    json_object_foreach(pattern, key, v) {
        BT_TRY(check_pattern_key("alpha_pattern", key, err));
        if (!json_is_number(v) || p->n_patterns == BT_PEFT_PATTERNS)
            return bt_fail(err, BT_UNSUPPORTED,
                           "'alpha_pattern' has more than %d entries, or one that is not a number",
                           (int)BT_PEFT_PATTERNS);
        (void)snprintf(p->pattern[p->n_patterns].module, sizeof p->pattern[0].module, "%s", key);
        p->pattern[p->n_patterns++].alpha = json_number_value(v);
    }
    return BT_OK;
}

static bt_code check_rank_pattern(json_t *o, int rank, bt_err *err) {
    json_t *pattern = json_object_get(o, "rank_pattern"), *v;
    const char *key;
    if (is_disabled(pattern)) return BT_OK;
    json_object_foreach(pattern, key, v) {
        if (!json_is_number(v) || json_number_value(v) != rank)
            return bt_fail(err, BT_UNSUPPORTED,
                           "'rank_pattern' gives '%.60s' another rank than %d (r), but all "
                           "adapters must have the same rank",
                           key, rank);
    }
    return json_is_object(pattern) ? BT_OK : refuse_key(o, "rank_pattern", err);
}

static bt_code read_peft_object(bt_peft *p, json_t *o, bt_text *notes, bt_err *err) {
    json_t *r = json_object_get(o, "r"), *alpha = json_object_get(o, "lora_alpha");
    BT_TRY(check_peft_keys(o, notes, err));
    if (!json_is_integer(r) || json_integer_value(r) < 1 || json_integer_value(r) > 1 << 20)
        return bt_fail(err, BT_FORMAT, "it does not contain the rank (r)");
    p->rank = (int)json_integer_value(r);
    p->alpha = json_is_number(alpha) ? json_number_value(alpha) : 8; /* PEFT's default */
    const json_t *dropout = json_object_get(o, "lora_dropout");
    p->dropout = json_number_value(dropout);
    if (!is_disabled(dropout) && !(p->dropout > 0 && p->dropout < 1))
        return bt_fail(err, BT_FORMAT, "'lora_dropout' is not a probability");
    p->rslora = json_is_true(json_object_get(o, "use_rslora"));
    p->dora = json_is_true(json_object_get(o, "use_dora"));
    if (!p->dora && !is_disabled(json_object_get(o, "use_dora")))
        return bt_fail(err, BT_FORMAT, "'use_dora' is not true or false");
    p->some_layers = !is_disabled(json_object_get(o, "layers_to_transform")) ||
                     json_is_integer(json_object_get(o, "layers_to_transform"));
    const char *base = json_string_value(json_object_get(o, "base_model_name_or_path"));
    (void)snprintf(p->base, sizeof p->base, "%s", base ? base : "");
    BT_TRY(check_rank_pattern(o, p->rank, err));
    return read_alpha_pattern(p, o, err);
}

static bt_code read_peft_config(bt_peft *p, const char *folder, bt_text *notes, bt_err *err) {
    char path[4400], *text = NULL;
    size_t n;
    json_t *root = NULL;
    bt_err why = BT_ERR_INIT;
    (void)snprintf(path, sizeof path, "%.4000s/%s", folder, BT_PEFT_CONFIG);
    bt_code code = bt_file_slurp(path, CONFIG_MAX, &text, &n, &why);
    if (code == BT_OK) code = bt_json_parse(&root, text, n, &why);
    free(text);
    if (code == BT_OK) code = read_peft_object(p, root, notes, &why);
    json_decref(root);
    return code == BT_OK ? BT_OK : bt_fail(err, code, "'%s': %s", path, why.msg);
}

/* Returns true if there is a tensor such as "….v_proj.lora_A.weight". */
static bool has_adapter(const bt_stored_list *l, const char *layer) {
    char tail[64];
    const size_t n = (size_t)snprintf(tail, sizeof tail, ".%s.lora_A.weight", layer);
    for (size_t i = 0; i < l->n; i++) {
        const size_t len = strlen(l->at[i].name);
        if (len > n && strcmp(l->at[i].name + len - n, tail) == 0) return true;
    }
    return false;
}

/* Refuses an adapter beside a module that the supported models do not have, such as lm_head or an embedding. */
static bt_code check_modules(const bt_stored_list *l, const char *path, bt_err *err) {
    static const char *const tails[] = {".lora_A.weight", ".lora_embedding_A"};
    for (size_t i = 0; i < 2 * l->n; i++) {
        const char *name = l->at[i / 2].name, *tail = tails[i % 2];
        const size_t len = strlen(name), k = strlen(tail);
        if (len <= k || strcmp(name + len - k, tail) != 0) continue;
        size_t begin = len - k;
        while (begin > 0 && name[begin - 1] != '.') begin--;
        const int n = (int)(len - k - begin);
        bool known = false;
        for (unsigned bit = 1; bit <= BT_LORA_DOWN; bit <<= 1) {
            const char *target = bt_tune_hf_target(bit);
            known |= (int)strlen(target) == n && strncmp(name + begin, target, (size_t)n) == 0;
        }
        if (!known)
            return bt_fail(err, BT_UNSUPPORTED,
                           "'%.200s' has an adapter for '%.*s', but only adapters for the layers "
                           "of attention and feed-forward are supported (" BT_PEFT_MERGE ")",
                           path, n < 80 ? n : 80, name + begin);
    }
    return BT_OK;
}

static bt_code check_magnitudes(const bt_peft *p, const bt_stored_list *l, const char *path,
                                bt_err *err) {
    bool any = false;
    for (size_t i = 0; i < l->n; i++) any |= strstr(l->at[i].name, BT_PEFT_MAGNITUDES) != NULL;
    if (any == p->dora) return BT_OK;
    return bt_fail(err, BT_FORMAT,
                   any ? "'%.200s' has magnitudes (lora_magnitude_vector), but 'use_dora' in "
                         "" BT_PEFT_CONFIG " is not true"
                       : "'%.200s' has no magnitudes (lora_magnitude_vector), but 'use_dora' in "
                         "" BT_PEFT_CONFIG " is true",
                   path);
}

static bt_code find_targets(bt_peft *p, const char *folder, bt_err *err) {
    char path[4400];
    bt_stored_list l = {0};
    (void)snprintf(path, sizeof path, "%.4000s/%s", folder, BT_PEFT_WEIGHTS);
    bt_code code = bt_safetensors_read(&l, path, err);
    for (unsigned bit = 1; code == BT_OK && bit <= BT_LORA_DOWN; bit <<= 1)
        if (has_adapter(&l, bt_tune_hf_target(bit))) p->targets |= bit;
    if (code == BT_OK) code = check_modules(&l, path, err);
    if (code == BT_OK) code = check_magnitudes(p, &l, path, err);
    bt_stored_release(&l);
    if (code == BT_OK && !p->targets)
        code = bt_fail(err, BT_UNSUPPORTED,
                       "'%s' has no adapter for a layer of attention or feed-forward", path);
    return code;
}

static bool folder_has_file(const char *folder, const char *name) {
    char path[4400];
    (void)snprintf(path, sizeof path, "%.4000s/%s", folder, name);
    return access(path, F_OK) == 0;
}

bool bt_peft_is(const char *folder) {
    return folder_has_file(folder, BT_PEFT_CONFIG) && !folder_has_file(folder, "manifest.json") &&
           !folder_has_file(folder, "model.safetensors") &&
           !folder_has_file(folder, "model.safetensors.index.json");
}

bt_code bt_peft_read(bt_peft *out, const char *folder, bt_text *notes, bt_err *err) {
    *out = (bt_peft){0};
    BT_TRY(read_peft_config(out, folder, notes, err));
    return find_targets(out, folder, err);
}

static double scale_of_alpha(const bt_peft *p, double alpha) {
    return alpha / (p->rslora ? sqrt((double)p->rank) : (double)p->rank);
}

double bt_peft_scale(const bt_peft *p) { return scale_of_alpha(p, p->alpha); }

double bt_peft_scale_of(const bt_peft *p, const char *module) {
    const size_t n = strlen(module);
    for (size_t i = 0; i < p->n_patterns; i++) { /* the first one that matches, as in PEFT */
        const char *key = p->pattern[i].module;
        const size_t k = strlen(key);
        if (k <= n && strcmp(module + n - k, key) == 0 && (k == n || module[n - k - 1] == '.'))
            return scale_of_alpha(p, p->pattern[i].alpha);
    }
    return bt_peft_scale(p);
}

static void last_component(char out[256], const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    (void)snprintf(out, 256, "%.*s", (int)(end - begin), path + begin);
}

void bt_peft_compare_base(const bt_peft *p, const char *path, bt_text *notes) {
    char theirs[256], ours[256];
    if (!p->base[0]) return;
    last_component(theirs, p->base);
    last_component(ours, path);
    if (strcmp(theirs, ours) != 0)
        bt_text_printf(notes,
                       BT_PEFT_CONFIG
                       " names '%.200s' as the base of the adapters; the base here is "
                       "'%.200s'\n",
                       p->base, path);
}
