/* train_direct.c - training without a supervisor: the sink of rank 0 writes to the database. */
#include "cli/train/train_direct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/signals.h"
#include "cli/train/direct_watch.h"
#include "cli/train/live_line.h"
#include "cli/train/rank/rank_run.h"
#include "engine/base/log.h"
#include "engine/ckpt/ckpt.h"
#include "engine/parallel/mpi/comm.h"

static bt_request_box box;

/* Combines the screen and the database of rank 0 in one sink. */
typedef struct both {
    const bt_sink *store, *screen;
    bt_sink sink;
} both;

static void forward_step(void *ctx, const bt_step_record *r) {
    const both *b = ctx;
    if (b->store) b->store->step(b->store->ctx, r);
    b->screen->step(b->screen->ctx, r);
}
static void record_direct_event(void *ctx, const bt_event *e) {
    const both *b = ctx;
    if (b->store) b->store->event(b->store->ctx, e);
    b->screen->event(b->screen->ctx, e);
}
static void forward_ranks(void *ctx, const bt_rank_info *r, size_t n) {
    const both *b = ctx;
    if (b->store) b->store->ranks(b->store->ctx, r, n);
}
static void forward_fact(void *ctx, const char *key, const char *value) {
    const both *b = ctx;
    if (b->store) b->store->fact(b->store->ctx, key, value);
}
static void forward_rows(void *ctx, const bt_row_record *r) {
    const both *b = ctx;
    if (b->store) b->store->rows(b->store->ctx, r);
}
static void forward_checkpoint(void *ctx, const bt_ckpt_record *c) {
    const both *b = ctx;
    if (b->store) b->store->checkpoint(b->store->ctx, c);
}

/* Decisions of rank 0 that it sends to every rank. */
typedef struct decided {
    char run[BT_NAME_MAX], out[PATH_MAX], resume_dir[PATH_MAX];
    int attempt, fence;
} decided;

typedef struct head {
    bt_writer *writer;
    bt_live *live;
    both sinks;
} head; /* used on rank 0 only */

static bt_code begin_head_of_job(bt_train_plan *p, head *h, decided *d, bt_err *err) {
    char host[BT_HOST_MAX], user[64];
    bt_run_start start;
    BT_TRY(bt_train_corpus(p, err));
    BT_TRY(bt_train_lock(p, err));
    bt_train_fill_start(p, &start, host, user);
    if (!p->cfg.run.no_monitor) {
        BT_TRY(bt_writer_open(&h->writer, p->store, 10, err));
        if (p->resume) bt_train_recover(p, h->writer);
        BT_TRY(bt_writer_begin(h->writer, &start, &d->attempt, err));
        p->out_made[0] = '\0';
        char ring[PATH_MAX + 32];
        bt_err why = BT_ERR_INIT;
        snprintf(ring, sizeof ring, "%s/%s", p->out, BT_RING_FILE);
        if (bt_writer_keep(h->writer, ring, d->attempt, &why) != BT_OK)
            bt_log(BT_LOG_WARN, "the newest records would be lost in a crash: %s", why.msg);
    }
    bt_text greeting;
    bt_text_init(&greeting);
    bt_train_greeting(p, &greeting);
    bt_code code = bt_live_open(&h->live, p->cfg.train.steps, bt_text_str(&greeting),
                                p->cfg.run.quiet || p->cfg.run.json, err);
    bt_text_release(&greeting);
    BT_TRY(code);
    p->out_made[0] = '\0';
    h->sinks = (both){.store = h->writer ? bt_writer_sink(h->writer) : NULL,
                      .screen = bt_live_sink(h->live),
                      .sink = {.ctx = &h->sinks,
                               .ranks = forward_ranks,
                               .fact = forward_fact,
                               .step = forward_step,
                               .rows = forward_rows,
                               .event = record_direct_event,
                               .checkpoint = forward_checkpoint}};
    bt_train_record_passed(p, h->sinks.store);
    d->fence = bt_ckpt_next_attempt(p->out, d->attempt);
    snprintf(d->run, sizeof d->run, "%s", p->run);
    snprintf(d->out, sizeof d->out, "%s", p->out);
    snprintf(d->resume_dir, sizeof d->resume_dir, "%s", p->from.dir);
    return BT_OK;
}

