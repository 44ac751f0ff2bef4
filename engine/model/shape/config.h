/* config.h - the shape of a model, its presets and its exact counts. */
#ifndef BT_ENGINE_MODEL_SHAPE_CONFIG_H
#define BT_ENGINE_MODEL_SHAPE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/kernels/table/kernels.h"

typedef enum { BT_NORM_SUBLN, BT_NORM_BITLINEAR, BT_NORM_PRE } bt_norm_kind;        /* DESIGN 3, numerics.md section 2; order of options.def */
typedef enum { BT_LIN_BITNET158, BT_LIN_BITNET1, BT_LIN_DENSE } bt_linear_kind;

typedef struct bt_model_cfg {
    int L, C, H, KV, D, F, T, V;        /* layers, width, heads, kv heads, head size, ffn width, sequence length, vocabulary */
    int group, skip;                    /* of a part (bt_slice_cfg): query heads to a kv head (0: H / KV), of the first one's how many come before the part */
    bt_norm_kind norm;
    bt_act act;
    bt_linear_kind linear;
    bool tied, qk_norm;
    double rope_theta, norm_eps, init_std;
} bt_model_cfg;

typedef struct bt_preset {
    const char *name;
    bt_model_cfg model;
    double lr;
    double text_std;                    /* model.init_std on text with sub-norms, where measured to be better (0: model.init_std) */
    int64_t steps, warmup;              /* of the preset's default run */
    int64_t batch_tokens;
} bt_preset;

typedef struct bt_model_counts {
    uint64_t params, linear, embedding, head, norms;    /* head: 0 when tied */
    double flop_linear, flop_head, flop_attention;      /* forward + backward, per token */
    double flop_token;                                  /* 6*(linear + head weights) + 6*L*T*H*D (DESIGN 4) */
} bt_model_counts;

const bt_preset *bt_preset_find(const char *name);      /* NULL when unknown */
size_t bt_preset_count(void);
const bt_preset *bt_preset_at(size_t i);
bt_code bt_model_cfg_check(const bt_model_cfg *c, bt_err *err) BT_MUST_CHECK;   /* says which numbers divide which */
bt_model_counts bt_model_count(const bt_model_cfg *c);

#endif
