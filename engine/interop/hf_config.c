/* hf_config.c - config.json, read with the defaults of transformers' classes. */
#include "engine/interop/hf_config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/file_io.h"
#include "engine/data/io/json.h"
#include "engine/interop/keys/hf_keys.h"

enum { CONFIG_MAX = 4 << 20 };

static bool is_absent_or_null(const json_t *v) { return !v || json_is_null(v); }

static bt_code read_hf_integer(json_t *o, const char *key, long long least, long long most,
                               int *out, bt_err *err) {
    json_t *v = json_object_get(o, key);
    if (!json_is_integer(v))
        return bt_fail(err, BT_FORMAT, "'%s' is %s", key,
                       is_absent_or_null(v) ? "missing" : "not a whole number");
    if (json_integer_value(v) < least || json_integer_value(v) > most)
        return bt_fail(err, BT_UNSUPPORTED, "'%s' is %lld; %lld to %lld is possible here", key,
                       (long long)json_integer_value(v), least, most);
    *out = (int)json_integer_value(v);
    return BT_OK;
}

static bt_code whole_or(json_t *o, const char *key, int otherwise, long long most, int *out,
                        bt_err *err) {
    *out = otherwise;
    return is_absent_or_null(json_object_get(o, key)) ? BT_OK
                                                      : read_hf_integer(o, key, 1, most, out, err);
}

static bt_code real_or(json_t *o, const char *key, double otherwise, double *out, bt_err *err) {
    json_t *v = json_object_get(o, key);
    *out = otherwise;
    if (is_absent_or_null(v)) return BT_OK;
    if (!json_is_number(v) || !(json_number_value(v) > 0))
        return bt_fail(err, BT_FORMAT, "'%s' is not a positive number", key);
    *out = json_number_value(v);
    return BT_OK;
}

static bt_code read_hf_flag(json_t *o, const char *key, bool otherwise, bool *out, bt_err *err) {
    json_t *v = json_object_get(o, key);
    *out = otherwise;
    if (is_absent_or_null(v)) return BT_OK;
    if (!json_is_boolean(v)) return bt_fail(err, BT_FORMAT, "'%s' is not true or false", key);
    *out = json_is_true(v);
    return BT_OK;
}

/* 1bitLLM's class: BitNet's layers under other names, always ternary; its type is that of Llama or its own */
static const bt_arch_row onebit = {.hf_class = "BitnetForCausalLM",
                                   .model_type = "llama",
                                   .norm = BT_NORM_SUBLN,
                                   .theta = 10000,
                                   .eps = 1e-5,
                                   .act = "silu"};
enum { MISTRAL_WINDOW = 4096 }; /* if config.json has no sliding_window */

static void known_classes(bt_text *out) {
    for (int a = 0; a < BT_ARCH_COUNT; a++)
        bt_text_printf(out, "%s%s", a ? ", " : "", bt_arch_at((bt_arch)a)->hf_class);
    bt_text_printf(out, ", %s", onebit.hf_class);
}

static bool is_class(const bt_arch_row *row, const char *name, const char *type) {
    return name ? strcmp(name, row->hf_class) == 0 : type && strcmp(type, row->model_type) == 0;
}

/* *row: the defaults of the class, *out: what computes it */
static bt_code read_arch(json_t *o, bt_arch *out, const bt_arch_row **row, bt_err *err) {
    const char *name = json_string_value(json_array_get(json_object_get(o, "architectures"), 0)),
               *type = json_string_value(json_object_get(o, "model_type"));
    *row = NULL;
    for (int a = 0; a < BT_ARCH_COUNT && !*row; a++)
        if (is_class(bt_arch_at((bt_arch)a), name, type))
            *out = (bt_arch)a, *row = bt_arch_at((bt_arch)a);
    if (!*row && name && strcmp(name, onebit.hf_class) == 0) {
        *out = BT_ARCH_BITNET;
        *row = &onebit;
        return BT_OK;
    }
    if (*row && type && strcmp(type, (*row)->model_type) != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "'model_type' is '%.40s', but 'architectures' is '%s', whose type is '%s': "
                       "the two may compute different things",
                       type, (*row)->hf_class, (*row)->model_type);
    if (*row) return BT_OK;
    bt_text known = {0};
    known_classes(&known);
    bt_code code = name || type
                       ? bt_fail(err, BT_UNSUPPORTED,
                                 "the architecture '%.60s' is not known here (known: %s)",
                                 name ? name : type, bt_text_str(&known))
                       : bt_fail(err, BT_FORMAT, "it has neither 'architectures' nor 'model_type'");
    bt_text_release(&known);
    return code;
}

