/* train_settings.c - parses a command line into the plan of a training. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/given_path.h"
#include "cli/common/progress.h"
#include "cli/common/run_name.h"
#include "cli/train/train_parts.h"
#include "engine/base/log.h"
#include "engine/config/part_rules.h"
#include "engine/config/resolve_impl.h"
#include "engine/islands/rules/job_settings.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"
#include "monitor/job/launch/host_file.h"
#include "store/write/manage.h"

static void store_command_line(bt_train_plan *p, int argc, char **argv) {
    bt_text_put(&p->argv, "bitrain train");
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--no-detach") == 0) continue; /* added by train_detach.c */
        const bool quote = argv[i][0] == '\0' || strpbrk(argv[i], " \t\n'\"\\$&;()<>|*?") != NULL;
        bt_text_printf(&p->argv, quote ? " '%s'" : " %s", argv[i]);
    }
}

/* Repairs a database that was damaged while no process wrote to it: its readable rows move to a new file, so that
 * the run can start. A rank under another mpirun does not repair the file, because other ranks use the file. */
static bt_code repair_store(const bt_train_plan *p, bt_err *err) {
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    bt_repair_result r;
    bt_progress bar;
    const bt_store_progress progress = {bt_progress_of, &bar};
    if (p->world || p->cfg.run.no_monitor || bt_train_only_prints(p)) return BT_OK;
    bt_code code = bt_db_open(&db, p->store, &why);
    double runs;
    if (code == BT_OK)
        code = bt_db_value(db, "SELECT count(config) FROM runs WHERE run <> ?1", "", &runs, &why);
    bt_db_close(db);
    if (code != BT_FORMAT)
        return BT_OK; /* other errors are reported at the first use of the database */
    bt_progress_begin(&bar, p->cfg.run.quiet || p->cfg.run.json);
    code = bt_store_repair(p->store, 10, &progress, &r, err);
    bt_progress_end(&bar);
    if (code != BT_OK) {
        if (err) *err = why;
        return why.code;
    }
    if (!r.sound)
        bt_log(BT_LOG_WARN, "metrics database was damaged: moved to '%s', %lld rows saved%s",
               r.moved_to, (long long)(r.rows + r.rows_of_backups),
               r.incomplete_tables ? ", some lost" : "");
    return BT_OK;
}

/* Refuses settings that have no effect without a hub. */
static bt_code check_islands(const bt_run_cfg *c, bt_err *err) {
    if (c->islands.hub[0] || (c->islands.mode == BT_ISLANDS_SYNC && !c->islands.keys[0]))
        return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "%s is a setting of an island: give its hub as well (--hub HOST:PORT; 'bitrain hub --help' "
        "tells how to start one)",
        c->islands.keys[0] ? "--keys" : "--mode");
}

static bt_code check_hot_spare(const bt_run_cfg *c, bt_err *err) {
    if (!c->launch.hot_spare || (!c->launch.hosts[0] && !c->islands.hub[0])) return BT_OK;
    return bt_fail(err, BT_ARG, "--hot-spare is possible only for a run on one host: not with %s",
                   c->launch.hosts[0] ? "--hosts" : "--hub");
}

/* Refuses an empty --name, which results from an unset shell variable. */
static bt_code check_run_name(const bt_train_plan *p, bt_err *err) {
    const size_t i = bt_opt_find(p->opts.table, p->opts.n, "run.name");
    if (p->cfg.run.name[0] || p->opts.origin[i] < BT_FROM_SET) return BT_OK;
    return bt_fail(err, BT_ARG, "--name is empty (leave it out, and a name is made up)");
}

static bt_code check_resume_with_init_from(const bt_run_cfg *c, bt_err *err) {
    if (!c->run.resume[0] || !c->model.init_from[0] || c->run.go_on) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "--resume continues a run and model.init_from starts a new one: give one of them");
}

static bt_code check_foreign_launcher(const bt_train_plan *p, bt_err *err) {
    if (!p->world || !p->cfg.run.ensemble) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "--ensemble starts its trainings itself and not under mpirun or srun (train each "
        "member there, with --group NAME and its own --seed)");
}

