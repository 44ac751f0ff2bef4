/* cmd_sweep.c - `bitrain sweep FILE.yaml`: trains many runs with different settings as one group. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/sweep/sweep.h"

typedef struct sweep_cfg {
    char store[1024], out[1024], name[BT_NAME_MAX];
    bool json, dry_run, quiet, retry, find_lr;
    double from, to;
    int64_t steps;
} sweep_cfg;

static const bt_opt sweep_opts[] = {
    BT_ROW_FLAG(sweep_cfg, dry_run, "--dry-run", "print the runs of the sweep; train nothing"),
    BT_ROW_FLAG(sweep_cfg, find_lr, "--find-lr",
                "find a learning rate with one run whose rate rises; the file is its "
                "configuration (optional)"),
    BT_ROW_REAL(sweep_cfg, from, "--from", "1e-6", 0, 100, NULL, "first rate of --find-lr"),
    BT_ROW_REAL(sweep_cfg, to, "--to", "1", 0, 100, NULL, "last rate of --find-lr"),
    BT_ROW_INT(sweep_cfg, steps, "--steps", "200", 1, 1e6, "steps", "number of steps of --find-lr"),
    BT_ROW_TEXT(sweep_cfg, name, "--name", "",
                "group of --find-lr (default: find-lr); its run is NAME-001"),
    {"retry_failed", "--retry-failed", BT_OPT_BOOL, BT_FIELD(sweep_cfg, retry), "false", 0, 0, NULL,
     NULL, "also continue runs that have failed"},
    BT_ROW_FLAG(sweep_cfg, quiet, "--quiet", "print the results only"),
    BT_ROW_FLAG(sweep_cfg, json, "--json",
                "print the results as one JSON object, the best run first"),
    BT_ROW_TEXT(sweep_cfg, out, "--out", "",
                "folder of the sweep (default: sweeps/NAME beside the database)"),
    BT_ROW_STORE(sweep_cfg),
};

static size_t count_runs_in_state(const bt_sweep_plan *p, bt_training_at at) {
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) n += p->runs[i].run.at == at;
    return n;
}

static bt_code print_sweep(bt_sweep_plan *p, bool json, bt_err *err) {
    const bool found = p->file->head.method == BT_SWEEP_FIND_LR && p->runs[0].run.state[0],
               stopped = p->group.signal || p->group.out_of_time;
    if (found && !stopped) return bt_sweep_find_report(p, json, err);
    return bt_sweep_print_results(p, json, !stopped, err);
}

static bt_code read_sweep_states(bt_sweep_plan *p, bt_err *err) {
    for (size_t i = 0; i < p->n; i++) BT_TRY(bt_training_read(&p->group, &p->runs[i].run, err));
    return BT_OK;
}

static bt_code dry_run(bt_sweep_plan *p, const sweep_cfg *cfg, bt_err *err) {
    BT_TRY(read_sweep_states(p, err));
    if (!cfg->json) bt_sweep_print_plan(p);
    return print_sweep(p, cfg->json, err);
}

static bt_code train_sweep(bt_sweep_plan *p, const sweep_cfg *cfg, int *exit_status, bt_err *err) {
    bt_training_group *g = &p->group;
    g->quiet = cfg->quiet || cfg->json;
    g->retry = cfg->retry;
    BT_TRY(bt_sweep_folder_open(p, err));
    BT_TRY(read_sweep_states(p, err));
    if (!g->quiet) bt_sweep_print_plan(p);
    fflush(stdout);
    bt_code code = bt_sweep_train(p, err);
    if (code != BT_OK && code != BT_STOPPED) return code;
    BT_TRY(print_sweep(p, cfg->json, err));
    if (g->signal) *exit_status = 128 + g->signal;
    if (g->signal || g->out_of_time) {
        if (g->out_of_time && !g->quiet)
            fprintf(stderr, "budget.hours is used up: run the same command to continue\n");
        return BT_OK;
    }
    /* in a range test the loss may diverge, which ends the run; its result is valid nevertheless */
    if (p->file->head.method == BT_SWEEP_FIND_LR) return BT_OK;
    const size_t failed = count_runs_in_state(p, BT_TRAINING_FAILED);
    if (failed)
        return bt_fail(err, BT_IO, "%zu of %zu runs failed (`bitrain autopsy RUN` shows the cause)",
                       failed, p->n);
    /* a group is averaged over runs that differ only by their seed */
    size_t axis = 0;
    while (axis < p->file->n_axes && strcmp(p->file->axes[axis].opt->key, "run.seed") == 0) axis++;
    if (!g->quiet && axis < p->file->n_axes)
        printf("compare them: bitrain compare group=%s --group-by %s\n", p->file->head.name,
               p->file->axes[axis].opt->key);
    return BT_OK;
}

