/* hf_keys.c - lists of keys, as of transformers 5.24. */
#include "engine/interop/keys/hf_keys.h"

#include <stdlib.h>

#include "engine/data/io/unread_keys.h"

/* hf_config.c reads these keys, refuse_numeric the last ones. */
static const char *const used[] = {"architectures",
                                   "model_type",
                                   "num_hidden_layers",
                                   "hidden_size",
                                   "intermediate_size",
                                   "vocab_size",
                                   "num_attention_heads",
                                   "num_key_value_heads",
                                   "head_dim",
                                   "max_position_embeddings",
                                   "hidden_act",
                                   "rms_norm_eps",
                                   "rope_theta",
                                   "rope_parameters",
                                   "rope_scaling",
                                   "partial_rotary_factor",
                                   "tie_word_embeddings",
                                   "quantization_config",
                                   "eos_token_id",
                                   "attention_bias",
                                   "mlp_bias",
                                   "qkv_bias",
                                   "use_bias",
                                   "layer_types",
                                   "use_sliding_window",
                                   "sliding_window",
                                   "max_window_layers",
                                   "is_causal",
                                   "weight_bits",
                                   "input_bits",
                                   NULL};
static const char *const used_of_rope[] = {"rope_type",
                                           "type",
                                           "rope_theta",
                                           "partial_rotary_factor",
                                           "factor",
                                           "original_max_position_embeddings",
                                           "low_freq_factor",
                                           "high_freq_factor",
                                           "beta_slow",
                                           "beta_fast",
                                           "attention_factor",
                                           "short_factor",
                                           "long_factor",
                                           "short_mscale",
                                           "long_mscale",
                                           "mscale",
                                           "mscale_all_dim",
                                           "truncate",
                                           "full_attention",
                                           "sliding_attention",
                                           NULL};
static const char *const used_of_quantisation[] = {"quant_method",      "linear_class",
                                                   "quantization_mode", "modules_to_not_convert",
                                                   "use_rms_norm",      NULL};

/* Keys of training, generation and the library itself, which do not affect what the model computes. */
static const char *const harmless[] = {"_*",
                                       "name_or_path",
                                       "transformers_version",
                                       "torch_dtype",
                                       "dtype",
                                       "bos_token_id",
                                       "pad_token_id",
                                       "sep_token_id",
                                       "cls_token_id",
                                       "decoder_start_token_id",
                                       "forced_*",
                                       "tokenizer_class",
                                       "initializer_range",
                                       "attention_dropout",
                                       "hidden_dropout",
                                       "embd_pdrop",
                                       "resid_pdrop",
                                       "attn_pdrop",
                                       "use_cache",
                                       "attn_implementation",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "return_dict",
                                       "torchscript",
                                       "use_bfloat16",
                                       "pruned_heads",
                                       "chunk_size_feed_forward",
                                       "gradient_checkpointing",
                                       "is_decoder",
                                       "is_encoder_decoder",
                                       "add_cross_attention",
                                       "tie_encoder_decoder",
                                       "cross_attention_hidden_size",
                                       "finetuning_task",
                                       "problem_type",
                                       "id2label",
                                       "label2id",
                                       "task_specific_params",
                                       "prefix",
                                       "pretraining_tp",
                                       "original_max_position_embeddings",
                                       "unsloth_*",
                                       NULL};

/* Numbers with which other classes, or classes of custom code, compute something that bitrain does not. */
static const char *const numeric[] = {"logit_scale",
                                      "logits_scaling",
                                      "logits_scale",
                                      "final_logit_softcapping",
                                      "attn_logit_softcapping",
                                      "final_logits_*",
                                      "embedding_multiplier",
                                      "residual_multiplier",
                                      "attention_multiplier",
                                      "lm_head_multiplier",
                                      "embedding_scale",
                                      "scale_embedding",
                                      "scale_emb",
                                      "scale_depth",
                                      "scale_attn_weights",
                                      "dim_model_base",
                                      "query_pre_attn_scalar",
                                      "mup_*",
                                      "clip_qkv",
                                      "qk_layernorm",
                                      "use_qk_norm",
                                      "qk_norm",
                                      "attn_output_gate",
                                      "use_bidirectional_attention",
                                      "attention_sink*",
                                      "num_experts",
                                      "num_local_experts",
                                      "n_routed_experts",
                                      "n_shared_experts",
                                      "num_experts_per_tok",
                                      "moe_*",
                                      "kv_lora_rank",
                                      "q_lora_rank",
                                      "no_rope_layers",
                                      "no_rope_layer_interval",
                                      "nope_layer_interval",
                                      "rope_interleave*",
                                      "rope_local_base_freq",
                                      "local_rope_theta",
                                      "rotary_pct",
                                      "alibi",
                                      "use_alibi",
                                      "attention_chunk_size",
                                      "sliding_window_pattern",
                                      "use_parallel_residual",
                                      "parallel_attn",
                                      "parallel_residual",
                                      "num_nextn_predict_layers",
                                      "add_bias_linear",
                                      "add_qkv_bias",
                                      "bias",
                                      NULL};

bool bt_hf_is_off(const json_t *v) {
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0);
}

static bool is_unit_multiplier(const json_t *v) {
    return bt_hf_is_off(v) || (json_is_number(v) && json_number_value(v) == 1);
}

static bt_code refuse_numeric(json_t *root, const char *const *own, bt_err *err) {
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v) {
        if (!bt_key_in(numeric, key) || is_unit_multiplier(v)) continue;
        if (bt_key_in(own, key)) continue;
        char *value = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        bt_code code = bt_fail(
            err, BT_UNSUPPORTED,
            "'%.60s' is %.40s, which changes what a model computes in a way that is not supported",
            key, value ? value : "set");
        free(value);
        return code;
    }
    /* false: attention also reads later tokens, as in embedding models. */
    v = json_object_get(root, "is_causal");
    if (v && json_is_false(v))
        return bt_fail(err, BT_UNSUPPORTED,
                       "'is_causal' is false, but only causal attention is supported");
    return BT_OK;
}

bt_code bt_hf_keys_check(json_t *root, const char *const *own, bt_text *notes, bt_err *err) {
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    bt_unread unread = {0};
    const char *key;
    json_t *v;
    BT_TRY(refuse_numeric(root, own, err));
    json_object_foreach(root, key, v) {
        if (!json_is_null(v) && !bt_key_in(used, key) && !bt_key_in(harmless, key) &&
            !bt_key_in(numeric, key) && !bt_key_in(own, key))
            bt_unread_add_key(&unread, NULL, key);
    }
    bt_unread_add(&unread, json_object_get(root, "rope_parameters"), "rope_parameters",
                  used_of_rope, NULL);
    bt_unread_add(&unread, json_object_get(root, "rope_scaling"), "rope_scaling", used_of_rope,
                  NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        bt_unread_add(&unread, json_object_get(json_object_get(root, "rope_parameters"), kinds[i]),
                      kinds[i], used_of_rope, NULL);
    bt_unread_add(&unread, json_object_get(root, "quantization_config"), "quantization_config",
                  used_of_quantisation, NULL);
    if (!notes || !unread.n) return BT_OK;
    bt_text_put(notes, "config.json has keys that are not used here: ");
    bt_unread_print(notes, &unread, 8, NULL);
    bt_text_put(notes, "\n");
    return BT_OK;
}
