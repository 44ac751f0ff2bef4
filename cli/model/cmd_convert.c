/* cmd_convert.c - converts a model from one format to another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/printout/printout.h"
#include "cli/common/progress.h"
#include "cli/model/adapter_words.h"
#include "cli/model/checkpoint_folder.h"
#include "cli/model/checkpoint_model.h"
#include "cli/model/model_notes.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/tables/metric.h"
#include "engine/base/threads.h"
#include "engine/interop/convert.h"
#include "engine/interop/native.h"
#include "engine/kernels/table/cpu.h"
#include "engine/tune/adapters_read.h"
#include "engine/tune/merge.h"
#include "engine/tune/peft_config.h"
#include "engine/tune/peft_write.h"

typedef struct convert_cfg {
    char out[4096], tokenizer[1024], store[1024], base[1024], add[2048];
    double weight;
    int64_t context, threads, shard_bytes;
    int to, type, scale, merge;
    bool verify, json, scale_tensors, any_activation, allow_older;
} convert_cfg;

#define BT_ARCH(...)
#define BT_NAME(...)
#define BT_NUMBER(id, word, ...) "|" word
#define BT_READ_ONLY(...)
static const char types[] = "auto"
#include "engine/interop/formats/formats.def"
    ;
#undef BT_ARCH
#undef BT_NAME
#undef BT_NUMBER

static const bt_opt convert_opts[] = {
    BT_ROW_ENUM(convert_cfg, to, "--to", "bitrain", "bitrain|hf|gguf",
                "output format: a checkpoint, a Hugging Face folder, or a GGUF file"),
    BT_ROW_TEXT(convert_cfg, out, "--out", "",
                "path of the output, which must not exist (default: NAME-bitrain, NAME-hf or "
                "NAME.gguf in this folder)"),
    BT_ROW_ENUM(convert_cfg, type, "--type", "auto", types,
                "type of the matrices (auto: the most exact one that the format allows)"),
    BT_ROW_ENUM(convert_cfg, scale, "--scale", "multiply", "multiply|divide",
                "type packed: meaning of weight_scale (linear_class autobitlinear or "
                "bitlinear)"),
    BT_ROW_ENUM(convert_cfg, merge, "--merge", "none", "none|dense|latent|keep|fit",
                "merge adapters into the base: dense (--merge alone), or ternary with a new, the "
                "base's or the best scale"),
    BT_ROW_TEXT(convert_cfg, add, "--add", "",
                "--merge: additional adapters of the same base, RUN[:WEIGHT],.."),
    BT_ROW_REAL(convert_cfg, weight, "--weight", "1", -100, 100, NULL,
                "--merge: weight of the first adapters"),
    BT_ROW_TEXT(convert_cfg, base, "--base", "",
                "base model of the adapters, RUN or path (default: the recorded path)"),
    BT_ROW_INT(convert_cfg, shard_bytes, "--shard-bytes", "5000000000", 1, 1e15, "bytes",
               "maximum size of a file in a Hugging Face folder"),
    BT_ROW_FLAG(convert_cfg, scale_tensors, "--scale-tensors",
                "GGUF: store scales of ternary layers as separate fp32 tensors (more exact)"),
    BT_ROW_FLAG(convert_cfg, any_activation, "--any-activation",
                "GGUF: allow a model with relu2, which llama.cpp computes as silu"),
    BT_ROW_FLAG(convert_cfg, verify, "--verify",
                "read the result back and compare the predictions of both models"),
    BT_ROW_TEXT(convert_cfg, tokenizer, "--tokenizer", "", "tokenizer for a model without one"),
    BT_ROW_INT(convert_cfg, context, "--context", "0", 0, 1048576, "tokens",
               "maximum sequence length of the result (0: the model's, for models of other "
               "programs at most 4096)"),
    BT_ROW_INT(convert_cfg, threads, "--threads", "0", 0, 1024, NULL, "threads (0: all cores)"),
    BT_ROW_FLAG(convert_cfg, allow_older, "--allow-older",
                "if the newest checkpoint is damaged, convert an older one (default: "
                "refuse)"),
    BT_ROW_JSON(convert_cfg),
    BT_ROW_STORE(convert_cfg),
};

typedef struct outcome {
    bt_text notes;
    int64_t bytes;
    double seconds;
    bool verified;
    bt_probe_difference difference;
} outcome;

static bt_code find_base_of_adapters(const bt_model_file *s, const convert_cfg *cfg,
                                     char path[PATH_MAX], bt_err *err) {
    static bt_run_cfg trained;
    if (s->container == BT_IN_HF) /* PEFT adapters */
        return bt_peft_base_of(s->path, cfg->base, cfg->store, path, err);
    if (cfg->base[0]) return bt_trained_folder(cfg->base, cfg->store, path, err);
    BT_TRY(bt_native_settings(&trained, &s->meta, s->path, err));
    (void)snprintf(path, PATH_MAX, "%s", trained.tune.base);
    return BT_OK;
}

