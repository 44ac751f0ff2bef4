/* config.c - presets, checks of a shape, exact counts. */
#include "engine/model/shape/config.h"

#include <math.h>
#include <string.h>

/* The shapes must not change. Learning rate, warm-up and length are those of the preset's default run. text_std: `nano`
 * with subln on the built-in corpus has after 240 steps 2.70 validation bits per byte with std 0.02, 2.40 with 0.05 and
 * 2.30 with 0.1. recipe_defaults.md has the measurements of its runs on learned tokens. */
static const bt_preset presets[] = {
    {"nano",
     {.L = 6,
      .C = 192,
      .H = 6,
      .KV = 6,
      .D = 32,
      .F = 512,
      .T = 256,
      .V = 256,
      .norm = BT_NORM_SUBLN,
      .act = BT_ACT_RELU2,
      .linear = BT_LIN_BITNET158,
      .tied = true,
      .rope_theta = 1e4,
      .norm_eps = 1e-5,
      .init_std = 0.02},
     .lr = 2e-3,
     .text_std = 0.1,
     .steps = 1000,
     .warmup = 50,
     .batch_tokens = 4096,
     .word_steps = 2000,
     .word_batch_tokens = 2048,
     .word_embed_lr = 6,
     .word_init_embed = 0.02,
     .word_beta1 = 0.8},
    {"small",
     {.L = 8,
      .C = 512,
      .H = 8,
      .KV = 4,
      .D = 64,
      .F = 1408,
      .T = 512,
      .V = 8192,
      .norm = BT_NORM_SUBLN,
      .act = BT_ACT_RELU2,
      .linear = BT_LIN_BITNET158,
      .tied = true,
      .rope_theta = 1e4,
      .norm_eps = 1e-5,
      .init_std = 0.02},
     .lr = 1e-3,
     .steps = 5000,
     .warmup = 200,
     .batch_tokens = 4096,
     .word_embed_lr = 6,
     .word_beta1 = 0.8},
    {"base",
     {.L = 12,
      .C = 768,
      .H = 12,
      .KV = 4,
      .D = 64,
      .F = 2048,
      .T = 1024,
      .V = 32000,
      .norm = BT_NORM_SUBLN,
      .act = BT_ACT_RELU2,
      .linear = BT_LIN_BITNET158,
      .tied = true,
      .rope_theta = 1e4,
      .norm_eps = 1e-5,
      .init_std = 0.02},
     .lr = 6e-4,
     .steps = 20000,
     .warmup = 500,
     .batch_tokens = 4096},
    /* BitNet b1.58 2B4T: hf config, facts of arXiv:2504.12285 */
    {"bitnet-2b4t",
     {.L = 30,
      .C = 2560,
      .H = 20,
      .KV = 5,
      .D = 128,
      .F = 6912,
      .T = 4096,
      .V = 128256,
      .norm = BT_NORM_SUBLN,
      .act = BT_ACT_RELU2,
      .linear = BT_LIN_BITNET158,
      .tied = true,
      .rope_theta = 5e5,
      .norm_eps = 1e-5,
      .init_std = 0.02},
     .lr = 1.2e-3,
     .steps = 100000,
     .warmup = 375,
     .batch_tokens = 1048576},
    /* its published config.json: a full-precision model with QK-norm */
    {"qwen3-0.6b",
     {.L = 28,
      .C = 1024,
      .H = 16,
      .KV = 8,
      .D = 128,
      .F = 3072,
      .T = 40960,
      .V = 151936,
      .norm = BT_NORM_PRE,
      .act = BT_ACT_SILU,
      .linear = BT_LIN_DENSE,
      .tied = true,
      .qk_norm = true,
      .rope_theta = 1e6,
      .norm_eps = 1e-6,
      .init_std = 0.02},
     .lr = 3e-4,
     .steps = 100000,
     .warmup = 500,
     .batch_tokens = 491520},
};

size_t bt_preset_count(void) { return sizeof presets / sizeof *presets; }

const bt_preset *bt_preset_at(size_t i) { return i < bt_preset_count() ? &presets[i] : NULL; }

const bt_preset *bt_preset_find(const char *name) {
    for (size_t i = 0; i < bt_preset_count(); i++) {
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    }
    return NULL;
}

