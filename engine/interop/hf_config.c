/* hf_config.c - reads config.json with the defaults of transformers' classes. */
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
        return bt_fail(err, BT_UNSUPPORTED, "'%s' is %lld, but must be %lld to %lld", key,
                       (long long)json_integer_value(v), least, most);
    *out = (int)json_integer_value(v);
    return BT_OK;
}

static bt_code read_optional_integer(json_t *o, const char *key, int otherwise, long long most,
                                     int *out, bt_err *err) {
    *out = otherwise;
    return is_absent_or_null(json_object_get(o, key)) ? BT_OK
                                                      : read_hf_integer(o, key, 1, most, out, err);
}

static bt_code read_optional_number(json_t *o, const char *key, double otherwise, double *out,
                                    bt_err *err) {
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

/* The class of 1bitLLM: BitNet's layers under other names, always ternary. Its type: Llama's or its own. */
static const bt_arch_row onebit = {.hf_class = "BitnetForCausalLM",
                                   .model_type = "llama",
                                   .norm = BT_NORM_SUBLN,
                                   .theta = 10000,
                                   .eps = 1e-5,
                                   .act = "silu"};

static void known_classes(bt_text *out) {
    for (int a = 0; a < BT_ARCH_COUNT; a++)
        bt_text_printf(out, "%s%s", a ? ", " : "", bt_arch_at((bt_arch)a)->hf_class);
    bt_text_printf(out, ", %s", onebit.hf_class);
}

static bool is_class(const bt_arch_row *row, const char *name, const char *type) {
    return name ? strcmp(name, row->hf_class) == 0 : type && strcmp(type, row->model_type) == 0;
}

/* *row: receives the defaults of the class; *out: the architecture that computes it. */
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
                       "these may compute differently",
                       type, (*row)->hf_class, (*row)->model_type);
    if (*row) return BT_OK;
    bt_text known = {0};
    known_classes(&known);
    bt_code code = name || type
                       ? bt_fail(err, BT_UNSUPPORTED,
                                 "the architecture '%.60s' is not supported (supported: %s)",
                                 name ? name : type, bt_text_str(&known))
                       : bt_fail(err, BT_FORMAT, "it has neither 'architectures' nor 'model_type'");
    bt_text_release(&known);
    return code;
}

/* Refuses keys that change the computation, unless their value has no effect. */
static bt_code refuse_unsupported_keys(json_t *o, const bt_arch_row *row, bt_err *err) {
    static const char *const off[] = {"attention_bias", "mlp_bias", "use_sliding_window",
                                      "qkv_bias", "use_bias"};
    json_t *v;
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (!bt_hf_is_off(json_object_get(o, off[i])))
            return bt_fail(err, BT_UNSUPPORTED, "'%s' is true, which is not supported", off[i]);
    v = json_object_get(o, "partial_rotary_factor");
    if (!row->partial && !is_absent_or_null(v) && json_number_value(v) != 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "'partial_rotary_factor' is not 1, which this class does not support");
    return BT_OK;
}

/* The class of 1bitLLM permits other numbers of bits, which its published models do not use. */
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
                           "'%s' is not %d with the class %s; nothing else is supported",
                           keys[i].key, keys[i].bits, onebit.hf_class);
    }
    return BT_OK;
}

/* A factor without a type scales the rotary embedding in some programs and has no effect in others. */
static bt_code check_unnamed_rope(json_t *rope, const char *key, bt_err *err) {
    const char *name;
    json_t *v;
    json_object_foreach(rope, name, v) {
        if (!bt_hf_is_off(v) && strcmp(name, "rope_theta") != 0 &&
            strcmp(name, "partial_rotary_factor") != 0 &&
            !(json_is_number(v) && json_number_value(v) == 1))
            return bt_fail(err, BT_UNSUPPORTED,
                           "'%s' has '%.40s' but no 'rope_type', so it is unknown whether it "
                           "scales the rotary embedding",
                           key, name);
    }
    return BT_OK;
}

const char *const bt_hf_rope_types[] = {"default", "linear", "llama3", "yarn", "longrope"};
enum { ROPE_TYPES = sizeof bt_hf_rope_types / sizeof *bt_hf_rope_types };

/* Returns the factor on cosine and sine of DeepSeek's variant of yarn. */
static double yarn_attention_factor(double factor, double by) {
    return factor > 1 ? 0.1 * by * log(factor) + 1 : 1;
}