static bt_code end_head_of_job(const bt_train_plan *p, head *h, int attempt, bt_code code,
                               const bt_train_result *r, const bt_text *sample, int *status,
                               bt_err *err) {
    bt_err trouble = BT_ERR_INIT;
    const char *state = code != BT_OK ? "failed" : r->stopped ? "stopped" : "done";
    if (code == BT_OK && r->stopped && bt_signals_seen()) *status = 128 + bt_signals_seen();
    if (h->live) bt_live_finish(h->live);
    if (h->writer && code != BT_OK) {
        const bt_event e = {
            .kind = BT_EVENT_FAILURE, .step = r->steps - 1, .rank = err->rank, .title = err->msg};
        bt_writer_sink(h->writer)->event(bt_writer_sink(h->writer)->ctx, &e);
    }
    char early[160];
    snprintf(early, sizeof early, "early, after %s", r->early);
    if (h->writer && bt_writer_end(h->writer, state, r->early[0] ? early : state,
                                   code == BT_OK && *status >= 0 ? *status : bt_exit_code(code),
                                   &trouble) != BT_OK)
        bt_log(BT_LOG_WARN, "%s", trouble.msg);
    bt_train_withdraw(p, h->writer);
    if (code == BT_OK) {
        bt_text text;
        bt_text_init(&text);
        bt_result_text(&text, r, sample);
        bt_train_summary(p, state, attempt, bt_text_str(&text));
        bt_text_release(&text);
    }
    bt_live_close(h->live);
    bt_writer_close(h->writer);
    return code;
}

bt_code bt_train_direct(bt_train_plan *p, int argc, char **argv, int *status, bt_err *err) {
    bool help = false;
    head h;
    decided d;
    bt_train_result result;
    bt_text sample;
    memset(&h, 0, sizeof h);
    memset(&d, 0, sizeof d);
    memset(&result, 0, sizeof result);
    bt_text_init(&sample);
    bt_signals_rank(&box, 1);
    BT_TRY(bt_comm_init(err));
    bt_comm *world = bt_comm_world();
    const bool first = bt_comm_rank(world) == 0;
    bt_code code = bt_train_make_plan(p, argc, argv, bt_comm_size(world), &help, err);
    code = bt_agree(world, code, err);
    if (code == BT_OK) code = bt_broadcast(world, &p->complete, sizeof p->complete, 0, err);
    if (code == BT_OK && p->complete) {
        if (first) bt_train_print_complete(p);
        bt_comm_finalize();
        return BT_OK;
    }
    if (code == BT_OK) code = bt_agree_settings(world, &p->cfg, err);
    if (code == BT_OK && bt_train_only_prints(p)) {
        code = bt_agree(world, first ? bt_train_print_plan(p, err) : BT_OK, err);
        bt_comm_finalize();
        return code;
    }
    if (code == BT_OK && first) code = begin_head_of_job(p, &h, &d, err);
    code = bt_agree(world, code, err);
    if (code == BT_OK) code = bt_broadcast(world, &d, sizeof d, 0, err);
    /* Rank 0 determines a generated name and the folder that follows from it. */
    if (code == BT_OK) {
        memcpy(p->run, d.run, sizeof d.run);
        code = bt_opts_set(&p->opts, "run.name", d.run, BT_FROM_FLAG, "rank 0", err);
        if (code == BT_OK)
            code = bt_opts_set(&p->opts, "run.out", d.out, BT_FROM_FLAG, "rank 0", err);
        code = bt_agree(world, code, err);
    }
    if (code == BT_OK) code = bt_rank_prepare(&p->cfg, p->isa.isa, err);
    bt_direct_watch *watch = NULL;
    if (code == BT_OK) {
        code = bt_direct_watch_open(&watch, p->run, h.writer, err);
        code = bt_agree(world, code, err);
    }
    bool in_step = false;
    if (code == BT_OK) {
        const bt_rank_run r = {.cfg = &p->cfg,
                               .isa = &p->isa,
                               .sink = first ? &h.sinks.sink : NULL,
                               .requests = &box,
                               .resume_dir = d.resume_dir,
                               .attempt = d.fence,
                               .number = d.attempt};
        code = bt_rank_train(&r, &result, p->cfg.run.quiet ? NULL : &sample, &in_step, err);
    }
    bt_direct_watch_close(watch);
    if (first) code = end_head_of_job(p, &h, d.attempt, code, &result, &sample, status, err);
    bt_text_release(&sample);
    if (code != BT_OK) {
        /* Prints the error before MPI ends, because mpirun may kill a rank as soon as another one has exited with an
         * error. */
        const int me = bt_comm_rank(world);
        if (err->rank == me || (err->rank < 0 && (in_step || me == 0)))
            fprintf(stderr, "bitrain train: rank %d: %s\n", me, err->msg);
        *status = bt_exit_code(code);
        bt_train_unmake_out(p); /* this process may end in the next call */
        bt_rank_leave(in_step, err, *status);
        code = BT_STOPPED;
    }
    bt_comm_finalize();
    return code;
}
