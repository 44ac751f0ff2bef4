/* cmd_train.c - trains or resumes: settings, the run's record, and the supervisor; or a rank itself, if another
 * mpirun started it. */
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
#include "cli/train/rank/rank_run.h"
#include "cli/train/train_direct.h"
#include "cli/train/train_ensemble.h"
#include "cli/train/train_parts.h"
#include "engine/base/log.h"
#include "engine/base/system/start_process.h"
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

static bt_code resume_point(void *ctx, const char *memory, bt_resume_point *at, bt_text *why,
                            bt_err *err) {
    const char *out = ((const bt_train_plan *)ctx)->out;
    if (bt_train_in_memory(out, memory, at)) return BT_OK;
    return bt_train_newest(out, at, NULL, why, err);
}

static int choose_attempt_fence(void *ctx, int attempt) {
    return bt_ckpt_next_attempt(((const bt_train_plan *)ctx)->out, attempt);
}

/* Returns the final state of the run and sets its exit status. A run that was stopped after its last step is done:
 * the ranks report whether steps remain. */
static const char *final_run_state(const bt_job_result *r, int *status) {
    if (r->end.kind == BT_END_DONE) {
        const bool stopped = r->result_json
                                 ? bt_train_result_get(r->result_json, "stopped", NULL, 0)
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

static bt_code finish_training_record(bt_train_plan *p, bt_writer *writer, const bt_job_result *r,
                                      int attempt, int *status, bt_err *err) {
    const char *state = final_run_state(r, status);
    bt_err trouble = BT_ERR_INIT;
    const bool asked = r->stopped && strcmp(state, "stopped") == 0;
    char early[160];
    const char *why = asked ? "stopped"
                      : bt_train_early(r->result_json, early, sizeof early)
                          ? early
                          : bt_end_name(r->end.kind);
    if (writer && bt_writer_end(writer, state, why, *status, &trouble) != BT_OK)
        fprintf(stderr, "warning: metrics: %s\n", trouble.msg);
    bt_train_withdraw(p, writer);
    bt_train_summary(p, state, attempt, r->result_json);
    char trouble_text[240];
    if (bt_train_result_get(r->result_json, "trouble", trouble_text, sizeof trouble_text)) {
        *status = 1;
        return bt_fail(err, BT_IO,
                       "the run is %s, but its last checkpoint could not be written: %s", state,
                       trouble_text);
    }
    if (r->end.kind == BT_END_DONE || r->end.kind == BT_END_STOPPED_NOW) return BT_OK;
    char told[640];
    bt_end_describe(&r->end, told, sizeof told);
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

static void copy_database_aside(const void *store) {
    bt_err why = BT_ERR_INIT;
    /* a failure is not reported, because the next run tries again */
    if (bt_store_backup(store, &why) != BT_OK) return;
}

/* One backup contains all runs, because a loss of the file would affect all. Copying 16 MiB takes about 20 ms; a
 * larger file must not delay the prompt. */
static void back_up_database(const bt_train_plan *p) {
    struct stat st;
    bt_err why = BT_ERR_INIT;
    if (stat(p->store, &st) == 0 && st.st_size > 16 << 20 &&
        bt_job_aside(copy_database_aside, p->store))
        return;
    if (bt_store_backup(p->store, &why) != BT_OK) bt_log(BT_LOG_INFO, "%s", why.msg);
}

static bt_code supervise_run(bt_train_plan *p, int *status, bt_err *err) {
    char program[PATH_MAX], host[BT_HOST_MAX], user[64];
    bt_writer *writer = NULL;
    bt_live *live = NULL;
    bt_job_result result = {0};
    bt_job_setup s = {.program = program,
                      .run = p->run,
                      .out_dir = p->out,
                      .ranks = p->ranks,
                      .hosts = p->cfg.launch.hosts,
                      .mpirun_args = p->cfg.launch.mpirun_args,
                      .max_restarts = p->cfg.launch.max_restarts,
                      .hang_s = p->cfg.launch.hang_s,
                      .hot_spare = p->cfg.launch.hot_spare,
                      .lr = p->cfg.optim.lr,
                      .from = p->from,
                      .resume_point = resume_point,
                      .fence = choose_attempt_fence,
                      .resume_ctx = p,
                      .alert = {&p->alerts, p->cfg.alert.command, p->cfg.alert.webhook, p->curl}};
    BT_TRY(bt_own_program(program, sizeof program, err));
    bt_job_block_signals();
    bt_train_layouts *layouts = calloc(1, sizeof *layouts);
    bt_code code = layouts ? bt_train_layouts_open(layouts, p, err)
                           : bt_fail(err, BT_NOMEM, "no memory for the settings");
    if (code == BT_OK) s.settings = bt_text_str(&layouts->settings);
    s.layout = bt_train_layout;
    s.layout_ctx = layouts;
    s.elastic_min = p->elastic.min;
    s.elastic_max = p->elastic.max;
    bt_text greeting;
    bt_text_init(&greeting);
    bt_train_greeting(p, &greeting);
    bt_train_fill_start(p, &s.start, host, user);
    if (code == BT_OK) code = bt_train_inputs(p, NULL, err);
    if (code == BT_OK) code = bt_train_lock(p, err);
    s.run_lock = p->run_lock;
    if (code == BT_OK && !p->cfg.run.no_monitor) {
        code = bt_writer_open(&writer, p->store, 10, err);
        if (code == BT_OK && p->resume) bt_train_recover(p, writer);
        if (code == BT_OK) code = bt_writer_begin(writer, &s.start, &s.attempt, err);
        if (code == BT_OK) bt_train_record_layout(p, bt_writer_sink(writer));
    }
    if (code == BT_OK) p->out_made[0] = '\0';
    if (code == BT_OK) bt_train_record_passed(p, writer ? bt_writer_sink(writer) : NULL);
    s.writer = writer;
    char port[16];
    snprintf(port, sizeof port, "%" PRId64, p->cfg.run.port);
    const char *const viewer[] = {program,  "dash", "--store",   p->store,
                                  "--port", port,   "--control", NULL};
    if (p->cfg.run.dash) s.viewer = viewer;
    if (code == BT_OK)
        code = bt_live_open(&live, p->cfg.train.steps, bt_text_str(&greeting),
                            p->cfg.run.quiet || p->cfg.run.json, err);
    if (code == BT_OK) {
        s.ui = bt_live_ui(live);
        bt_live_bell(live, p->cfg.alert.bell);
        code = bt_job_run(&s, &result, err);
        bt_live_finish(live);
        if (code == BT_OK)
            code = finish_training_record(
                p, writer, &result, s.attempt + result.restarts + result.resizes, status, err);
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
    if (writer) back_up_database(p);
    bt_job_result_release(&result);
    if (layouts) bt_train_layouts_close(layouts);
    free(layouts);
    return code;
}

static bt_code run_training_command(int argc, char **argv, int *exit_status, bt_err *err) {
    bool help = false;
    bt_train_plan *p = calloc(1, sizeof *p);
    if (!p) return bt_fail(err, BT_NOMEM, "no memory for the settings");
    p->run_lock = -1;
    bt_code code;
    if (bt_comm_am_rank())
        code = bt_train_direct(p, argc, argv, exit_status, err);
    else {
        code = bt_train_make_plan(p, argc, argv, 0, &help, err);
        const bool ensemble = code == BT_OK && bt_train_is_ensemble(p);
        if (ensemble) code = bt_train_ensemble_check(p, err);
        if (code == BT_OK && p->complete)
            bt_train_print_complete(p);
        else if (code == BT_OK)
            code = bt_train_only_prints(p) ? bt_train_print_plan(p, err)
                   : ensemble              ? bt_train_ensemble(p, exit_status, err)
                   : p->cfg.run.detach     ? bt_train_detach(p, argc, argv, err)
                                           : supervise_run(p, exit_status, err);
        if (code == BT_OK && ensemble && p->cfg.run.dry_run && !p->cfg.run.json)
            bt_train_ensemble_print_plan(p);
    }
    bt_train_plan_release(p);
    free(p);
    return code;
}

const bt_command bt_cmd_train = {
    .ranked = true,
    .name = "train",
    .summary = "train a model, or continue a run",
    .args = "[CONFIG.yaml]",
    .examples =
        "bitrain train # the built-in text and the nano preset on "
        "this machine\n"
        "bitrain train --preset small --data books/ --ranks 4 --steps 2000\n"
        "bitrain train conf.yaml --set optim.lr=2e-4 --name abl-3\n"
        "bitrain train --preset small --ranks 4 --layout auto # the layout that 'bitrain plan' "
        "ranks "
        "first\n"
        "bitrain train --data notes.txt --name notes --ensemble 4 --distill # four models, then "
        "one "
        "from their mean\n"
        "bitrain train --resume last\n"
        "bitrain train conf.yaml --print-config # every setting and its origin\n"
        "bitrain train conf.yaml --dry-run # memory, layout and time; trains nothing\n",
    .options = {.rows = bt_run_opts},
    .run_argv = run_training_command,
    .reports = true,
};
