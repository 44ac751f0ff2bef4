/* cmd_train.c - train or resume: settings, the run's record, and the supervisor; or, under a
 * foreign mpirun, a rank itself. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/given_path.h"
#include "cli/common/progress.h"
#include "cli/common/run_name.h"
#include "cli/common/signals.h"
#include "cli/train/live_line.h"
#include "cli/train/print_config.h"
#include "cli/train/rank_run.h"
#include "cli/train/train_direct.h"
#include "cli/train/train_parts.h"
#include "engine/base/log.h"
#include "engine/ckpt/ckpt.h"
#include "engine/config/ramp.h"
#include "engine/islands/rules/job_settings.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"
#include "monitor/job/launch/detach.h"
#include "monitor/job/launch/host_file.h"
#include "monitor/job/supervisor.h"
#include "store/write/manage.h"

/* ---- plan ------------------------------------------------------------------------------------ */

static void keep_argv(bt_train_plan *p, int argc, char **argv) {
    bt_text_put(&p->argv, "bitrain train");
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--no-detach") == 0) continue; /* train_detach.c's, nobody's wish */
        const bool quote = argv[i][0] == '\0' || strpbrk(argv[i], " \t\n'\"\\$&;()<>|*?") != NULL;
        bt_text_printf(&p->argv, quote ? " '%s'" : " %s", argv[i]);
    }
}

/* A database of ours that was damaged while nobody wrote does not hold a run up: what can be read goes on
 * in a new file. The rest of a job's ranks must not see that happen: then it stays as it is. */
static bt_code mend_store(const bt_train_plan *p, bt_err *err) {
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    bt_repair_result r;
    bt_progress bar;
    const bt_store_progress progress = {bt_progress_of, &bar};
    if (p->world || p->cfg.no_monitor || bt_train_only_prints(p)) return BT_OK;
    bt_code code = bt_db_open(&db, p->store, &why);
    double runs;
    if (code == BT_OK)
        code = bt_db_value(db, "SELECT count(config) FROM runs WHERE run <> ?1", "", &runs, &why);
    bt_db_close(db);
    if (code != BT_FORMAT) return BT_OK; /* what is wrong is said where it is used */
    bt_progress_begin(&bar, p->cfg.quiet || p->cfg.json);
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

/* what only an island does would be left out without a word */
static bt_code check_islands(const bt_run_cfg *c, bt_err *err) {
    if (c->hub[0] || (c->mode == BT_ISLANDS_SYNC && !c->hub_keys[0])) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "%s is of an island: give its hub as well (--hub HOST:PORT; 'bitrain hub --help' "
        "tells how to start one)",
        c->hub_keys[0] ? "--keys" : "--mode");
}

static bt_code check_spare(const bt_run_cfg *c, bt_err *err) {
    if (!c->hot_spare || (!c->hosts[0] && !c->hub[0])) return BT_OK;
    return bt_fail(err, BT_ARG, "--hot-spare waits beside a run on one host: not with %s",
                   c->hosts[0] ? "--hosts" : "--hub");
}

/* an empty name on the command line: a variable of the shell that is not set */
static bt_code check_name(const bt_train_plan *p, bt_err *err) {
    const size_t i = bt_opt_find(p->opts.table, p->opts.n, "run.name");
    if (p->cfg.name[0] || p->opts.origin[i] < BT_FROM_SET) return BT_OK;
    return bt_fail(err, BT_ARG, "--name is empty (leave it out, and a name is made up)");
}

