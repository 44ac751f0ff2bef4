/* config.h - the shape of a model, its presets and its exact counts.
 *
 * Threads: any; pure functions. */
#ifndef BT_ENGINE_MODEL_SHAPE_CONFIG_H
#define BT_ENGINE_MODEL_SHAPE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/kernels/table/kernels.h"
#include "engine/model/shape/rope.h"

typedef enum { BT_NORM_SUBLN, BT_NORM_BITLINEAR, BT_NORM_PRE } bt_norm_kind;
typedef enum { BT_LIN_BITNET158, BT_LIN_BITNET1, BT_LIN_DENSE } bt_linear_kind;
/* A ternary weight has one scale, one for each row (output), or one for each group of consecutive inputs of a row. */
typedef enum {
    BT_SCALE_TENSOR,
    BT_SCALE_ROW,
    BT_SCALE_GROUP32,
    BT_SCALE_GROUP64,
    BT_SCALE_GROUP128,
    BT_SCALE_GROUP256
} bt_scale_kind;

/* Returns the number of consecutive inputs of a row of `cols` that have one scale. */
static inline size_t bt_scale_inputs(bt_scale_kind scale, size_t cols) {
    return scale < BT_SCALE_GROUP32 ? cols : (size_t)32 << (scale - BT_SCALE_GROUP32);
}

/* Initial attn_o and ffn_down: deviation init_std / sqrt(2 L) or init_std, or zeros; in the order of model.init_out. */
typedef enum { BT_INIT_OUT_DEPTH, BT_INIT_OUT_PLAIN, BT_INIT_OUT_ZERO } bt_init_out;

/* Low-rank adapters beside frozen linear layers: y = base(x) + scale B (A x), A (rank, inputs), B (outputs, rank)
 * (arXiv:2106.09685). All zero: there are none, and the whole model trains. */
typedef struct bt_lora {
    int rank;
    double scale;
    unsigned targets; /* BT_LORA_*: the layers that have an adapter */
    bool
        dora; /* each output j of y is multiplied by m_j / |row j of W + scale B A| (arXiv:2402.09353) */
} bt_lora;
enum {
    BT_LORA_Q = 1,
    BT_LORA_K = 2,
    BT_LORA_V = 4,
    BT_LORA_O = 8,
    BT_LORA_GATE = 16,
    BT_LORA_UP = 32,
    BT_LORA_DOWN = 64,
    BT_LORA_ALL = 127
};

typedef struct bt_model_cfg {
    /* layers, width, heads, kv heads, head size, ffn width, sequence length, vocabulary */
    int L, C, H, KV, D, F, T, V;
    /* In a part (bt_slice_cfg): the number of query heads per kv head (0: H / KV), and the number of query heads of the
     * first kv head that precede the part. */
    int group, skip;
    int chunk_L; /* in a part: layers of its longest chunk (params.h); in a whole model 0 */
    bt_norm_kind norm;
    bt_act act;
    bt_linear_kind linear;
    bt_scale_kind scale;
    bool tied, qk_norm, qkv_bias;
    /* post_norm: the outputs of attention and feed-forward pass through a norm before they are added to the residual.
     * embed_scale: the embedding is multiplied by sqrt(C). */
    bool post_norm, embed_scale;
    int no_rope_every; /* layers N-1, 2N-1, ... have no rotary embedding; 0: all layers have it */
    int window; /* number of tokens to which a token attends, itself included; 0: all before it */
    /* Layers N-1, 2N-1, ... are global; all others are local: they use the window and rope_local_theta. 0: all. */
    int window_every;
    double rope_theta, norm_eps, init_std;
    double init_embed; /* initial deviation of the embedding and of the head; 0: init_std */
    double
        rope_local_theta; /* base of unscaled rotary frequencies in local layers; 0: rope_theta, and `rope` */
    double query_scale;   /* attention divides q k by the square root of this number; 0: of D */
    double attention_cap; /* soft limit of these scores (bt_attn_shape.cap); 0: none */
    int rotary_dim; /* number of elements at the beginning of each head that rotate; 0: all D */
    bt_rope_scaling rope;
    bt_init_out init_out;
    double logit_cap; /* logits become logit_cap tanh(logits / logit_cap); 0: unchanged */
    bt_lora lora;
    /* A classifier with this number of classes or, with 1, a reward model: a separate head scores the last token of a
     * text, and the vocabulary is used only for the embedding (tied). 0: a language model. */
    int classes;
} bt_model_cfg;

typedef struct bt_preset {
    const char *name;
    bt_model_cfg model;
    double lr;
    /* model.init_std on text with sub-norms, where another value was measured to be better (0: model.init_std) */
    double text_std;
    int64_t steps, warmup; /* default run of the preset */
    int64_t batch_tokens;
    /* The default run if tokens are parts of words: other numbers of steps and of tokens in a step (0: as above) and
     * residual projections that begin as zeros. With a tokenizer trained automatically from long text and AdamW also: a
     * factor on the embedding's learning rate (0: as above), its initial deviation (0: as above), beta1, and the values
     * of parts (config/preset_recipe.c). */
    int64_t word_steps, word_batch_tokens;
    double word_embed_lr, word_init_embed, word_beta1;
} bt_preset;

typedef struct bt_model_counts {
    uint64_t params, linear, embedding, head, norms; /* head: 0 if tied; norms: gains and biases */
    uint64_t adapters; /* trained parameters of adapters, while `params` are frozen; 0: none */
    double flop_linear, flop_head, flop_attention; /* forward + backward, per token */
    /* 6*(linear + head weights) + 6*L*T*H*D. With adapters 4*(linear + head weights) + 6*adapters + 6*L*T*H*D, because
     * frozen weights have no gradient. Work that full recompute repeats is not counted. */
    double flop_token;
    double flop_forward; /* forward pass only */
} bt_model_counts;

const bt_preset *bt_preset_find(const char *name); /* NULL when unknown */
size_t bt_preset_count(void);
const bt_preset *bt_preset_at(size_t i);
/* The error names the numbers that do not divide. */
bt_code bt_model_cfg_check(const bt_model_cfg *c, bt_err *err) BT_MUST_CHECK;
bt_model_counts bt_model_count(const bt_model_cfg *c);
bool bt_model_layer_is_local(const bt_model_cfg *c, int layer);
/* Returns the factor on q k in attention. */
float bt_model_query_factor(const bt_model_cfg *c);
/* Returns the number of elements of a head that rotate. */
size_t bt_model_rotary(const bt_model_cfg *c);
/* Returns the longest text with other rotary frequencies than a sequence of T tokens. 0: all have the same. */
size_t bt_model_short_rows(const bt_model_cfg *c);

#endif