/* Replaces adapters by the model that results from them and their base. */
static bt_code merge_with_base(bt_model_file **s, const convert_cfg *cfg, bt_err *err) {
    char base[PATH_MAX];
    bt_adapter_part parts[BT_ADAPTER_PARTS] = {{*s, cfg->weight}};
    size_t n = 1;
    BT_TRY(find_base_of_adapters(*s, cfg, base, err));
    bt_code code = bt_adapter_words_open(parts, &n, cfg->add, cfg->store, err);
    if (code == BT_OK) return bt_merge_open(s, parts, n, base, (bt_merge_kind)cfg->merge, err);
    bt_adapter_parts_close(parts + 1, n - 1);
    return code;
}

static bt_code open_peft_source(bt_model_file **s, const char *folder, const convert_cfg *cfg,
                                bt_err *err) {
    char path[PATH_MAX];
    bt_model_file *base = NULL;
    BT_TRY(bt_peft_base_of(folder, cfg->base, cfg->store, path, err));
    BT_TRY(bt_model_file_open(&base, path, err));
    bt_code code = bt_adapters_open_peft(s, folder, &base->cfg, path, err);
    bt_model_file_close(base);
    return code;
}

static bt_code open_model_to_convert(bt_model_file **s, const char *which, const convert_cfg *cfg,
                                     bt_err *err) {
    char path[PATH_MAX];
    BT_TRY(bt_trained_folder(which, cfg->store, path, err));
    BT_TRY(bt_peft_is(path) ? open_peft_source(s, path, cfg, err)
                            : bt_model_file_open(s, path, err));
    BT_TRY(bt_trained_check_newest(&(*s)->passed_over, (*s)->path, !cfg->allow_older, err));
    if ((*s)->cfg.lora.rank && (*s)->cfg.classes)
        return bt_fail(err, BT_UNSUPPORTED,
                       "it is a %s of %d %s, whose adapters are used beside their base ('%.160s')",
                       (*s)->cfg.classes > 1 ? "classifier" : "reward model", (*s)->cfg.classes,
                       (*s)->cfg.classes > 1 ? "labels" : "score", (*s)->path);
    if (cfg->merge != BT_MERGE_NONE && !(*s)->cfg.lora.rank)
        return bt_fail(err, BT_ARG, "--merge: '%.200s' holds no adapters", (*s)->path);
    if (cfg->merge == BT_MERGE_NONE && (cfg->add[0] || cfg->weight < 1 || cfg->weight > 1))
        return bt_fail(err, BT_ARG, "%s is of adapters that are merged (--merge dense)",
                       cfg->add[0] ? "--add" : "--weight");
    if (cfg->merge != BT_MERGE_NONE) BT_TRY(merge_with_base(s, cfg, err));
    bt_model_file *x = *s;
    BT_TRY(bt_trained_tokenizer(x, cfg->tokenizer, err));
    if (cfg->context)
        x->cfg.T = (int)cfg->context;
    else if (cfg->to == BT_TO_BITRAIN && x->container != BT_IN_NATIVE && x->cfg.T > BT_CONTEXT_MOST)
        x->cfg.T = BT_CONTEXT_MOST;
    return BT_OK;
}