/* A 0 that was given stands for a value of the preset, which is told; threads beyond the cores as well. */
static void tell_stand_ins(const bt_train_plan *p) {
    const bt_run_cfg *c = &p->cfg;
    const int cores = bt_cpu_get()->cores;
    if (bt_opts_given(&p->opts, "train.steps") && p->given.steps == 0 && !c->tokens)
        bt_log(BT_LOG_WARN, "train.steps 0 stands for the preset's %" PRId64 " steps", c->steps);
    if (bt_opts_given(&p->opts, "optim.lr") && p->given.lr == 0)
        bt_log(BT_LOG_WARN, "optim.lr 0 stands for the preset's rate, %g", c->lr);
    if (bt_opts_given(&p->opts, "launch.threads") && !c->hosts[0] && c->threads > cores)
        bt_log(BT_LOG_WARN, "%d rank%s with %" PRId64 " threads each: %d core%s can be used here",
               p->ranks, p->ranks == 1 ? "" : "s", c->threads, cores, cores == 1 ? "" : "s");
}

static bt_code read_settings(bt_train_plan *p, int argc, char **argv, bool *help, bt_err *err) {
    char given[PATH_MAX];
    BT_TRY(bt_run_cfg_read(&p->opts, &p->cfg, argc, argv, help, err));
    if (*help) return BT_OK;
    BT_TRY(check_name(p, err));
    BT_TRY(bt_store_path(given, sizeof given, p->cfg.store, err));
    BT_TRY(bt_absolute_path(given, p->store, err));
    BT_TRY(mend_store(p, err));
    snprintf(p->reason, sizeof p->reason, "start");
    if (p->cfg.go_on) return bt_train_continue(p, err);
    if (p->cfg.resume[0] && p->cfg.init_from[0])
        return bt_fail(
            err, BT_ARG,
            "--resume goes on with a run and model.init_from starts a new one: give one of them");
    if (p->cfg.resume[0])
        BT_TRY(bt_train_resume(p, err));
    else if (p->cfg.name[0])
        snprintf(p->run, sizeof p->run, "%s", p->cfg.name);
    return BT_OK;
}

/* Before automatic values are found: what they become depends on the kernels. What the other ranks
 * made of --isa is no setting of this run's record: a resumed run may have other processors. */
static bt_code agree_isa(bt_train_plan *p, bt_code code, bt_err *err) {
    BT_TRY(bt_agree(bt_comm_world(), code, err));
    BT_TRY(bt_agree_isa(bt_comm_world(), p->cfg.isa, &p->isa, err));
    if (!p->isa.changed) return BT_OK;
    return bt_opts_set(&p->opts, "launch.isa", p->isa.isa, BT_FROM_FLAG, "auto", err);
}

/* The path goes into the record: a resumed run may begin in another folder. */
static bt_code check_hosts(bt_train_plan *p, bt_err *err) {
    char path[PATH_MAX];
    bt_code code = bt_host_file_check(p->cfg.hosts, p->ranks, p->cfg.mpirun_args, err);
    if (code == BT_NOTFOUND && strstr(bt_text_str(&p->place), "--hosts"))
        return bt_fail(err, code,
                       "cannot read host file '%.100s', which run '%s' was started with (give "
                       "another --hosts FILE, or --hosts '' to go on here)",
                       p->cfg.hosts, p->run);
    BT_TRY(code);
    BT_TRY(bt_absolute_path(p->cfg.hosts, path, err));
    if (strlen(path) < sizeof p->cfg.hosts) memcpy(p->cfg.hosts, path, strlen(path) + 1);
    return BT_OK;
}

/* Warns of a ramp with a place that rounds to the first step, which has no effect; not of a preset's own ramp. */
static void tell_ramps(const bt_train_plan *p) {
    const struct {
        const char *key, *shares;
    } ramps[] = {{"train.batch_ramp", p->cfg.batch_ramp}, {"train.seq_ramp", p->cfg.seq_ramp}};
    for (size_t k = 0; k < sizeof ramps / sizeof ramps[0]; k++) {
        const size_t i = bt_opt_find(p->opts.table, p->opts.n, ramps[k].key);
        bt_ramp r;
        bt_err ignored = BT_ERR_INIT;
        if (p->opts.origin[i] <= BT_FROM_PRESET || p->from.step > 0 ||
            bt_ramp_read(&r, ramps[k].key, ramps[k].shares, p->cfg.ramp_steps, &ignored) != BT_OK)
            continue;
        if (r.n > 0 && r.at[0] == 0)
            bt_log(BT_LOG_WARN,
                   "%s %s: %.*s of %" PRId64
                   " steps is before the end of the first, so the run begins behind that place "
                   "(%.2g is a step)",
                   ramps[k].key, ramps[k].shares, (int)strcspn(ramps[k].shares, ","),
                   ramps[k].shares, p->cfg.ramp_steps, 1 / (double)p->cfg.ramp_steps);
    }
}

