/* tune_cfg.c - reads and checks the settings of fine-tuning. */
#include "engine/config/tune_cfg.h"

#include "engine/config/rank_setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct target {
    const char *name, *hf_name;
    unsigned bits;
} targets[] = {{"attn_q", "q_proj", BT_LORA_Q},         {"attn_k", "k_proj", BT_LORA_K},
               {"attn_v", "v_proj", BT_LORA_V},         {"attn_o", "o_proj", BT_LORA_O},
               {"ffn_gate", "gate_proj", BT_LORA_GATE}, {"ffn_up", "up_proj", BT_LORA_UP},
               {"ffn_down", "down_proj", BT_LORA_DOWN}, {"all", "all-linear", BT_LORA_ALL}};
enum { N_TARGETS = sizeof targets / sizeof *targets };

bt_code bt_tune_targets(const char *text, unsigned *out, bt_err *err) {
    *out = 0;
    for (const char *w = text + strspn(text, ", "); *w; w += strspn(w, ", ")) {
        char word[32];
        size_t n = strcspn(w, ", "), i = 0;
        (void)snprintf(word, sizeof word, "%.*s", (int)n, w);
        while (i < N_TARGETS && strcmp(word, targets[i].name) != 0 &&
               strcmp(word, targets[i].hf_name) != 0)
            i++;
        if (i == N_TARGETS)
            return bt_fail(err, BT_ARG,
                           "tune.targets: there is no layer '%s' (all, attn_q, attn_k, attn_v, "
                           "attn_o, ffn_gate, ffn_up, ffn_down)",
                           word);
        *out |= targets[i].bits;
        w += n;
    }
    return *out ? BT_OK : bt_fail(err, BT_ARG, "tune.targets names no layer (use all)");
}

const char *bt_tune_hf_target(unsigned bit) {
    for (size_t i = 0; i < N_TARGETS; i++)
        if (targets[i].bits == bit) return targets[i].hf_name;
    return NULL;
}

bt_lora bt_tune_lora(const bt_run_cfg *c) {
    const double r = (double)c->lora_rank;
    bt_lora l = {.rank = (int)c->lora_rank, .scale = c->lora_alpha / (c->rslora ? sqrt(r) : r)};
    if (c->tune != BT_TUNE_LORA || bt_tune_targets(c->lora_targets, &l.targets, NULL) != BT_OK)
        return (bt_lora){0};
    return l;
}

/* B A has the rank of the smaller side of a matrix at most */
static bt_code check_rank(const bt_run_cfg *c, unsigned bits, bt_err *err) {
    bt_model_cfg m;
    bt_run_cfg_model(c, &m);
    const int q = m.H * m.D, kv = m.KV * m.D;
    const int sides[][2] = {{q, m.C},   {kv, m.C},  {kv, m.C}, {m.C, q},
                            {m.F, m.C}, {m.F, m.C}, {m.C, m.F}};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        const int least = sides[i][0] < sides[i][1] ? sides[i][0] : sides[i][1];
        if ((bits & targets[i].bits) && c->lora_rank > least)
            return bt_fail(err, BT_ARG,
                           "tune.rank=%" PRId64 " is larger than a side of %s, which is %d x %d "
                           "(use at most %d)",
                           c->lora_rank, targets[i].name, sides[i][0], sides[i][1], least);
    }
    return BT_OK;
}

bt_dpo bt_tune_dpo(const bt_run_cfg *c) {
    return (bt_dpo){.on = c->form == BT_FORMED_PREFERENCE,
                    .beta = c->dpo_beta,
                    .sft_share = c->dpo_sft,
                    .smoothing = c->dpo_smoothing};
}

bool bt_tune_fades(const bt_run_cfg *c) { return c->lambda_steps > 0; }

double bt_tune_lambda(const bt_run_cfg *c, int64_t step) {
    const int64_t risen = step - c->dense_steps;
    if (risen < 0) return 0;
    return risen < c->lambda_steps ? (double)risen / (double)c->lambda_steps : 1;
}

