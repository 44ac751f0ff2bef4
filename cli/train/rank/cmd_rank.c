/* cmd_rank.c - `bitrain rank`, one rank of a run, which the supervisor starts through mpirun. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/signals.h"
#include "cli/train/rank/rank_run.h"
#include "cli/train/rank/rank_stack.h"
#include "engine/base/log.h"
#include "engine/config/agree/job_agreement.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/train/run_control.h"
#include "monitor/job/health/rank_progress.h"
#include "monitor/job/launch/launch.h"
#include "monitor/job/launch/output.h"
#include "monitor/job/spare_socket.h"
#include "store/wire/wire.h"

static bt_request_box box;

static void take_control_verb(void *ctx, const bt_ctl *c) {
    (void)ctx;
    if (c->verb == BT_VERB_SAMPLE) {
        if (!bt_control_request_sample(&box, c->text ? c->text : ""))
            bt_log(BT_LOG_WARN, "no memory for a prompt: no sample is written");
        return;
    }
    if (c->verb == BT_VERB_MIXTURE) {
        if (!bt_control_request_mixture(&box, c->text ? c->text : ""))
            bt_log(BT_LOG_WARN, "no memory for weights: the mixture does not change");
        return;
    }
    if (c->verb == BT_VERB_LR) {
        uint64_t factor;
        memcpy(&factor, &c->value, sizeof factor);
        atomic_store(&box.lr_factor_bits, factor);
    }
    atomic_fetch_or(&box.bits, UINT32_C(1) << c->verb); /* BT_REQ_PAUSE, ... */
}

/* Without its supervisor the job would have neither restarts nor records, so the ranks save and exit. RESUME ends a
 * pause, which would delay the stop. */
static void stop_without_supervisor(void *ctx) {
    (void)ctx;
    atomic_fetch_or(&box.bits, (uint32_t)(BT_REQ_STOP | BT_REQ_RESUME));
}

typedef struct words {
    const char *wire, *resume_from, *ring, *places, *kept, *memory, *spare;
    int attempt, fence;
} words;

static bt_code composed_error(int argc, char **argv, words *w, bt_err *err) {
    *w = (words){.wire = "",
                 .resume_from = "",
                 .ring = "",
                 .places = "",
                 .kept = "",
                 .memory = "",
                 .spare = ""};
    for (int i = 0; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(name, "--wire") == 0)
            w->wire = value;
        else if (strcmp(name, "--resume-from") == 0)
            w->resume_from = value;
        else if (strcmp(name, "--ring") == 0)
            w->ring = value;
        else if (strcmp(name, "--places") == 0)
            w->places = value;
        else if (strcmp(name, "--kept") == 0)
            w->kept = value;
        else if (strcmp(name, "--memory") == 0)
            w->memory = value;
        else if (strcmp(name, "--spare") == 0)
            w->spare = value;
        else if (strcmp(name, "--attempt") == 0)
            w->attempt = atoi(value);
        else if (strcmp(name, "--fence") == 0)
            w->fence = atoi(value);
        else
            return bt_fail(err, BT_ARG,
                           "unknown word '%s' ('bitrain rank' is started by 'bitrain train')",
                           name);
    }
    if (!bt_comm_am_rank())
        return bt_fail(err, BT_ARG,
                       "this is no MPI job ('bitrain rank' is started by 'bitrain train')");
    return BT_OK;
}

static void send_result(const bt_sink *sink, const bt_train_result *r, const bt_text *sample) {
    bt_text text;
    bt_text_init(&text);
    bt_result_text(&text, r, sample);
    if (!text.failed && sink->result) sink->result(sink->ctx, bt_text_str(&text));
    bt_text_release(&text);
}

static bt_code connect_to_supervisor(const words *w, const bt_run_cfg *cfg, bt_wire **wire,
                                     bt_err *err) {
    if (bt_comm_rank(bt_comm_world()) != 0 || !w->wire[0]) return BT_OK;
    const bt_wire_handlers handlers = {.control = take_control_verb,
                                       .on_lost = stop_without_supervisor};
    bt_code code = bt_wire_connect(wire, w->wire, w->attempt, &handlers, err);
    if (code != BT_OK && cfg->launch.hosts[0])
        code = bt_fail(err, BT_IO,
                       "rank 0 cannot reach 'bitrain train' at '%s': name this host first in "
                       "the host file",
                       w->wire);
    bt_err why = BT_ERR_INIT;
    if (code == BT_OK && w->ring[0] && bt_wire_keep(*wire, w->ring, &why) != BT_OK)
        bt_log(BT_LOG_WARN, "the newest records would be lost in a crash: %s", why.msg);
    return code;
}

typedef struct waiting { /* a rank of a hot spare before it starts */
    const bt_run_cfg *cfg;
    words words;
    bt_spare_go go;
    bt_wire **wire;
} waiting;