/* Checks combinations of settings that need neither data nor a model, and reports all faults together. */
static bt_code check_combinations(const bt_train_plan *p, bt_err *err) {
    bt_text faults = {0};
    bt_code code = bt_collect_fault(&faults, check_run_name(p, err), err);
    if (code == BT_OK) code = bt_collect_fault(&faults, check_islands(&p->cfg, err), err);
    if (code == BT_OK) code = bt_collect_fault(&faults, check_hot_spare(&p->cfg, err), err);
    if (code == BT_OK) code = bt_collect_fault(&faults, check_foreign_launcher(p, err), err);
    if (code == BT_OK) code = bt_train_check_pairs(&p->opts, &faults, err);
    code = bt_report_faults(&faults, code, err);
    bt_text_release(&faults);
    return code;
}

/* Warns if a given 0 selects the preset's value, and if there are more threads than cores. */
static void warn_about_zero_settings(const bt_train_plan *p) {
    const bt_run_cfg *c = &p->cfg;
    const int cores = bt_cpu_get()->cores;
    if (bt_opts_given(&p->opts, "train.steps") && p->given.train.steps == 0 && !c->train.tokens)
        bt_log(BT_LOG_WARN, "train.steps 0 means the preset's %" PRId64 " steps", c->train.steps);
    if (bt_opts_given(&p->opts, "optim.lr") && p->given.optim.lr == 0)
        bt_log(BT_LOG_WARN, "optim.lr 0 means the preset's rate, %g", c->optim.lr);
    if (bt_opts_given(&p->opts, "launch.threads") && !c->launch.hosts[0] && c->launch.threads > 1 &&
        c->launch.threads * p->ranks > cores)
        bt_log(BT_LOG_WARN, "%d rank%s with %" PRId64 " threads each: %d core%s can be used here",
               p->ranks, p->ranks == 1 ? "" : "s", c->launch.threads, cores, cores == 1 ? "" : "s");
}

static bt_code read_train_settings(bt_train_plan *p, int argc, char **argv, bool *help,
                                   bt_err *err) {
    char given[PATH_MAX];
    BT_TRY(bt_run_cfg_read(&p->opts, &p->cfg, argc, argv, help, err));
    if (*help) return BT_OK;
    BT_TRY(check_resume_with_init_from(&p->cfg, err));
    /* Settings of a resumed run are checked together with its record. */
    if (!p->cfg.run.resume[0] && !p->cfg.run.go_on) BT_TRY(check_combinations(p, err));
    BT_TRY(check_run_name(p, err));
    BT_TRY(bt_store_path(given, sizeof given, p->cfg.run.store, err));
    BT_TRY(bt_absolute_path(given, p->store, err));
    BT_TRY(repair_store(p, err));
    snprintf(p->reason, sizeof p->reason, "start");
    if (p->cfg.run.go_on)
        BT_TRY(bt_train_continue(p, err));
    else if (p->cfg.run.resume[0])
        BT_TRY(bt_train_resume(p, err));
    else if (p->cfg.run.name[0])
        snprintf(p->run, sizeof p->run, "%s", p->cfg.run.name);
    return p->cfg.run.resume[0] || p->cfg.run.go_on ? check_combinations(p, err) : BT_OK;
}

/* Agrees on a kernel set before automatic values are found, because these depend on the kernels and processors of all
 * ranks. The agreed --isa is not recorded as a setting, because a resumed run may have other processors. */
static bt_code agree_kernel_set(bt_train_plan *p, bt_code code, bt_err *err) {
    BT_TRY(bt_agree(bt_comm_world(), code, err));
    BT_TRY(bt_agree_isa(bt_comm_world(), p->cfg.launch.isa, &p->isa, err));
    bt_isa_agreement_apply(&p->isa, &p->cfg);
    if (!p->isa.changed) return BT_OK;
    return bt_opts_set(&p->opts, "launch.isa", p->isa.isa, BT_FROM_FLAG, "auto", err);
}

/* Makes the path absolute for the record, because a resumed run may start in another folder. */
static bt_code check_hosts(bt_train_plan *p, bt_err *err) {
    char path[PATH_MAX];
    bt_code code = bt_host_file_check(p->cfg.launch.hosts, p->ranks, p->cfg.launch.mpirun_args,
                                      err);
    if (code == BT_NOTFOUND && strstr(bt_text_str(&p->place), "--hosts"))
        return bt_fail(err, code,
                       "cannot read host file '%.100s', which run '%s' was started with (give "
                       "another --hosts FILE, or --hosts '' to continue here)",
                       p->cfg.launch.hosts, p->run);
    BT_TRY(code);
    BT_TRY(bt_absolute_path(p->cfg.launch.hosts, path, err));
    if (strlen(path) < sizeof p->cfg.launch.hosts)
        memcpy(p->cfg.launch.hosts, path, strlen(path) + 1);
    return BT_OK;
}