/* keys that change the computation, with the values that have no effect */
static bt_code refuse_the_unknown(json_t *o, bt_err *err) {
    static const char *const off[] = {"attention_bias", "mlp_bias", "use_sliding_window",
                                      "qkv_bias", "use_bias"};
    json_t *v = json_object_get(o, "layer_types"), *kind;
    size_t i;
    for (i = 0; i < sizeof off / sizeof *off; i++)
        if (!bt_hf_is_off(json_object_get(o, off[i])))
            return bt_fail(err, BT_UNSUPPORTED, "'%s' is true: models here have none", off[i]);
    json_array_foreach(
        v, i, kind) if (!json_is_string(kind) ||
                        strcmp(json_string_value(kind), "full_attention") !=
                            0) return bt_fail(err, BT_UNSUPPORTED,
                                              "layer %zu has attention of the kind '%.40s'", i,
                                              json_is_string(kind) ? json_string_value(kind) : "?");
    v = json_object_get(o, "partial_rotary_factor");
    if (!is_absent_or_null(v) && json_number_value(v) != 1)
        return bt_fail(err, BT_UNSUPPORTED, "'partial_rotary_factor' is not 1");
    return BT_OK;
}

/* 1bitLLM's class has other numbers of bits, which its published models do not use */
static bt_code check_bits(json_t *o, const bt_arch_row *row, bt_err *err) {
    static const struct {
        const char *key;
        int bits;
    } keys[] = {{"weight_bits", 1}, {"input_bits", 8}};
    for (size_t i = 0; i < 2; i++) {
        json_t *v = json_object_get(o, keys[i].key);
        if (is_absent_or_null(v)) continue;
        if (row != &onebit || json_integer_value(v) != keys[i].bits)
            return bt_fail(err, BT_UNSUPPORTED,
                           "'%s' is not %d of the class %s, which alone is computed here",
                           keys[i].key, keys[i].bits, onebit.hf_class);
    }
    return BT_OK;
}

/* a factor that no type explains scales in some program and not in another */
static bt_code check_unnamed_rope(json_t *rope, const char *key, bt_err *err) {
    const char *name;
    json_t *v;
    json_object_foreach(rope, name, v) {
        if (!bt_hf_is_off(v) && strcmp(name, "rope_theta") != 0 &&
            strcmp(name, "partial_rotary_factor") != 0 &&
            !(json_is_number(v) && json_number_value(v) == 1))
            return bt_fail(
                err, BT_UNSUPPORTED,
                "'%s' has '%.40s' but names no 'rope_type': whether it scales the rotary "
                "embedding is unknown",
                key, name);
    }
    return BT_OK;
}

/* The words of rope_type, in the order of bt_rope_method. */
static const char *const rope_types[] = {"default", "linear", "llama3", "yarn"};
enum { ROPE_TYPES = sizeof rope_types / sizeof *rope_types };

/* the factor on cosine and sine of DeepSeek's variant of yarn */
static double yarn_scale(double factor, double by) {
    return factor > 1 ? 0.1 * by * log(factor) + 1 : 1;
}