static bt_code read_yarn(json_t *rope, bt_rope_scaling *s, bt_err *err) {
    double by = 0, by_all = 0;
    json_t *truncate = json_object_get(rope, "truncate");
    if (truncate && !json_is_true(truncate) && !json_is_null(truncate))
        return bt_fail(err, BT_UNSUPPORTED, "'truncate' of yarn is false, which is not supported");
    BT_TRY(read_optional_number(rope, "beta_slow", 1, &s->low, err));
    BT_TRY(read_optional_number(rope, "beta_fast", 32, &s->high, err));
    BT_TRY(read_optional_number(rope, "attention_factor", 0, &s->attention, err));
    if (s->attention > 0 || bt_hf_is_off(json_object_get(rope, "mscale"))) return BT_OK;
    BT_TRY(read_optional_number(rope, "mscale", 1, &by, err));
    if (bt_hf_is_off(json_object_get(rope, "mscale_all_dim")))
        return BT_OK; /* as transformers does */
    BT_TRY(read_optional_number(rope, "mscale_all_dim", 1, &by_all, err));
    s->attention = yarn_attention_factor(s->factor, by) / yarn_attention_factor(s->factor, by_all);
    return BT_OK;
}

static bt_code read_hf_divisors(json_t *rope, const char *key, bt_rope_divisors *out, bt_err *err) {
    json_t *list = json_object_get(rope, key), *v;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > BT_ROPE_PAIRS)
        return bt_fail(err, BT_FORMAT, "'%s' of longrope is %s", key,
                       list ? "not a list of at most 128 numbers" : "missing");
    out->n = (int)json_array_size(list);
    json_array_foreach(list, i, v) {
        out->by[i] = (float)json_number_value(v);
        if (!(out->by[i] > 0) || isinf(out->by[i]))
            return bt_fail(err, BT_FORMAT, "number %zu of '%s' is not positive", i, key);
    }
    return BT_OK;
}

/* m: T is max_position_embeddings, from which transformers computes the factor. top: config.json, whose length of texts
 * before the scaling has priority. phi: the class is that of Phi-3. */
static bt_code read_longrope(json_t *rope, json_t *top, bool phi, const bt_model_cfg *m,
                             bt_rope_scaling *s, bt_err *err) {
    static const char *const other[] = {"short_mscale", "long_mscale"};
    static const char key[] = "original_max_position_embeddings";
    const int pairs = (int)bt_model_rotary(m) / 2;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (!is_absent_or_null(json_object_get(rope, other[i])))
            return bt_fail(err, BT_UNSUPPORTED, "'%s' of longrope is not supported", other[i]);
    BT_TRY(read_hf_divisors(rope, "short_factor", &s->shorter, err));
    BT_TRY(read_hf_divisors(rope, "long_factor", &s->longer, err));
    if (s->shorter.n != pairs || s->longer.n != pairs)
        return bt_fail(err, BT_FORMAT,
                       "longrope has %d short factors and %d long ones, but must have %d of each, "
                       "one for each rotating pair of a head",
                       s->shorter.n, s->longer.n, pairs);
    s->context = phi ? 4096 : m->T; /* the defaults of transformers */
    if (!is_absent_or_null(json_object_get(top, key))) rope = top;
    if (is_absent_or_null(json_object_get(rope, key))) return BT_OK;
    return read_hf_integer(rope, key, 2, 1 << 30, &s->context, err);
}

/* rope: rope_parameters (transformers 5) or rope_scaling. top: config.json. partially: only a part of each head of the
 * class may rotate. m: T is max_position_embeddings. */
