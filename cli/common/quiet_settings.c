/* quiet_settings.c - settings that are weaker than any flag, file or variable, and stronger than a preset. */
#include "cli/common/quiet_settings.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "engine/data/io/sources.h"
#include "engine/kernels/table/cpu.h"
#include "monitor/job/launch/builtin.h"
#include "store/store.h"

static const struct {
    const char *key, *value;
} quiet[] = {{"data.path", "synth:chain"}, {"optim.schedule", "constant"}, {"optim.warmup", "0"},
             {"launch.ranks", "1"},        {"train.stats_every", "0"},     {"data.val_frac", "0"},
             {"ckpt.final", "false"},      {"ckpt.minutes", "0"},          {"run.seed", "1"}};

/* data.cache as of a run, beside the metrics database; the built-in corpus is put there */
static bt_code prepare_cache(bt_opts *o, const bt_run_cfg *cfg, bool first, bt_err *err) {
    char folder[PATH_MAX - 64], path[PATH_MAX];
    BT_TRY(bt_store_path(folder, sizeof folder, cfg->store, err));
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    snprintf(path, sizeof path, "%s/cache", folder);
    if (!cfg->cache[0]) BT_TRY(bt_opts_set(o, "data.cache", path, BT_FROM_PRESET, "bench", err));
    if (!first || strcmp(cfg->data, "builtin") != 0) return BT_OK;
    bt_builtin_path(path, sizeof path, cfg->cache);
    return bt_builtin_make(path, err);
}

bt_code bt_quiet_settings_read(bt_opts *o, bt_run_cfg *cfg, int argc, char **argv, int ranks,
                               int64_t steps, int64_t warmup, bt_err *err) {
    bool help = false;
    BT_TRY(bt_run_cfg_read(o, cfg, argc, argv, &help, err));
    for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++)
        BT_TRY(bt_opts_set(o, quiet[i].key, quiet[i].value, BT_FROM_PRESET, "bench", err));
    size_t given = bt_opt_find(o->table, o->n, "train.steps");
    if (o->origin[given] <= BT_FROM_PRESET) cfg->steps = steps;
    cfg->steps += warmup;
    cfg->out[0] = '\0';
    cfg->stop_after = 0;
    BT_TRY(prepare_cache(o, cfg, ranks == 0, err));
    return bt_run_cfg_settle(o, cfg, ranks ? ranks : bt_run_cfg_ranks(cfg, bt_cpu_get()->cores),
                             err);
}
