/* help_train.c - help on the settings of a run in groups, the most used ones first, with their defaults; and on the
 * presets. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/help.h"
#include "engine/base/tables/metric.h"
#include "engine/config/run_cfg.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/model/net/model.h"
#include "engine/plan/plan.h"
#include "engine/train/trainer.h"

enum { COLUMN = 26, WIDTH = 148 };

static const char *const most_used[] = {"data.path",   "data.tokenizer", "model.preset",
                                        "train.steps", "run.name",       "launch.ranks",
                                        "run.resume",  "run.dry_run"};

static const struct {
    const char *prefix, *title;
} groups[] = {{"run.", "run and output"},
              {"alert.", "alerts"},
              {"launch.", "processes and hosts"},
              {"data.", "data"},
              {"model.", "model"},
              {"train.", "training"},
              {"optim.", "optimizer"},
              {"ckpt.", "checkpoints"},
              {"mesh.", "layout of the ranks"},
              {"parallel.", "exchange between the ranks"},
              {"comm.", "traffic between the ranks"},
              {"tune.", "fine-tuning"},
              {"islands.", "islands of a hub"}};

static bool is_most_used(const char *key) {
    for (size_t i = 0; i < sizeof most_used / sizeof most_used[0]; i++)
        if (strcmp(most_used[i], key) == 0) return true;
    return false;
}

/* Writes "[0.002, the preset's]", the default. With the built-in text, whose tokens are trained, a preset may have
 * another value than in 'bitrain help presets'. */
static void put_default(const bt_opts *o, size_t i, bt_text *out) {
    const bt_opt *opt = &o->table[i];
    const bool automatic = strcmp(o->where[i], "auto") == 0,
               preset = o->origin[i] == BT_FROM_PRESET;
    bt_text value;
    bt_text_init(&value);
    bt_opt_value(o, i, &value);
    /* A default of 0 without an explanation means unused; some help texts contain the default. */
    const bool unused = strcmp(bt_text_str(&value), "0") == 0 && !strstr(opt->help, "(0:");
    if (value.len && !unused && !strstr(opt->help, "default") && opt->type != BT_OPT_BOOL &&
        opt->type != BT_OPT_LIST)
        bt_text_printf(out, " [%s%s%s%s]", bt_text_str(&value), opt->unit ? " " : "",
                       opt->unit ? opt->unit : "",
                       automatic                                  ? ", automatic"
                       : preset && strstr(o->where[i], "learned") ? ", for the built-in text"
                       : preset                                   ? ", the preset's"
                                                                  : "");
    bt_text_release(&value);
}

/* Prints an option with its help, wrapped at WIDTH. */
static void put_option(const bt_opts *o, size_t i, bt_text *out) {
    const bt_opt *opt = &o->table[i];
    const char *arg = bt_opt_argument(opt);
    bt_text help;
    bt_text_init(&help);
    bt_text_put(&help, opt->help);
    put_default(o, i, &help);
    const size_t start = out->len;
    bt_text_printf(out, "  %s%s%s", opt->flag, *arg ? " " : "", arg);
    size_t at = out->len - start;
    if (at + 2 > COLUMN) {
        bt_text_put(out, "\n");
        at = 0;
    }
    for (const char *w = bt_text_str(&help); *w; w += strspn(w, " ")) {
        const size_t n = strcspn(w, " ");
        if (at < COLUMN) {
            bt_text_printf(out, "%*s", (int)(COLUMN - at), "");
            at = COLUMN;
        } else if (at + 1 + n > WIDTH) {
            bt_text_printf(out, "\n%*s", COLUMN, "");
            at = COLUMN;
        } else {
            bt_text_put(out, " ");
            at++;
        }
        bt_text_putn(out, w, n);
        at += n;
        w += n;
    }
    bt_text_put(out, "\n");
    bt_text_release(&help);
}

/* `bitrain train` alone learns its tokens from the built-in text, for which a preset may have another step size. */
static bt_code resolve_builtin_tokens(bt_opts *o, const bt_run_cfg *cfg, int ranks, bt_err *err) {
    if (cfg->data.path[0] || strcmp(cfg->data.tokenizer, "auto") != 0) return BT_OK;
    return bt_run_cfg_words(o, cfg, ranks, true, err);
}