static bt_code check_groups(const bt_model_cfg *c, bt_err *err) {
    const struct {
        const char *name;
        int inputs;
    } widths[] = {{"model.d_model", c->C},
                  {"model.heads times model.head_dim", c->H * c->D},
                  {"model.d_ff", c->F}};
    const int group = (int)bt_scale_inputs(c->scale, 1);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (widths[i].inputs % group != 0)
            return bt_fail(err, BT_ARG,
                           "model.scale=group:%d needs multiples of %d as widths of inputs; %s is "
                           "%d",
                           group, group, widths[i].name, widths[i].inputs);
    return BT_OK;
}

bt_code bt_model_cfg_check(const bt_model_cfg *c, bt_err *err) {
    const struct {
        const char *name;
        int value, least;
    } sizes[] = {
        {"layers", c->L, 1},   {"d_model", c->C, 1}, {"heads", c->H, 1},   {"kv_heads", c->KV, 1},
        {"head_dim", c->D, 2}, {"d_ff", c->F, 1},    {"seq_len", c->T, 1}, {"vocab", c->V, 2},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value < sizes[i].least) {
            return bt_fail(err, BT_ARG, "model.%s is %d but must be at least %d", sizes[i].name,
                           sizes[i].value, sizes[i].least);
        }
    }
    if (c->H % c->KV != 0) {
        return bt_fail(err, BT_ARG,
                       "model.kv_heads = %d must divide model.heads = %d (remainder %d)", c->KV,
                       c->H, c->H % c->KV);
    }
    if (c->D % 2 != 0)
        return bt_fail(err, BT_ARG,
                       "model.head_dim = %d must be even, because the rotary embedding rotates "
                       "pairs of elements",
                       c->D);
    if (c->norm < BT_NORM_SUBLN || c->norm > BT_NORM_PRE)
        return bt_fail(err, BT_ARG, "unknown model.norm %d", (int)c->norm);
    if (c->act < BT_ACT_RELU2 || c->act > BT_ACT_GELU)
        return bt_fail(err, BT_ARG, "unknown model.act %d", (int)c->act);
    if (c->linear < BT_LIN_BITNET158 || c->linear > BT_LIN_DENSE)
        return bt_fail(err, BT_ARG, "unknown model.linear %d", (int)c->linear);
    if (c->scale < BT_SCALE_TENSOR || c->scale > BT_SCALE_GROUP256)
        return bt_fail(err, BT_ARG, "unknown model.scale %d", (int)c->scale);
    if (c->scale != BT_SCALE_TENSOR && c->linear != BT_LIN_BITNET158)
        return bt_fail(err, BT_ARG,
                       "model.scale=row and group need model.linear=bitnet158: only ternary "
                       "weights have a scale for each row or group");
    BT_TRY(check_groups(c, err));
    if (c->classes < 0 || c->classes > c->V)
        return bt_fail(err, BT_ARG,
                       "a classifier of %d labels is not possible: there can be at most "
                       "model.vocab = %d labels",
                       c->classes, c->V);
    if (!(c->rope_theta > 0))
        return bt_fail(err, BT_ARG, "model.rope_theta is %g but must be positive", c->rope_theta);
    if (c->no_rope_every < 0)
        return bt_fail(err, BT_ARG, "model.no_rope_every is %d but must be 0 or more",
                       c->no_rope_every);
    if (c->window < 0)
        return bt_fail(err, BT_ARG, "model.window is %d but must be 0 or more", c->window);
    if (c->window_every < 0)
        return bt_fail(err, BT_ARG, "model.window_every is %d but must be 0 or more",
                       c->window_every);
    if (!(c->rope_local_theta >= 0))
        return bt_fail(err, BT_ARG, "model.rope_local_theta is %g but must be 0 or more",
                       c->rope_local_theta);
    if (!(c->logit_cap >= 0))
        return bt_fail(err, BT_ARG, "model.logit_cap is %g but must be 0 or more", c->logit_cap);
    if (!(c->attention_cap >= 0))
        return bt_fail(err, BT_ARG, "model.attention_cap is %g but must be 0 or more",
                       c->attention_cap);
    if (c->rotary_dim < 0 || c->rotary_dim > c->D || c->rotary_dim % 2)
        return bt_fail(err, BT_ARG,
                       "model.rotary_dim is %d but must be an even number up to model.head_dim = "
                       "%d, because the rotary embedding rotates pairs of elements",
                       c->rotary_dim, c->D);
    BT_TRY(bt_rope_check(&c->rope, (int)bt_model_rotary(c) / 2, err));
    if (c->rope.method == BT_ROPE_LONGROPE && c->rope_local_theta > 0)
        return bt_fail(err, BT_ARG,
                       "model.rope_scaling=longrope cannot be combined with "
                       "model.rope_local_theta: set one of them to its default");
    if (!(c->query_scale >= 0))
        return bt_fail(err, BT_ARG, "model.query_scale is %g but must be 0 or more",
                       c->query_scale);
    if (!(c->norm_eps > 0))
        return bt_fail(err, BT_ARG, "model.norm_eps is %g but must be positive", c->norm_eps);
    if (!(c->init_std > 0))
        return bt_fail(err, BT_ARG, "model.init_std is %g but must be positive", c->init_std);
    return BT_OK;
}

