/* cmd_plan.c - `bitrain plan`: ranks the possible layouts of a run by time and memory. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/given_path.h"
#include "cli/layout/layout_race.h"
#include "cli/layout/layout_trial.h"
#include "cli/layout/machine_rates.h"
#include "cli/plan/plan_print.h"
#include "cli/plan/plan_simulate.h"
#include "cli/train/print_config.h"
#include "cli/train/train_parts.h"
#include "engine/kernels/table/cpu.h"
#include "monitor/job/launch/host_file.h"

typedef struct plan_cfg { /* options that `train` does not have */
    char write[1024], simulate[64], link[64], memory[64], mtbf[64];
    double stragglers, watts, price, trial;
    int64_t rows;
    bool measure, trial_given, rows_given, force;
} plan_cfg;

static const bt_opt plan_opts[] = {
    BT_ROW_TEXT(plan_cfg, write, "--write", "",
                "write the settings with the best layout to this configuration file for 'bitrain "
                "train'"),
    BT_ROW_FLAG(plan_cfg, force, "--force", "--write: replace a file that exists"),
    BT_ROW_TEXT(plan_cfg, simulate, "--simulate", "",
                "simulate a cluster of HOSTSxRANKS, from one host to all of them"),
    BT_ROW_TEXT(plan_cfg, link, "--link", "",
                "simulation: rate and latency of a host's link, such as 25Gbit,5us (default "
                "100Gbit,3us)"),
    BT_ROW_TEXT(plan_cfg, memory, "--memory", "",
                "simulation: memory of a host, such as 64GiB (default: not checked)"),
    BT_ROW_TEXT(plan_cfg, mtbf, "--mtbf", "",
                "simulation: mean time between failures of the whole job, such as 8h "
                "(default: no failures)"),
    BT_ROW_REAL(plan_cfg, stragglers, "--stragglers", "0", 0, 10, NULL,
                "simulation: each rank's compute time grows by |x|, x normal with this "
                "standard deviation, such as 0.05"),
    BT_ROW_REAL(plan_cfg, watts, "--watts", "0", 0, 1e6, "W",
                "power of a machine under load, for the energy of the run (0: as measured "
                "by its processors)"),
    BT_ROW_REAL(
        plan_cfg, price, "--price", "0", 0, 1e6, NULL,
        "price of a machine per hour, in any currency, for the cost of the run (0: no cost)"),
    BT_ROW_INT(plan_cfg, rows, "--rows", "12", 1, 100000, NULL, "number of layouts to show"),
    BT_ROW_REAL(plan_cfg, trial, "--trial", "10", 0, 600, "s",
                "time for trial steps of layouts with nearly equal predictions, less that "
                "of measuring (0: no trial)"),
    BT_ROW_FLAG(plan_cfg, measure, "--measure",
                "measure this machine's rates again, even if they are stored"),
};
enum { N_OPTS = sizeof plan_opts / sizeof plan_opts[0] };

