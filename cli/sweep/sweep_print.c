/* sweep_print.c - prints a sweep as text and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/printout/printout.h"
#include "cli/sweep/sweep.h"

static const char *const methods[] = {"grid", "random", "halving", "find-lr"};

/* Returns the indices of the runs, the best first. */
static size_t *sort_runs_best_first(const bt_sweep_plan *p) {
    size_t *order = calloc(p->n + 1, sizeof *order);
    for (size_t i = 0; order && i < p->n; i++) {
        size_t k = i;
        const bt_sweep_run *r = &p->runs[i];
        /* every eliminated run follows all other runs */
        while (k > 0 && (p->runs[order[k - 1]].run.left_out != r->run.left_out
                             ? p->runs[order[k - 1]].run.left_out
                             : bt_sweep_better(p, r, &p->runs[order[k - 1]]))) {
            order[k] = order[k - 1];
            k--;
        }
        order[k] = i;
    }
    return order;
}

static const char *shown_run_state(const bt_sweep_run *r) {
    if (r->run.at == BT_TRAINING_FAILED) return "failed";
    if (r->run.left_out) return "left behind";
    return r->run.state[0] ? r->run.state : "not begun";
}

void bt_sweep_print_plan(const bt_sweep_plan *p) {
    const bt_sweep_head *h = &p->file->head;
    printf("sweep %s: %zu runs, %s over", h->name, p->n, methods[h->method]);
    for (size_t i = 0; i < p->file->n_axes; i++)
        printf("%s %s", i ? "," : "", p->file->axes[i].opt->key);
    printf("; %" PRId64 " steps in all, %d run%s at a time\n", p->all_steps, p->parallel,
           p->parallel == 1 ? "" : "s");
    if (p->slurm)
        printf("  each a step of Slurm job %s: %d node%s, %d processor%s a run\n", p->slurm->job,
               p->slurm->n_nodes, p->slurm->n_nodes == 1 ? "" : "s", p->run_cores,
               p->run_cores == 1 ? "" : "s");
    if (p->left_out)
        printf("%zu points of the space are omitted: the budget is too small for them\n",
               p->left_out);
    for (int k = 0; k + 1 < p->n_rungs; k++)
        printf("  after %" PRId64 " steps the best %zu of %zu continue\n", p->rungs[k],
               bt_sweep_survivors(p, k + 1), bt_sweep_survivors(p, k));
    printf("  folder %s, database %s\n", p->out, p->store);
}

static void put_sweep_run(bt_printout *o, const bt_sweep_plan *p, const bt_sweep_run *r,
                          const char *goal) {
    bt_printout_row(o);
    bt_printout_str(o, "run", "RUN", r->run.name);
    bt_printout_str(o, "state", NULL, shown_run_state(r));
    bt_printout_int(o, "steps", NULL, r->run.done);
    for (size_t k = 0; k < p->file->n_axes; k++)
        bt_printout_str(o, NULL, p->file->axes[k].opt->key, r->values[k]);
    bt_printout_numf(o, "value", goal, r->run.state[0] ? r->level.value : NAN, 1, "%.6g");
    bt_printout_int(o, NULL, "STEPS", r->run.done);
    bt_printout_str(o, NULL, "STATE", shown_run_state(r));
    bt_printout_object(o, "settings");
    for (size_t k = 0; k < p->file->n_axes; k++)
        bt_printout_str(o, p->file->axes[k].opt->key, NULL, r->values[k]);
    if (o->json) bt_json_end(&o->j, '}');
    bt_printout_end(o);
}

bt_code bt_sweep_print_results(const bt_sweep_plan *p, bool json, bool ended, bt_err *err) {
    bt_printout o;
    size_t *order = sort_runs_best_first(p);
    const char *goal = p->file->head.goal;
    if (!order) return bt_fail(err, BT_NOMEM, "no memory for the results");
    bt_printout_begin(&o, json);
    bt_printout_version(&o);
    bt_printout_str(&o, "group", NULL, p->file->head.name);
    bt_printout_str(&o, "method", NULL, methods[p->file->head.method]);
    bt_printout_str(&o, "goal", NULL, goal);
    bt_printout_str(&o, "folder", NULL, p->out);
    bt_printout_int(&o, "steps", NULL, p->all_steps);
    bt_printout_int(&o, "left_out", NULL, (int64_t)p->left_out);
    bt_printout_bool(&o, "ended", ended);
    if (json) bt_json_ints(&o.j, "rungs", p->rungs, (size_t)p->n_rungs);
    bt_printout_rows(&o, "runs");
    for (size_t i = 0; i < p->n; i++)
        put_sweep_run(&o, p, &p->runs[order[i]],
                      strcmp(goal, "loss") == 0 ? "loss, mean of 20" : goal);
    bt_printout_rows_end(&o, "");
    free(order);
    return bt_printout_print(&o, err);
}
