/* sweep_print.c - a sweep for people, and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/database.h"
#include "cli/common/table.h"
#include "cli/sweep/sweep.h"

static const char *const methods[] = {"grid", "random", "halving", "find-lr"};

/* indices of the runs, the best first */
static size_t *ranking(const bt_sweep_plan *p) {
    size_t *order = calloc(p->n + 1, sizeof *order);
    for (size_t i = 0; order && i < p->n; i++) {
        size_t k = i;
        const bt_sweep_run *r = &p->runs[i];
        /* one that went further is before one that was left behind */
        while (k > 0 && (p->runs[order[k - 1]].eliminated != r->eliminated
                             ? p->runs[order[k - 1]].eliminated
                             : bt_sweep_better(p, r, &p->runs[order[k - 1]]))) {
            order[k] = order[k - 1];
            k--;
        }
        order[k] = i;
    }
    return order;
}

static const char *state_word(const bt_sweep_run *r) {
    if (r->at == BT_SWEEP_FAILED) return "failed";
    if (r->eliminated) return "left behind";
    return r->state[0] ? r->state : "not begun";
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
        printf("  %zu points of the space are left out: the budget does not pay for them\n",
               p->left_out);
    for (int k = 0; k + 1 < p->n_rungs; k++)
        printf("  after %" PRId64 " steps the best %zu of %zu go on\n", p->rungs[k],
               bt_sweep_survivors(p, k + 1), bt_sweep_survivors(p, k));
    printf("  folder %s, database %s\n", p->out, p->store);
}

void bt_sweep_print_results(const bt_sweep_plan *p) {
    bt_table t;
    size_t *order = ranking(p);
    if (!order) return;
    bt_table_init(&t);
    bt_table_cell(&t, "RUN");
    for (size_t i = 0; i < p->file->n_axes; i++) bt_table_cell(&t, p->file->axes[i].opt->key);
    if (strcmp(p->file->head.goal, "loss") == 0)
        bt_table_cell(&t, "loss, mean of 20");
    else
        bt_table_cell(&t, p->file->head.goal);
    bt_table_cell(&t, "STEPS");
    bt_table_cell(&t, "STATE");
    bt_table_end_row(&t);
    for (size_t i = 0; i < p->n; i++) {
        const bt_sweep_run *r = &p->runs[order[i]];
        bt_table_cell(&t, r->name);
        for (size_t k = 0; k < p->file->n_axes; k++) bt_table_cell(&t, r->values[k]);
        if (isnan(r->level.value) || !r->state[0])
            bt_table_cell(&t, "-");
        else
            bt_table_cellf(&t, "%.6g", r->level.value);
        bt_table_cellf(&t, "%" PRId64, r->done);
        bt_table_cell(&t, state_word(r));
        bt_table_end_row(&t);
    }
    bt_table_print(&t, stdout, "");
    bt_table_release(&t);
    free(order);
}

bt_code bt_sweep_print_json(const bt_sweep_plan *p, const bt_sweep_work *w, bt_err *err) {
    bt_text out;
    bt_json j;
    size_t *order = ranking(p);
    if (!order) return bt_fail(err, BT_NOMEM, "no memory for the results");
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    bt_json_int(&j, "version", 1);
    bt_json_str(&j, "group", p->file->head.name);
    bt_json_str(&j, "method", methods[p->file->head.method]);
    bt_json_str(&j, "goal", p->file->head.goal);
    bt_json_str(&j, "folder", p->out);
    bt_json_int(&j, "steps", p->all_steps);
    bt_json_int(&j, "left_out", (int64_t)p->left_out);
    bt_json_bool(&j, "ended", !w->signal && !w->out_of_time);
    bt_json_array(&j, "rungs");
    for (int k = 0; k < p->n_rungs; k++) bt_json_int(&j, NULL, p->rungs[k]);
    bt_json_end(&j, ']');
    bt_json_array(&j, "runs");
    for (size_t i = 0; i < p->n; i++) {
        const bt_sweep_run *r = &p->runs[order[i]];
        bt_json_object(&j, NULL);
        bt_json_str(&j, "run", r->name);
        bt_json_str(&j, "state", state_word(r));
        bt_json_int(&j, "steps", r->done);
        bt_json_num(&j, "value", r->state[0] ? r->level.value : NAN);
        bt_json_object(&j, "settings");
        for (size_t k = 0; k < p->file->n_axes; k++)
            bt_json_str(&j, p->file->axes[k].opt->key, r->values[k]);
        bt_json_end(&j, '}');
        bt_json_end(&j, '}');
    }
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    free(order);
    return bt_cli_put(&out, err);
}
