/* cmd_plan.c - `bitrain plan`: the layouts that a run could have, their times and memory. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/layout/machine_rates.h"
#include "cli/plan/plan_print.h"
#include "cli/train/print_config.h"
#include "cli/train/train_parts.h"
#include "engine/kernels/table/cpu.h"

typedef struct plan_cfg { /* what `train` does not have */
    char write[1024];
    int64_t rows;
    bool measure;
} plan_cfg;

#define FIELD(f) offsetof(plan_cfg, f), sizeof(((plan_cfg *)0)->f)
static const bt_opt plan_opts[] = {
    {"write", "--write", BT_OPT_TEXT, FIELD(write), "", 0, 0, NULL, NULL,
     "write the settings with the best layout to this configuration file, for 'bitrain train'"},
    {"rows", "--rows", BT_OPT_INT, FIELD(rows), "12", 1, 100000, NULL, NULL, "layouts shown"},
    {"measure", "--measure", BT_OPT_BOOL, FIELD(measure), "false", 0, 0, NULL, NULL,
     "measure this machine's rates anew, although they are known"},
};
enum { N_OPTS = sizeof plan_opts / sizeof plan_opts[0] };

static const bt_opt *options(size_t *n) {
    *n = N_OPTS;
    return plan_opts;
}

/* ---- the command line ------------------------------------------------------------------------ */

static const bt_opt *own(const char *word) {
    for (size_t i = 0; i < N_OPTS; i++) {
        size_t n = strlen(plan_opts[i].flag);
        if (strncmp(word, plan_opts[i].flag, n) == 0 && (word[n] == '\0' || word[n] == '='))
            return &plan_opts[i];
    }
    return NULL;
}

typedef struct words {
    char **own, **train;
    int n_own, n_train;
} words;

/* the options above, and every setting of `train` */
static bt_code split(words *w, int argc, char **argv, bt_err *err) {
    size_t room = (size_t)argc + 1;
    *w = (words){.own = calloc(room, sizeof *w->own), .train = calloc(room, sizeof *w->train)};
    if (!w->own || !w->train) return bt_fail(err, BT_NOMEM, "no memory for the command line");
    for (int i = 0; i < argc; i++) {
        const bt_opt *o = own(argv[i]);
        if (!o) {
            w->train[w->n_train++] = argv[i];
            continue;
        }
        w->own[w->n_own++] = argv[i];
        if (o->type != BT_OPT_BOOL && !strchr(argv[i], '=') && i + 1 < argc)
            w->own[w->n_own++] = argv[++i];
    }
    return BT_OK;
}

static bt_code read_words(bt_train_plan *p, plan_cfg *cfg, const words *w, bool *help,
                          bt_err *err) {
    bt_opts o;
    const char *none = NULL;
    size_t n = 0;
    BT_TRY(bt_opts_init(&o, plan_opts, N_OPTS, cfg, err));
    BT_TRY(bt_opts_argv(&o, w->n_own, w->own, &none, 0, &n, help, err));
    BT_TRY(bt_run_cfg_read(&p->opts, &p->cfg, w->n_train, w->train, help, err));
    return bt_store_path(p->store, sizeof p->store, p->cfg.store, err);
}

/* ---- the result ------------------------------------------------------------------------------ */

static bt_code set_number(bt_opts *o, const char *key, int64_t value, bt_err *err) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return bt_opts_set(o, key, text, BT_FROM_FLAG, "plan", err);
}