static bt_code read_yarn(json_t *rope, bt_rope_scaling *s, bt_err *err) {
    double by = 0, by_all = 0;
    json_t *truncate = json_object_get(rope, "truncate");
    if (truncate && !json_is_true(truncate) && !json_is_null(truncate))
        return bt_fail(err, BT_UNSUPPORTED, "'truncate' of yarn is not true");
    BT_TRY(real_or(rope, "beta_slow", 1, &s->low, err));
    BT_TRY(real_or(rope, "beta_fast", 32, &s->high, err));
    BT_TRY(real_or(rope, "attention_factor", 0, &s->attention, err));
    if (s->attention > 0 || bt_hf_is_off(json_object_get(rope, "mscale"))) return BT_OK;
    BT_TRY(real_or(rope, "mscale", 1, &by, err));
    if (bt_hf_is_off(json_object_get(rope, "mscale_all_dim"))) return BT_OK; /* as transformers */
    BT_TRY(real_or(rope, "mscale_all_dim", 1, &by_all, err));
    s->attention = yarn_scale(s->factor, by) / yarn_scale(s->factor, by_all);
    return BT_OK;
}

/* rope: rope_parameters (transformers 5) or rope_scaling; length: max_position_embeddings */
static bt_code read_scaling(json_t *rope, const char *key, int length, bt_rope_scaling *out,
                            bt_err *err) {
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    json_t *partial = json_object_get(rope, "partial_rotary_factor");
    int method = 0;
    if (!type) type = json_string_value(json_object_get(rope, "type"));
    if (is_absent_or_null(rope)) return BT_OK;
    if (!json_is_object(rope)) return bt_fail(err, BT_FORMAT, "'%s' is no object", key);
    if (!is_absent_or_null(partial) && json_number_value(partial) != 1)
        return bt_fail(err, BT_UNSUPPORTED, "'partial_rotary_factor' of '%s' is not 1", key);
    if (!type) return check_unnamed_rope(rope, key, err);
    while (method < ROPE_TYPES && strcmp(type, rope_types[method]) != 0) method++;
    if (method == ROPE_TYPES)
        return bt_fail(err, BT_UNSUPPORTED,
                       "'%s' scales the rotary embedding by the method '%.40s', which is not "
                       "computed here (known: default, linear, llama3, yarn)",
                       key, type);
    if (method == BT_ROPE_PLAIN) return BT_OK;
    *out = (bt_rope_scaling){.method = (bt_rope_method)method, .low = 1, .high = 4};
    if (is_absent_or_null(json_object_get(rope, "factor")))
        return bt_fail(err, BT_FORMAT, "'%s' has no 'factor' for the method '%s'", key, type);
    BT_TRY(real_or(rope, "factor", 1, &out->factor, err));
    if (method == BT_ROPE_LINEAR) return BT_OK;
    BT_TRY(whole_or(rope, "original_max_position_embeddings", length, 1 << 30, &out->context, err));
    if (method == BT_ROPE_YARN) return read_yarn(rope, out, err);
    BT_TRY(real_or(rope, "low_freq_factor", 1, &out->low, err));
    return real_or(rope, "high_freq_factor", 4, &out->high, err);
}

static bt_code read_rope(json_t *o, double otherwise, bt_model_cfg *m, bt_text *notes,
                         bt_err *err) {
    json_t *now = json_object_get(o, "rope_parameters"), *old = json_object_get(o, "rope_scaling");
    double top, *theta = &m->rope_theta;
    BT_TRY(read_scaling(old, "rope_scaling", m->T, &m->rope, err));
    BT_TRY(read_scaling(now, "rope_parameters", m->T, &m->rope, err));
    BT_TRY(real_or(o, "rope_theta", otherwise, &top, err));
    BT_TRY(real_or(now, "rope_theta", top, theta, err));
    if (notes && *theta != top && !is_absent_or_null(json_object_get(o, "rope_theta")))
        bt_text_printf(notes,
                       "config.json has rope_theta %g in rope_parameters and %g beside it: the "
                       "former is used, as in transformers 5\n",
                       *theta, top);
    return BT_OK;
}