static bt_code check_sweep_options(const bt_opts *o, const sweep_cfg *cfg, size_t n, bt_err *err) {
    static const char *const of_find[] = {"from", "to", "steps", "name"};
    if (cfg->find_lr) return BT_OK;
    if (n < 1)
        return bt_fail(err, BT_ARG,
                       "no file given: bitrain sweep FILE.yaml, or bitrain sweep --find-lr");
    for (size_t i = 0; i < o->n; i++)
        for (size_t k = 0; k < sizeof of_find / sizeof of_find[0]; k++)
            if (o->origin[i] != BT_FROM_DEFAULT && strcmp(o->table[i].key, of_find[k]) == 0)
                return bt_fail(err, BT_ARG,
                               "%s is an option of --find-lr; set it in the sweep's file instead",
                               o->table[i].flag);
    return BT_OK;
}

static bt_code cmd_sweep(bt_call *call, bt_err *err) {
    static bt_sweep_file file;
    static bt_sweep_plan plan = {.out_lock = -1};
    sweep_cfg *cfg = call->cfg;
    const char *const *words = call->words;
    BT_TRY(check_sweep_options(&call->opts, cfg, call->n, err));
    const bt_sweep_find find = {.name = cfg->name[0] ? cfg->name : "find-lr",
                                .config = call->n ? words[0] : "",
                                .from = cfg->from,
                                .to = cfg->to,
                                .steps = cfg->steps};
    bt_code code = cfg->find_lr ? bt_sweep_file_find(&file, &find, err)
                                : bt_sweep_file_read(&file, words[0], err);
    if (code == BT_OK)
        code = bt_sweep_plan_make(&plan, &file, cfg->store, cfg->out, cfg->quiet, err);
    if (code == BT_OK)
        code = cfg->dry_run ? dry_run(&plan, cfg, err)
                            : train_sweep(&plan, cfg, call->exit_status, err);
    bt_sweep_folder_close(&plan);
    bt_sweep_plan_release(&plan);
    bt_sweep_file_release(&file);
    return code;
}

const bt_command bt_cmd_sweep = {
    .name = "sweep",
    .summary =
        "train many runs over settings: grid, random, successive halving; find a learning rate",
    .args = "[FILE.yaml]",
    .examples = "bitrain sweep lr.yaml --dry-run # the runs it would train\n"
                "bitrain sweep lr.yaml # the same command continues after Ctrl-C or a kill\n"
                "bitrain compare group=lr --group-by optim.lr\n"
                "bitrain sweep --find-lr # suggests a rate after one run with rates from 1e-6 "
                "to 1\n"
                "bitrain sweep --find-lr base.yaml --from 1e-5 --to 0.3 --steps 300\n"
                "\n"
                "# lr.yaml (cli/REFERENCE.md has every key):\n"
                "#   method: grid                        # or random, halving: with runs: 12\n"
                "#   settings: {model.preset: nano, train.steps: 200}\n"
                "#   space:\n"
                "#     optim.lr: [1e-3, 2e-3, 4e-3]      # or: log 1e-4 .. 1e-2 in 5\n",
    .train_hint = "settings of its runs are lines of the sweep's file: --help shows one",
    .options = BT_OPTION_SET(sweep_opts, sweep_cfg),
    .max_words = 1,
    .run = cmd_sweep,
};