static bt_code read_scaling(json_t *rope, const char *key, json_t *top, bool partially,
                            const bt_model_cfg *m, bt_rope_scaling *out, bt_err *err) {
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    json_t *partial = json_object_get(rope, "partial_rotary_factor");
    int method = 0;
    if (!type) type = json_string_value(json_object_get(rope, "type"));
    if (is_absent_or_null(rope)) return BT_OK;
    if (!json_is_object(rope)) return bt_fail(err, BT_FORMAT, "'%s' is not an object", key);
    if (!partially && !is_absent_or_null(partial) && json_number_value(partial) != 1)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "'partial_rotary_factor' of '%s' is not 1, which this class does not support", key);
    if (!type) return check_unnamed_rope(rope, key, err);
    /* Phi-3's first files have this name, also for the class in transformers. */
    if (json_object_get(rope, "short_factor") &&
        (strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0))
        type = "longrope";
    while (method < ROPE_TYPES && strcmp(type, bt_hf_rope_types[method]) != 0) method++;
    if (method == ROPE_TYPES)
        return bt_fail(err, BT_UNSUPPORTED,
                       "'%s' scales the rotary embedding by the method '%.40s', which is not "
                       "supported (supported: default, linear, llama3, yarn, longrope)",
                       key, type);
    if (method == BT_ROPE_PLAIN) return BT_OK;
    *out = (bt_rope_scaling){.method = (bt_rope_method)method, .low = 1, .high = 4};
    if (method == BT_ROPE_LONGROPE) {
        BT_TRY(read_longrope(rope, top, partially, m, out, err));
        BT_TRY(
            read_optional_number(rope, "factor", (double)m->T / out->context, &out->factor, err));
        if (out->factor < 1) out->factor = 1; /* as transformers does */
        return read_optional_number(rope, "attention_factor", 0, &out->attention, err);
    }
    if (is_absent_or_null(json_object_get(rope, "factor")))
        return bt_fail(err, BT_FORMAT, "'%s' has no 'factor' for the method '%s'", key, type);
    BT_TRY(read_optional_number(rope, "factor", 1, &out->factor, err));
    if (method == BT_ROPE_LINEAR) return BT_OK;
    BT_TRY(read_optional_integer(rope, "original_max_position_embeddings", m->T, 1 << 30,
                                 &out->context, err));
    if (method == BT_ROPE_YARN) return read_yarn(rope, out, err);
    BT_TRY(read_optional_number(rope, "low_freq_factor", 1, &out->low, err));
    return read_optional_number(rope, "high_freq_factor", 4, &out->high, err);
}

/* Reads the bases and the scaling of a class with local layers: rope_parameters has an object for each kind. */
static bt_code read_local_rope(json_t *o, const bt_arch_row *row, json_t **now, bt_model_cfg *m,
                               bt_err *err) {
    json_t *local = json_object_get(*now, "sliding_attention");
    bt_rope_scaling scaling = {0};
    double top;
    BT_TRY(read_optional_number(o, "rope_local_base_freq", row->local_theta, &top, err));
    BT_TRY(read_optional_number(local, "rope_theta", top, &m->rope_local_theta, err));
    BT_TRY(read_scaling(local, "rope_parameters.sliding_attention", o, false, m, &scaling, err));
    if (scaling.method != BT_ROPE_PLAIN)
        return bt_fail(err, BT_UNSUPPORTED,
                       "'rope_parameters.sliding_attention' is scaled, which is not supported for "
                       "local layers");
    if (local || json_object_get(*now, "full_attention"))
        *now = json_object_get(*now, "full_attention");
    return BT_OK;
}

/* Reads the share of a head that rotates, which transformers rounds down to a whole number of elements. */
static bt_code read_partial_rotary(json_t *o, json_t *rope, bt_model_cfg *m, bt_err *err) {
    double top, factor;
    BT_TRY(read_optional_number(o, "partial_rotary_factor", 1, &top, err));
    BT_TRY(read_optional_number(rope, "partial_rotary_factor", top, &factor, err));
    const double dims = floor(factor * m->D);
    if (factor > 1 || dims < 2 || fmod(dims, 2) != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "'partial_rotary_factor' is %g, so %g of %d elements of a head would "
                       "rotate, but the number must be even",
                       factor, dims, m->D);
    m->rotary_dim = (int)dims < m->D ? (int)dims : 0;
    return BT_OK;
}

static bt_code read_rope(json_t *o, const bt_arch_row *row, bt_model_cfg *m, bt_text *notes,
                         bt_err *err) {
    json_t *now = json_object_get(o, "rope_parameters"), *old = json_object_get(o, "rope_scaling");
    double top, *theta = &m->rope_theta;
    if (row->local_theta > 0) BT_TRY(read_local_rope(o, row, &now, m, err));
    if (row->partial) BT_TRY(read_partial_rotary(o, now, m, err));
    BT_TRY(read_scaling(old, "rope_scaling", o, row->partial, m, &m->rope, err));
    BT_TRY(read_scaling(now, "rope_parameters", o, row->partial, m, &m->rope, err));
    BT_TRY(read_optional_number(o, "rope_theta", row->theta, &top, err));
    BT_TRY(read_optional_number(now, "rope_theta", top, theta, err));
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
        return bt_fail(
            err, BT_UNSUPPORTED,
            "its weights are quantised by the method '%.40s'; only 'bitnet' is supported",
            method ? method : "?");
    if (json_is_true(json_object_get(q, "use_rms_norm")))
        return bt_fail(err, BT_UNSUPPORTED,
                       "'use_rms_norm' is true: a norm with a gain before every linear layer is "
                       "not supported");
    skip = json_object_get(q, "modules_to_not_convert");
    json_array_foreach(
        skip, i, name) if (!json_is_string(name) ||
                           strcmp(json_string_value(name), "lm_head") !=
                               0) return bt_fail(err, BT_UNSUPPORTED,
                                                 "'modules_to_not_convert' names layers other than "
                                                 "the head, which is not supported");
    const bool automatic = class && strcmp(class, "autobitlinear") == 0;
    if (class && !automatic && strcmp(class, "bitlinear") != 0)
        return bt_fail(err, BT_UNSUPPORTED, "'linear_class' is '%.40s', which is not supported",
                       class);
    if (mode && strcmp(mode, "online") == 0 && automatic)
        *out = BT_HF_LATENT;
    else if (!mode || strcmp(mode, "offline") == 0) /* the default of transformers */
        *out = automatic ? BT_HF_CODES : BT_HF_CODES_INVERSE;
    else
        return bt_fail(err, BT_UNSUPPORTED,
                       "'quantization_mode' is '%.40s' with '%.40s', which is not supported", mode,
                       class ? class : "bitlinear");
    return BT_OK;
}