static bt_code read_linear(json_t *o, bt_hf_linear *out, bt_err *err) {
    json_t *q = json_object_get(o, "quantization_config"), *skip, *name;
    const char *method = json_string_value(json_object_get(q, "quant_method")),
               *class = json_string_value(json_object_get(q, "linear_class")),
               *mode = json_string_value(json_object_get(q, "quantization_mode"));
    size_t i;
    *out = BT_HF_DENSE;
    if (is_absent_or_null(q)) return BT_OK;
    if (!method || strcmp(method, "bitnet") != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "its weights are quantised by the method '%.40s'; only 'bitnet' is known "
                       "here",
                       method ? method : "?");
    if (json_is_true(json_object_get(q, "use_rms_norm")))
        return bt_fail(err, BT_UNSUPPORTED,
                       "'use_rms_norm' is true: a gained norm in front of every linear layer");
    skip = json_object_get(q, "modules_to_not_convert");
    json_array_foreach(
        skip, i,
        name) if (!json_is_string(name) ||
                  strcmp(json_string_value(name), "lm_head") !=
                      0) return bt_fail(err, BT_UNSUPPORTED,
                                        "'modules_to_not_convert' names layers besides the "
                                        "head");
    const bool automatic = class && strcmp(class, "autobitlinear") == 0;
    if (class && !automatic && strcmp(class, "bitlinear") != 0)
        return bt_fail(err, BT_UNSUPPORTED, "'linear_class' is '%.40s'", class);
    if (mode && strcmp(mode, "online") == 0 && automatic)
        *out = BT_HF_LATENT;
    else if (!mode || strcmp(mode, "offline") == 0) /* transformers' default */
        *out = automatic ? BT_HF_CODES : BT_HF_CODES_INVERSE;
    else
        return bt_fail(err, BT_UNSUPPORTED, "'quantization_mode' is '%.40s' with '%.40s'", mode,
                       class ? class : "bitlinear");
    return BT_OK;
}

static bt_code read_hf_activation(json_t *o, const char *otherwise, bt_act *out, bt_err *err) {
    json_t *v = json_object_get(o, "hidden_act");
    const char *word = is_absent_or_null(v) ? otherwise : json_string_value(v);
    if (word && strcmp(word, "silu") == 0)
        *out = BT_ACT_SILU;
    else if (word && strcmp(word, "relu2") == 0)
        *out = BT_ACT_RELU2;
    else
        return bt_fail(err, BT_UNSUPPORTED,
                       "the activation '%.40s' is not computed here (relu2, silu)",
                       word ? word : "?");
    return BT_OK;
}

/* Token id, or -1 if the key is null, absent, or not a token id, which adds a note. */
static int32_t hf_token_id(json_t *v, const char *key, bt_text *notes) {
    const double id = json_number_value(v); /* parsers of long numbers make reals of all */
    if (is_absent_or_null(v)) return -1;
    if (json_is_number(v) && id >= 0 && id < 1 << 20 && id == floor(id)) return (int32_t)id;
    if (notes) bt_text_printf(notes, "'%s' holds something that is no token id\n", key);
    return -1;
}

static void read_hf_roles(json_t *o, bt_token_roles *roles, bt_text *notes) {
    json_t *ends = json_object_get(o, "eos_token_id");
    const size_t n = json_is_array(ends) ? json_array_size(ends) : 1;
    bool fits = true;
    if (!roles->known) *roles = (bt_token_roles){.known = true, .bos = -1, .pad = -1};
    if (roles->bos < 0)
        roles->bos = hf_token_id(json_object_get(o, "bos_token_id"), "bos_token_id", notes);
    if (roles->pad < 0)
        roles->pad = hf_token_id(json_object_get(o, "pad_token_id"), "pad_token_id", notes);
    for (size_t i = 0; i < n; i++) {
        const int32_t id = hf_token_id(json_is_array(ends) ? json_array_get(ends, i) : ends,
                                       "eos_token_id", notes);
        if (id >= 0) fits &= bt_token_roles_add_end(roles, id);
    }
    if (!fits && notes)
        bt_text_printf(notes, "'eos_token_id' lists more than %d tokens: the first ones are kept\n",
                       BT_ENDS_MAX);
}

