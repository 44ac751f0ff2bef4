/* cmd_sweep.c - `bitrain sweep FILE.yaml`: many runs over settings, as one group. */
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

#define FIELD(f) offsetof(sweep_cfg, f), sizeof(((sweep_cfg *)0)->f)
static const bt_opt sweep_opts[] = {
    {"dry_run", "--dry-run", BT_OPT_BOOL, FIELD(dry_run), "false", 0, 0, NULL, NULL,
     "print the runs that the file asks for; train nothing"},
    {"find_lr", "--find-lr", BT_OPT_BOOL, FIELD(find_lr), "false", 0, 0, NULL, NULL,
     "find a learning rate: one run whose rate rises; the file is its configuration, or left out"},
    {"from", "--from", BT_OPT_REAL, FIELD(from), "1e-6", 0, 100, NULL, NULL,
     "with --find-lr: the first rate"},
    {"to", "--to", BT_OPT_REAL, FIELD(to), "1", 0, 100, NULL, NULL,
     "with --find-lr: the last rate"},
    {"steps", "--steps", BT_OPT_INT, FIELD(steps), "200", 1, 1e6, NULL, "steps",
     "with --find-lr: how many steps the rate takes"},
    {"name", "--name", BT_OPT_TEXT, FIELD(name), "", 0, 0, NULL, NULL,
     "with --find-lr: of the group (default: find-lr); its run is NAME-001"},
    {"retry_failed", "--retry-failed", BT_OPT_BOOL, FIELD(retry), "false", 0, 0, NULL, NULL,
     "go on with runs that have failed, too"},
    {"quiet", "--quiet", BT_OPT_BOOL, FIELD(quiet), "false", 0, 0, NULL, NULL,
     "print the results only"},
    {"json", "--json", BT_OPT_BOOL, FIELD(json), "false", 0, 0, NULL, NULL,
     "print the results as one JSON object, the best run first"},
    {"out", "--out", BT_OPT_TEXT, FIELD(out), "", 0, 0, NULL, NULL,
     "folder of the sweep (default: sweeps/NAME beside the database)"},
    {"store", "--store", BT_OPT_TEXT, FIELD(store), "", 0, 0, NULL, NULL, "metrics database"},
};

static const bt_opt *options(size_t *n) {
    *n = sizeof sweep_opts / sizeof sweep_opts[0];
    return sweep_opts;
}

static size_t count(const bt_sweep_plan *p, bt_sweep_at at) {
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) n += p->runs[i].at == at;
    return n;
}

static bt_code print(bt_sweep_plan *p, const bt_sweep_work *w, bool json, bt_err *err) {
    const bool found = p->file->head.method == BT_SWEEP_FIND_LR && p->runs[0].state[0];
    if (found && !w->signal && !w->out_of_time) return bt_sweep_find_report(p, json, err);
    if (json) return bt_sweep_print_json(p, w, err);
    bt_sweep_print_results(p);
    return BT_OK;
}

static bt_code dry_run(bt_sweep_plan *p, const sweep_cfg *cfg, bt_err *err) {
    const bt_sweep_work none = {.quiet = true};
    for (size_t i = 0; i < p->n; i++) BT_TRY(bt_sweep_look(p, &p->runs[i], err));
    if (!cfg->json) bt_sweep_print_plan(p);
    return print(p, &none, cfg->json, err);
}