/* Runs both models; each takes half of the progress bar. */
static bt_code compare_with_source(bt_model_file *s, const convert_cfg *cfg, outcome *o,
                                   bt_err *err) {
    bt_model_file *result = NULL;
    bt_probe before = {0}, after = {0};
    bt_progress bar;
    const int tokens = s->tokenizer ? bt_tokenizer_vocab(s->tokenizer) : s->cfg.V;
    bt_progress_begin(&bar, false);
    bt_progress_show(&bar, "comparing", 0, "");
    bt_code code = bt_probe_source(s, tokens, &before, err);
    if (code == BT_OK) code = bt_model_file_open(&result, cfg->out, err);
    bt_progress_show(&bar, "comparing", 0.5, "");
    if (code == BT_OK) code = bt_probe_source(result, tokens, &after, err);
    bt_progress_end(&bar);
    if (code == BT_OK) {
        o->difference = bt_probe_compare(&before, &after);
        o->verified = true;
    }
    bt_model_file_close(result);
    bt_probe_release(&before);
    bt_probe_release(&after);
    return code;
}

static bt_code print_conversion(const bt_model_file *s, const convert_cfg *cfg, const outcome *o,
                                bt_err *err) {
    char size[32];
    bt_printout r;
    bt_printout_begin(&r, cfg->json);
    bt_printout_str(&r, "source", NULL, s->path);
    bt_printout_str(&r, "result", NULL, cfg->out);
    if (r.json) bt_trained_put_passed(&s->passed_over, &r.j);
    bt_printout_int(&r, "bytes", NULL, o->bytes);
    bt_printout_num(&r, "seconds", NULL, o->seconds, BT_UNIT_NONE);
    bt_printout_line(&r, "'%s' -> '%s': %s in %.2f s\n", s->path, cfg->out,
                     bt_metric_format(size, sizeof size, (double)o->bytes, BT_UNIT_BYTES),
                     o->seconds);
    for (const char *p = bt_text_str(&o->notes), *end; *p; p = end + (*end == '\n')) {
        end = p + strcspn(p, "\n");
        bt_printout_line(&r, "  %.*s\n", (int)(end - p), p);
    }
    if (o->verified) {
        bt_printout_num(&r, "largest_difference", NULL, o->difference.largest, BT_UNIT_NATS);
        bt_printout_num(&r, "mean_difference", NULL, o->difference.mean, BT_UNIT_NATS);
        bt_printout_int(&r, "same_first_token", NULL, o->difference.same_first);
        bt_printout_line(&r,
                         "  read back: log probabilities in fp32 differ by %.2g at most, %.2g on "
                         "average; the likeliest token is the same after %d of %d prompts\n",
                         o->difference.largest, o->difference.mean, o->difference.same_first,
                         BT_PROBES);
    }
    bt_printout_str(&r, "verified_in", NULL, o->verified ? "fp32" : NULL);
    if (r.json) bt_notes_json(&r.j, &o->notes);
    return bt_printout_print(&r, err);
}

static bt_code write_adapters(bt_model_file *s, const convert_cfg *cfg, outcome *o, bt_err *err) {
    char base[PATH_MAX];
    if (cfg->to != BT_TO_HF)
        return bt_fail(
            err, BT_ARG,
            "'%.200s' holds adapters alone: merge them into their base (--merge dense), or "
            "write them for PEFT (--to hf)",
            s->path);
    if (cfg->verify)
        return bt_fail(err, BT_ARG, "--verify compares whole models, not adapters (use --merge)");
    BT_TRY(find_base_of_adapters(s, cfg, base, err));
    return bt_peft_write(s, cfg->out, base, &o->notes, &o->bytes, err);
}

static void show_written(void *ctx, double done) { bt_progress_show(ctx, "converting", done, ""); }

static bt_code convert_model_file(bt_model_file *s, const convert_cfg *cfg, outcome *o,
                                  bt_err *err) {
    const int64_t began = bt_now_ns();
    const bt_convert_job job = {.to = (bt_convert_to)cfg->to,
                                .dest = cfg->out,
                                .number = cfg->type ? (bt_number)(cfg->type - 1) : BT_NUM_COUNT,
                                .inverse_scale = cfg->scale == 1,
                                .shard_bytes = (uint64_t)cfg->shard_bytes,
                                .scale_tensors = cfg->scale_tensors,
                                .any_activation = cfg->any_activation};
    bt_progress bar;
    bt_text_put(&o->notes, bt_text_str(&s->notes));
    const size_t known = s->notes.len;
    bt_progress_begin(&bar, false);
    s->watch = (bt_model_watch){.progress = show_written, .ctx = &bar};
    const bt_code code = s->cfg.lora.rank ? write_adapters(s, cfg, o, err)
                                          : bt_convert(s, &job, &o->notes, &o->bytes, err);
    s->watch.progress = NULL;
    bt_progress_end(&bar);
    if (code != BT_OK) return code;
    if (s->view.read) bt_merge_describe(s, &o->notes);
    o->seconds = (double)(bt_now_ns() - began) / 1e9;
    bt_text_put(&o->notes, bt_text_str(&s->notes) + known);
    return cfg->verify ? compare_with_source(s, cfg, o, err) : BT_OK;
}