static bt_code wait_for_spare_start(void *ctx, bt_trainer_start *start, bt_err *err) {
    waiting *w = ctx;
    bt_code code = bt_spare_wait(w->words.spare, &w->go, err);
    if (code == BT_STOPPED) _exit(0); /* the spare is not needed and has nothing to clean up */
    BT_TRY(code);
    w->words.attempt = w->go.attempt;
    BT_TRY(connect_to_supervisor(&w->words, w->cfg, w->wire, err));
    *start = (bt_trainer_start){.resume_dir = w->go.resume_from,
                                .attempt = w->go.fence,
                                .number = w->go.attempt,
                                .sink = *w->wire && !w->cfg->run.no_monitor ? bt_wire_sink(*w->wire)
                                                                            : NULL};
    return BT_OK;
}

static bt_progress_page *page; /* NULL if there is no progress page */

/* Reads the settings that `bitrain train` resolved for all ranks. A rank sets only the number of its threads, if
 * that depends on its host. */
static bt_code read_resolved_settings(bt_run_cfg *cfg, bt_err *err) {
    const char *texts = getenv(BT_LAUNCH_SETTINGS);
    const int ranks = bt_comm_size(bt_comm_world());
    bt_err why = BT_ERR_INIT;
    if (!texts)
        return bt_fail(err, BT_ARG,
                       "this rank has no settings ('bitrain rank' is started by 'bitrain train')");
    const bt_code code = bt_run_cfg_from_texts(cfg, texts, &why);
    if (code != BT_OK)
        return bt_fail(err, code, "the settings in " BT_LAUNCH_SETTINGS " cannot be read: %s",
                       why.msg);
    if (cfg->launch.ranks != ranks)
        return bt_fail(err, BT_ARG,
                       "launch.ranks is %d but the job was started with %d (remove -np from "
                       "launch.mpirun_args)",
                       (int)cfg->launch.ranks, ranks);
    bt_run_cfg_threads(cfg, ranks);
    return BT_OK;
}

static bt_code train_as_rank(const words *w, bool *in_step, bt_err *err) {
    static bt_run_cfg cfg;
    static bt_isa_agreement isa;
    bt_comm *world = bt_comm_world();
    page = bt_rank_progress_map(w->places, bt_comm_rank(world));
    if (page) {
        bt_progress_enter(page, BT_AT_START, 0);
        bt_traffic_count_in(&page->exchanges);
    }
    BT_TRY(bt_agree_program(world, err));
    BT_TRY(bt_agree(world, read_resolved_settings(&cfg, err), err));
    BT_TRY(bt_agree_isa(world, cfg.launch.isa, &isa, err));
    BT_TRY(bt_rank_prepare(&cfg, isa.isa, err));

    bt_wire *wire = NULL;
    waiting beside = {.cfg = &cfg, .words = *w, .wire = &wire};
    bt_code code = w->spare[0] ? BT_OK : connect_to_supervisor(w, &cfg, &wire, err);
    code = bt_agree(world, code, err);
    if (code == BT_OK) {
        bt_train_result result;
        bt_text sample;
        bt_text_init(&sample);
        bt_rank_stack_on_signal(bt_comm_rank(world));
        const bt_rank_run run = {.cfg = &cfg,
                                 .isa = &isa,
                                 .sink = wire && !cfg.run.no_monitor ? bt_wire_sink(wire) : NULL,
                                 .requests = &box,
                                 .page = page,
                                 .resume_dir = w->resume_from,
                                 .attempt = w->fence,
                                 .number = w->attempt,
                                 .kept_dir = w->kept,
                                 .memory_dir = w->memory,
                                 .wait = w->spare[0] ? wait_for_spare_start : NULL,
                                 .wait_ctx = &beside};
        code = bt_rank_train(&run, &result, cfg.run.quiet ? NULL : &sample, in_step, err);
        if (code == BT_OK && wire) send_result(bt_wire_sink(wire), &result, &sample);
        bt_text_release(&sample);
    }
    bt_wire_close(wire);
    return code;
}

/* Prints the error once, on the lowest rank that has its reason, in the form that the supervisor parses. */
static void report_rank_error(bt_code code, const bt_err *err) {
    const int me = bt_comm_rank(bt_comm_world());
    if (page) atomic_store(&page->failed, 1);
    if (err->rank >= 0 && err->rank != me) return;
    char line[640];
    int n = bt_output_error_line(line, sizeof line, err->rank >= 0 ? err->rank : me, code,
                                 err->msg);
    ssize_t k = write(STDERR_FILENO, line,
                      (size_t)(n < (int)sizeof line ? n : (int)sizeof line - 1));
    (void)k;
}

static bt_code cmd_rank(int argc, char **argv, int *exit_status, bt_err *err) {
    words w;
    bool in_step = false;
    bt_signals_rank(&box, 0);
    BT_TRY(composed_error(argc, argv, &w, err));
    bt_code code = bt_comm_init(err);
    if (code == BT_OK) code = train_as_rank(&w, &in_step, err);
    if (code != BT_OK && code != BT_STOPPED) {
        report_rank_error(code, err);
        *exit_status = bt_exit_code(code);
        bt_rank_leave(in_step, err, *exit_status);
        bt_comm_finalize();
        return BT_OK; /* already printed */
    }
    bt_comm_finalize();
    return BT_OK;
}

const bt_command bt_cmd_rank = {.ranked = true,
                                .name = "rank",
                                .summary = "one MPI rank of a run (started by train)",
                                .args = "",
                                .examples = "",
                                .run_argv = cmd_rank,
                                .hidden = 1};