static const bt_opt *find_plan_option(const char *word) {
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

/* Separates the options above from the settings of `train`. */
static bt_code split_plan_words(words *w, int argc, char **argv, bt_err *err) {
    size_t room = (size_t)argc + 1;
    *w = (words){.own = calloc(room, sizeof *w->own), .train = calloc(room, sizeof *w->train)};
    if (!w->own || !w->train) return bt_fail(err, BT_NOMEM, "no memory for the command line");
    for (int i = 0; i < argc; i++) {
        const bt_opt *o = find_plan_option(argv[i]);
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

static bt_code refuse_empty_options(const bt_opts *o, const plan_cfg *cfg, bt_err *err) {
    for (size_t i = 0; i < N_OPTS; i++) {
        const bt_opt *x = &plan_opts[i];
        if (x->type == BT_OPT_TEXT && bt_opts_given(o, x->key) && !((const char *)cfg)[x->offset])
            return bt_fail(err, BT_ARG, "%s is empty (leave it out, or: %s)", x->flag, x->help);
    }
    return BT_OK;
}

static bt_code read_plan_words(bt_train_plan *p, plan_cfg *cfg, const words *w, bool *help,
                               bt_err *err) {
    bt_opts o;
    const char *none = NULL;
    size_t n = 0;
    BT_TRY(bt_opts_init(&o, plan_opts, N_OPTS, cfg, err));
    BT_TRY(bt_opts_argv(&o, w->n_own, w->own, &none, 0, &n, help, err));
    BT_TRY(refuse_empty_options(&o, cfg, err));
    cfg->trial_given = bt_opts_given(&o, "trial");
    cfg->rows_given = bt_opts_given(&o, "rows");
    BT_TRY(bt_run_cfg_read(&p->opts, &p->cfg, w->n_train, w->train, help, err));
    return bt_store_path(p->store, sizeof p->store, p->cfg.run.store, err);
}

/* Adds the settings of the layout to the given ones; settings derived from them are not written. */
static bt_code write_layout_settings(bt_opts *o, const bt_layout *best, int n_ranks, FILE *to,
                                     bt_err *err) {
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", n_ranks);
    BT_TRY(bt_opts_set(o, "launch.ranks", ranks, BT_FROM_FLAG, "plan", err));
    BT_TRY(bt_layout_apply(o, best, "plan", err));
    return bt_print_config(o, false, to, err);
}

/* Predicts the time of the first layout and replaces the settings of the plan by those of the choice. */
static void predict_first_layout(bt_train_plan *p, const bt_layout_choice *c, bt_train_time *out) {
    const bt_layout *l = &c->layouts.at[0];
    const bt_trial_rate tried = {.step_s = l->trial_s, .load = l->trial_load};
    p->cfg = c->settings;
    /* a single candidate is not tried, but an earlier trial may have measured it */
    const bt_trial_rate *kept = l->trial_s > 0
                                    ? &tried
                                    : bt_layout_tried(&p->opts, &p->cfg, p->ranks, &c->rates);
    bt_train_time_of(p, l->time.step.step_s, kept, out);
}

static bt_code print_plan(const bt_layout_choice *c, const plan_cfg *cfg, const bt_train_time *time,
                          bool json, bt_err *err) {
    bt_text out;
    const bt_bill paid = {.host_watts = cfg->watts, .host_price = cfg->price};
    bt_text_init(&out);
    if (json)
        bt_plan_put_json(c, (int)cfg->rows, time, &paid, &out);
    else
        bt_plan_put_text(c, (int)cfg->rows, time, &paid, &out);
    bt_code code = out.failed ? bt_fail(err, BT_NOMEM, "no memory for the plan") : BT_OK;
    if (code == BT_OK) fputs(bt_text_str(&out), stdout);
    bt_text_release(&out);
    if (code == BT_OK && ferror(stdout)) code = bt_fail(err, BT_IO, "cannot write the plan");
    return code;
}

/* True if a flag set the key, not a configuration file, which may serve other runs, too. */
static bool is_set_by_flag(const bt_opts *o, const char *key) {
    const size_t i = bt_opt_find(o->table, o->n, key);
    return i < o->n && o->origin[i] == BT_FROM_FLAG;
}

/* Refuses options of a simulated cluster without --simulate, and options of this machine with it. */
static bt_code check_plan_options(const plan_cfg *cfg, const bt_opts *settings, bt_err *err) {
    struct word {
        const char *flag;
        bool given;
    };
    const struct word rows[] = {{"--link", cfg->link[0] != '\0'},
                                {"--memory", cfg->memory[0] != '\0'},
                                {"--mtbf", cfg->mtbf[0] != '\0'},
                                {"--stragglers", cfg->stragglers > 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given && !cfg->simulate[0])
            return bt_fail(err, BT_ARG,
                           "%s describes a simulated cluster (use it with --simulate HOSTSxRANKS)",
                           rows[i].flag);
    const struct word here[] = {{"--write", cfg->write[0] != '\0'},
                                {"--trial", cfg->trial_given},
                                {"--rows", cfg->rows_given},
                                {"--ranks", is_set_by_flag(settings, "launch.ranks")}};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        if (here[i].given && cfg->simulate[0])
            return bt_fail(err, BT_ARG,
                           "%s is of layouts on this machine (leave %s out, or --simulate)",
                           here[i].flag, here[i].flag);
    return BT_OK;
}

static bt_code plan_this_machine(bt_train_plan *p, const plan_cfg *cfg, bt_err *err) {
    bt_layout_choice *choice = NULL;
    bt_text notes;
    BT_TRY(check_plan_options(cfg, &p->opts, err));
    if (cfg->simulate[0])
        return bt_plan_simulate(p,
                                &(bt_simulation_words){.hosts = cfg->simulate,
                                                       .link = cfg->link,
                                                       .memory = cfg->memory,
                                                       .mtbf = cfg->mtbf,
                                                       .straggler_frac = cfg->stragglers,
                                                       .watts = cfg->watts,
                                                       .price = cfg->price,
                                                       .anew = cfg->measure},
                                err);
    if (p->cfg.train.minutes > 0)
        return bt_fail(err, BT_ARG,
                       "--minutes is of train (bitrain train --minutes %.6g --dry-run prints that "
                       "plan and trains nothing)",
                       p->cfg.train.minutes);
    if (p->cfg.launch.hosts[0]) BT_TRY(bt_host_file_check(p->cfg.launch.hosts, 0, "", err));
    BT_TRY(bt_train_follow_inputs(p, err));
    int ranks = bt_run_cfg_ranks(&p->cfg, bt_cpu_get()->cores);
    p->ranks = ranks;
    BT_TRY(bt_train_epochs(p, err));
    const bt_layout_job job = {.opts = &p->opts,
                               .cfg = &p->cfg,
                               .ranks = ranks,
                               .store = p->store,
                               .anew = cfg->measure,
                               .trial_s = cfg->trial,
                               .trial_given = cfg->trial_given,
                               .quiet = p->cfg.run.quiet};
    bt_out_text file; /* a file that cannot be written is reported before the machine is measured */
    BT_TRY(bt_out_text_open(&file, cfg->write, cfg->force, err));
    bt_text_init(&notes);
    bt_code code = bt_layout_choose(&choice, &job, &notes, err);
    fputs(bt_text_str(&notes), stderr);
    bt_text_release(&notes);
    if (code == BT_OK) {
        bt_train_time time;
        const bool json = p->cfg.run.json;
        predict_first_layout(p, choice, &time);
        code = print_plan(choice, cfg, &time, json, err);
    }
    if (code == BT_OK && cfg->write[0])
        code = write_layout_settings(&p->opts, &choice->layouts.at[0], ranks, file.to, err);
    code = bt_out_text_close(&file, code, err);
    bt_layout_choice_release(choice);
    return code;
}

static bt_code cmd_plan(int argc, char **argv, int *exit_status, bt_err *err) {
    words w;
    plan_cfg cfg;
    bool help = false;
    if (argc > 0 && strcmp(argv[0], BT_RATES_PROBE_WORD) == 0)
        return bt_rates_probe_rank(argc - 1, argv + 1, exit_status, err);
    if (argc > 0 && strcmp(argv[0], BT_LAYOUT_RACE_WORD) == 0)
        return bt_layout_race_rank(argc - 1, argv + 1, exit_status, err);
    bt_train_plan *p = calloc(1, sizeof *p);
    bt_code code = p ? split_plan_words(&w, argc, argv, err)
                     : bt_fail(err, BT_NOMEM, "no memory for the settings");
    if (!p) return code;
    p->run_lock = -1;
    if (code == BT_OK) code = read_plan_words(p, &cfg, &w, &help, err);
    if (code == BT_OK && !help) code = plan_this_machine(p, &cfg, err);
    free(w.own);
    free(w.train);
    bt_train_plan_release(p);
    free(p);
    return code;
}

const bt_command bt_cmd_plan = {
    .ranked = true,
    .name = "plan",
    .summary = "rank the layouts of a run by predicted time; simulate clusters",
    .args = "[CONFIG.yaml]",
    .examples =
        "bitrain plan --preset base --ranks 4 # takes every setting of 'train'\n"
        "bitrain plan --preset small --ranks 2 --tp 2 # only the layouts with these two ranks as "
        "one tensor-parallel group\n"
        "bitrain plan conf.yaml --write best.yaml # then: bitrain train best.yaml\n"
        "bitrain plan --preset base --measure --json\n"
        "bitrain plan --preset bitnet-2b4t --simulate 64x8 --link 100Gbit,3us --mtbf 8h\n",
    .options = BT_OPTION_SET(plan_opts, plan_cfg),
    .run_argv = cmd_plan,
};
