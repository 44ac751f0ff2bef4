/* plan_advice.c - suggests layouts with more memory, other codecs, and other batch sizes. */
#include "cli/plan/plan_advice.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "engine/base/tables/metric.h"
#include "engine/optim/optim.h"

static int64_t data_parallel_ranks(const bt_run_cfg *cfg) {
    return cfg->mesh.dp_replicate * cfg->mesh.dp_shard;
}

static void put_layouts_with_more_memory(const bt_layout_choice *c, bt_text *out) {
    char words[160], bytes[32], ms[32];
    const bt_layout *best = &c->layouts.at[0];
    for (size_t i = 0; i < c->layouts.n; i++) {
        const bt_layout *l = &c->layouts.at[i];
        if (l->fits || l->time.step.step_s >= best->time.step.step_s) continue;
        bt_text_printf(out, "otherwise  with %s a rank: %s, %s a step\n",
                       bt_metric_format(bytes, sizeof bytes, (double)l->rank_bytes, BT_UNIT_BYTES),
                       bt_layout_words(l, words, sizeof words),
                       bt_metric_format(ms, sizeof ms, 1e3 * l->time.step.step_s, BT_UNIT_MS));
        return;
    }
}

/* Predicted seconds of a step of the chosen layout with another codec; NaN: not possible. */
static double step_seconds_with_codec(const bt_layout_choice *c, int codec) {
    bt_layout other = c->layouts.at[0];
    bt_run_cfg *cfg = malloc(sizeof *cfg);
    bt_err why = BT_ERR_INIT;
    other.codec = codec;
    const bool known = cfg && bt_layout_settings(&c->search, &other, cfg, &why) == BT_OK &&
                       bt_time_predict(cfg, &c->rates, &c->search.cluster, &other.time, &why) ==
                           BT_OK;
    free(cfg);
    return known ? other.time.step.step_s : (double)NAN;
}

static const char *codec_name(int codec) { return bt_codec_at((bt_codec_id)codec)->name; }

/* The planner only suggests codecs, because rounding gradients changes the training. */
static void put_codecs(const bt_layout_choice *c, bt_text *out) {
    char ms[32];
    bool any = false;
    const bt_layout *best = &c->layouts.at[0];
    if (data_parallel_ranks(&c->settings) < 2) return;
    bt_text_printf(
        out,
        "codec      %s, as set: the other codecs round gradients, so none is chosen for its speed",
        codec_name(best->codec));
    for (int k = 0; k < BT_CODEC_COUNT; k++) {
        const double step_s = k == best->codec ? (double)NAN : step_seconds_with_codec(c, k);
        if (!(step_s < 0.99 * best->time.step.step_s)) continue;
        bt_text_printf(out, "%s--codec %s: %s a step", any ? ", " : "; predicted with ",
                       codec_name(k), bt_metric_format(ms, sizeof ms, 1e3 * step_s, BT_UNIT_MS));
        any = true;
    }
    bt_text_put(out, any ? "\n" : "; none would shorten a step by 1 %\n");
}

#define SOURCE "Malladi et al. 2022, arXiv:2205.10287"
static const int factors[] = {2, 4};
enum { N_FACTORS = sizeof factors / sizeof factors[0] };

/* Scaled learning rate for a batch `factor` times as large. NaN: no rule exists for this optimizer. */
static double scaled_lr(const bt_run_cfg *cfg, int factor) {
    return cfg->optim.name == BT_OPTIM_ADAMW ? cfg->optim.lr * sqrt(factor) : (double)NAN;
}

static double exchange_share_of_step(const bt_layout_choice *c) {
    const bt_step_time *t = &c->layouts.at[0].time.step;
    return t->exchange_s / t->step_s;
}

static void put_batch_advice(const bt_layout_choice *c, bt_text *out) {
    const bt_run_cfg *cfg = &c->settings;
    const double share = exchange_share_of_step(c);
    if (data_parallel_ranks(cfg) < 2) return;
    bt_text_printf(out,
                   "batch      %" PRId64
                   " tokens a rank, then an exchange of gradients that takes %.0f %% of a step%s; ",
                   cfg->train.batch_tokens / data_parallel_ranks(cfg), 100 * share,
                   share < 0.1 ? ": a larger batch gains little" : "");
    if (cfg->optim.name == BT_OPTIM_ADAMW) {
        bt_text_printf(out, "--lr %.3g now", cfg->optim.lr);
        for (int i = 0; i < N_FACTORS; i++)
            bt_text_printf(out, ", %.3g with a batch %d times as large", scaled_lr(cfg, factors[i]),
                           factors[i]);
        bt_text_put(out, ": AdamW's grows by the square root (" SOURCE ")\n");
    } else {
        bt_text_printf(out,
                       "for a larger batch with --optimizer %s find --lr anew: the rule of the "
                       "square root is AdamW's (" SOURCE ")\n",
                       bt_optim_info_of((bt_optim_id)cfg->optim.name)->name);
    }
}

void bt_plan_put_advice(const bt_layout_choice *c, bt_text *out) {
    put_layouts_with_more_memory(c, out);
    put_codecs(c, out);
    put_batch_advice(c, out);
}

void bt_plan_advice_json(const bt_layout_choice *c, bt_json *j) {
    const bt_run_cfg *cfg = &c->settings;
    const bool alone = data_parallel_ranks(cfg) < 2,
               rule = !alone && cfg->optim.name == BT_OPTIM_ADAMW;
    bt_json_array(j, "codecs");
    for (int k = 0; k < BT_CODEC_COUNT && !alone; k++) {
        if (k == c->layouts.at[0].codec) continue;
        bt_json_object(j, NULL);
        bt_json_str(j, "codec", codec_name(k));
        bt_json_num(j, "step_ms", 1e3 * step_seconds_with_codec(c, k));
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_json_num(j, "exchange_frac", exchange_share_of_step(c));
    bt_json_num(j, "lr", cfg->optim.lr);
    bt_json_str(j, "lr_rule", rule ? "sqrt" : NULL);
    bt_json_str(j, "lr_source", rule ? SOURCE : NULL);
    bt_json_array(j, "larger_batches");
    for (int i = 0; i < N_FACTORS && !alone; i++) {
        bt_json_object(j, NULL);
        bt_json_int(j, "batch_tokens", factors[i] * cfg->train.batch_tokens);
        bt_json_num(j, "lr", scaled_lr(cfg, factors[i]));
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}