/* Warns of int8 attention on processors on which measurements showed it to be slower: with tiles, or without VNNI. */
static void warn_slow_attention(const bt_train_plan *p) {
    const bt_run_cfg *c = &p->cfg;
    const bt_isa_level level = bt_kernels_level(c->launch.isa);
    if (p->given.train.attention == BT_ATTENTION_INT8 && level >= BT_LEVEL_AVX2 &&
        level != BT_LEVEL_AVX512_BF16 && !bt_kernels_int8_attention_pays(c->launch.isa))
        bt_log(BT_LOG_WARN,
               "train.attention=int8 is slower than float on this processor with --isa %s "
               "(train.attention=auto takes the faster one)",
               c->launch.isa);
}

bt_code bt_train_follow_inputs(bt_train_plan *p, bt_err *err) {
    if (!p->from.dir[0]) BT_TRY(bt_train_init_from(p, err));
    BT_TRY(bt_train_tokenizer(p, err));
    BT_TRY(bt_train_vocab(p, err));
    BT_TRY(bt_train_template(p, err));
    BT_TRY(bt_train_fit_little_text(p, err));
    return bt_train_labels(p, err);
}

bt_code bt_train_make_plan(bt_train_plan *p, int argc, char **argv, int world, bool *help,
                           bt_err *err) {
    memset(p, 0, sizeof *p);
    p->run_lock = -1;
    p->world = world;
    p->from.lr_factor = 1;
    store_command_line(p, argc, argv);
    bt_code code = read_train_settings(p, argc, argv, help, err);
    if (world) code = agree_kernel_set(p, code, err);
    if (code != BT_OK || *help) return code;
    BT_TRY(bt_train_minutes_begin(p, err));
    BT_TRY(bt_train_follow_inputs(p, err));
    BT_TRY(bt_train_alerts(p, err));
    if (world)
        p->ranks = world;
    else
        BT_TRY(bt_train_first_ranks(p, bt_cpu_get()->cores, err));
    BT_TRY(bt_train_minutes(p, err));
    BT_TRY(bt_train_epochs(p, err));
    p->given = p->cfg;
    BT_TRY(bt_train_choose_layout(p, err));
    BT_TRY(bt_run_cfg_resolve_opts(&p->opts, &p->cfg, p->ranks, err));
    BT_TRY(bt_train_keep_prediction(p, err));
    if (!world || bt_comm_rank(bt_comm_world()) == 0) bt_train_warn_schedule(p);
    if (!world) {
        if (p->from.step == 0) bt_warn_part_settings(&p->opts, &p->cfg);
        warn_about_zero_settings(p);
        warn_slow_attention(p);
    }
    const int64_t stop_when = p->cfg.train.stop_when;
    const bool early = stop_when > 0 && p->from.worse >= stop_when &&
                       p->from.step < p->cfg.train.steps;
    if ((early || p->from.step >= p->cfg.train.steps) && p->cfg.run.go_on) {
        p->complete = true;
        return BT_OK;
    }
    if (early)
        return bt_fail(err, BT_BUSY,
                       "run '%s' ended early after step %" PRId64 " of %" PRId64 ": %" PRId64
                       " evaluations without a new best validation loss (--set "
                       "train.stop_when=0 goes further, %s@best has the best weights)",
                       p->run, p->from.step, p->cfg.train.steps, p->from.worse, p->run);
    if (p->from.step >= p->cfg.train.steps)
        return bt_fail(err, BT_BUSY,
                       "run '%s' has done its %" PRId64
                       " steps (give a larger --steps to go further)",
                       p->run, p->cfg.train.steps);
    if (p->cfg.launch.hosts[0] && !world) BT_TRY(check_hosts(p, err));
#ifndef BITRAIN_HAVE_WEB
    if (p->cfg.run.dash)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "--dash: this program was built without the dashboard (./bootstrap build makes it "
            "where there is a network)");
#endif
    if (!p->run[0]) BT_TRY(bt_run_make_name(p->store, p->run, err));
    BT_TRY(bt_train_choose_folder(p, err));
    BT_TRY(bt_train_config_json(p, err));
    return p->config_json.failed || p->argv.failed
               ? bt_fail(err, BT_NOMEM, "no memory for the settings")
               : BT_OK;
}