/* Parameters of all adapters: rank x (inputs + outputs), and with DoRA the outputs, for each layer that has one. */
static uint64_t adapter_params(const bt_model_cfg *c) {
    const uint64_t C = (uint64_t)c->C, F = (uint64_t)c->F, HD = (uint64_t)c->H * (uint64_t)c->D,
                   KVD = (uint64_t)c->KV * (uint64_t)c->D;
    const struct {
        unsigned bit;
        uint64_t inputs, outputs;
    } layers[] = {{BT_LORA_Q, C, HD},  {BT_LORA_K, C, KVD},  {BT_LORA_V, C, KVD},
                  {BT_LORA_O, HD, C},  {BT_LORA_GATE, C, F}, {BT_LORA_UP, C, F},
                  {BT_LORA_DOWN, F, C}};
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        if (c->lora.targets & layers[i].bit)
            n += (uint64_t)c->lora.rank * (layers[i].inputs + layers[i].outputs) +
                 (c->lora.dora ? layers[i].outputs : 0);
    return (uint64_t)c->L * n;
}

bt_model_counts bt_model_count(const bt_model_cfg *c) {
    uint64_t L = (uint64_t)c->L, C = (uint64_t)c->C, F = (uint64_t)c->F, V = (uint64_t)c->V;
    uint64_t HD = (uint64_t)c->H * (uint64_t)c->D, KVD = (uint64_t)c->KV * (uint64_t)c->D;
    bt_model_counts n = {0};
    n.linear = L * (2 * C * HD + 2 * C * KVD + 3 * C * F);
    n.embedding = V * C;
    n.head = c->tied ? 0 : V * C;
    n.norms = C;
    if (c->norm != BT_NORM_BITLINEAR) n.norms += L * 2 * C;
    if (c->norm == BT_NORM_SUBLN) n.norms += L * (HD + F);
    if (c->qk_norm) n.norms += L * 2 * (uint64_t)c->D;
    if (c->post_norm) n.norms += L * 2 * C;
    if (c->qkv_bias) n.norms += L * (HD + 2 * KVD);
    if (c->classes) n.head = (uint64_t)c->classes * C;
    n.params = n.linear + n.embedding + n.head + n.norms;
    n.adapters = c->lora.rank ? adapter_params(c) : 0;
    /* A frozen weight has two products, forward and the gradient of its input; a trained weight has three. */
    const double each = c->lora.rank ? 4 : 6;
    n.flop_linear = each * (double)n.linear + 6.0 * (double)n.adapters;
    n.flop_head = c->classes ? 0 : each * (double)(V * C); /* only one row of classes per text */
    /* causal half of 12 L T H D */
    n.flop_attention = 6.0 * (double)L * (double)c->T * (double)HD;
    n.flop_token = n.flop_linear + n.flop_head + n.flop_attention;
    n.flop_forward = 2.0 * (double)(n.linear + n.adapters + (c->classes ? 0 : V * C)) +
                     n.flop_attention / 3;
    return n;
}

bool bt_model_layer_is_local(const bt_model_cfg *c, int layer) {
    return !c->window_every || (layer + 1) % c->window_every != 0;
}

float bt_model_query_factor(const bt_model_cfg *c) {
    return 1.0f / sqrtf(c->query_scale > 0 ? (float)c->query_scale : (float)c->D);
}

size_t bt_model_rotary(const bt_model_cfg *c) {
    return (size_t)(c->rotary_dim ? c->rotary_dim : c->D);
}

size_t bt_model_short_rows(const bt_model_cfg *c) {
    const bool two = c->rope.method == BT_ROPE_LONGROPE && c->T > c->rope.context;
    return two ? (size_t)c->rope.context : 0;
}