bt_code bt_tune_check_lambda(const bt_run_cfg *c, bt_err *err) {
    const int64_t before = c->dense_steps + c->lambda_steps;
    if (!bt_tune_fades(c)) return BT_OK;
    if (c->linear == BT_LIN_DENSE)
        return bt_fail(err, BT_ARG,
                       "train.lambda_steps leads to ternary layers, and model.linear=dense has "
                       "none (set model.linear=bitnet158)");
    if (c->tune == BT_TUNE_LORA)
        return bt_fail(err, BT_ARG,
                       "train.lambda_steps changes the weights that tune.mode=lora leaves as they "
                       "are (use tune.mode=full)");
    if (bt_run_cfg_weight_source(c) != BT_WEIGHTS_LOCAL)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "train.lambda_steps needs the latent weights on every rank: it works with "
            "--zero 0, and with --zero 1 and 2 under parallel.gather=layer, not with --zero 3");
    if (before < c->steps) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "train.dense_steps + train.lambda_steps = %" PRId64 " leave none of the %" PRId64
                   " steps to the ternary model (lower them, or raise --steps)",
                   before, c->steps);
}

/* the base without its adapters is what preferences are judged against */
static bt_code check_preference(const bt_run_cfg *c, bt_err *err) {
    if (c->form != BT_FORMED_PREFERENCE) return BT_OK;
    if (c->tune != BT_TUNE_LORA)
        return bt_fail(err, BT_ARG,
                       "data.form=preference trains adapters: the reference is the base without "
                       "them (set tune.mode=lora and model.init_from)");
    if (c->mixture[0])
        return bt_fail(err, BT_UNSUPPORTED,
                       "data.form=preference takes no data.mixture: give the files one after the "
                       "other in data.path");
    return BT_OK;
}

static bt_code check_teacher(bt_run_cfg *c, bt_err *err) {
    if (!c->teacher[0]) return BT_OK;
    if (c->form == BT_FORMED_PREFERENCE)
        return bt_fail(err, BT_ARG,
                       "tune.teacher with data.form=preference: a run learns from preferences or "
                       "from a teacher (leave one out)");
    if (c->tp > 1 || (c->pp > 1 && c->reproducible))
        return bt_fail(err, BT_UNSUPPORTED,
                       "tune.teacher compares whole rows of logits: it works with --dp-replicate, "
                       "--dp-shard, --zero and --pp, not with --tp, nor with --pp in reproducible "
                       "training");
    c->parts = 1; /* of tensor parallelism, which there is none of */
    return BT_OK;
}

/* a classifier's head is one rank's: each text has one row of few classes */
static bt_code check_labels(bt_run_cfg *c, bt_err *err) {
    if (c->form != BT_FORMED_LABEL)
        return c->labels[0] ? bt_fail(err, BT_ARG,
                                      "data.labels are the classes of data.form=label (set it, or "
                                      "leave them out)")
                            : BT_OK;
    if (c->tune == BT_TUNE_LORA)
        return bt_fail(err, BT_UNSUPPORTED,
                       "data.form=label trains all weights and a head of its own, no adapters (use "
                       "tune.mode=full)");
    if (c->tp > 1 || c->pp > 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "data.form=label judges whole rows of the last layer: it works with "
                       "--dp-replicate, --dp-shard and --zero, not with --tp or --pp");
    if (c->teacher[0])
        return bt_fail(err, BT_ARG,
                       "tune.teacher teaches probabilities of tokens, and data.form=label has "
                       "classes (leave one out)");
    if (c->packing == BT_PACKED_STREAM)
        return bt_fail(err, BT_ARG,
                       "data.packing=stream runs texts together, and data.form=label judges each "
                       "at its end (use documents or pad)");
    c->sample_tokens = 0; /* it writes no text */
    c->parts = 1;         /* of tensor parallelism, which there is none of */
    return BT_OK;
}

bt_code bt_tune_resolve(bt_run_cfg *c, bt_err *err) {
    unsigned bits;
    BT_TRY(check_labels(c, err));
    BT_TRY(check_preference(c, err));
    BT_TRY(check_teacher(c, err));
    if (c->tune != BT_TUNE_LORA && c->adapters[0])
        return bt_fail(err, BT_ARG, "tune.adapters goes with tune.mode=lora");
    if (c->tune != BT_TUNE_LORA) return BT_OK;
    BT_TRY(bt_tune_targets(c->lora_targets, &bits, err));
    BT_TRY(check_rank(c, bits, err));
    if (!c->base[0])
        return bt_fail(err, BT_ARG,
                       "tune.mode=lora needs a base whose weights stay as they are (--init-from "
                       "RUN or a model's path)");
    if (c->tp > 1 || c->pp > 1 || c->zero > 2)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "tune.mode=lora keeps the whole base on every rank: it works with "
            "--dp-replicate, --dp-shard and --zero 0 to 2, not with --tp, --pp or --zero 3");
    c->parts = 1; /* of tensor parallelism, which there is none of */
    return BT_OK;
}