void bt_help_run_options(bt_text *out) {
    bt_opts *o = calloc(1, sizeof *o);
    bt_run_cfg *cfg = calloc(1, sizeof *cfg);
    bt_err why = BT_ERR_INIT;
    bool help = false;
    bt_code code = o && cfg ? bt_run_cfg_read(o, cfg, 0, NULL, &help, &why) : BT_NOMEM;
    const int ranks = code == BT_OK ? bt_run_cfg_ranks(cfg, bt_cpu_get()->cores) : 1;
    if (code == BT_OK) code = resolve_builtin_tokens(o, cfg, ranks, &why);
    if (code == BT_OK) code = bt_run_cfg_resolve_opts(o, cfg, ranks, &why);
    if (code != BT_OK && o &&
        cfg) /* the environment was refused: print the defaults of the table */
        code = bt_opts_init(o, bt_run_opts, bt_run_opts_n, cfg, &why);
    bt_text_put(out, "\nmost used (in brackets: what 'bitrain train' alone takes here):\n");
    for (size_t k = 0; code == BT_OK && k < sizeof most_used / sizeof most_used[0]; k++)
        put_option(o, bt_opt_find(o->table, o->n, most_used[k]), out);
    for (size_t g = 0; code == BT_OK && g < sizeof groups / sizeof groups[0]; g++) {
        bool first = true;
        for (size_t i = 0; i < o->n; i++) {
            const char *key = o->table[i].key, *prefix = groups[g].prefix;
            if (!o->table[i].flag || is_most_used(key) || strncmp(key, prefix, strlen(prefix)) != 0)
                continue;
            if (first) bt_text_printf(out, "\n%s:\n", groups[g].title);
            first = false;
            put_option(o, i, out);
        }
    }
    bt_text_put(out,
                "\n  --set KEY=VALUE         any setting by its key; 'bitrain help options' lists "
                "them all, 'bitrain help presets' the presets\n");
    free(o);
    free(cfg);
}

static bool read_preset_settings(const char *name, bt_opts *o, bt_run_cfg *cfg) {
    char flag[] = "--preset", word[32];
    char *argv[] = {flag, word};
    bool help = false;
    bt_err why = BT_ERR_INIT;
    snprintf(word, sizeof word, "%s", name);
    return bt_run_cfg_read(o, cfg, 2, argv, &help, &why) == BT_OK &&
           bt_run_cfg_resolve_opts(o, cfg, 1, &why) == BT_OK;
}

/* Time of the preset's own steps on two cores of an EPYC with AVX-512 (tests/bench/RESULTS.md). */
static const char *preset_step_time(const char *preset) {
    static const char *const times[][2] = {{"nano", "2 minutes"},
                                           {"small", "75 minutes"},
                                           {"base", "17 hours"},
                                           {"bitnet-2b4t", "a cluster"},
                                           {"qwen3-0.6b", "a cluster"}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (strcmp(times[i][0], preset) == 0) return times[i][1];
    return "-";
}

void bt_help_presets(bt_text *out) {
    static bt_opts o;
    static bt_run_cfg cfg;
    bt_err why = BT_ERR_INIT;
    bt_text_put(
        out,
        "Presets: 'bitrain train --preset NAME'. A model's vocabulary is its tokenizer's "
        "unless model.vocab is given; the\n"
        "parameters are told for both. Memory is what one rank with the preset's own vocabulary "
        "needs; copies for\n"
        "checkpoints and restarts take up to 36 bytes a parameter more where there is room. The "
        "time is that of the\npreset's own steps on two cores of an EPYC with AVX-512; on the "
        "built-in text nano has 2000, of half the size.\n\n");
    bt_text_printf(out, "  %-12s %10s %11s %7s %6s %9s %11s %8s %10s  %s\n", "", "parameters",
                   "with bytes", "layers", "width", "sequence", "vocabulary", "steps", "memory",
                   "time");
    const bool selected = bt_kernels_select("auto", &why) == BT_OK;
    for (size_t i = 0; i < bt_preset_count(); i++) {
        const bt_preset *p = bt_preset_at(i);
        char whole[32], bytes[32], memory[32] = "-";
        bt_model_cfg m = p->model;
        bt_metric_format(whole, sizeof whole, (double)bt_model_count(&m).params, BT_UNIT_COUNT);
        if (selected && read_preset_settings(p->name, &o, &cfg))
            bt_metric_format(memory, sizeof memory, (double)bt_plan_bytes(&cfg, 0, bt_parts_memory),
                             BT_UNIT_BYTES);
        m.V = 256;
        bt_metric_format(bytes, sizeof bytes, (double)bt_model_count(&m).params, BT_UNIT_COUNT);
        bt_text_printf(out, "  %-12s %10s %11s %7d %6d %9d %11d %8" PRId64 " %10s  %s\n", p->name,
                       whole, bytes, p->model.L, p->model.C, p->model.T, p->model.V,
                       (int64_t)p->steps, memory, preset_step_time(p->name));
    }
    bt_text_put(out,
                "\n'bitrain train --preset NAME --data TEXT --dry-run' tells memory, epochs and "
                "time of your run before it begins.\n");
}
