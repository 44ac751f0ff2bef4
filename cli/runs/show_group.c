/* show_group.c - prints one line for each run of a group. */
#include "cli/runs/show_group.h"

#include <math.h>
#include <string.h>

#include "cli/common/database.h"
#include "cli/common/printout/printout.h"

typedef struct shown_group {
    bt_printout *o;
    int64_t runs, finished;
    double bits, members; /* of the ensemble, from the newest run with this fact; NaN: none */
} shown_group;

static bool put_group_run(void *ctx, const bt_row *row) {
    shown_group *g = ctx;
    bt_printout *o = g->o;
    const char *state = bt_cli_cell(row, "state");
    const double best = bt_cli_num(row, "best_val_step");
    g->runs++;
    g->finished += strcmp(state, "done") == 0;
    if (isfinite(bt_cli_num(row, "bits"))) {
        g->bits = bt_cli_num(row, "bits");
        g->members = bt_cli_num(row, "members");
    }
    bt_printout_row(o);
    bt_printout_str(o, "run", "RUN", bt_cli_cell(row, "run"));
    bt_printout_str(o, "state", "STATE", state);
    bt_printout_int(o, "steps", "STEPS", (int64_t)bt_cli_num(row, "steps"));
    bt_printout_str(o, "seed", "SEED", bt_cli_cell(row, "seed"));
    bt_printout_num(o, "loss", "LOSS", bt_cli_num(row, "loss"), BT_UNIT_NATS);
    bt_printout_num(o, "best_val", "BEST VAL", bt_cli_num(row, "best_val"), BT_UNIT_NATS);
    bt_printout_num(o, "best_val_step", "AT STEP", isfinite(best) ? best + 1 : NAN, BT_UNIT_COUNT);
    bt_printout_end(o);
    return true;
}

bt_code bt_show_group(bt_db *db, const char *group, bool json, bool *found, bt_err *err) {
    bt_printout o;
    shown_group g = {.o = &o, .bits = NAN, .members = NAN};
    bt_printout_begin(&o, json);
    bt_printout_version(&o);
    bt_printout_str(&o, "group", NULL, group);
    bt_printout_line(&o, "group %s\n", group);
    bt_printout_rows(&o, "runs");
    bt_code code = bt_db_query(
        db,
        &(bt_query){
            .sql = "SELECT run, state, steps, loss, best_val, best_val_step, bt_setting(config, "
                   "'run.seed') AS seed, "
                   "(SELECT CAST(value AS REAL) FROM facts f WHERE f.run = runs.run AND f.key = "
                   "'ensemble.bits_per_byte') AS bits, "
                   "(SELECT CAST(value AS REAL) FROM facts f WHERE f.run = runs.run AND f.key = "
                   "'ensemble.members') AS members "
                   "FROM runs WHERE bt_setting(config, 'run.group') = ?1 ORDER BY run",
            .params = &group,
            .n_params = 1},
        put_group_run, &g, err);
    bt_printout_rows_end(&o, "  ");
    bt_printout_int(&o, "finished", NULL, g.finished);
    bt_printout_num(&o, "ensemble_members", NULL, g.members, BT_UNIT_COUNT);
    bt_printout_num(&o, "ensemble_bits_per_byte", NULL, g.bits, BT_UNIT_NONE);
    if (isfinite(g.bits))
        bt_printout_line(&o, "  ensemble of %.0f: %.4f bits per byte of held-out text\n", g.members,
                         g.bits);
    else
        bt_printout_line(&o, "  as one model: bitrain eval %s\n", group);
    *found = g.runs > 0;
    if (code == BT_OK && *found) return bt_printout_print(&o, err);
    bt_printout_release(&o);
    return code;
}
