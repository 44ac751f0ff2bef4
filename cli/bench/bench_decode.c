/* bench_decode.c - `bitrain bench decode`: decodes tokens with key-value caches, and compares the time with memory
 * bandwidth.
 *
 * Each step reads all weights once for any number of sequences: ternary weights packed in 2 bits (or, if several
 * sequences share the step, in the form of the training kernels), the head as bf16 on processors whose products round
 * to it. Weights are the preset's initial ones, which take the same time as trained ones. The command reports medians
 * over the steps, and the time of the products with packed weights separately. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/common/command.h"
#include "cli/common/printout/printout.h"
#include "engine/base/clock.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/bench/peak.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/cpu.h"
#include "engine/model/net/decoder.h"
#include "engine/model/net/sampler.h"

/* MOST: texts decoded at the same time; PROMPT: tokens of a prompt */
enum { MOST = 256, PROMPT = 128 };

typedef struct decode_cfg {
    char preset[32], isa[16];
    int64_t threads, tokens, batch;
    int precision;
    bool json;
} decode_cfg;

static const bt_opt decode_opts[] = {
    BT_ROW_TEXT(decode_cfg, preset, "--preset", "base", "nano small base bitnet-2b4t qwen3-0.6b"),
    BT_ROW_INT(decode_cfg, threads, "--threads", "1", 1, 1024, NULL, "threads"),
    BT_ROW_INT(decode_cfg, tokens, "--tokens", "64", 4, 100000, "tokens",
               "tokens written after a prompt of 16"),
    BT_ROW_INT(decode_cfg, batch, "--batch", "1", 1, 256, "texts", "written at once"),
    BT_ROW_ENUM(decode_cfg, precision, "--precision", "fp32", "fp32|bf16|fp16",
                "operands of products with floats (fp32: as 'generate' and 'serve')"),
    BT_ROW_TEXT(decode_cfg, isa, "--isa", "auto",
                "fastest kernel set allowed, as in `bitrain train --isa`"),
    BT_ROW_JSON(decode_cfg),
};

const bt_option_set bt_bench_decode_opts = BT_OPTION_SET(decode_opts, decode_cfg);

typedef struct decoded {
    /* median of a step, and of its products with packed weights */
    double step_ms, packed_ms;
    double prompt_per_s;             /* tokens of a prompt processed per second */
    size_t packed_bytes, head_bytes; /* read by each step */
    /* bytes per second that this machine reads from memory */
    double read;
} decoded;

static double packed_products_ms(void) {
    bt_op_profile rows[BT_OPS_MAX];
    size_t n = bt_ops_profile_rows(rows, BT_OPS_MAX);
    double ms = 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, "tern_gemv") == 0 || strcmp(rows[i].name, "tern_fwd") == 0)
            ms += (double)rows[i].ns / 1e6;
    return ms;
}

typedef struct batch { /* sequences being decoded, each with its next token */
    bt_decoder *decoder;
    size_t V, n;
    bt_decode_part parts[MOST];
    int32_t tokens[MOST];
} batch;

static void choose_likeliest(void *ctx, size_t part, size_t token, const float *logits) {
    batch *b = ctx;
    bt_ranked best;
    (void)token;
    bt_likeliest(&best, 1, logits, b->V);
    b->tokens[part] = best.token;
}

/* Processes a prompt of PROMPT tokens for each sequence, one after the other. */
static double decode_prompts(batch *b) {
    int32_t prompt[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) prompt[i] = i;
    const int64_t from = bt_now_ns();
    for (size_t i = 0; i < b->n; i++) {
        const bt_decode_part p = {(int)i, prompt, PROMPT, BT_LOGITS_LAST, 0};
        bt_decoder_step(b->decoder, &p, 1, choose_likeliest, b);
        b->tokens[i] = b->tokens[0];
        b->parts[i] = (bt_decode_part){(int)i, &b->tokens[i], 1, BT_LOGITS_LAST, 0};
    }
    return (double)b->n * PROMPT * 1e9 / (double)(bt_now_ns() - from);
}

static bt_code time_decoding(const decode_cfg *cfg, bt_decoder *d, size_t V, decoded *out,
                             bt_err *err) {
    double *ms = calloc((size_t)cfg->tokens * 2, sizeof *ms);
    batch *b = calloc(1, sizeof *b);
    if (!ms || !b) {
        free(ms);
        free(b);
        return bt_fail(err, BT_NOMEM, "cannot take memory for %d tokens", (int)cfg->tokens);
    }
    double *packed = ms + cfg->tokens;
    b->decoder = d;
    b->V = V;
    b->n = (size_t)cfg->batch;
    out->prompt_per_s = decode_prompts(b);
    for (int64_t i = 0; i < cfg->tokens; i++) {
        bt_ops_profile(true);
        int64_t from = bt_now_ns();
        bt_decoder_step(d, b->parts, b->n, choose_likeliest, b);
        ms[i] = (double)(bt_now_ns() - from) / 1e6;
        packed[i] = packed_products_ms();
    }
    bt_ops_profile(false);
    qsort(ms, (size_t)cfg->tokens, sizeof *ms, bt_compare_doubles);
    qsort(packed, (size_t)cfg->tokens, sizeof *packed, bt_compare_doubles);
    out->step_ms = ms[cfg->tokens / 2];
    out->packed_ms = packed[cfg->tokens / 2];
    free(ms);
    free(b);
    return BT_OK;
}