static bt_code read_hf_activation(json_t *o, const bt_arch_row *row, bt_act *out, bt_err *err) {
    static const struct {
        const char *word;
        bt_act act;
    } known[] = {{"silu", BT_ACT_SILU},
                 {"relu2", BT_ACT_RELU2},
                 {"gelu_pytorch_tanh", BT_ACT_GELU},
                 {"gelu_new", BT_ACT_GELU}};
    const bool gemma = strcmp(row->act, "gelu") == 0;
    json_t *v = json_object_get(o, "hidden_activation");
    if (!gemma || is_absent_or_null(v)) v = json_object_get(o, "hidden_act");
    const char *word = is_absent_or_null(v) ? row->act : json_string_value(v);
    /* The first files of Gemma have this word; transformers computes the form with tanh. */
    if (gemma && word && strcmp(word, "gelu") == 0) word = "gelu_pytorch_tanh";
    for (size_t i = 0; word && i < sizeof known / sizeof *known; i++)
        if (strcmp(word, known[i].word) == 0) {
            *out = known[i].act;
            return BT_OK;
        }
    return bt_fail(
        err, BT_UNSUPPORTED,
        "the activation '%.40s' is not supported (supported: relu2, silu, gelu_pytorch_tanh)",
        word ? word : "?");
}

/* Returns a token id, or -1 if the key is null, absent, or not a token id; the last case adds a note. */
static int32_t hf_token_id(json_t *v, const char *key, bt_text *notes) {
    const double id = json_number_value(v); /* parsers of long numbers make all numbers reals */
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
    BT_TRY(read_optional_integer(o, "num_key_value_heads", row->kv ? row->kv : m->H, 1024, &m->KV,
                                 err));
    BT_TRY(read_optional_integer(o, "head_dim",
                                 row->head_dim  ? row->head_dim
                                 : row->qk_norm ? 128
                                                : m->C / m->H,
                                 1024, &m->D, err));
    return read_optional_integer(o, "max_position_embeddings", 2048, 1 << 30, &m->T, err);
}

/* Reads which layers of SmolLM3 have no rotary embedding: every Nth layer, or those of the list, as in transformers. */
static bt_code read_no_rope(json_t *o, const bt_arch_row *row, bt_model_cfg *m, bt_err *err) {
    json_t *list = json_object_get(o, "no_rope_layers");
    int every = 0;
    if (!row->no_rope) return BT_OK;
    BT_TRY(read_optional_integer(o, "no_rope_layer_interval", row->no_rope, 1024, &every, err));
    const bool listed = !is_absent_or_null(list);
    if (listed && json_array_size(list) < (size_t)m->L)
        return bt_fail(err, BT_FORMAT, "'no_rope_layers' is not a list of %d layers", m->L);
    if (listed) every = 0;
    for (int i = 0; listed && i < m->L; i++) {
        const bool without = bt_hf_is_off(json_array_get(list, (size_t)i));
        if (without && !every) every = i + 1;
        if (without != (every && (i + 1) % every == 0))
            return bt_fail(
                err, BT_UNSUPPORTED,
                "'no_rope_layers' does not consist of every Nth layer, which is not supported");
    }
    m->no_rope_every = every > m->L ? 0 : every;
    return BT_OK;
}