static bt_code read_hf_sizes(json_t *o, const bt_arch_row *row, bt_model_cfg *m, bt_err *err) {
    BT_TRY(read_hf_integer(o, "num_hidden_layers", 1, 1024, &m->L, err));
    BT_TRY(read_hf_integer(o, "hidden_size", 1, 65536, &m->C, err));
    BT_TRY(read_hf_integer(o, "intermediate_size", 1, 1048576, &m->F, err));
    BT_TRY(read_hf_integer(o, "vocab_size", 2, 1048576, &m->V, err));
    BT_TRY(read_hf_integer(o, "num_attention_heads", 1, 1024, &m->H, err));
    BT_TRY(whole_or(o, "num_key_value_heads", row->kv ? row->kv : m->H, 1024, &m->KV, err));
    BT_TRY(whole_or(o, "head_dim", row->qk_norm ? 128 : m->C / m->H, 1024, &m->D, err));
    return whole_or(o, "max_position_embeddings", 2048, 1 << 30, &m->T, err);
}

/* The layers without rotary embedding of SmolLM3: every Nth one. transformers takes the list if there is one. */
static bt_code read_no_rope(json_t *o, const bt_arch_row *row, bt_model_cfg *m, bt_err *err) {
    json_t *list = json_object_get(o, "no_rope_layers");
    int every = 0;
    if (!row->no_rope) return BT_OK;
    BT_TRY(whole_or(o, "no_rope_layer_interval", row->no_rope, 1024, &every, err));
    const bool listed = !is_absent_or_null(list);
    if (listed && json_array_size(list) < (size_t)m->L)
        return bt_fail(err, BT_FORMAT, "'no_rope_layers' is no list of %d layers", m->L);
    if (listed) every = 0;
    for (int i = 0; listed && i < m->L; i++) {
        const bool without = bt_hf_is_off(json_array_get(list, (size_t)i));
        if (without && !every) every = i + 1;
        if (without != (every && (i + 1) % every == 0))
            return bt_fail(err, BT_UNSUPPORTED, "'no_rope_layers' is not every Nth layer");
    }
    m->no_rope_every = every > m->L ? 0 : every;
    return BT_OK;
}

/* A window that is at least as long as every text has no effect. */
static bt_code read_hf_window(json_t *o, const bt_arch_row *row, bt_model_cfg *m, bt_err *err) {
    json_t *v = json_object_get(o, "sliding_window");
    const bool mistral = row == bt_arch_at(BT_ARCH_MISTRAL);
    int window = MISTRAL_WINDOW;
    if (!row->window || json_is_null(v) || (!v && !mistral)) return BT_OK;
    if (v) BT_TRY(read_hf_integer(o, "sliding_window", 1, 1 << 30, &window, err));
    m->window = window < m->T ? window : 0;
    return BT_OK;
}

static bt_code read_hf_keys(bt_hf_config *c, json_t *o, bt_text *notes, bt_err *err) {
    bt_model_cfg *m = &c->model;
    const bt_arch_row *row;
    BT_TRY(read_arch(o, &c->arch, &row, err));
    *m = (bt_model_cfg){
        .norm = row->norm, .qk_norm = row->qk_norm, .qkv_bias = row->qkv_bias, .init_std = 0.02};
    BT_TRY(read_hf_sizes(o, row, m, err));
    BT_TRY(read_hf_window(o, row, m, err));
    BT_TRY(refuse_the_unknown(o, err));
    BT_TRY(read_no_rope(o, row, m, err));
    BT_TRY(bt_hf_keys_check(o, row->no_rope > 0, notes, err));
    BT_TRY(read_hf_activation(o, row->act, &m->act, err));
    BT_TRY(read_rope(o, row->theta, m, notes, err));
    BT_TRY(real_or(o, "rms_norm_eps", row->eps, &m->norm_eps, err));
    BT_TRY(read_hf_flag(o, "tie_word_embeddings", row->tied, &m->tied, err));
    BT_TRY(check_bits(o, row, err));
    BT_TRY(read_linear(o, &c->linear, err));
    if (row == &onebit && c->linear == BT_HF_DENSE) c->linear = BT_HF_LATENT;
    m->linear = c->linear == BT_HF_DENSE ? BT_LIN_DENSE : BT_LIN_BITNET158;
    read_hf_roles(o, &c->roles, notes);
    if (notes && c->arch == BT_ARCH_BITNET && c->linear == BT_HF_DENSE)
        bt_text_put(notes,
                    "config.json has no quantization_config: its linear layers are taken for "
                    "full-precision ones, as transformers does\n");
    return bt_model_cfg_check(m, err);
}