static bt_code work(bt_sweep_plan *p, const sweep_cfg *cfg, int *exit_status, bt_err *err) {
    bt_sweep_work w = {.quiet = cfg->quiet || cfg->json, .retry = cfg->retry};
    BT_TRY(bt_sweep_folder_open(p, err));
    for (size_t i = 0; i < p->n; i++) BT_TRY(bt_sweep_look(p, &p->runs[i], err));
    if (!w.quiet) bt_sweep_print_plan(p);
    fflush(stdout);
    bt_code code = bt_sweep_train(p, &w, err);
    if (code != BT_OK && code != BT_STOPPED) return code;
    BT_TRY(print(p, &w, cfg->json, err));
    if (w.signal) *exit_status = 128 + w.signal;
    if (w.signal || w.out_of_time) {
        if (w.out_of_time && !w.quiet)
            fprintf(stderr, "budget.hours is used up; the same command goes on\n");
        return BT_OK;
    }
    /* a range test goes on until the loss diverges, which may end its run: it was judged all the same */
    if (p->file->head.method == BT_SWEEP_FIND_LR) return BT_OK;
    const size_t failed = count(p, BT_SWEEP_FAILED);
    if (failed)
        return bt_fail(err, BT_IO, "%zu of %zu runs failed (`bitrain autopsy RUN` says why)",
                       failed, p->n);
    /* runs that differ by their seed alone are what a group is the mean of */
    size_t axis = 0;
    while (axis < p->file->n_axes && strcmp(p->file->axes[axis].opt->key, "run.seed") == 0) axis++;
    if (!w.quiet && axis < p->file->n_axes)
        printf("compare them: bitrain compare group=%s --group-by %s\n", p->file->head.name,
               p->file->axes[axis].opt->key);
    return BT_OK;
}

static bt_code check_options(const bt_opts *o, const sweep_cfg *cfg, size_t n, bt_err *err) {
    static const char *const of_find[] = {"from", "to", "steps", "name"};
    if (cfg->find_lr) return BT_OK;
    if (n < 1)
        return bt_fail(err, BT_ARG,
                       "no file given: bitrain sweep FILE.yaml, or bitrain sweep --find-lr");
    for (size_t i = 0; i < o->n; i++)
        for (size_t k = 0; k < sizeof of_find / sizeof of_find[0]; k++)
            if (o->origin[i] != BT_FROM_DEFAULT && strcmp(o->table[i].key, of_find[k]) == 0)
                return bt_fail(err, BT_ARG, "%s goes with --find-lr; a file says it itself",
                               o->table[i].flag);
    return BT_OK;
}

static bt_code run(int argc, char **argv, int *exit_status, bt_err *err) {
    static bt_sweep_file file;
    static bt_sweep_plan plan = {.out_lock = -1};
    sweep_cfg cfg;
    bt_opts o;
    const char *words[1];
    size_t n = 0;
    bool help;
    BT_TRY(bt_opts_init(&o, sweep_opts, sizeof sweep_opts / sizeof sweep_opts[0], &cfg, err));
    BT_TRY(bt_opts_argv(&o, argc, argv, words, 1, &n, &help, err));
    BT_TRY(check_options(&o, &cfg, n, err));
    const bt_sweep_find find = {.name = cfg.name[0] ? cfg.name : "find-lr",
                                .config = n ? words[0] : "",
                                .from = cfg.from,
                                .to = cfg.to,
                                .steps = cfg.steps};
    bt_code code = cfg.find_lr ? bt_sweep_file_find(&file, &find, err)
                               : bt_sweep_file_read(&file, words[0], err);
    if (code == BT_OK) code = bt_sweep_plan_make(&plan, &file, cfg.store, cfg.out, cfg.quiet, err);
    if (code == BT_OK)
        code = cfg.dry_run ? dry_run(&plan, &cfg, err) : work(&plan, &cfg, exit_status, err);
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
                "bitrain sweep lr.yaml # again after Ctrl-C or a kill: it goes on\n"
                "bitrain compare group=lr --group-by optim.lr\n"
                "bitrain sweep --find-lr # one run, its rate rising from 1e-6 to 1: which "
                "to use\n"
                "bitrain sweep --find-lr base.yaml --from 1e-5 --to 0.3 --steps 300\n"
                "\n"
                "# lr.yaml (cli/REFERENCE.md has every key):\n"
                "#   method: grid                        # or random, halving: with runs: 12\n"
                "#   settings: {model.preset: nano, train.steps: 200}\n"
                "#   space:\n"
                "#     optim.lr: [1e-3, 2e-3, 4e-3]      # or: log 1e-4 .. 1e-2 in 5\n",
    .options = options,
    .run = run,
};