static bt_code read_hf_window(json_t *o, const bt_arch_row *row, bt_model_cfg *m, bt_err *err) {
    json_t *v = json_object_get(o, "sliding_window");
    int window = row->sliding_window;
    if (!row->window || json_is_null(v) || (!v && !window)) return BT_OK;
    if (v) BT_TRY(read_hf_integer(o, "sliding_window", 1, 1 << 30, &window, err));
    m->window = window < m->T ? window : 0;
    return BT_OK;
}

/* Reads the kinds of layers: every Nth layer is global, as a list or as a number; without local ones all are. */
static bt_code read_layer_kinds(json_t *o, const bt_arch_row *row, bt_model_cfg *m, bt_err *err) {
    json_t *list = json_object_get(o, "layer_types"), *kind;
    const bool listed = !is_absent_or_null(list);
    int every = 0;
    size_t i = 0;
    if (row->window_every)
        BT_TRY(read_optional_integer(o, "sliding_window_pattern", row->window_every, 1024, &every,
                                     err));
    if (listed) every = 0;
    json_array_foreach(list, i, kind) {
        const char *word = json_is_string(kind) ? json_string_value(kind) : "?";
        const bool full = strcmp(word, "full_attention") == 0;
        if (!full && (!row->window_every || strcmp(word, "sliding_attention") != 0))
            return bt_fail(err, BT_UNSUPPORTED,
                           "layer %zu has attention of the kind '%.40s', which is not supported", i,
                           word);
        if (full && !every) every = (int)i + 1;
        if (row->window_every && full != (every && ((int)i + 1) % every == 0))
            return bt_fail(err, BT_UNSUPPORTED,
                           "full_attention in 'layer_types' is not in every Nth layer, which is "
                           "not supported");
    }
    if (!row->window_every) return BT_OK;
    if (listed && i < (size_t)m->L)
        return bt_fail(err, BT_FORMAT, "'layer_types' is not a list of %d layers", m->L);
    m->window_every = every;
    return BT_OK;
}

/* Reads the factor of queries, and soft limits. null, as transformers writes it, means no limit. */
static bt_code read_attention(json_t *o, const bt_arch_row *row, bt_model_cfg *m, bt_err *err) {
    static const char *const keys[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    double *caps[] = {&m->attention_cap, &m->logit_cap};
    if (!(row->query_scale > 0)) return BT_OK;
    BT_TRY(
        read_optional_number(o, "query_pre_attn_scalar", row->query_scale, &m->query_scale, err));
    for (int i = 0; i < 2; i++) {
        json_t *v = json_object_get(o, keys[i]);
        *caps[i] = v ? 0 : i ? row->logit_cap : row->attention_cap;
        if (v && !json_is_null(v)) BT_TRY(read_optional_number(o, keys[i], 0, caps[i], err));
    }
    return BT_OK;
}

static bt_code read_hf_keys(bt_hf_config *c, json_t *o, bt_text *notes, bt_err *err) {
    bt_model_cfg *m = &c->model;
    const bt_arch_row *row;
    BT_TRY(read_arch(o, &c->arch, &row, err));
    *m = (bt_model_cfg){
        .norm = row->norm, .qk_norm = row->qk_norm, .qkv_bias = row->qkv_bias, .init_std = 0.02};
    m->post_norm = row->post_norm;
    m->embed_scale = row->embed_scale;
    BT_TRY(read_hf_sizes(o, row, m, err));
    BT_TRY(read_hf_window(o, row, m, err));
    BT_TRY(refuse_unsupported_keys(o, row, err));
    BT_TRY(read_layer_kinds(o, row, m, err));
    BT_TRY(read_no_rope(o, row, m, err));
    BT_TRY(bt_hf_keys_check(o, row->own_keys, notes, err));
    BT_TRY(read_attention(o, row, m, err));
    BT_TRY(read_hf_activation(o, row, &m->act, err));
    BT_TRY(read_rope(o, row, m, notes, err));
    BT_TRY(read_optional_number(o, "rms_norm_eps", row->eps, &m->norm_eps, err));
    BT_TRY(read_hf_flag(o, "tie_word_embeddings", row->tied, &m->tied, err));
    BT_TRY(check_bits(o, row, err));
    BT_TRY(read_linear(o, &c->linear, err));
    if (row == &onebit && c->linear == BT_HF_DENSE) c->linear = BT_HF_LATENT;
    m->linear = c->linear == BT_HF_DENSE ? BT_LIN_DENSE : BT_LIN_BITNET158;
    read_hf_roles(o, &c->roles, notes);
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
    /* A model that is not possible means a wrong file here, not a wrong argument. */
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
