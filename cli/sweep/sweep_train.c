/* sweep_train.c - trains the runs of a sweep as a group, rung by rung. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/sweep/sweep.h"
#include "engine/base/clock.h"
#include "monitor/job/launch/child.h"

static void append_rank_flag(bt_words *w, const char *flag, int value) {
    char number[16];
    snprintf(number, sizeof number, "%d", value);
    bt_words_put(w, flag);
    bt_words_put(w, number);
}

static void append_sweep_words(void *ctx, const bt_training *training, bool continues,
                               bt_words *out) {
    const bt_sweep_plan *p = ctx;
    const bt_sweep_run *r = (const bt_sweep_run *)training;
    if (!continues) {
        bt_words_put(out, "--group");
        bt_words_put(out, p->file->head.name);
        bt_sweep_put_settings(p, r, out);
    }
    if (!p->slurm) return;
    /* not every Slurm binds a step to its processors, from which a run would derive them */
    append_rank_flag(out, "--ranks", r->ranks);
    append_rank_flag(out, "--threads", r->threads);
}

static bt_code print_sweep_run(void *ctx, bt_training *r, bt_err *err) {
    const bt_sweep_plan *p = ctx;
    char point[160], took[32];
    (void)err;
    if (p->group.quiet) return BT_OK;
    fprintf(stderr, "%4zu/%zu  %s  %s  %s  %" PRId64 " steps  %s\n", p->group.n_ended, p->n,
            r->name, bt_sweep_point(p, (const bt_sweep_run *)r, point, sizeof point),
            r->at == BT_TRAINING_FAILED ? "failed"
            : r->target < r->steps      ? "paused"
                                        : "done",
            r->done, bt_duration(took, sizeof took, 1e-9 * (double)(bt_now_ns() - r->began_ns)));
    return BT_OK;
}

/* Selects the best runs to continue; failed runs rank last. */
static bt_code promote_best_runs(bt_sweep_plan *p, int rung, bt_err *err) {
    const size_t keep = bt_sweep_survivors(p, rung + 1);
    for (size_t i = 0; i < p->n; i++)
        if (!p->runs[i].run.left_out)
            BT_TRY(bt_sweep_read_goal(p, &p->runs[i], p->rungs[rung], err));
    bool out[BT_SWEEP_RUNS] = {false};
    for (size_t i = 0; i < p->n; i++) {
        size_t better = 0;
        for (size_t k = 0; k < p->n; k++)
            better += !p->runs[k].run.left_out && k != i &&
                      bt_sweep_better(p, &p->runs[k], &p->runs[i]);
        out[i] = better >= keep;
    }
    for (size_t i = 0; i < p->n; i++) p->runs[i].run.left_out |= out[i];
    return BT_OK;
}

bt_code bt_sweep_train(bt_sweep_plan *p, bt_err *err) {
    bt_training_group *g = &p->group;
    const double hours = p->file->head.budget_hours;
    g->put_words = append_sweep_words;
    g->ended = print_sweep_run;
    g->ctx = p;
    g->deadline_ns = hours > 0 ? bt_now_ns() + (int64_t)(hours * 3600e9) : 0;
    bt_child_signals(true);
    bt_code code = BT_OK;
    const int n = p->n_rungs ? p->n_rungs : 1;
    for (int k = 0; k < n && code == BT_OK; k++) {
        for (size_t i = 0; i < p->n; i++)
            p->runs[i].run.target = p->n_rungs ? p->rungs[k] : p->runs[i].run.steps;
        code = bt_train_group(g, err);
        if (code == BT_OK && k + 1 < n) code = promote_best_runs(p, k, err);
    }
    if (code == BT_OK) code = bt_sweep_choose_goal(p, err);
    for (size_t i = 0; i < p->n && (code == BT_OK || code == BT_STOPPED); i++) {
        bt_err ignored = BT_ERR_INIT;
        if (!p->runs[i].run.left_out &&
            bt_sweep_read_goal(p, &p->runs[i], p->runs[i].run.steps, &ignored) != BT_OK)
            p->runs[i].level.n = 0;
    }
    return code;
}