/* --merge without a value means --merge dense. */
static void complete_merge_option(int argc, char **argv) {
    static char dense[] = "--merge=dense";
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--merge") == 0 && (i + 1 == argc || argv[i + 1][0] == '-'))
            argv[i] = dense;
}

/* Completes missing options: the path of the result, in the current folder and named like the run or file; and the
 * format, from the path's ending .gguf. */
static bt_code name_result(convert_cfg *cfg, const char *which, bool format_given, bt_err *err) {
    static const char *const ends[] = {
        [BT_TO_BITRAIN] = "-bitrain", [BT_TO_HF] = "-hf", [BT_TO_GGUF] = ".gguf"};
    char path[PATH_MAX], name[64];
    const size_t n = strlen(cfg->out);
    const bool gguf = n > 5 && strcmp(cfg->out + n - 5, ".gguf") == 0;
    if (gguf && !format_given) cfg->to = BT_TO_GGUF;
    if (gguf && cfg->to != BT_TO_GGUF)
        return bt_fail(err, BT_ARG,
                       "--out '%.200s' is the name of a GGUF file, but --to %s writes a folder",
                       cfg->out, cfg->to == BT_TO_HF ? "hf" : "bitrain");
    if (cfg->out[0]) return BT_OK;
    BT_TRY(bt_trained_folder(which, cfg->store, path, err));
    bt_native_name(name, path);
    char *end = strstr(name, ".gguf");
    if (end && !end[strlen(".gguf")]) *end = '\0';
    (void)snprintf(cfg->out, sizeof cfg->out, "%s%s", name, ends[cfg->to]);
    return BT_OK;
}

static bt_code cmd_convert(bt_call *call, bt_err *err) {
    convert_cfg *cfg = call->cfg;
    const char *which = call->words[0];
    bt_model_file *s = NULL;
    outcome result = {0};
    BT_TRY(name_result(cfg, which, bt_opts_given(&call->opts, "to"), err));
    BT_TRY(bt_kernels_select("auto", err));
    BT_TRY(bt_threads_init(cfg->threads ? (int)cfg->threads : bt_cpu_get()->cores, err));
    bt_code code = open_model_to_convert(&s, which, cfg, err);
    if (code == BT_OK) code = convert_model_file(s, cfg, &result, err);
    if (code == BT_OK) code = print_conversion(s, cfg, &result, err);
    bt_text_release(&result.notes);
    bt_model_file_close(s);
    bt_threads_release();
    return code;
}

const bt_command bt_cmd_convert = {
    .name = "convert",
    .summary = "a model from one format to another",
    .args = "RUN|DIR|FILE",
    .examples =
        "bitrain convert ~/models/Qwen3-0.6B --to bitrain -o qwen3 # a checkpoint from a folder of "
        "Hugging Face\n"
        "bitrain convert last --to gguf -o model.gguf --verify # a file for llama.cpp\n"
        "bitrain convert last --merge --to gguf # adapters and their base as "
        "NAME.gguf\n"
        "bitrain convert A --merge dense --weight 0.5 --add B:0.5 -o both # two adapters and their "
        "base\n"
        "bitrain convert last --merge dense --to hf -o merged # adapters and their base as "
        "one "
        "model\n"
        "bitrain convert last --to hf --type bf16 -o model # a folder for transformers\n",
    .options = BT_OPTION_SET(convert_opts, convert_cfg),
    .max_words = 1,
    .no_word = "which model? (a run, 'last', a folder or a file)",
    .edit = complete_merge_option,
    .run = cmd_convert,
};