bt_code bt_hf_config_read(bt_hf_config *out, const char *path, bt_text *notes, bt_err *err) {
    char *text = NULL;
    size_t n;
    json_t *root = NULL;
    bt_err why = BT_ERR_INIT;
    memset(out, 0, sizeof *out);
    bt_code code = bt_file_slurp(path, CONFIG_MAX, &text, &n, &why);
    if (code == BT_OK) code = bt_json_parse(&root, text, n, &why);
    free(text);
    if (code == BT_OK) code = read_hf_keys(out, root, notes, &why);
    json_decref(root);
    if (code == BT_OK) return BT_OK;
    /* a model that makes no sense is a wrong file here, not a wrong argument */
    return bt_fail(err, code == BT_ARG ? BT_FORMAT : code, "'%s': %s", path, why.msg);
}

bt_code bt_hf_generation_read(bt_token_roles *roles, const char *path, bt_text *notes,
                              bt_err *err) {
    char *text = NULL;
    size_t n;
    json_t *root = NULL;
    bt_err why = BT_ERR_INIT;
    bt_code code = bt_file_slurp(path, CONFIG_MAX, &text, &n, &why);
    if (code == BT_NOTFOUND) return BT_OK;
    if (code == BT_OK) code = bt_json_parse_big(&root, text, n, &why);
    free(text);
    if (code == BT_OK) read_hf_roles(root, roles, notes);
    json_decref(root);
    return code == BT_OK ? BT_OK : bt_fail(err, code, "'%s': %s", path, why.msg);
}

/* ---- writing --------------------------------------------------------------------------------- */

static const char *dtype_of(bt_number number) {
    return number == BT_NUM_BF16 ? "bfloat16" : number == BT_NUM_F16 ? "float16" : "float32";
}

/* Writes a decimal point, even for a whole number: typed readers distinguish 10000 from 10000.0. */
static void write_real(bt_json *j, const char *key, double v) {
    char text[40];
    if (fabs(v) < 1e15 && v == floor(v))
        snprintf(text, sizeof text, "%.1f", v);
    else
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, v);
            if (strtod(text, NULL) == v) break;
        }
    bt_json_raw(j, key, text);
}

static void write_scaling(bt_json *j, const bt_rope_scaling *r) {
    bt_json_str(j, "rope_type", rope_types[r->method]);
    if (r->method == BT_ROPE_PLAIN) return;
    write_real(j, "factor", r->factor);
    if (r->method == BT_ROPE_LINEAR) return;
    bt_json_int(j, "original_max_position_embeddings", r->context);
    write_real(j, r->method == BT_ROPE_YARN ? "beta_slow" : "low_freq_factor", r->low);
    write_real(j, r->method == BT_ROPE_YARN ? "beta_fast" : "high_freq_factor", r->high);
    if (r->attention > 0) write_real(j, "attention_factor", r->attention);
}

static void write_rope(bt_json *j, const bt_model_cfg *m) {
    bt_json_object(j, "rope_parameters");
    write_scaling(j, &m->rope);
    write_real(j, "rope_theta", m->rope_theta);
    bt_json_end(j, '}');
    write_real(j, "rope_theta", m->rope_theta); /* transformers 4 */
    if (m->rope.method == BT_ROPE_PLAIN) return;
    bt_json_object(j, "rope_scaling");
    write_scaling(j, &m->rope);
    bt_json_end(j, '}');
}

static void write_linear(bt_json *j, bt_hf_linear linear) {
    if (linear == BT_HF_DENSE) return;
    bt_json_object(j, "quantization_config");
    bt_json_str(j, "quant_method", "bitnet");
    bt_json_str(j, "linear_class", linear == BT_HF_CODES_INVERSE ? "bitlinear" : "autobitlinear");
    bt_json_str(j, "quantization_mode", linear == BT_HF_LATENT ? "online" : "offline");
    bt_json_end(j, '}');
}