/* The layout's settings join those that were given; what follows from them stays out. */
static bt_code write_settings(bt_opts *o, const bt_run_cfg *best, const char *path, bt_err *err) {
    static const char *const recompute[] = {"none", "selective", "full"};
    BT_TRY(set_number(o, "launch.ranks", best->ranks, err));
    BT_TRY(set_number(o, "mesh.pp", best->pp, err));
    BT_TRY(set_number(o, "mesh.tp", best->tp, err));
    BT_TRY(set_number(o, "mesh.zero", best->zero, err));
    BT_TRY(set_number(o, "mesh.dp_replicate", best->dp_replicate, err));
    BT_TRY(set_number(o, "mesh.dp_shard", best->dp_shard, err));
    BT_TRY(set_number(o, "train.micro_batch", best->micro_batch, err));
    BT_TRY(
        bt_opts_set(o, "train.recompute", recompute[best->recompute], BT_FROM_FLAG, "plan", err));
    BT_TRY(bt_opts_set(o, "parallel.gather", best->gather == BT_GATHER_STEP ? "step" : "layer",
                       BT_FROM_FLAG, "plan", err));
    FILE *f = fopen(path, "we");
    if (!f) return bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", path);
    bt_code code = bt_print_config(o, false, f, err);
    if (fclose(f) != 0 && code == BT_OK)
        code = bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", path);
    return code;
}

static bt_code print(const bt_layout_choice *c, const plan_cfg *cfg, bool json, bt_err *err) {
    bt_text out;
    bt_text_init(&out);
    if (json)
        bt_plan_put_json(c, (int)cfg->rows, &out);
    else
        bt_plan_put_text(c, (int)cfg->rows, &out);
    bt_code code = out.failed ? bt_fail(err, BT_NOMEM, "no memory for the plan") : BT_OK;
    if (code == BT_OK) fputs(bt_text_str(&out), stdout);
    bt_text_release(&out);
    if (code == BT_OK && ferror(stdout)) code = bt_fail(err, BT_IO, "cannot write the plan");
    return code;
}

static bt_code plan(bt_train_plan *p, const plan_cfg *cfg, bt_err *err) {
    bt_layout_choice *choice = NULL;
    bt_text told;
    BT_TRY(bt_train_vocab(p, err));
    int ranks = bt_run_cfg_ranks(&p->cfg, bt_cpu_get()->cores);
    const bt_layout_job job = {
        .opts = &p->opts, .cfg = &p->cfg, .ranks = ranks, .store = p->store, .anew = cfg->measure};
    bt_text_init(&told);
    bt_code code = bt_layout_choose(&choice, &job, &told, err);
    fputs(bt_text_str(&told), stderr);
    bt_text_release(&told);
    if (code == BT_OK) code = print(choice, cfg, p->cfg.json, err);
    if (code == BT_OK && cfg->write[0])
        code = write_settings(&p->opts, &choice->settings, cfg->write, err);
    bt_layout_choice_release(choice);
    return code;
}

static bt_code run(int argc, char **argv, int *exit_status, bt_err *err) {
    words w;
    plan_cfg cfg;
    bool help = false;
    if (argc > 0 && strcmp(argv[0], BT_RATES_PROBE_WORD) == 0)
        return bt_rates_probe_rank(argc - 1, argv + 1, exit_status, err);
    bt_train_plan *p = calloc(1, sizeof *p);
    bt_code code = p ? split(&w, argc, argv, err)
                     : bt_fail(err, BT_NOMEM, "no memory for the settings");
    if (!p) return code;
    p->run_lock = -1;
    if (code == BT_OK) code = read_words(p, &cfg, &w, &help, err);
    if (code == BT_OK && !help) code = plan(p, &cfg, err);
    free(w.own);
    free(w.train);
    bt_train_plan_release(p);
    free(p);
    return code;
}

const bt_command bt_cmd_plan = {
    .name = "plan",
    .summary = "ranks the layouts of a run by predicted time, with their memory",
    .args = "[CONFIG.yaml]",
    .examples =
        "bitrain plan --preset base --ranks 4             takes every setting of 'train'\n"
        "bitrain plan --preset small --ranks 2 --tp 2     of these only the ones that are open\n"
        "bitrain plan conf.yaml --write best.yaml         then: bitrain train best.yaml\n"
        "bitrain plan --preset base --measure --json\n",
    .options = options,
    .run = run,
};