/* Warns of int8 attention that was asked for where it was measured to be slower: with tiles, and without VNNI. */
static void tell_attention(const bt_run_cfg *c) {
    const bt_isa_level level = bt_kernels_level(c->isa);
    if (c->attention == BT_ATTENTION_INT8 && !c->attention_found && level >= BT_LEVEL_AVX2 &&
        level != BT_LEVEL_AVX512_BF16 && !bt_kernels_int8_attention_pays(c->isa))
        bt_log(BT_LOG_WARN,
               "train.attention=int8 is slower than float on this processor with --isa %s "
               "(train.attention=auto takes the faster one)",
               c->isa);
}

/* world: 0 when the ranks are ours to start */
bt_code bt_train_make_plan(bt_train_plan *p, int argc, char **argv, int world, bool *help,
                           bt_err *err) {
    memset(p, 0, sizeof *p);
    p->run_lock = -1;
    p->world = world;
    p->from.lr_factor = 1;
    keep_argv(p, argc, argv);
    bt_code code = read_settings(p, argc, argv, help, err);
    if (world) code = agree_isa(p, code, err);
    if (code != BT_OK || *help) return code;
    if (!p->from.dir[0]) BT_TRY(bt_train_init_from(p, err));
    BT_TRY(bt_train_tokenizer(p, err));
    BT_TRY(bt_train_vocab(p, err));
    BT_TRY(bt_train_template(p, err));
    BT_TRY(bt_train_labels(p, err));
    BT_TRY(bt_train_alerts(p, err));
    BT_TRY(check_islands(&p->cfg, err));
    BT_TRY(check_spare(&p->cfg, err));
    if (world)
        p->ranks = world;
    else
        BT_TRY(bt_train_first_ranks(p, bt_cpu_get()->cores, err));
    BT_TRY(bt_train_epochs(p, err));
    p->given = p->cfg;
    BT_TRY(bt_train_choose_layout(p, err));
    BT_TRY(bt_run_cfg_settle(&p->opts, &p->cfg, p->ranks, err));
    if (world) bt_isa_agreement_apply(&p->isa, &p->cfg);
    BT_TRY(bt_train_keep_prediction(p, err));
    if (!world || bt_comm_rank(bt_comm_world()) == 0) bt_train_warn_schedule(p);
    if (!world) {
        tell_ramps(p);
        tell_stand_ins(p);
        tell_attention(&p->cfg);
    }
    if (p->from.step >= p->cfg.steps && p->cfg.go_on) {
        p->complete = true;
        return BT_OK;
    }
    if (p->from.step >= p->cfg.steps)
        return bt_fail(err, BT_BUSY,
                       "run '%s' has done its %" PRId64
                       " steps (give a larger --steps to go further)",
                       p->run, p->cfg.steps);
    if (p->cfg.hosts[0] && !world) BT_TRY(check_hosts(p, err));
#ifndef BITRAIN_HAVE_WEB
    if (p->cfg.dash)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "--dash: this program was built without the dashboard (./bootstrap build makes it "
            "where there is a network)");
#endif
    if (!p->run[0]) BT_TRY(bt_run_make_name(p->store, p->run, err));
    BT_TRY(bt_train_place(p, err));
    BT_TRY(bt_train_config_json(p, err));
    return p->config_json.failed || p->argv.failed
               ? bt_fail(err, BT_NOMEM, "no memory for the settings")
               : BT_OK;
}

