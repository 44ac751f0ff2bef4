/* quiet_settings.c - defaults of timed runs; flags, files and variables override them, and they override presets. */
#include "cli/common/quiet_settings.h"

#include <limits.h>
#include <string.h>

#include "cli/common/database.h"
#include "engine/data/io/sources.h"
#include "engine/kernels/table/cpu.h"
#include "monitor/job/launch/builtin.h"

static const struct {
    const char *key, *value;
} quiet[] = {{"data.path", "synth:chain"}, {"optim.schedule", "constant"}, {"optim.warmup", "0"},
             {"launch.ranks", "1"},        {"train.stats_every", "0"},     {"data.val_frac", "0"},
             {"ckpt.final", "false"},      {"ckpt.minutes", "0"},          {"run.seed", "1"}};

/* The built-in text is in the folder of the metrics database; the first rank creates it. */
static bt_code prepare_builtin(bt_opts *o, const bt_run_cfg *cfg, bool first, bt_err *err) {
    char db[PATH_MAX], path[PATH_MAX];
    if (!bt_names_builtin(cfg->data.path)) return BT_OK;
    BT_TRY(bt_store_path(db, sizeof db, cfg->run.store, err));
    if (!bt_cli_beside(path, sizeof cfg->data.cache, db, "cache"))
        return bt_fail(err, BT_ARG, "folder '%.200s' is too long", path);
    if (!cfg->data.cache[0])
        BT_TRY(bt_opts_set(o, "data.cache", path, BT_FROM_PRESET, "bench", err));
    bt_builtin_path(path, sizeof path, cfg->data.cache);
    return first ? bt_builtin_make(path, err) : BT_OK;
}

bt_code bt_quiet_settings_read(bt_opts *o, bt_run_cfg *cfg, int argc, char **argv, bool first,
                               int64_t steps, int64_t warmup, bt_err *err) {
    bool help = false;
    BT_TRY(bt_run_cfg_read(o, cfg, argc, argv, &help, err));
    for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++) {
        /* a process that was started as a rank cannot change the number of ranks */
        if (!first && strcmp(quiet[i].key, "launch.ranks") == 0) continue;
        BT_TRY(bt_opts_set(o, quiet[i].key, quiet[i].value, BT_FROM_PRESET, "bench", err));
    }
    size_t given = bt_opt_find(o->table, o->n, "train.steps");
    if (o->origin[given] <= BT_FROM_PRESET) cfg->train.steps = steps;
    cfg->train.steps += warmup;
    cfg->run.out[0] = '\0';
    cfg->train.stop_after = 0;
    return prepare_builtin(o, cfg, first, err);
}

bt_code bt_quiet_settings_settle(bt_opts *o, bt_run_cfg *cfg, int ranks, bt_err *err) {
    return bt_run_cfg_resolve_opts(o, cfg,
                                   ranks ? ranks : bt_run_cfg_ranks(cfg, bt_cpu_get()->cores), err);
}