static const char *const precisions[] = {"fp32", "bf16", "fp16"}; /* in the order of bt_prec */

static bt_code print_decode_result(const decode_cfg *cfg, const decoded *d, bt_err *err) {
    const double packed_bytes = (double)d->packed_bytes,
                 bytes = packed_bytes + (double)d->head_bytes,
                 rate = packed_bytes / d->packed_ms / 1e6, all = bytes / d->step_ms / 1e6,
                 n = (double)cfg->batch, speed = n * 1e3 / d->step_ms, bound = n * d->read / bytes,
                 memory = d->read / 1e9;
    bt_printout o;
    bt_printout_begin(&o, cfg->json);
    bt_printout_line(&o, "%s, %d thread%s, %d text%s at once, %s, %s kernels, %s\n", cfg->preset,
                     (int)cfg->threads, cfg->threads == 1 ? "" : "s", (int)cfg->batch,
                     cfg->batch == 1 ? "" : "s", precisions[cfg->precision], bt_kernels_isa(),
                     bt_cpu_get()->model);
    bt_printout_line(&o, "  %-16s %.1f tokens/s, %.2f ms a step\n", "speed", speed, d->step_ms);
    bt_printout_line(&o, "  %-16s %.1f tokens/s, if memory alone counted: %.0f %% of it\n", "bound",
                     bound, 100 * speed / bound);
    bt_printout_line(&o, "  %-16s %.1f tokens/s\n", "prompt", d->prompt_per_s);
    bt_printout_line(&o, "  %-16s %.1f MiB in %.2f ms = %.1f GB/s, %.0f %% of what memory gives\n",
                     "packed weights", packed_bytes / 1048576, d->packed_ms, rate,
                     100 * rate / memory);
    bt_printout_line(&o, "  %-16s %.1f MiB a step = %.1f GB/s, %.0f %%\n", "with the head",
                     bytes / 1048576, all, 100 * all / memory);
    bt_printout_line(&o, "  %-16s %.1f GB/s read\n", "memory", memory);
    const struct {
        const char *key;
        double value;
    } figures[] = {{"tokens_per_s", speed},
                   {"bound_tokens_per_s", bound},
                   {"prompt_tokens_per_s", d->prompt_per_s},
                   {"token_ms", d->step_ms / n},
                   {"packed_ms", d->packed_ms},
                   {"packed_bytes", packed_bytes},
                   {"head_bytes", (double)d->head_bytes},
                   {"packed_gb_per_s", rate},
                   {"read_gb_per_s", memory},
                   {"packed_roofline_frac", rate / memory},
                   {"roofline_frac", all / memory}};
    bt_printout_str(&o, "preset", NULL, cfg->preset);
    bt_printout_int(&o, "batch", NULL, cfg->batch);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        bt_printout_num(&o, figures[i].key, NULL, figures[i].value, BT_UNIT_NONE);
    bt_printout_str(&o, "isa", NULL, bt_kernels_isa());
    bt_printout_str(&o, "precision", NULL, precisions[cfg->precision]);
    bt_printout_int(&o, "threads", NULL, cfg->threads);
    bt_printout_str(&o, "cpu", NULL, bt_cpu_get()->model);
    return bt_printout_print(&o, err);
}

static bt_code run_preset(const decode_cfg *cfg, const bt_preset *p, bt_err *err) {
    bt_model *m = NULL;
    bt_decoder *decoder = NULL;
    decoded d = {.read = bt_peak_read(256)};
    bt_model_setup setup = {.cfg = p->model,
                            .B = 1 + (int)cfg->batch / p->model.T,
                            .prec = (bt_prec)cfg->precision,
                            .n_threads = (int)cfg->threads};
    bt_code code = bt_model_create(&m, &setup, err);
    if (code != BT_OK) goto done;
    bt_model_init_weights(m, 1);
    bt_model_quantise(m);
    code = bt_decoder_create(&decoder, m, (int)cfg->batch, err);
    if (code == BT_OK) bt_decoder_weight_bytes(decoder, &d.packed_bytes, &d.head_bytes);
    if (code == BT_OK) code = time_decoding(cfg, decoder, (size_t)p->model.V, &d, err);
    if (code != BT_OK) goto done;
    code = print_decode_result(cfg, &d, err);
done:
    bt_decoder_destroy(decoder);
    bt_model_destroy(m);
    bt_ops_release();
    return code;
}

bt_code bt_bench_decode(bt_call *call, bt_err *err) {
    decode_cfg *cfg = call->cfg;
    const bt_preset *p = bt_preset_find(cfg->preset);
    if (!p)
        return bt_fail(err, BT_ARG, "unknown preset '%s' (nano small base bitnet-2b4t qwen3-0.6b)",
                       cfg->preset);
    if (p->model.T < 16 + cfg->tokens)
        return bt_fail(err, BT_ARG,
                       "--tokens %d and a prompt of 16 are more than the context of '%s', %d",
                       (int)cfg->tokens, p->name, p->model.T);
    BT_TRY(bt_kernels_select(cfg->isa, err));
    BT_TRY(bt_threads_init((int)cfg->threads, err));
    bt_code code = run_preset(cfg, p, err);
    bt_threads_release();
    return code;
}