/* ---- under the supervisor -------------------------------------------------------------------- */

static bt_code resume_point(void *ctx, const char *memory, bt_resume_point *at, bt_text *why,
                            bt_err *err) {
    const char *out = ((const bt_train_plan *)ctx)->out;
    if (bt_train_in_memory(out, memory, at)) return BT_OK;
    return bt_train_newest(out, at, NULL, why, err);
}

static int fence(void *ctx, int attempt) {
    return bt_ckpt_next_attempt(((const bt_train_plan *)ctx)->out, attempt);
}

static bt_code own_path(char *out, size_t size, bt_err *err) {
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0) return bt_fail_errno(err, BT_IO, errno, "cannot find the path of this program");
    out[n] = '\0';
    return BT_OK;
}

/* The state that the run ends in, and its exit status. The ranks report whether steps were left: a run that was
 * asked to stop after its last step is done, not stopped. */
static const char *judge(const bt_job_result *r, int *status) {
    if (r->end.kind == BT_END_DONE) {
        const bool stopped = r->result_json
                                 ? bt_train_result_says(r->result_json, "stopped", NULL, 0)
                                 : r->stopped;
        *status = stopped && r->stopped && r->signal ? 128 + r->signal : 0;
        return stopped ? "stopped" : "done";
    }
    if (r->end.kind == BT_END_STOPPED_NOW) {
        *status = r->signal ? 128 + r->signal : 130;
        return "stopped";
    }
    *status = bt_end_exit_code(&r->end);
    return "failed";
}

/* a supervisor that was killed has not heard the last records of its ranks */
void bt_train_recover(const bt_train_plan *p, bt_writer *writer) {
    static const char *const rings[] = {BT_JOB_RING_BEFORE, BT_JOB_RING};
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        char path[PATH_MAX + 32];
        int64_t steps;
        bt_err trouble = BT_ERR_INIT;
        snprintf(path, sizeof path, "%s/%s", p->out, rings[i]);
        if (bt_writer_recover(writer, p->run, path, &steps, &trouble) != BT_OK)
            fprintf(stderr, "warning: metrics: records left behind by the killed run: %s\n",
                    trouble.msg);
        else if (i == 0)
            unlink(path);
    }
}

/* A resumed run that recorded no step is again what it was before this command. */
void bt_train_withdraw(const bt_train_plan *p, bt_writer *writer) {
    bool withdrawn = false;
    bt_err trouble = BT_ERR_INIT;
    if (!writer) return;
    if (bt_writer_withdraw(writer, &withdrawn, &trouble) != BT_OK)
        fprintf(stderr, "warning: metrics: %s\n", trouble.msg);
    else if (withdrawn)
        fprintf(stderr,
                "bitrain train: run '%s' did no step: its record and its settings are as before "
                "this command\n",
                p->run);
}

static bt_code finish(bt_train_plan *p, bt_writer *writer, const bt_job_result *r, int attempt,
                      int *status, bt_err *err) {
    const char *state = judge(r, status);
    bt_err trouble = BT_ERR_INIT;
    const bool asked = r->stopped && strcmp(state, "stopped") == 0;
    if (writer && bt_writer_end(writer, state, asked ? "stopped" : bt_end_name(r->end.kind),
                                *status, &trouble) != BT_OK)
        fprintf(stderr, "warning: metrics: %s\n", trouble.msg);
    bt_train_withdraw(p, writer);
    bt_train_summary(p, state, attempt, r->result_json);
    char trouble_text[240];
    if (bt_train_result_says(r->result_json, "trouble", trouble_text, sizeof trouble_text)) {
        *status = 1;
        return bt_fail(err, BT_IO,
                       "the run is %s, but its last checkpoint could not be written: %s", state,
                       trouble_text);
    }
    if (r->end.kind == BT_END_DONE || r->end.kind == BT_END_STOPPED_NOW) return BT_OK;
    char told[640];
    bt_end_tell(&r->end, told, sizeof told);
    bt_code code = r->end.kind == BT_END_ERROR && r->end.code != BT_OK ? r->end.code
                   : *status == 4                                      ? BT_BUSY
                                                                       : BT_IO;
    if (r->end.kind == BT_END_ERROR) {
        bt_fail(err, code, "%s%s%s", r->end.message, r->restarts ? "; no further restart: " : "",
                r->restarts ? r->why_not_again : "");
        err->rank = r->end.rank;
        return code;
    }
    return bt_fail(err, code, "%.400s; no restart: %s (see '%.200s/log.txt')", told,
                   r->why_not_again, p->out);
}

