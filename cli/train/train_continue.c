/* train_continue.c - `--continue`: starts a run, or resumes it if it exists, for batch systems and services that
 * repeat a command. */
#include <stdio.h>
#include <string.h>

#include "cli/train/train_parts.h"
#include "engine/ckpt/ckpt.h"

/* Sets *is if the store has a run of exactly this name (not a prefix) that recorded a step. A run without steps
 * failed at its start and begins again with the settings of this command. */
static bt_code find_recorded_run(const bt_train_plan *p, bool *is, bt_err *err) {
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    char name[BT_NAME_MAX] = "";
    double steps = 0;
    *is = false;
    bt_code code = bt_db_open(&db, p->store, &why);
    if (code == BT_OK) code = bt_db_run(db, p->cfg.run.name, name, &why);
    if (code == BT_OK)
        code = bt_db_value(db, "SELECT EXISTS (SELECT 1 FROM steps WHERE run = ?1)", name, &steps,
                           &why);
    bt_db_close(db);
    *is = code == BT_OK && strcmp(name, p->cfg.run.name) == 0 && steps > 0;
    if (code == BT_OK || code == BT_NOTFOUND) return BT_OK;
    if (err) *err = why;
    return code;
}

bt_code bt_train_continue(bt_train_plan *p, bt_err *err) {
    bool known;
    char out[PATH_MAX];
    if (p->cfg.run.resume[0])
        return bt_fail(err, BT_ARG,
                       "--continue chooses between a new run and --resume: give only one of them");
    if (!p->cfg.run.name[0])
        return bt_fail(err, BT_ARG, "--continue needs --name: the run to continue or to start");
    BT_TRY(find_recorded_run(p, &known, err));
    if (known) {
        snprintf(p->cfg.run.resume, sizeof p->cfg.run.resume, "%s", p->cfg.run.name);
        return bt_train_resume(p, err);
    }
    snprintf(p->run, sizeof p->run, "%s", p->cfg.run.name);
    BT_TRY(bt_train_out(p, p->run, out, err));
    bt_code code = bt_ckpt_check(out, true, err);
    if (code != BT_BUSY) return code;
    /* There are checkpoints without a record: the store was lost, or is another one than before. */
    if ((size_t)snprintf(p->cfg.run.resume, sizeof p->cfg.run.resume, "%s", out) >=
        sizeof p->cfg.run.resume)
        return bt_fail(err, BT_ARG, "folder '%.200s' is too long", out);
    return bt_train_resume(p, err);
}

void bt_train_print_complete(const bt_train_plan *p) {
    if (p->cfg.run.json) {
        bt_text out;
        bt_json j;
        bt_text_init(&out);
        bt_json_begin(&j, &out);
        bt_json_object(&j, NULL);
        bt_json_str(&j, "run", p->run);
        bt_json_str(&j, "state", "done");
        bt_json_int(&j, "steps", p->from.step);
        bt_json_end(&j, '}');
        puts(bt_text_str(&out));
        bt_text_release(&out);
    } else if (p->from.step < p->cfg.train.steps)
        printf("run %s ended early after step %lld of %lld (train.stop_when)\n", p->run,
               (long long)p->from.step, (long long)p->cfg.train.steps);
    else
        printf("run %s has done its %lld steps already\n", p->run, (long long)p->cfg.train.steps);
}