void bt_hf_roles_write(bt_json *j, const bt_token_roles *r, bool generation) {
    if (r->bos >= 0)
        bt_json_int(j, "bos_token_id", r->bos);
    else if (!generation)
        bt_json_null(j, "bos_token_id");
    if (r->n_ends > 1) {
        bt_json_array(j, "eos_token_id");
        for (size_t i = 0; i < r->n_ends; i++) bt_json_int(j, NULL, r->ends[i]);
        bt_json_end(j, ']');
    } else if (r->n_ends) {
        bt_json_int(j, "eos_token_id", r->ends[0]);
    } else if (!generation) {
        bt_json_null(j, "eos_token_id");
    }
    if (r->pad >= 0)
        bt_json_int(j, "pad_token_id", r->pad);
    else if (!generation)
        bt_json_null(j, "pad_token_id");
}

void bt_hf_config_write(bt_text *out, const bt_hf_config *c, bt_number number) {
    const bt_model_cfg *m = &c->model;
    const bt_arch_row *row = bt_arch_at(c->arch);
    bt_json j;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_array(&j, "architectures");
    bt_json_str(&j, NULL, row->hf_class);
    bt_json_end(&j, ']');
    bt_json_str(&j, "model_type", row->model_type);
    bt_json_int(&j, "vocab_size", m->V);
    bt_json_int(&j, "hidden_size", m->C);
    bt_json_int(&j, "intermediate_size", m->F);
    bt_json_int(&j, "num_hidden_layers", m->L);
    bt_json_int(&j, "num_attention_heads", m->H);
    bt_json_int(&j, "num_key_value_heads", m->KV);
    if (c->arch != BT_ARCH_BITNET && c->arch != BT_ARCH_QWEN2) bt_json_int(&j, "head_dim", m->D);
    bt_json_int(&j, "max_position_embeddings", m->T);
    bt_json_str(&j, "hidden_act", m->act == BT_ACT_SILU ? "silu" : "relu2");
    write_real(&j, "rms_norm_eps", m->norm_eps);
    write_rope(&j, m);
    bt_json_bool(&j, "tie_word_embeddings", m->tied);
    if (c->arch != BT_ARCH_QWEN2) bt_json_bool(&j, "attention_bias", false);
    write_real(&j, "attention_dropout", 0);
    if (row->window) bt_json_int(&j, "sliding_window", m->window);
    if (c->arch == BT_ARCH_LLAMA) {
        bt_json_bool(&j, "mlp_bias", false);
        bt_json_int(&j, "pretraining_tp", 1);
    }
    if (c->arch == BT_ARCH_SMOLLM3) {
        bt_json_bool(&j, "mlp_bias", false);
        bt_json_array(&j, "no_rope_layers");
        for (int i = 0; i < m->L; i++) bt_json_int(&j, NULL, (i + 1) % m->no_rope_every != 0);
        bt_json_end(&j, ']');
        bt_json_int(&j, "no_rope_layer_interval", m->no_rope_every);
    }
    if (c->arch == BT_ARCH_QWEN3 || c->arch == BT_ARCH_QWEN2) {
        bt_json_array(&j, "layer_types");
        for (int i = 0; i < m->L; i++) bt_json_str(&j, NULL, "full_attention");
        bt_json_end(&j, ']');
        bt_json_int(&j, "max_window_layers", m->L);
        bt_json_null(&j, "sliding_window");
        bt_json_bool(&j, "use_sliding_window", false);
    }
    bt_hf_roles_write(&j, &c->roles, false);
    write_real(&j, "initializer_range", m->init_std);
    bt_json_bool(&j, "use_cache", true);
    bt_json_str(&j, "dtype", dtype_of(number));
    bt_json_str(&j, "torch_dtype", dtype_of(number)); /* transformers 4 */
    write_linear(&j, c->linear);
    bt_json_end(&j, '}');
    bt_text_put(out, "\n");
}