static void copy_aside(const void *store) {
    bt_err why = BT_ERR_INIT;
    /* nobody listens; the next run tries again */
    if (bt_store_backup(store, &why) != BT_OK) return;
}

/* one file holds all runs: its loss would be the loss of them all. A copy of 16 MiB takes some 20
 * ms; a larger one does not hold up the prompt */
static void back_up(const bt_train_plan *p) {
    struct stat st;
    bt_err why = BT_ERR_INIT;
    if (stat(p->store, &st) == 0 && st.st_size > 16 << 20 && bt_job_aside(copy_aside, p->store))
        return;
    if (bt_store_backup(p->store, &why) != BT_OK) bt_log(BT_LOG_INFO, "%s", why.msg);
}

static bt_code supervise(bt_train_plan *p, int *status, bt_err *err) {
    char program[PATH_MAX], host[BT_HOST_MAX], user[64];
    bt_writer *writer = NULL;
    bt_live *live = NULL;
    bt_job_result result = {0};
    bt_job_setup s = {.program = program,
                      .run = p->run,
                      .out_dir = p->out,
                      .ranks = p->ranks,
                      .hosts = p->cfg.hosts,
                      .mpirun_args = p->cfg.mpirun_args,
                      .max_restarts = p->cfg.max_restarts,
                      .hang_s = p->cfg.hang_s,
                      .hot_spare = p->cfg.hot_spare,
                      .lr = p->cfg.lr,
                      .from = p->from,
                      .resume_point = resume_point,
                      .fence = fence,
                      .resume_ctx = p,
                      .alert = {&p->alerts, p->cfg.alert_command, p->cfg.alert_webhook, p->curl}};
    BT_TRY(own_path(program, sizeof program, err));
    bt_job_block_signals();
    bt_train_layouts *layouts = calloc(1, sizeof *layouts);
    bt_code code = layouts ? bt_train_layouts_open(layouts, p, err)
                           : bt_fail(err, BT_NOMEM, "no memory for the settings");
    if (code == BT_OK) {
        s.words = layouts->ranks.words;
        s.n_words = layouts->ranks.n;
    }
    s.layout = bt_train_layout;
    s.layout_ctx = layouts;
    s.elastic_min = p->elastic.min;
    s.elastic_max = p->elastic.max;
    bt_text greeting;
    bt_text_init(&greeting);
    bt_train_greeting(p, &greeting);
    bt_train_fill_start(p, &s.start, host, user);
    if (code == BT_OK) code = bt_train_inputs(p, NULL, err);
    if (code == BT_OK) code = bt_ckpt_prepare(p->out, !p->resume && !p->from.dir[0], err);
    if (code == BT_OK) code = bt_train_lock(p, err);
    s.run_lock = p->run_lock;
    if (code == BT_OK && !p->cfg.no_monitor) {
        code = bt_writer_open(&writer, p->store, 10, err);
        if (code == BT_OK && p->resume) bt_train_recover(p, writer);
        if (code == BT_OK) code = bt_writer_begin(writer, &s.start, &s.attempt, err);
        if (code == BT_OK) bt_train_record_layout(p, bt_writer_sink(writer));
    }
    if (code == BT_OK) bt_train_record_passed(p, writer ? bt_writer_sink(writer) : NULL);
    s.writer = writer;
    char port[16];
    snprintf(port, sizeof port, "%" PRId64, p->cfg.port);
    const char *const viewer[] = {program,  "dash", "--store",   p->store,
                                  "--port", port,   "--control", NULL};
    if (p->cfg.dash) s.viewer = viewer;
    if (code == BT_OK)
        code = bt_live_open(&live, p->cfg.steps, bt_text_str(&greeting),
                            p->cfg.quiet || p->cfg.json, err);
    if (code == BT_OK) {
        s.ui = bt_live_ui(live);
        bt_live_bell(live, p->cfg.alert_bell);
        code = bt_job_run(&s, &result, err);
        bt_live_finish(live);
        if (code == BT_OK)
            code = finish(p, writer, &result, s.attempt + result.restarts + result.resizes, status,
                          err);
        else if (writer) {
            bt_err ignored = BT_ERR_INIT;
            if (bt_writer_end(writer, "failed", err->msg, bt_exit_code(code), &ignored) != BT_OK)
                bt_log(BT_LOG_WARN, "%s", ignored.msg);
            bt_train_withdraw(p, writer);
        }
    }
    bt_live_close(live);
    bt_text_release(&greeting);
    bt_writer_close(writer);
    if (writer) back_up(p);
    bt_job_result_release(&result);
    if (layouts) bt_train_layouts_close(layouts);
    free(layouts);
    return code;
}

