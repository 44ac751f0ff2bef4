/* hf_config_write.c - writes the config.json of a model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/interop/hf_config.h"

static const char *torch_dtype_name(bt_number number) {
    return number == BT_NUM_BF16 ? "bfloat16" : number == BT_NUM_F16 ? "float16" : "float32";
}

/* Writes a decimal point even for a whole number, because typed readers distinguish 10000 from 10000.0. */
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

static void write_hf_divisors(bt_json *j, const char *key, const bt_rope_divisors *d) {
    bt_json_array(j, key);
    for (int i = 0; i < d->n; i++) write_real(j, NULL, (double)d->by[i]);
    bt_json_end(j, ']');
}

static void write_scaling(bt_json *j, const bt_rope_scaling *r) {
    bt_json_str(j, "rope_type", bt_hf_rope_types[r->method]);
    if (r->method == BT_ROPE_PLAIN) return;
    if (r->method == BT_ROPE_LONGROPE) {
        write_hf_divisors(j, "short_factor", &r->shorter);
        write_hf_divisors(j, "long_factor", &r->longer);
        bt_json_int(j, "original_max_position_embeddings", r->context);
        write_real(j, "factor", r->factor);
        if (r->attention > 0) write_real(j, "attention_factor", r->attention);
        return;
    }
    write_real(j, "factor", r->factor);
    if (r->method == BT_ROPE_LINEAR) return;
    bt_json_int(j, "original_max_position_embeddings", r->context);
    write_real(j, r->method == BT_ROPE_YARN ? "beta_slow" : "low_freq_factor", r->low);
    write_real(j, r->method == BT_ROPE_YARN ? "beta_fast" : "high_freq_factor", r->high);
    if (r->attention > 0) write_real(j, "attention_factor", r->attention);
}

static void write_rope_parameters(bt_json *j, const char *key, const bt_rope_scaling *scaling,
                                  double theta) {
    bt_json_object(j, key);
    write_scaling(j, scaling);
    write_real(j, "rope_theta", theta);
    bt_json_end(j, '}');
}

static void write_rope(bt_json *j, const bt_model_cfg *m) {
    const bt_rope_scaling none = {0};
    double part = m->rotary_dim ? (double)m->rotary_dim / m->D : 1;
    if (floor(part * m->D) < m->rotary_dim) part = nextafter(part, 1);
    if (part < 1) write_real(j, "partial_rotary_factor", part);
    if (m->rope_local_theta > 0) {
        bt_json_object(j, "rope_parameters");
        write_rope_parameters(j, "full_attention", &m->rope, m->rope_theta);
        write_rope_parameters(j, "sliding_attention", &none, m->rope_local_theta);
        bt_json_end(j, '}');
        write_real(j, "rope_local_base_freq", m->rope_local_theta); /* transformers 4 */
    } else {
        write_rope_parameters(j, "rope_parameters", &m->rope, m->rope_theta);
    }
    write_real(j, "rope_theta", m->rope_theta); /* transformers 4 */
    if (m->rope.method == BT_ROPE_PLAIN) return;
    bt_json_object(j, "rope_scaling");
    if (m->rope.method == BT_ROPE_LONGROPE) {
        /* Phi-3 of transformers 4 permits only three keys, and refuses the fourth. */
        bt_json_str(j, "type", bt_hf_rope_types[m->rope.method]);
        write_hf_divisors(j, "short_factor", &m->rope.shorter);
        write_hf_divisors(j, "long_factor", &m->rope.longer);
        if (m->rope.attention > 0) write_real(j, "attention_factor", m->rope.attention);
    } else {
        write_scaling(j, &m->rope);
    }
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

static const char *activation_word(bt_act act) {
    return act == BT_ACT_GELU ? "gelu_pytorch_tanh" : act == BT_ACT_SILU ? "silu" : "relu2";
}

static void write_cap(bt_json *j, const char *key, double cap) {
    if (cap > 0)
        write_real(j, key, cap);
    else
        bt_json_null(j, key);
}

/* Writes the keys of a class with local and global layers. */
static void write_local_layers(bt_json *j, const bt_model_cfg *m) {
    /* A window without effect is longer than every text. */
    bt_json_int(j, "sliding_window", m->window > 0 ? m->window : m->T);
    bt_json_array(j, "layer_types");
    for (int i = 0; i < m->L; i++)
        bt_json_str(j, NULL,
                    bt_model_layer_is_local(m, i) ? "sliding_attention" : "full_attention");
    bt_json_end(j, ']');
    if (m->window_every && m->rope_local_theta > 0) /* Gemma 3 in transformers 4 */
        bt_json_int(j, "sliding_window_pattern", m->window_every);
    const double scale = m->query_scale > 0 ? m->query_scale : (double)m->D;
    if (scale == floor(scale)) /* transformers accepts only whole numbers */
        bt_json_int(j, "query_pre_attn_scalar", (int64_t)scale);
    else
        write_real(j, "query_pre_attn_scalar", scale);
    write_cap(j, "attn_logit_softcapping", m->attention_cap);
    write_cap(j, "final_logit_softcapping", m->logit_cap);
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
    bt_json_int(&j, "max_position_embeddings", bt_arch_longest_text(m));
    if (m->rope.method == BT_ROPE_LONGROPE) /* Phi-3 */
        bt_json_int(&j, "original_max_position_embeddings", m->rope.context);
    bt_json_str(&j, "hidden_act", activation_word(m->act));
    if (row->embed_scale) bt_json_str(&j, "hidden_activation", activation_word(m->act));
    write_real(&j, "rms_norm_eps", m->norm_eps);
    write_rope(&j, m);
    bt_json_bool(&j, "tie_word_embeddings", m->tied);
    if (c->arch != BT_ARCH_QWEN2) bt_json_bool(&j, "attention_bias", false);
    write_real(&j, "attention_dropout", 0);
    if (row->window_every)
        write_local_layers(&j, m);
    else if (row->window && m->window)
        bt_json_int(&j, "sliding_window", m->window);
    else if (row->window)
        bt_json_null(&j, "sliding_window");
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
    bt_json_str(&j, "dtype", torch_dtype_name(number));
    bt_json_str(&j, "torch_dtype", torch_dtype_name(number)); /* transformers 4 */
    write_linear(&j, c->linear);
    bt_json_end(&j, '}');
    bt_text_put(out, "\n");
}
