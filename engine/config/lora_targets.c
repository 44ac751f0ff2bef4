/* lora_targets.c - selects the layers with adapters (tune.targets), and their rank and scale. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/config/tune_cfg.h"

static const struct target {
    const char *name, *hf_name;
    unsigned bits;
} targets[] = {{"attn_q", "q_proj", BT_LORA_Q},         {"attn_k", "k_proj", BT_LORA_K},
               {"attn_v", "v_proj", BT_LORA_V},         {"attn_o", "o_proj", BT_LORA_O},
               {"ffn_gate", "gate_proj", BT_LORA_GATE}, {"ffn_up", "up_proj", BT_LORA_UP},
               {"ffn_down", "down_proj", BT_LORA_DOWN}, {"all", "all-linear", BT_LORA_ALL}};
enum { N_TARGETS = sizeof targets / sizeof *targets };

bt_code bt_tune_targets_read(const char *text, unsigned *out, bt_err *err) {
    *out = 0;
    for (const char *w = text + strspn(text, ", "); *w; w += strspn(w, ", ")) {
        char word[32];
        size_t n = strcspn(w, ", "), i = 0;
        (void)snprintf(word, sizeof word, "%.*s", (int)n, w);
        while (i < N_TARGETS && strcmp(word, targets[i].name) != 0 &&
               strcmp(word, targets[i].hf_name) != 0)
            i++;
        if (i == N_TARGETS)
            return bt_fail(
                err, BT_ARG,
                "tune.targets: the layer '%s' is unknown (known: all, attn_q, attn_k, attn_v, "
                "attn_o, ffn_gate, ffn_up, ffn_down)",
                word);
        *out |= targets[i].bits;
        w += n;
    }
    return *out ? BT_OK
                : bt_fail(err, BT_ARG, "tune.targets names no layer: use 'all' for all layers");
}

const char *bt_tune_hf_target(unsigned bit) {
    for (size_t i = 0; i < N_TARGETS; i++)
        if (targets[i].bits == bit) return targets[i].hf_name;
    return NULL;
}

void bt_tune_targets_write(unsigned bits, char *out, size_t size) {
    size_t at = 0;
    out[0] = '\0';
    if (bits == BT_LORA_ALL) {
        (void)snprintf(out, size, "all");
        return;
    }
    for (size_t i = 0; i < N_TARGETS && at < size; i++)
        if (targets[i].bits != BT_LORA_ALL && (bits & targets[i].bits))
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? "," : "", targets[i].name);
}

bt_lora bt_tune_lora(const bt_run_cfg *c) {
    const double r = (double)c->tune.rank;
    bt_lora l = {.rank = (int)c->tune.rank,
                 .scale = c->tune.alpha / (c->tune.rslora ? sqrt(r) : r),
                 .dora = c->tune.dora};
    if (c->tune.mode != BT_TUNE_LORA ||
        bt_tune_targets_read(c->tune.targets, &l.targets, NULL) != BT_OK)
        return (bt_lora){0};
    return l;
}