/* ---- command --------------------------------------------------------------------------------- */

bool bt_train_only_prints(const bt_train_plan *p) { return p->cfg.print_config || p->cfg.dry_run; }

bt_code bt_train_print_plan(const bt_train_plan *p, bt_err *err) {
    return p->cfg.print_config ? bt_print_config(&p->opts, p->cfg.json, stdout, err)
                               : bt_train_dry_run(p, err);
}

static bt_code run(int argc, char **argv, int *exit_status, bt_err *err) {
    bool help = false;
    bt_train_plan *p = calloc(1, sizeof *p);
    if (!p) return bt_fail(err, BT_NOMEM, "no memory for the settings");
    p->run_lock = -1;
    bt_code code;
    if (bt_comm_am_rank())
        code = bt_train_direct(p, argc, argv, exit_status, err);
    else {
        code = bt_train_make_plan(p, argc, argv, 0, &help, err);
        if (code == BT_OK && p->complete)
            bt_train_tell_complete(p);
        else if (code == BT_OK)
            code = bt_train_only_prints(p) ? bt_train_print_plan(p, err)
                   : p->cfg.detach         ? bt_train_detach(p, argc, argv, err)
                                           : supervise(p, exit_status, err);
    }
    bt_train_plan_release(p);
    free(p);
    return code;
}

static const bt_opt *options(size_t *n) {
    *n = bt_run_opts_n;
    return bt_run_opts;
}

const bt_command bt_cmd_train = {
    .ranked = true,
    .name = "train",
    .summary = "train a model, or go on with a run",
    .args = "[CONFIG.yaml]",
    .examples =
        "bitrain train # the built-in text and the nano preset on "
        "this machine\n"
        "bitrain train --preset small --data books/ --ranks 4 --steps 2000\n"
        "bitrain train conf.yaml --set optim.lr=2e-4 --name abl-3\n"
        "bitrain train --preset small --ranks 4 --layout auto # the layout that 'bitrain plan' "
        "ranks "
        "first\n"
        "bitrain train --resume last\n"
        "bitrain train conf.yaml --print-config # every setting and where it came from\n"
        "bitrain train conf.yaml --dry-run # memory, layout and time; trains nothing\n",
    .options = options,
    .run = run,
    .reports = true,
};
